//! Sums over the nodes of a tree that only come out right if everybody took part once, and to the bit if in order of node.

use syncline::{Element, Error, ReduceOp, Tree, bf16, f16};

/// What the nodes bring, by node and place, and how two of them become one.
pub(crate) trait Number: Element {
    fn brought(node: u32, place: usize) -> Self;
    fn plus(self, other: Self) -> Self;
    fn bits(self) -> u64;
    /// Whether it is `sum` up to the order of the additions, where that matters to this type.
    fn is_near(self, sum: Self, nodes: u32, place: usize) -> bool;
}

/// Small whole numbers that differ from node to node and from place to place.
fn whole(node: u32, place: usize) -> i32 {
    let mixed = (place as u32 ^ (node << 27)).wrapping_mul(2_654_435_761).rotate_left(13).wrapping_mul(40_503);
    (mixed >> 16) as i32 % 2001 - 1000
}

/// Fractions of very different sizes: each order of additions has bits of its own.
fn fraction(node: u32, place: usize) -> f64 {
    f64::from(whole(node, place)) / 7.0 * [1e-3, 1.0, 1e4][(node as usize + place) % 3]
}

macro_rules! fractions {
    ($($float:ident $tolerance:literal),*) => {$(
        impl Number for $float {
            fn brought(node: u32, place: usize) -> $float {
                fraction(node, place) as $float
            }
            fn plus(self, other: $float) -> $float {
                self + other
            }
            fn bits(self) -> u64 {
                self.to_bits().into()
            }
            fn is_near(self, sum: $float, nodes: u32, place: usize) -> bool {
                let magnitude: f64 = (1..=nodes).map(|node| fraction(node, place).abs()).sum();
                (f64::from(self) - f64::from(sum)).abs() <= $tolerance * magnitude
            }
        }
    )*};
}
fractions!(f32 1e-6, f64 1e-14);

macro_rules! wholes {
    ($($whole:ident),*) => {$(
        impl Number for $whole {
            fn brought(node: u32, place: usize) -> $whole {
                // Small types go round, as sums of them do.
                whole(node, place) as $whole
            }
            fn plus(self, other: $whole) -> $whole {
                self.wrapping_add(other)
            }
            fn bits(self) -> u64 {
                self as u64
            }
            fn is_near(self, sum: $whole, _: u32, _: usize) -> bool {
                self == sum
            }
        }
    )*};
}
wholes!(i8, i16, i32, i64, u8);

/// Sums that half a float holds exactly, so that it does not matter where they are rounded.
macro_rules! halves {
    ($($half:ident $most:literal),*) => {$(
        impl Number for $half {
            fn brought(node: u32, place: usize) -> $half {
                $half::from_f32((whole(node, place) % $most) as f32)
            }
            fn plus(self, other: $half) -> $half {
                self + other
            }
            fn bits(self) -> u64 {
                self.to_bits().into()
            }
            fn is_near(self, sum: $half, _: u32, _: usize) -> bool {
                self == sum
            }
        }
    )*};
}
halves!(f16 100, bf16 30);

/// Types that can be summed, by number.
pub(crate) const TYPES: usize = 9;

/// What this node brings to a sum of `count` numbers.
pub(crate) fn contribution<T: Number>(tree: &Tree, count: usize) -> Vec<T> {
    (0..count).map(|place| T::brought(tree.node(), place)).collect()
}

/// Fails unless `array` is the sum over all nodes: with the bits of the left fold, or up to the order of the additions.
pub(crate) fn check<T: Number>(tree: &Tree, array: &[T], by_left_fold: bool) {
    for (place, got) in array.iter().enumerate() {
        let sum = (2..=tree.nodes()).fold(T::brought(1, place), |sum, node| sum.plus(T::brought(node, place)));
        let right = if by_left_fold { got.bits() == sum.bits() } else { got.is_near(sum, tree.nodes(), place) };
        let (dtype, count, node) = (T::DTYPE, array.len(), tree.node());
        assert!(right, "node {node}, {count} × {dtype}: place {place} is {got:?} and should be {sum:?}");
    }
}

/// Sums arrays of `count` numbers of every type; returns a number that nodes have in common if they got the same bits.
pub(crate) fn add_up(tree: &Tree, count: usize, by_left_fold: bool) -> Result<u64, Error> {
    (0..TYPES).try_fold(0, |digest, kind| Ok(mix(digest, add_up_type(tree, kind, count, by_left_fold)?)))
}

/// The same for the type with number `kind`.
pub(crate) fn add_up_type(tree: &Tree, kind: usize, count: usize, by_left_fold: bool) -> Result<u64, Error> {
    let add_up = match kind {
        0 => add_up_as::<f32>,
        1 => add_up_as::<f64>,
        2 => add_up_as::<f16>,
        3 => add_up_as::<bf16>,
        4 => add_up_as::<i8>,
        5 => add_up_as::<i16>,
        6 => add_up_as::<i32>,
        7 => add_up_as::<i64>,
        8 => add_up_as::<u8>,
        kind => panic!("there is no type {kind}"),
    };
    add_up(tree, count, by_left_fold)
}

fn add_up_as<T: Number>(tree: &Tree, count: usize, by_left_fold: bool) -> Result<u64, Error> {
    let mut array = contribution::<T>(tree, count);
    assert_eq!(tree.all_reduce(&mut array, ReduceOp::Sum)?, tree.nodes(), "all contribute");
    check(tree, &array, by_left_fold);
    Ok(digest(&array))
}

/// The same for arrays of the same bits.
pub(crate) fn digest<T: Number>(array: &[T]) -> u64 {
    array.iter().fold(0, |digest, number| mix(digest, number.bits()))
}

fn mix(digest: u64, more: u64) -> u64 {
    (digest ^ more).wrapping_mul(0x0100_0000_01b3).rotate_left(23)
}

//! How a loop walks numbers of each type: straight through, or by way of f32 for the half types.
//!
//! A kernel states what happens to one number ([`Binary`], [`Unary`]); this file walks the slices. Native types
//! go one by one, which the compiler vectorises. Half types go in blocks that are widened, computed and narrowed
//! in the first-level cache.

use half::{bf16, f16};

use super::dispatch::{Isa, Line};
use super::half_bits;
use super::number::{As, Number};

/// What becomes of an accumulated number when another arrives.
///
/// `apply` must be `#[inline(always)]`, so that loops over it are vectorised.
pub trait Binary<W>: Copy {
    /// The new value.
    fn apply(self, acc: W, src: W) -> W;
}

/// What becomes of one number.
pub(crate) trait Unary<W>: Copy {
    /// The new value; always inlined.
    fn apply(self, number: W) -> W;
}

/// Every type that a native number can be converted to.
pub(crate) trait AsAny: As<f32> + As<f64> + As<i8> + As<i16> + As<i32> + As<i64> + As<u8> {}
impl<W: As<f32> + As<f64> + As<i8> + As<i16> + As<i32> + As<i64> + As<u8>> AsAny for W {}

/// Numbers as they are stored. All slices of one call are of equal length.
pub(crate) trait Lanes: Sized {
    /// What they are computed in: f32 for the half types, themselves for the others.
    type Wide: Number + AsAny;
    /// The fewest numbers that are worth a call: a line of the cache, or a block that is widened and narrowed at once.
    const AT_ONCE: usize;

    /// `acc = op(acc, src)` for each number.
    fn update<I: Isa>(isa: I, acc: &mut [Self], src: &[Self], op: impl Binary<Self::Wide>);
    /// `out = op(a, b)` for each number.
    fn combine<I: Isa>(isa: I, out: &mut [Self], a: &[Self], b: &[Self], op: impl Binary<Self::Wide>);
    /// `data = op(data)` for each number.
    fn map<I: Isa>(isa: I, data: &mut [Self], op: impl Unary<Self::Wide>);
    /// Shows the numbers in the type they are computed in, block by block.
    fn widened<I: Isa>(isa: I, src: &[Self], sink: impl Sink<Self::Wide>);
    /// Stores numbers of any native type, rounded once.
    fn store<I: Isa, W: Number + AsAny>(isa: I, src: &[W], dst: &mut [Self]);
}

/// Receives blocks of widened numbers in order.
pub(crate) trait Sink<W> {
    /// Takes the next block; always inlined.
    fn take<I: Isa>(&mut self, isa: I, block: &[W]);
}

macro_rules! native_lanes {
    ($($T:ident)+) => {$(
        impl Lanes for $T {
            type Wide = $T;
            const AT_ONCE: usize = Line::BYTES / size_of::<$T>();

            #[inline(always)]
            fn update<I: Isa>(_: I, acc: &mut [Self], src: &[Self], op: impl Binary<Self>) {
                for (acc, src) in acc.iter_mut().zip(src) {
                    *acc = op.apply(*acc, *src);
                }
            }

            #[inline(always)]
            fn combine<I: Isa>(_: I, out: &mut [Self], a: &[Self], b: &[Self], op: impl Binary<Self>) {
                for (out, (a, b)) in out.iter_mut().zip(a.iter().zip(b)) {
                    *out = op.apply(*a, *b);
                }
            }

            #[inline(always)]
            fn map<I: Isa>(_: I, data: &mut [Self], op: impl Unary<Self>) {
                for number in data {
                    *number = op.apply(*number);
                }
            }

            #[inline(always)]
            fn widened<I: Isa>(isa: I, src: &[Self], mut sink: impl Sink<Self>) {
                sink.take(isa, src);
            }

            #[inline(always)]
            fn store<I: Isa, W: Number + AsAny>(_: I, src: &[W], dst: &mut [Self]) {
                for (dst, src) in dst.iter_mut().zip(src) {
                    *dst = As::<$T>::convert(*src);
                }
            }
        }
    )+};
}
native_lanes!(f32 f64 i8 i16 i32 i64 u8);

/// Numbers widened at a time: small enough to stay in the first-level cache, long enough to hide the ends.
const BLOCK: usize = 256;

/// The two conversions that tell the half types apart.
trait Half: Sized {
    fn widen<I: Isa>(isa: I, src: &[Self], dst: &mut [f32]);
    fn narrow<I: Isa>(isa: I, src: &[f32], dst: &mut [Self]);
}

impl Half for f16 {
    #[inline(always)]
    fn widen<I: Isa>(isa: I, src: &[f16], dst: &mut [f32]) {
        isa.widen_f16(src, dst);
    }

    #[inline(always)]
    fn narrow<I: Isa>(isa: I, src: &[f32], dst: &mut [f16]) {
        isa.narrow_f16(src, dst);
    }
}

impl Half for bf16 {
    #[inline(always)]
    fn widen<I: Isa>(_: I, src: &[bf16], dst: &mut [f32]) {
        for (wide, half) in dst.iter_mut().zip(src) {
            *wide = half_bits::bf16_to_f32(*half);
        }
    }

    #[inline(always)]
    fn narrow<I: Isa>(_: I, src: &[f32], dst: &mut [bf16]) {
        for (half, wide) in dst.iter_mut().zip(src) {
            *half = half_bits::f32_to_bf16(*wide);
        }
    }
}

macro_rules! half_lanes {
    ($($T:ident)+) => {$(
        impl Lanes for $T {
            type Wide = f32;
            const AT_ONCE: usize = BLOCK;

            #[inline(always)]
            fn update<I: Isa>(isa: I, acc: &mut [Self], src: &[Self], op: impl Binary<f32>) {
                let (mut a, mut b) = ([0.0; BLOCK], [0.0; BLOCK]);
                for (acc, src) in acc.chunks_mut(BLOCK).zip(src.chunks(BLOCK)) {
                    let (a, b) = (&mut a[..acc.len()], &mut b[..acc.len()]);
                    Half::widen(isa, acc, a);
                    Half::widen(isa, src, b);
                    f32::update(isa, a, b, op);
                    Half::narrow(isa, a, acc);
                }
            }

            #[inline(always)]
            fn combine<I: Isa>(isa: I, out: &mut [Self], a: &[Self], b: &[Self], op: impl Binary<f32>) {
                let (mut wide_a, mut wide_b) = ([0.0; BLOCK], [0.0; BLOCK]);
                for (out, (a, b)) in out.chunks_mut(BLOCK).zip(a.chunks(BLOCK).zip(b.chunks(BLOCK))) {
                    let (wide_a, wide_b) = (&mut wide_a[..out.len()], &mut wide_b[..out.len()]);
                    Half::widen(isa, a, wide_a);
                    Half::widen(isa, b, wide_b);
                    f32::update(isa, wide_a, wide_b, op);
                    Half::narrow(isa, wide_a, out);
                }
            }

            #[inline(always)]
            fn map<I: Isa>(isa: I, data: &mut [Self], op: impl Unary<f32>) {
                let mut wide = [0.0; BLOCK];
                for data in data.chunks_mut(BLOCK) {
                    let wide = &mut wide[..data.len()];
                    Half::widen(isa, data, wide);
                    f32::map(isa, wide, op);
                    Half::narrow(isa, wide, data);
                }
            }

            #[inline(always)]
            fn widened<I: Isa>(isa: I, src: &[Self], mut sink: impl Sink<f32>) {
                let mut wide = [0.0; BLOCK];
                for src in src.chunks(BLOCK) {
                    let wide = &mut wide[..src.len()];
                    Half::widen(isa, src, wide);
                    sink.take(isa, wide);
                }
            }

            #[inline(always)]
            fn store<I: Isa, W: Number + AsAny>(isa: I, src: &[W], dst: &mut [Self]) {
                let mut wide = [0.0; BLOCK];
                for (src, dst) in src.chunks(BLOCK).zip(dst.chunks_mut(BLOCK)) {
                    let wide = &mut wide[..src.len()];
                    for (wide, src) in wide.iter_mut().zip(src) {
                        *wide = src.to_f32_odd();
                    }
                    Half::narrow(isa, wide, dst);
                }
            }
        }
    )+};
}
half_lanes!(f16 bf16);

//! Reductions against `for i { acc[i] = acc[i] op src[i] }`.

use half::{bf16, f16};
use proptest::prelude::*;

use super::naive::Naive;
use super::{Shifted, Words, assert_same, lengths};
use crate::element::with_element;
use crate::kernels::reduce::{reduce_into_at, reduce_many_into_at, reduce_pair_into_at};
use crate::kernels::{
    ReduceOp, SimdLevel, reduce_into, reduce_into_typed, reduce_many_into, reduce_pair_into,
};
use crate::{DType, TensorError};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn reducing_equals_the_naive_loop(seed: u64, len in lengths(), shifts in prop::array::uniform3(0usize..8)) {
        for dtype in DType::ALL {
            with_element!(dtype, T => check_pairwise::<T>(seed, len, shifts));
        }
    }

    #[test]
    fn reducing_many_equals_the_naive_loop(seed: u64, len in lengths(), sources in 1usize..6, shift in 0usize..8) {
        for dtype in DType::ALL {
            match dtype {
                DType::F16 => check_many_halves(seed, len, sources, shift, f16::to_f32, f16::from_f32),
                DType::BF16 => check_many_halves(seed, len, sources, shift, bf16::to_f32, bf16::from_f32),
                _ => with_element!(dtype, T => check_many::<T>(seed, len, sources, shift)),
            }
        }
    }
}

fn check_pairwise<T: Naive>(seed: u64, len: usize, [out_shift, a_shift, b_shift]: [usize; 3]) {
    let mut words = Words(seed);
    let (a, b) = (words.numbers::<T>(len), words.numbers::<T>(len));
    let (a_bytes, b_bytes) = (Shifted::holding(&a, a_shift), Shifted::holding(&b, b_shift));
    for op in ReduceOp::ALL {
        let expected: Vec<T> = a
            .iter()
            .zip(&b)
            .map(|(a, b)| T::reduce(op, *a, *b))
            .collect();
        let mut typed = a.clone();
        reduce_into_typed(op, &mut typed, &b).unwrap();
        assert_same(&typed, &expected, op);
        for level in SimdLevel::available() {
            let mut acc = a_bytes.clone();
            reduce_into_at(level, op, T::DTYPE, acc.bytes_mut(), b_bytes.bytes()).unwrap();
            assert_same(&acc.numbers(), &expected, (level, op));
            let mut out = Shifted::holding(&words.numbers::<T>(len), out_shift);
            reduce_pair_into_at(
                level,
                op,
                T::DTYPE,
                out.bytes_mut(),
                a_bytes.bytes(),
                b_bytes.bytes(),
            )
            .unwrap();
            assert_same(&out.numbers(), &expected, (level, op));
        }
    }
}

fn check_many<T: Naive>(seed: u64, len: usize, sources: usize, shift: usize) {
    let mut words = Words(seed);
    let sources: Vec<Vec<T>> = (0..sources).map(|_| words.numbers(len)).collect();
    check_many_against(shift, &sources, |op, sources| {
        sources.reduce(|a, b| T::reduce(op, a, b)).unwrap()
    });
}

fn check_many_halves<T: Naive>(
    seed: u64,
    len: usize,
    sources: usize,
    shift: usize,
    widen: fn(T) -> f32,
    narrow: fn(f32) -> T,
) {
    let mut words = Words(seed);
    let sources: Vec<Vec<T>> = (0..sources).map(|_| words.numbers(len)).collect();
    check_many_against(shift, &sources, |op, sources| {
        narrow(
            sources
                .map(widen)
                .reduce(|a, b| f32::reduce(op, a, b))
                .unwrap(),
        )
    });
}

fn check_many_against<T: Naive>(
    shift: usize,
    sources: &[Vec<T>],
    naive: impl Fn(ReduceOp, &mut dyn Iterator<Item = T>) -> T,
) {
    let len = sources[0].len();
    let buffers: Vec<Shifted> = sources
        .iter()
        .map(|source| Shifted::holding(source, shift))
        .collect();
    let slices: Vec<&[u8]> = buffers.iter().map(Shifted::bytes).collect();
    for op in ReduceOp::ALL {
        let each = |index| {
            naive(
                op,
                &mut sources.iter().map(move |source: &Vec<T>| source[index]),
            )
        };
        let expected: Vec<T> = (0..len).map(each).collect();
        for level in SimdLevel::available() {
            let mut out = Shifted::holding(&sources[0], 0);
            reduce_many_into_at(level, op, T::DTYPE, out.bytes_mut(), &slices).unwrap();
            assert_same(&out.numbers(), &expected, (level, op, sources.len()));
        }
    }
}

#[test]
fn nan_and_signed_zeros_follow_the_rules_whichever_side_they_are_on() {
    for (a, b) in [
        (f32::NAN, 1.0),
        (1.0, f32::NAN),
        (f32::NAN, f32::INFINITY),
        (f32::NAN, f32::NAN),
    ] {
        for op in [ReduceOp::Min, ReduceOp::Max] {
            let mut acc = [a; 17];
            reduce_into_typed(op, &mut acc, &[b; 17]).unwrap();
            assert!(
                acc.iter().all(|number| number.is_nan()),
                "{op} of {a} and {b}"
            );
        }
    }
    for (a, b) in [(0.0f64, -0.0), (-0.0, 0.0)] {
        let mut smaller = [a; 17];
        reduce_into_typed(ReduceOp::Min, &mut smaller, &[b; 17]).unwrap();
        assert!(smaller.iter().all(|zero| zero.is_sign_negative()));
        let mut larger = [a; 17];
        reduce_into_typed(ReduceOp::Max, &mut larger, &[b; 17]).unwrap();
        assert!(larger.iter().all(|zero| zero.is_sign_positive()));
    }
}

#[test]
fn lengths_that_disagree_are_refused_and_nothing_is_written() {
    let mut acc = [7u8; 8];
    let refused = reduce_into(ReduceOp::Sum, DType::F32, &mut acc, &[1; 4]).unwrap_err();
    assert_eq!(
        refused,
        TensorError::ElementCount {
            what: "src",
            expected: 2,
            found: 1
        }
    );
    let refused = reduce_into(ReduceOp::Sum, DType::F32, &mut acc, &[1; 7]).unwrap_err();
    assert_eq!(
        refused,
        TensorError::PartialElement {
            bytes: 7,
            dtype: DType::F32
        }
    );
    let refused =
        reduce_pair_into(ReduceOp::Sum, DType::I16, &mut acc, &[1; 8], &[1; 10]).unwrap_err();
    assert_eq!(
        refused,
        TensorError::ElementCount {
            what: "b",
            expected: 4,
            found: 5
        }
    );
    let refused = reduce_many_into(
        ReduceOp::Sum,
        DType::I16,
        &mut acc,
        &[&[1; 8], &[1; 8], &[1; 6]],
    )
    .unwrap_err();
    assert_eq!(
        refused,
        TensorError::ElementCount {
            what: "a source",
            expected: 4,
            found: 3
        }
    );
    let refused = reduce_many_into(ReduceOp::Sum, DType::I16, &mut acc, &[]).unwrap_err();
    assert_eq!(refused, TensorError::NoSources);
    assert_eq!(acc, [7; 8]);
}

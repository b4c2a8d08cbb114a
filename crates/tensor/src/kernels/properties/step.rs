//! Steps of optimisers against the formulas, one number at a time: equal bits at every level and any alignment.

use half::{bf16, f16};
use proptest::prelude::*;

use super::naive::Naive;
use super::{Shifted, Words, assert_same, lengths};
use crate::kernels::step::step_into_at;
use crate::kernels::{SimdLevel, Step, StepBuffers, step_into};
use crate::{DType, TensorError};

fn steps() -> impl Strategy<Value = Step> {
    let rate = || 1e-4..2.0f64;
    prop_oneof![
        (0.0..1.0f64).prop_map(|momentum| Step::Momentum { momentum }),
        (rate(), rate()).prop_map(|(learning_rate, rho)| Step::Adagrad { learning_rate, rho }),
        (rate(), rate()).prop_map(|(learning_rate, lambda)| Step::Compensated { learning_rate, lambda }),
        (rate(), rate(), 0.0..1.0f64).prop_map(|(learning_rate, lambda, momentum)| Step::AdaptivelyCompensated {
            learning_rate,
            lambda,
            momentum
        }),
    ]
}

/// The new number and the new state, each operation rounded to the type of the state.
macro_rules! naive_step {
    ($name:ident, $W:ident) => {
        fn $name(step: Step, x: $W, d: $W, b: $W, s: $W) -> ($W, $W) {
            match step {
                Step::Momentum { momentum } => {
                    let m = momentum as $W;
                    let s = m * s + (1.0 - m) * d;
                    (x - s, s)
                }
                Step::Adagrad { learning_rate, rho } => {
                    let g = d / learning_rate as $W;
                    let h = s + g * g;
                    (x - rho as $W / (h + 1e-6).sqrt() * g, h)
                }
                Step::Compensated { learning_rate, lambda } => (x - (d + lambda as $W * (d * d / learning_rate as $W) * (x - b)), s),
                Step::AdaptivelyCompensated { learning_rate, lambda, momentum } => {
                    let (m, g) = (momentum as $W, d / learning_rate as $W);
                    let v = m * s + (1.0 - m) * (g * g);
                    let strength = lambda as $W / (v + 1e-7).sqrt();
                    (x - (d + strength * (d * d / learning_rate as $W) * (x - b)), v)
                }
            }
        }
    };
}
naive_step!(step_in_f32, f32);
naive_step!(step_in_f64, f64);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn steps_equal_the_formulas(seed: u64, len in lengths(), step in steps(), shifts in prop::array::uniform6(0usize..8), aligned: bool) {
        let shifts = if aligned { [0; 6] } else { shifts };
        check::<f32, f32>(seed, len, step, shifts, |x, d, b, s| step_in_f32(step, x, d, b, s));
        check::<f64, f64>(seed, len, step, shifts, |x, d, b, s| step_in_f64(step, x, d, b, s));
        check::<f16, f32>(seed, len, step, shifts, |x, d, b, s| {
            let (x, s) = step_in_f32(step, x.to_f32(), d.to_f32(), b.to_f32(), s);
            (f16::from_f32(x), s)
        });
        check::<bf16, f32>(seed, len, step, shifts, |x, d, b, s| {
            let (x, s) = step_in_f32(step, x.to_f32(), d.to_f32(), b.to_f32(), s);
            (bf16::from_f32(x), s)
        });
    }
}

fn check<T: Naive, W: Naive>(seed: u64, len: usize, step: Step, shifts: [usize; 6], naive: impl Fn(T, T, T, W) -> (T, W)) {
    let mut words = Words(seed);
    let (has_backup, has_state) = (has_backup(step), has_state(step));
    let (x, d, b, s) = (words.numbers::<T>(len), words.numbers::<T>(len), words.numbers::<T>(len), words.numbers::<W>(len));
    let expected: Vec<(T, W)> = (0..len).map(|index| naive(x[index], d[index], b[index], s[index])).collect();
    let expected_x: Vec<T> = expected.iter().map(|(x, _)| *x).collect();
    let expected_s: Vec<W> = expected.iter().map(|(_, s)| *s).filter(|_| has_state).collect();
    let (b, s) = (if has_backup { &b[..] } else { &[] }, if has_state { &s[..] } else { &[] });
    let [x_shift, d_shift, b_shift, s_shift, new_shift, new_s_shift] = shifts;
    let (old, delta) = (Shifted::holding(&x, x_shift), Shifted::holding(&d, d_shift));
    let (backup, state) = (Shifted::holding(b, b_shift), Shifted::holding(s, s_shift));
    for level in SimdLevel::available() {
        let (mut new, mut new_state) = (Shifted::holding(&d, new_shift), Shifted::holding(s, new_s_shift));
        let buffers = StepBuffers {
            old: old.bytes(),
            delta: delta.bytes(),
            new: new.bytes_mut(),
            backup: backup.bytes(),
            state_old: state.bytes(),
            state_new: new_state.bytes_mut(),
        };
        step_into_at(level, step, T::DTYPE, buffers).unwrap();
        assert_same(&new.numbers(), &expected_x, (level, step));
        assert_same(&new_state.numbers(), &expected_s, (level, step));
        assert_same(&old.numbers(), &x, "the old numbers stay");
    }
}

fn has_backup(step: Step) -> bool {
    matches!(step, Step::Compensated { .. } | Step::AdaptivelyCompensated { .. })
}

fn has_state(step: Step) -> bool {
    !matches!(step, Step::Compensated { .. })
}

#[test]
fn whole_numbers_and_lengths_that_disagree_are_refused_and_nothing_is_written() {
    let mut new = [7u8; 8];
    let mut state = [7u8; 8];
    let mut refused = |dtype, delta: &[u8], backup: &[u8]| {
        let buffers = StepBuffers { old: &[0; 8], delta, new: &mut new, backup, state_old: &[0; 8], state_new: &mut state };
        step_into(Step::Momentum { momentum: 0.5 }, dtype, buffers).unwrap_err()
    };
    assert!(matches!(refused(DType::I32, &[1; 8], &[]), TensorError::NeedsFloat { dtype: DType::I32, .. }));
    assert_eq!(refused(DType::F32, &[1; 4], &[]), TensorError::ElementCount { what: "delta", expected: 2, found: 1 });
    assert_eq!(refused(DType::F32, &[1; 8], &[1; 8]), TensorError::ElementCount { what: "backup", expected: 0, found: 2 });
    assert_eq!(refused(DType::F16, &[1; 8], &[]), TensorError::ElementCount { what: "state_old", expected: 4, found: 2 });
    assert_eq!((new, state), ([7; 8], [7; 8]));
}

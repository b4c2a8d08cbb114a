//! Millions of numbers against the living MXNet, where there is one; see `scripts/oracle/README.md`.

use std::io::Write;
use std::process::{Command, Stdio};

use syncline_tensor::kernels::quantize::{Decode, Quantizer};

const ROUNDS: usize = 3;

/// A million, and every length that the last word and the widest instructions can be left with.
fn counts() -> Vec<usize> {
    [1_000_003].into_iter().chain(1..=130).collect()
}

/// Mostly numbers around the threshold, some that lie exactly on it, and all that floats can be.
fn numbers(threshold: f32, count: usize) -> Vec<f32> {
    let (above, below) = (f32::from_bits(threshold.to_bits() + 1), f32::from_bits(threshold.to_bits().wrapping_sub(1)));
    let special = [
        threshold,
        -threshold,
        above,
        -above,
        below,
        -below,
        2.0 * threshold,
        0.0,
        -0.0,
        1.0,
        -1.0,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        f32::MAX,
        f32::MIN,
        1e-45,
    ]; // what a gradient may be at its worst
    let mut state = 0x0123_4567_89ab_cdefu64;
    let number = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        match state >> 56 {
            0..=20 => special[(state >> 40) as usize % special.len()],
            21..=30 => f32::from_bits((state >> 24) as u32),
            _ => ((state >> 40) as f32 / (1 << 23) as f32 - 1.0) * 1.5,
        }
    };
    (0..count).map(number).collect()
}

fn asked(python: &std::ffi::OsStr, code: Quantizer, threshold: f32, numbers: &[f32]) -> Vec<u8> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/oracle/live.py");
    let mut child = Command::new(python)
        .args([script, code.name(), &threshold.to_string(), &ROUNDS.to_string()])
        .args(counts().iter().map(usize::to_string))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the Python that SYNCLINE_ORACLE_PYTHON names starts");
    let mut stdin = child.stdin.take().expect("it was piped");
    let output = std::thread::scope(|scope| {
        scope.spawn(|| {
            stdin.write_all(bytemuck::cast_slice(numbers)).expect("the script reads everything");
            drop(stdin);
        });
        child.wait_with_output().expect("the script ends")
    });
    assert!(output.status.success(), "the script failed: {}", output.status);
    output.stdout
}

fn take<'a>(rest: &mut &'a [u8], bytes: usize) -> &'a [u8] {
    let (taken, after) = rest.split_at(bytes);
    *rest = after;
    taken
}

fn check(what: &str, ours: &[f32], theirs: &[u8]) {
    for (place, (ours, theirs)) in ours.iter().zip(theirs.chunks_exact(4)).enumerate() {
        let theirs = f32::from_le_bytes(theirs.try_into().expect("four bytes"));
        assert!(ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan()), "{what} at {place}: {ours} {theirs}");
    }
}

fn compare(code: Quantizer, threshold: f32) {
    let Some(python) = std::env::var_os("SYNCLINE_ORACLE_PYTHON") else {
        println!("skipped: SYNCLINE_ORACLE_PYTHON names no Python with MXNet 1.9.1");
        return;
    };
    let numbers = numbers(threshold, ROUNDS * counts().iter().sum::<usize>());
    let output = asked(&python, code, threshold, &numbers);
    let (mut rest, mut gradients) = (&output[..], &numbers[..]);
    for count in counts() {
        let (mut residual, mut words, mut decoded) = (vec![0.0f32; count], vec![0u8; code.encoded_len(count)], vec![7.0f32; count]);
        for round in 0..ROUNDS {
            let (gradient, after) = gradients.split_at(count);
            gradients = after;
            code.encode(gradient, &mut residual, &mut words).unwrap();
            code.decode(&words, &mut decoded, Decode::Overwrite).unwrap();
            let what = |part| format!("{code:?}, {count} numbers, round {round}: {part}");
            assert!(words == take(&mut rest, words.len()), "{}", what("words"));
            check(&what("residual"), &residual, take(&mut rest, 4 * count));
            check(&what("decoded"), &decoded, take(&mut rest, 4 * count));
        }
    }
    assert!(rest.is_empty() && gradients.is_empty());
}

#[test]
fn a_million_numbers_become_the_words_and_residuals_of_mxnet() {
    for threshold in [0.5, 0.123, 1e-30] {
        compare(Quantizer::TwoBit { threshold }, threshold);
    }
}

#[test]
fn a_million_numbers_in_one_bit_follow_the_definition() {
    for threshold in [0.0, -0.25, 0.5] {
        compare(Quantizer::OneBit { threshold }, threshold);
    }
}

//! A million numbers against the living MXNet, where there is one; see `scripts/oracle/README.md`.

use std::io::Write;
use std::process::{Command, Stdio};

use syncline_tensor::kernels::quantize::Quantizer;

#[test]
fn a_million_numbers_become_the_words_and_residuals_of_mxnet() {
    let Some(python) = std::env::var_os("SYNCLINE_ORACLE_PYTHON") else {
        println!("skipped: SYNCLINE_ORACLE_PYTHON names no Python with MXNet 1.9.1");
        return;
    };
    let (rounds, count, threshold) = (3usize, 1_000_003usize, 0.5f32);
    let special = [0.5f32, -0.5, 0.499_999_97, 0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX, f32::MIN, 1e-45];
    let mut state = 0x0123_4567_89ab_cdefu64;
    let mut number = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        match state >> 56 {
            0..=10 => special[(state >> 40) as usize % special.len()],
            11..=20 => f32::from_bits((state >> 24) as u32),
            _ => ((state >> 40) as f32 / (1 << 23) as f32 - 1.0) * 1.5,
        }
    };
    let numbers: Vec<f32> = (0..rounds * count).map(|_| number()).collect();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/oracle/live.py");
    let mut child = Command::new(python)
        .args([script, &threshold.to_string(), &rounds.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the Python that SYNCLINE_ORACLE_PYTHON names starts");
    let mut stdin = child.stdin.take().expect("it was piped");
    let output = std::thread::scope(|scope| {
        scope.spawn(|| {
            stdin.write_all(bytemuck::cast_slice(&numbers)).expect("the script reads everything");
            drop(stdin);
        });
        child.wait_with_output().expect("the script ends")
    });
    assert!(output.status.success(), "the script failed: {}", output.status);
    let code = Quantizer::TwoBit { threshold };
    let (mut residual, mut words) = (vec![0.0f32; count], vec![0u8; code.encoded_len(count)]);
    let mut rest = &output.stdout[..];
    for gradient in numbers.chunks(count) {
        code.encode(gradient, &mut residual, &mut words).unwrap();
        let (their_words, after) = rest.split_at(words.len());
        let (their_residual, after) = after.split_at(4 * count);
        assert!(words == their_words);
        for (place, (ours, theirs)) in residual.iter().zip(their_residual.chunks_exact(4)).enumerate() {
            let theirs = f32::from_le_bytes(theirs.try_into().expect("four bytes"));
            assert!(ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan()), "{place}: {ours} {theirs}");
        }
        rest = after;
    }
    assert!(rest.is_empty());
}

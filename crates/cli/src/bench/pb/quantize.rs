//! Gradients in two bits with a residual, and back, on one core: no job, no session.

use std::time::{Duration, Instant};

use syncline_tensor::kernels::quantize::{Decode, Quantizer};

use super::report;
use crate::bench::samples::Samples;
use crate::print;

const THRESHOLD: f32 = 0.5;

/// Quantises `size` bytes of f32 again and again, then turns the words back.
pub(super) fn two_bits(size: usize, secs: f64) {
    let numbers = size / 4;
    let code = Quantizer::TwoBit { threshold: THRESHOLD };
    let gradient: Vec<f32> = (0..numbers).map(|i| (i as u32).wrapping_mul(2_654_435_761) as f32 / (1u32 << 30) as f32 - 2.0).collect();
    let (mut residual, mut words, mut decoded) = (vec![0.0f32; numbers], vec![0u8; code.encoded_len(numbers)], vec![1.0f32; numbers]);
    let fits = "residual, words and numbers were made for each other";
    timed("w7quant", secs, || code.encode(&gradient, &mut residual, &mut words).expect(fits));
    timed("w7dequant", secs, || code.decode(&words, &mut decoded, Decode::Overwrite).expect(fits));
    let known = |number: &f32| [-THRESHOLD, 0.0, THRESHOLD].contains(number);
    if !decoded.iter().all(known) || numbers > 100 && decoded.iter().all(|number| *number == 0.0) {
        print::line("PB error unexpected codes");
    }
}

fn timed(what: &str, secs: f64, mut work: impl FnMut()) {
    (0..3).for_each(|_| work());
    let mut samples = Samples::with_room(1 << 16);
    let (start, long) = (Instant::now(), Duration::from_secs_f64(secs));
    let mut before = start;
    while before - start < long {
        work();
        let now = Instant::now();
        samples.push(now - before);
        before = now;
    }
    report(what, 0, samples, start.elapsed());
}

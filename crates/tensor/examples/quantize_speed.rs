//! How fast gradients are quantised here: GB of f32 per second, in cache and from memory, best of several runs.
//!
//! `cargo run --release -p syncline-tensor --example quantize_speed`

use std::time::Instant;

use syncline_tensor::kernels::quantize::{Decode, Quantizer};
use syncline_tensor::kernels::simd_level;

fn main() {
    println!("level {}; GB of f32 per second on one core", simd_level());
    println!("{:<6} {:>9} {:>8} {:>8} {:>8} {:>8}", "code", "numbers", "encode", "decode", "add", "copy");
    let codes = [
        Quantizer::TwoBit { threshold: 0.5 },
        Quantizer::OneBit { threshold: 0.0 },
        Quantizer::F16,
        Quantizer::BF16,
        Quantizer::Int8,
        Quantizer::TopK { ratio: 0.01 },
    ];
    for count in [1 << 13, 1 << 24] {
        let gradient: Vec<f32> = (0..count).map(|i| ((i * 7919 % 2003) as f32 / 1001.0 - 1.0) * 0.7).collect();
        let mut out = vec![0.0f32; count];
        let copy = speed(count, || out.copy_from_slice(&gradient));
        for code in codes {
            let (mut residual, mut bytes) = (vec![0.0f32; count], vec![0u8; code.encoded_len(count)]);
            let encode = speed(count, || code.encode(&gradient, &mut residual, &mut bytes).expect("lengths fit"));
            let decode = speed(count, || code.decode(&bytes, &mut out, Decode::Overwrite).expect("just encoded"));
            let add = speed(count, || code.decode(&bytes, &mut out, Decode::Add).expect("just encoded"));
            println!("{:<6} {count:>9} {encode:>8.2} {decode:>8.2} {add:>8.2} {copy:>8.2}", code.name());
        }
    }
}

fn speed(count: usize, mut work: impl FnMut()) -> f64 {
    let repeats = (1 << 22) / count + 1;
    let mut best = f64::MAX;
    for _ in 0..7 {
        let start = Instant::now();
        (0..repeats).for_each(|_| work());
        best = best.min(start.elapsed().as_secs_f64() / repeats as f64);
    }
    (4 * count) as f64 / best / 1e9
}

//! Bytes that claim to be a quantised gradient: the first two choose code and length, the rest is decoded.

#![no_main]

use libfuzzer_sys::fuzz_target;
use syncline_tensor::kernels::quantize::{Decode, Quantizer};

fuzz_target!(|bytes: &[u8]| {
    let [which, count, rest @ ..] = bytes else { return };
    let codes = [
        Quantizer::TwoBit { threshold: 0.5 },
        Quantizer::OneBit { threshold: 0.0 },
        Quantizer::F16,
        Quantizer::BF16,
        Quantizer::Int8,
        Quantizer::TopK { ratio: 0.3 },
    ];
    let mut out = vec![1.0; usize::from(*count) * 2];
    let _ = codes[usize::from(*which) % codes.len()].decode(rest, &mut out, if which & 128 == 0 { Decode::Add } else { Decode::Overwrite });
});

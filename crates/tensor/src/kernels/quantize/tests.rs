//! Each code against the loop that its definition spells, at every level of this CPU, every tail length, every special value.

use proptest::prelude::*;

use super::*;

/// Values at which something happens for thresholds of one half.
const SPECIAL: [f32; 16] = [
    0.0,
    -0.0,
    0.5,
    -0.5,
    0.499_999_97,
    -0.499_999_97,
    0.500_000_06,
    1.0,
    -1.0,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
    f32::MAX,
    f32::MIN,
    f32::MIN_POSITIVE,
    1e-45,
];

const ALL: [Quantizer; 10] = [
    Quantizer::TwoBit { threshold: 0.5 },
    Quantizer::TwoBit { threshold: 1e-3 },
    Quantizer::OneBit { threshold: 0.0 },
    Quantizer::OneBit { threshold: -0.5 },
    Quantizer::OneBit { threshold: f32::INFINITY },
    Quantizer::F16,
    Quantizer::BF16,
    Quantizer::Int8,
    Quantizer::TopK { ratio: 0.1 },
    Quantizer::TopK { ratio: 1.0 },
];

fn numbers(seed: u64, count: usize, special: bool) -> Vec<f32> {
    let mut state = seed;
    let mut next = move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 20
    };
    let number = |word: u64| match word % 5 {
        0 if special => SPECIAL[(word / 5 % 16) as usize],
        _ => ((word >> 8) % 20_001) as f32 / 5000.0 - 2.0,
    };
    (0..count).map(|_| number(next())).collect()
}

/// What `encode` promises for one of the fixed-width codes, number by number: the code, and what is left.
fn naive(code: Quantizer, gradient: &[f32], residual: &mut [f32]) -> Vec<u8> {
    let mut bytes = vec![0u8; code.encoded_len(gradient.len())];
    match code {
        Quantizer::TwoBit { threshold } => {
            for (i, (g, r)) in gradient.iter().zip(residual).enumerate() {
                *r += g;
                if *r >= threshold {
                    bytes[i / 4] |= 0b11 << (6 - 2 * (i % 4));
                    *r -= threshold;
                } else if *r <= -threshold {
                    bytes[i / 4] |= 0b10 << (6 - 2 * (i % 4));
                    *r += threshold;
                }
            }
        }
        Quantizer::OneBit { threshold } => {
            for (i, (g, r)) in gradient.iter().zip(residual).enumerate() {
                *r += g;
                if *r > threshold {
                    bytes[i / 8] |= 1 << (7 - i % 8);
                    *r -= 1.0;
                } else {
                    *r += 1.0;
                }
            }
        }
        Quantizer::TopK { .. } => {
            residual.iter_mut().zip(gradient).for_each(|(r, g)| *r += g);
            let mut order: Vec<usize> = (0..gradient.len()).collect();
            order.sort_by_key(|i| (std::cmp::Reverse(residual[*i].to_bits() & 0x7fff_ffff), *i));
            let count = bytes.len() / 8;
            order.truncate(count);
            order.sort_unstable();
            for (slot, place) in order.into_iter().enumerate() {
                bytes[4 * slot..][..4].copy_from_slice(&(place as u32).to_le_bytes());
                bytes[4 * (count + slot)..][..4].copy_from_slice(&residual[place].to_le_bytes());
                residual[place] = 0.0;
            }
        }
        _ => {
            // The residual is what decoding does not give back.
            let before: Vec<f32> = residual.iter().zip(gradient).map(|(r, g)| r + g).collect();
            code.encode_at(SimdLevel::BASELINE, gradient, residual, &mut bytes).unwrap();
            let mut sent = vec![0.0; before.len()];
            code.decode_at(SimdLevel::BASELINE, &bytes, &mut sent, Decode::Overwrite).unwrap();
            for (i, ((before, sent), left)) in before.iter().zip(&sent).zip(residual.iter()).enumerate() {
                let expected = if sent.is_finite() { before - sent } else { 0.0 };
                assert!(expected.to_bits() == left.to_bits() || expected == *left, "{code:?} {i}: {before} sent as {sent} left {left}");
            }
        }
    }
    bytes
}

fn same(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()))
}

fn compare(code: Quantizer, seed: u64, count: usize, special: bool) {
    let mut expected_residual = vec![0.0; count];
    let mut residuals: Vec<Vec<f32>> = SimdLevel::available().iter().map(|_| vec![0.0; count]).collect();
    for round in 0..3 {
        let gradient = numbers(seed.wrapping_add(round), count, special);
        let expected = naive(code, &gradient, &mut expected_residual);
        for (level, residual) in SimdLevel::available().into_iter().zip(&mut residuals) {
            let mut bytes = vec![0x5a; expected.len()];
            code.encode_at(level, &gradient, residual, &mut bytes).unwrap();
            // Payloads of NaN are not promised, and `topk` sends them.
            if !(special && matches!(code, Quantizer::TopK { .. })) {
                assert_eq!(bytes, expected, "{code:?} at {level}, {count} numbers, round {round}");
            }
            assert!(same(residual, &expected_residual), "{code:?} at {level}, {count} numbers, round {round}");
            let mut reference = vec![7.0; count];
            code.decode_at(SimdLevel::BASELINE, &bytes, &mut reference, Decode::Overwrite).unwrap();
            let mut found = vec![f32::NAN; count];
            code.decode_at(level, &bytes, &mut found, Decode::Overwrite).unwrap();
            assert!(same(&found, &reference), "{code:?} at {level}");
            let mut added = vec![0.25; count];
            code.decode_at(level, &bytes, &mut added, Decode::Add).unwrap();
            let sums: Vec<f32> = reference.iter().map(|number| 0.25 + number).collect();
            assert!(same(&added, &sums), "{code:?} at {level}");
        }
    }
}

#[test]
fn every_code_equals_its_definition_at_every_tail_length() {
    for code in ALL {
        for count in (0..70).chain([255, 256, 257, 511, 512, 513, 1027]) {
            compare(code, count as u64, count, count % 2 == 1);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn every_code_equals_its_definition(seed: u64, count in 0usize..3000, special: bool, code in 0..ALL.len()) {
        compare(ALL[code], seed, count, special);
    }

    #[test]
    fn decoders_take_any_bytes_or_refuse_them(bytes in prop::collection::vec(any::<u8>(), 0..600), count in 0usize..300) {
        for code in ALL {
            let mut out = vec![1.0; count];
            if code.decode(&bytes, &mut out, Decode::Overwrite).is_err() {
                prop_assert!(out.iter().all(|number| *number == 1.0));
            }
        }
    }
}

#[test]
fn the_words_of_mxnet() {
    let code = Quantizer::TwoBit { threshold: 0.5 };
    let gradient = [0.6, -0.6, 0.1, 0.5, -0.5, 0.0, 0.49, -0.49, 1.7, -3.0];
    let (mut residual, mut bytes) = ([0.0; 10], [0; 4]);
    code.encode(&gradient, &mut residual, &mut bytes).unwrap();
    assert_eq!(bytes, [0xe3, 0x80, 0xe0, 0x00]);
    code.encode(&gradient, &mut residual, &mut bytes).unwrap();
    assert_eq!(bytes, [0xe3, 0x8e, 0xe0, 0x00]);
    let code = Quantizer::OneBit { threshold: 0.0 };
    let gradient = [0.6, -0.6, 0.1, 0.0, -0.5, 0.0, 0.49, -0.49, 1.7, -3.0];
    let mut residual = [0.0; 10];
    code.encode(&gradient, &mut residual, &mut bytes).unwrap();
    assert_eq!(bytes, [0xa2, 0x80, 0x00, 0x00]);
    code.encode(&gradient, &mut residual, &mut bytes).unwrap();
    assert_eq!(bytes, [0x95, 0x80, 0x00, 0x00]);
}

#[test]
fn a_code_that_no_encoder_writes_is_nothing_as_in_mxnet() {
    let mut out = [9.0; 3];
    Quantizer::TwoBit { threshold: 0.5 }.decode(&[0b0110_1111, 0xff, 0, 0], &mut out, Decode::Overwrite).unwrap();
    assert_eq!(out, [0.0, -0.5, 0.5]);
}

#[test]
fn malformed_bytes_are_named_and_nothing_is_written() {
    let code = Quantizer::TopK { ratio: 0.5 };
    let bytes = |places: [u32; 2]| places.into_iter().flat_map(u32::to_le_bytes).chain([0; 8]).collect::<Vec<u8>>();
    let mut out = [1.0; 4];
    for (places, at) in [([1, 1], 4), ([2, 1], 4), ([0, 4], 4), ([9, 10], 0)] {
        let error = code.decode(&bytes(places), &mut out, Decode::Overwrite).unwrap_err();
        assert!(matches!(error, QuantizeError::Malformed { at: found, .. } if found == at), "{places:?}: {error}");
    }
    let mut block = (-1.0f32).to_le_bytes().to_vec();
    block.extend([1; 4]);
    assert!(Quantizer::Int8.decode(&block, &mut out, Decode::Add).unwrap_err().to_string().contains("scale"));
    assert_eq!(out, [1.0; 4]);
}

#[test]
fn wrong_lengths_and_parameters_are_refused() {
    let code = Quantizer::TwoBit { threshold: 0.5 };
    assert!(code.encode(&[0.0; 4], &mut [0.0; 3], &mut [0; 4]).is_err());
    assert_eq!(code.encode(&[0.0; 4], &mut [0.0; 4], &mut [0; 3]).unwrap_err().to_string(), "2bit: 4 numbers take 4 bytes, not 3");
    for threshold in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        let error = Quantizer::TwoBit { threshold }.check().unwrap_err();
        assert!(error.to_string().contains("finite and above 0"), "{error}");
    }
    assert!(Quantizer::OneBit { threshold: -3.0 }.check().is_ok());
    assert!(Quantizer::OneBit { threshold: f32::NAN }.check().is_err());
    assert!(Quantizer::TopK { ratio: 0.0 }.check().is_err());
    assert!(Quantizer::TopK { ratio: 1.5 }.check().is_err());
}

#[test]
fn halves_and_bytes_stay_close_and_never_become_infinite() {
    for (code, error) in [(Quantizer::F16, 0.001), (Quantizer::BF16, 0.01), (Quantizer::Int8, 0.01)] {
        let gradient = [1.0, -2.0, 0.3, 1e-3];
        let (mut residual, mut bytes, mut out) = ([0.0; 4], vec![0; code.encoded_len(4)], [0.0; 4]);
        code.encode(&gradient, &mut residual, &mut bytes).unwrap();
        code.decode(&bytes, &mut out, Decode::Overwrite).unwrap();
        for (sent, wanted) in out.iter().zip(gradient) {
            assert!((sent - wanted).abs() <= error * 2.0, "{code:?}: {wanted} became {sent}");
        }
        code.encode(&[1e6, -1e38, f32::MAX, 0.0], &mut [0.0; 4], &mut bytes).unwrap();
        code.decode(&bytes, &mut out, Decode::Overwrite).unwrap();
        assert!(out.iter().all(|number| number.is_finite()), "{code:?}: {out:?}");
    }
}

#[test]
fn what_is_not_sent_now_is_sent_later() {
    for code in [Quantizer::TwoBit { threshold: 0.5 }, Quantizer::Int8, Quantizer::TopK { ratio: 0.25 }, Quantizer::F16] {
        let gradient = numbers(5, 64, false).iter().map(|number| number / 16.0).collect::<Vec<_>>();
        let (mut residual, mut sum) = (vec![0.0; 64], vec![0.0f32; 64]);
        let mut bytes = vec![0; code.encoded_len(64)];
        for _ in 0..64 {
            code.encode(&gradient, &mut residual, &mut bytes).unwrap();
            code.decode(&bytes, &mut sum, Decode::Add).unwrap();
        }
        for (i, (sum, gradient)) in sum.iter().zip(&gradient).enumerate() {
            let owed = 64.0 * gradient - residual[i];
            assert!((sum - owed).abs() < 1e-3, "{code:?} {i}: {sum} instead of {owed}");
            assert!(residual[i].abs() <= 1.0, "{code:?}: {} is left of {gradient}", residual[i]);
        }
    }
}

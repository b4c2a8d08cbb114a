//! Every optimizer against MXNet 1.9.1: 50 steps, dense and row-sparse; see `scripts/oracle`. All but LAMB and LARS agree in every bit.

#[path = "support/oracle.rs"]
mod oracle;
mod support;

use oracle::{COLUMNS, create, golden, gradient, rows, schedule, weights};
use serde_json::Value;
use support::{Kept, narrowed};
use syncline_optimizer::Key;
use syncline_tensor::kernels::quantize::Quantizer;
use syncline_tensor::{DType, f16};

fn dtype_of(case: &Value) -> DType {
    if case["dtype"] == "float16" { DType::F16 } else { DType::F32 }
}

fn numbers(dtype: DType, bits: &Value) -> Vec<f64> {
    let bits = bits.as_array().unwrap().iter().map(|hex| u32::from_str_radix(hex.as_str().unwrap(), 16).unwrap());
    match dtype {
        DType::F16 => bits.map(|bits| f16::from_bits(bits as u16).to_f64()).collect(),
        _ => bits.map(|bits| f64::from(f32::from_bits(bits))).collect(),
    }
}

fn widened(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    let mut wide = vec![0.0f64; bytes.len() / dtype.size()];
    syncline_tensor::kernels::cast(dtype, bytes, DType::F64, bytemuck::cast_slice_mut(&mut wide)).unwrap();
    wide
}

#[test]
fn fifty_steps_of_every_optimizer_agree_with_mxnet() {
    let (mut cases, mut exact, mut apart) = (0, 0, Vec::new());
    for case in golden("optimizers.json") {
        let (name, options) = (case["name"].as_str().unwrap(), &case["options"]);
        let (dtype, sparse) = (dtype_of(&case), case["sparse"] == true);
        let optimizer = create(name, options);
        let mut kept = Kept::new(&optimizer, dtype, &weights());
        let (mut worst, mut same) = (0.0f64, true);
        for step in 1..=50 {
            let dense = gradient(step);
            if sparse {
                let ids = rows(step);
                let some: Vec<f64> = ids.iter().flat_map(|row| dense[*row as usize * COLUMNS..][..COLUMNS].iter().copied()).collect();
                kept.update_rows(&optimizer, &Key::Int(0), COLUMNS, &ids, &narrowed(dtype, &some));
            } else {
                kept.update(&optimizer, &Key::Int(0), &narrowed(dtype, &dense), &[0]);
            }
            if let Some(after) = case["after"].get(step.to_string()) {
                for (found, wanted) in widened(dtype, &kept.weight).iter().zip(numbers(dtype, after)) {
                    same &= *found == wanted || (found.is_nan() && wanted.is_nan());
                    // Relative to the number, or to a tenth of the largest where a sum has nearly cancelled.
                    let error = (found - wanted).abs() / wanted.abs().max(0.1);
                    worst = if error.is_nan() { f64::INFINITY } else { worst.max(error) };
                }
            }
        }
        cases += 1;
        exact += usize::from(same);
        // MXNet adds up norms in f32, one number after the other; ours are exact, so the rates differ in the seventh digit.
        let limit = match name {
            _ if dtype == DType::F16 => 1e-3,
            "lamb" | "lars" => 1e-6,
            _ => 0.0,
        };
        if worst > limit {
            apart.push(format!("{worst:.1e} {name} {options} sparse {sparse} {dtype}"));
        }
    }
    println!("{exact} of {cases} agree in every bit");
    assert!(apart.is_empty(), "{} of {cases} (exact: {exact}):\n{}", apart.len(), apart.join("\n"));
}

#[test]
fn schedules_agree_with_mxnet() {
    for case in golden("schedules.json") {
        let schedule = schedule(case["kind"].as_str().unwrap(), &case["settings"]);
        schedule.check().unwrap();
        for (n, wanted) in case["rates"][0].as_array().unwrap().iter().enumerate() {
            let (found, wanted) = (schedule.rate(n as u64), wanted.as_f64().unwrap());
            assert!((found - wanted).abs() <= 1e-15, "{case} {n}: {found} {wanted}");
        }
    }
}

#[test]
fn words_and_residuals_agree_with_mxnet() {
    let special =
        [0.5f32, -0.5, 0.499_999_97, -0.499_999_97, 0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e30, -1e30, 1e-45, 1.0, -1.0];
    for case in golden("codes.json") {
        let (count, threshold) = (case["count"].as_u64().unwrap() as usize, case["threshold"].as_f64().unwrap() as f32);
        let code = if case["kind"] == "2bit" { Quantizer::TwoBit { threshold } } else { Quantizer::OneBit { threshold } };
        let (mut residual, mut words) = (vec![0.0; count], vec![0; code.encoded_len(count)]);
        for (round, wanted) in case["rounds"].as_array().unwrap().iter().enumerate() {
            let number = |i: usize| match (round, count % 2) {
                (1, 0) => special[i % special.len()],
                _ => ((((round * count + i) * 7919 + count * 31) % 2003) as f64 / 1001.5 - 1.0) as f32,
            };
            let gradient: Vec<f32> = (0..count).map(number).collect();
            code.encode(&gradient, &mut residual, &mut words).unwrap();
            let hex: String = words.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(wanted["words"], hex, "{code:?}, {count} numbers, round {round}");
            if let Some(bits) = wanted["residual"].as_array() {
                for (found, bits) in residual.iter().zip(bits) {
                    let wanted = f32::from_bits(u32::from_str_radix(bits.as_str().unwrap(), 16).unwrap());
                    let same = found.to_bits() == wanted.to_bits() || (found.is_nan() && wanted.is_nan());
                    assert!(same, "{code:?}, {count} numbers, round {round}: {found} {wanted}");
                }
            }
        }
    }
}

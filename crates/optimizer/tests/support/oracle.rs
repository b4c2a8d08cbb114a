//! The inputs of `scripts/oracle/inputs.py`, and JSON options as ours.

use serde_json::Value;
use syncline_optimizer::{Decay, Optimizer, OptionValue, Schedule, Warmup};

pub(crate) const ROWS: usize = 6;
pub(crate) const COLUMNS: usize = 5;
pub(crate) const COUNT: usize = ROWS * COLUMNS;

pub(crate) fn weights() -> Vec<f64> {
    (0..COUNT).map(|i| ((i * 31 + 7) % 97) as f64 / 48.5 - 1.0).collect()
}

pub(crate) fn gradient(step: usize) -> Vec<f64> {
    (0..COUNT).map(|i| ((i * 7919 + step * 104_729 + 12_345) % 2003) as f64 / 1001.5 - 1.0).collect()
}

pub(crate) fn rows(step: usize) -> Vec<u64> {
    (0..ROWS as u64).filter(|row| (row * 5 + step as u64 * 3) % 4 < 2).collect()
}

pub(crate) fn golden(name: &str) -> Vec<Value> {
    let path = format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A schedule of MXNet by its name and keyword arguments.
pub(crate) fn schedule(kind: &str, settings: &Value) -> Schedule {
    let number = |name: &str, default: f64| settings.get(name).map_or(default, |value| value.as_f64().unwrap());
    let whole = |name: &str| number(name, 0.0) as u64;
    let decay = match kind {
        "Factor" => Decay::Factor { step: whole("step"), factor: number("factor", 1.0), stop_factor_lr: number("stop_factor_lr", 1e-8) },
        "MultiFactor" => {
            let steps = settings["step"].as_array().unwrap().iter().map(|step| step.as_u64().unwrap()).collect();
            Decay::MultiFactor { steps, factor: number("factor", 1.0) }
        }
        "Poly" => Decay::Poly { max_update: whole("max_update"), power: number("pwr", 2.0), final_lr: number("final_lr", 0.0) },
        "Cosine" => Decay::Cosine { max_update: whole("max_update"), final_lr: number("final_lr", 0.0) },
        other => panic!("schedule {other}"),
    };
    let constant = settings.get("warmup_mode").is_some_and(|mode| mode == "constant");
    let warmup = Warmup { steps: whole("warmup_steps"), begin_lr: number("warmup_begin_lr", 0.0), constant };
    Schedule::new(number("base_lr", 0.01), decay).with_warmup(warmup)
}

pub(crate) fn create(name: &str, options: &Value) -> Optimizer {
    let value = |value: &Value| match value {
        Value::Bool(truth) => OptionValue::Truth(*truth),
        Value::Number(number) => OptionValue::Number(number.as_f64().unwrap()),
        Value::Array(schedule_of) => schedule(schedule_of[0].as_str().unwrap(), &schedule_of[1]).into(),
        other => panic!("option {other}"),
    };
    let options: Vec<(&str, OptionValue)> = options.as_object().unwrap().iter().map(|(name, it)| (name.as_str(), value(it))).collect();
    Optimizer::create(name, &options).unwrap()
}

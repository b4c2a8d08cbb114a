//! Optimizers by name and options. Options are a JSON object, which every language can write.

use std::collections::BTreeMap;
use std::ffi::c_char;

use serde_json::{Map, Value as Json};
use syncline::DType;
use syncline::kvstore::{Decay, Key, Optimizer, OptionValue, Schedule, Warmup};

use super::{STORES, syncline_kvstore};
use crate::border::guarded;
use crate::failure::{Failure, syncline_status};
use crate::memory;

/// Lets the optimizer of this name decide what a push does; one worker's call is enough, and the newest counts. `options` is NULL or a JSON object
/// with the names and defaults of MXNet: `{"learning_rate": 0.1, "momentum": 0.9, "lr_mult": {"bias": 2}, "lr_scheduler": {"name": "factor", "step": 10,
/// "factor": 0.5}}`. States begin anew, unless `keep_states` is not 0 and only numbers of the present optimizer change.
///
/// # Safety
/// `name` is a text; `options` is NULL or one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_kvstore_set_optimizer(
    store: *mut syncline_kvstore,
    name: *const c_char,
    options: *const c_char,
    keep_states: i32,
) -> syncline_status {
    guarded(|| {
        let kept = STORES.get(store)?;
        // SAFETY: the caller's promise.
        let (name, options) = unsafe { (memory::needed_text(name, "name")?, memory::text(options, "options")?) };
        let optimizer = named(name, options)?;
        let (store, by) = (kept.store.raw(), kept.by());
        let before = if keep_states != 0 { store.optimizer(by)? } else { None };
        match before {
            Some(before) if keeps_the_same(&before, &optimizer) => store.change_optimizer("set_optimizer", by, |held| {
                *held = optimizer;
                Ok(())
            })?,
            _ => store.set_optimizer(optimizer, by)?,
        }
        Ok(())
    })
}

/// Changes the learning rate, at the servers too; states stay.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_kvstore_set_learning_rate(store: *mut syncline_kvstore, rate: f64) -> syncline_status {
    guarded(|| {
        let kept = STORES.get(store)?;
        Ok(kept.store.raw().set_learning_rate(rate, kept.by())?)
    })
}

/// Copies all options of an optimizer, those that were given and the defaults, as a JSON object into `out`; `size`, if not NULL, tells how many bytes
/// that takes with its closing zero. Cut short where there is less room. Refuses what makes no sense, so it also checks.
///
/// # Safety
/// `name` is a text; `options` is NULL or one; `out` is NULL or has room for `room` bytes; `size` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_optimizer_options(
    name: *const c_char,
    options: *const c_char,
    out: *mut c_char,
    room: usize,
    size: *mut usize,
) -> syncline_status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let (name, options) = unsafe { (memory::needed_text(name, "name")?, memory::text(options, "options")?) };
        let optimizer = named(name, options)?;
        let mut all = Map::new();
        for (option, value) in optimizer.options() {
            all.insert(option.into(), json(value));
        }
        let text = Json::Object(all).to_string();
        // SAFETY: the caller's promise.
        unsafe {
            memory::give_if(size, "size", text.len() + 1)?;
            if out.is_null() { Ok(()) } else { memory::give_text(out, room, &text) }
        }
    })
}

/// Whether the states of one go on under the other.
fn keeps_the_same(before: &Optimizer, after: &Optimizer) -> bool {
    before.method.name() == after.method.name()
        && before.settings.multi_precision == after.settings.multi_precision
        && matches!((before.lanes(DType::F32), after.lanes(DType::F32)), (Ok(before), Ok(after)) if before == after)
}

fn refused(detail: impl std::fmt::Display) -> Failure {
    Failure::new(syncline_status::SYNCLINE_CONFIGURATION, format!("optimizer: {detail}"))
}

fn named(name: &str, options: Option<&str>) -> Result<Optimizer, Failure> {
    let given: Map<String, Json> = match options {
        None => Map::new(),
        Some(text) => serde_json::from_str(text).map_err(|error| refused(format!("the options are no JSON object: {error}")))?,
    };
    let mut options = Vec::with_capacity(given.len());
    for (option, value) in &given {
        options.push((option.as_str(), option_value(name, option, value)?));
    }
    Optimizer::create(name, &options).map_err(refused)
}

fn option_value(optimizer: &str, option: &str, value: &Json) -> Result<OptionValue, Failure> {
    Ok(match value {
        Json::Null => OptionValue::Nothing,
        Json::Bool(truth) => OptionValue::Truth(*truth),
        Json::Number(number) => OptionValue::Number(number.as_f64().unwrap_or(f64::NAN)),
        Json::String(text) => OptionValue::Text(text.clone()),
        Json::Object(schedule) if option == "lr_scheduler" => OptionValue::Schedule(schedule_of(schedule)?),
        Json::Object(numbers) => OptionValue::Numbers(by_key(optimizer, option, numbers)?),
        Json::Array(_) => return Err(refused(format!("{optimizer}: {option} is a list, must be a number"))),
    })
}

/// In JSON every key is a text: what reads as a number counts for the key of that number too.
fn by_key(optimizer: &str, option: &str, numbers: &Map<String, Json>) -> Result<BTreeMap<Key, f64>, Failure> {
    let mut found = BTreeMap::new();
    for (key, number) in numbers {
        let number = number.as_f64().ok_or_else(|| refused(format!("{optimizer}: {option} of {key} is {number}, must be a number")))?;
        if option != "params"
            && let Ok(whole) = key.parse()
        {
            found.insert(Key::Int(whole), number);
        }
        found.insert(Key::from(key.as_str()), number);
    }
    Ok(found)
}

fn schedule_of(schedule: &Map<String, Json>) -> Result<Schedule, Failure> {
    let wrong = |text: String| refused(format!("lr_scheduler: {text}"));
    let number = |name: &str, default: Option<f64>| match schedule.get(name) {
        None | Some(Json::Null) => default.ok_or_else(|| wrong(format!("{name} is missing"))),
        Some(value) => value.as_f64().ok_or_else(|| wrong(format!("{name} is {value}, must be a number"))),
    };
    let whole = |name: &str, default: Option<u64>| match schedule.get(name) {
        None | Some(Json::Null) => default.ok_or_else(|| wrong(format!("{name} is missing"))),
        Some(value) => value.as_u64().ok_or_else(|| wrong(format!("{name} is {value}, must be a whole number, 0 or more"))),
    };
    let text = |name: &str, default: &'static str| schedule.get(name).and_then(Json::as_str).unwrap_or(default).to_owned();
    let known = [
        "name",
        "step",
        "factor",
        "stop_factor_lr",
        "max_update",
        "pwr",
        "final_lr",
        "base_lr",
        "warmup_steps",
        "warmup_begin_lr",
        "warmup_mode",
    ];
    if let Some(stranger) = schedule.keys().find(|name| !known.contains(&name.as_str())) {
        return Err(wrong(format!("it has no {stranger}; there are {}", known.join(", "))));
    }
    let decay = match text("name", "").as_str() {
        "factor" => Decay::Factor {
            step: whole("step", None)?,
            factor: number("factor", Some(1.0))?,
            stop_factor_lr: number("stop_factor_lr", Some(1e-8))?,
        },
        "multifactor" => {
            let steps = schedule.get("step").and_then(Json::as_array).and_then(|steps| steps.iter().map(Json::as_u64).collect());
            let steps: Vec<u64> = steps.ok_or_else(|| wrong("step must be a list of whole numbers".into()))?;
            Decay::MultiFactor { steps, factor: number("factor", Some(1.0))? }
        }
        "poly" => Decay::Poly {
            max_update: whole("max_update", None)?,
            power: number("pwr", Some(2.0))?,
            final_lr: number("final_lr", Some(0.0))?,
        },
        "cosine" => Decay::Cosine { max_update: whole("max_update", None)?, final_lr: number("final_lr", Some(0.0))? },
        other => return Err(wrong(format!("{other:?} is not one of factor, multifactor, poly, cosine"))),
    };
    let constant = match text("warmup_mode", "linear").as_str() {
        "linear" => false,
        "constant" => true,
        other => return Err(wrong(format!("warmup_mode is {other:?}, must be \"linear\" or \"constant\""))),
    };
    let warmup = Warmup { steps: whole("warmup_steps", Some(0))?, begin_lr: number("warmup_begin_lr", Some(0.0))?, constant };
    let schedule = Schedule::new(number("base_lr", Some(0.01))?, decay).with_warmup(warmup);
    schedule.check().map_err(refused)?;
    Ok(schedule)
}

fn json(value: OptionValue) -> Json {
    match value {
        OptionValue::Nothing => Json::Null,
        OptionValue::Number(number) => number.into(),
        OptionValue::Truth(truth) => truth.into(),
        OptionValue::Text(text) => text.into(),
        OptionValue::Numbers(numbers) => {
            numbers.into_iter().map(|(key, number)| (key.to_string(), Json::from(number))).collect::<Map<_, _>>().into()
        }
        OptionValue::Schedule(schedule) => schedule_json(&schedule),
    }
}

fn schedule_json(schedule: &Schedule) -> Json {
    let mut all = match &schedule.decay {
        Decay::Factor { step, factor, stop_factor_lr } => {
            serde_json::json!({ "name": "factor", "step": step, "factor": factor, "stop_factor_lr": stop_factor_lr })
        }
        Decay::MultiFactor { steps, factor } => serde_json::json!({ "name": "multifactor", "step": steps, "factor": factor }),
        Decay::Poly { max_update, power, final_lr } => {
            serde_json::json!({ "name": "poly", "max_update": max_update, "pwr": power, "final_lr": final_lr })
        }
        Decay::Cosine { max_update, final_lr } => serde_json::json!({ "name": "cosine", "max_update": max_update, "final_lr": final_lr }),
    };
    let Warmup { steps, begin_lr, constant } = schedule.warmup;
    all["base_lr"] = schedule.base_lr.into();
    all["warmup_steps"] = steps.into();
    all["warmup_begin_lr"] = begin_lr.into();
    all["warmup_mode"] = if constant { "constant" } else { "linear" }.into();
    all
}

//! Optimizers and schedules as plain Python data, checked and completed by the crate that carries them out.
//!
//! Python's classes hold a name and a dictionary; what is a valid one, and what the defaults are, is decided here and nowhere else.

use std::collections::BTreeMap;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyString};
use syncline_optimizer::{Decay, Key, Optimizer, OptimizerError, OptionValue, Schedule, Warmup};

use crate::errors;

/// All options of the optimizer of this name, those that were given and the defaults; refuses what makes no sense.
#[pyfunction]
pub(crate) fn optimizer_options<'py>(py: Python<'py>, name: &str, options: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyDict>> {
    python_options(py, &optimizer_from(py, name, options)?)
}

/// The learning rate after so many updates, before multipliers.
#[pyfunction]
pub(crate) fn optimizer_rate(py: Python<'_>, name: &str, options: &Bound<'_, PyDict>, updates: u64) -> PyResult<f64> {
    Ok(optimizer_from(py, name, options)?.learning_rate(updates))
}

/// What a schedule says after so many updates; refuses one that makes no sense.
#[pyfunction]
pub(crate) fn schedule_rate(schedule: &Bound<'_, PyDict>, updates: u64) -> PyResult<f64> {
    let py = schedule.py();
    let schedule = schedule_from(schedule)?;
    schedule.check().map_err(|error| refused(py, &error))?;
    Ok(schedule.rate(updates))
}

/// An optimizer from its name and options.
pub(crate) fn optimizer_from(py: Python<'_>, name: &str, options: &Bound<'_, PyDict>) -> PyResult<Optimizer> {
    let mut given = Vec::with_capacity(options.len());
    for (option, value) in options {
        let option: String = option.extract()?;
        let value = option_value(name, &option, &value)?;
        given.push((option, value));
    }
    let given: Vec<(&str, OptionValue)> = given.iter().map(|(option, value)| (option.as_str(), value.clone())).collect();
    Optimizer::create(name, &given).map_err(|error| refused(py, &error))
}

/// The options of an optimizer, as they are written in Python.
pub(crate) fn python_options<'py>(py: Python<'py>, optimizer: &Optimizer) -> PyResult<Bound<'py, PyDict>> {
    let complete = PyDict::new(py);
    for (option, value) in optimizer.options() {
        complete.set_item(option, python_value(py, option, value)?)?;
    }
    Ok(complete)
}

/// A key as users write it: a whole number of 64 bits, or a name.
pub(crate) fn key_from(object: &Bound<'_, PyAny>) -> PyResult<Key> {
    if let Ok(name) = object.cast::<PyString>() {
        return Ok(Key::Name(name.to_str()?.to_owned()));
    }
    if !object.is_instance_of::<PyBool>()
        && let Ok(number) = object.extract::<i64>()
    {
        return Ok(Key::Int(number));
    }
    let found = object.repr()?;
    let text = format!("{found} is no key\nhint: keys are whole numbers of 64 bits, or str");
    Err(errors::of_class(object.py(), "DTypeMismatch", text))
}

/// The other way round.
pub(crate) fn python_key<'py>(py: Python<'py>, key: &Key) -> PyResult<Bound<'py, PyAny>> {
    Ok(match key {
        Key::Int(number) => number.into_pyobject(py)?.into_any(),
        Key::Name(name) => name.into_pyobject(py)?.into_any(),
    })
}

fn option_value(optimizer: &str, option: &str, value: &Bound<'_, PyAny>) -> PyResult<OptionValue> {
    if value.is_none() {
        return Ok(OptionValue::Nothing);
    }
    if let Ok(truth) = value.cast::<PyBool>() {
        return Ok(OptionValue::Truth(truth.is_true()));
    }
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(OptionValue::Text(text.to_str()?.to_owned()));
    }
    if option == "lr_scheduler"
        && let Ok(schedule) = value.cast::<PyDict>()
    {
        return Ok(OptionValue::Schedule(schedule_from(schedule)?));
    }
    if let Ok(numbers) = value.cast::<PyDict>() {
        return by_key(numbers).map(OptionValue::Numbers);
    }
    match value.extract() {
        Ok(number) => Ok(OptionValue::Number(number)),
        Err(_) => {
            let text = format!("{optimizer}: {option} is {}, must be a number", value.repr()?);
            Err(errors::of_class(value.py(), "ConfigurationError", text))
        }
    }
}

fn by_key(numbers: &Bound<'_, PyDict>) -> PyResult<BTreeMap<Key, f64>> {
    numbers.iter().map(|(key, number)| Ok((key_from(&key)?, number.extract()?))).collect()
}

fn python_value<'py>(py: Python<'py>, option: &str, value: OptionValue) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        OptionValue::Nothing => py.None().into_bound(py),
        OptionValue::Number(number) if ["seed", "begin_num_update"].contains(&option) => (number as u64).into_pyobject(py)?.into_any(),
        OptionValue::Number(number) => number.into_pyobject(py)?.into_any(),
        OptionValue::Truth(truth) => truth.into_pyobject(py)?.to_owned().into_any(),
        OptionValue::Text(text) => text.into_pyobject(py)?.into_any(),
        OptionValue::Schedule(schedule) => python_schedule(py, &schedule)?.into_any(),
        OptionValue::Numbers(numbers) => {
            let dictionary = PyDict::new(py);
            for (key, number) in numbers {
                dictionary.set_item(python_key(py, &key)?, number)?;
            }
            dictionary.into_any()
        }
    })
}

fn schedule_from(schedule: &Bound<'_, PyDict>) -> PyResult<Schedule> {
    let py = schedule.py();
    let wrong = |text: String| errors::of_class(py, "ConfigurationError", format!("lr_scheduler: {text}"));
    let item = |name: &str| -> PyResult<Bound<'_, PyAny>> { schedule.get_item(name)?.ok_or_else(|| wrong(format!("{name} is missing"))) };
    let number = |name: &str| -> PyResult<f64> { item(name)?.extract().map_err(|_| wrong(format!("{name} must be a number"))) };
    let whole =
        |name: &str| -> PyResult<u64> { item(name)?.extract().map_err(|_| wrong(format!("{name} must be a whole number, 0 or more"))) };
    let name: String = item("name")?.extract()?;
    let decay = match name.as_str() {
        "factor" => Decay::Factor { step: whole("step")?, factor: number("factor")?, stop_factor_lr: number("stop_factor_lr")? },
        "multifactor" => {
            let steps = item("step")?.extract().map_err(|_| wrong("step must be a list of whole numbers".into()))?;
            Decay::MultiFactor { steps, factor: number("factor")? }
        }
        "poly" => Decay::Poly { max_update: whole("max_update")?, power: number("pwr")?, final_lr: number("final_lr")? },
        "cosine" => Decay::Cosine { max_update: whole("max_update")?, final_lr: number("final_lr")? },
        other => return Err(wrong(format!("{other:?} is not one of factor, multifactor, poly, cosine"))),
    };
    let mode: String = item("warmup_mode")?.extract()?;
    let constant = match mode.as_str() {
        "linear" => false,
        "constant" => true,
        other => return Err(wrong(format!("warmup_mode is {other:?}, must be \"linear\" or \"constant\""))),
    };
    let warmup = Warmup { steps: whole("warmup_steps")?, begin_lr: number("warmup_begin_lr")?, constant };
    Ok(Schedule::new(number("base_lr")?, decay).with_warmup(warmup))
}

fn python_schedule<'py>(py: Python<'py>, schedule: &Schedule) -> PyResult<Bound<'py, PyDict>> {
    let dictionary = PyDict::new(py);
    match &schedule.decay {
        Decay::Factor { step, factor, stop_factor_lr } => {
            dictionary.set_item("name", "factor")?;
            dictionary.set_item("step", step)?;
            dictionary.set_item("factor", factor)?;
            dictionary.set_item("stop_factor_lr", stop_factor_lr)?;
        }
        Decay::MultiFactor { steps, factor } => {
            dictionary.set_item("name", "multifactor")?;
            dictionary.set_item("step", steps)?;
            dictionary.set_item("factor", factor)?;
        }
        Decay::Poly { max_update, power, final_lr } => {
            dictionary.set_item("name", "poly")?;
            dictionary.set_item("max_update", max_update)?;
            dictionary.set_item("pwr", power)?;
            dictionary.set_item("final_lr", final_lr)?;
        }
        Decay::Cosine { max_update, final_lr } => {
            dictionary.set_item("name", "cosine")?;
            dictionary.set_item("max_update", max_update)?;
            dictionary.set_item("final_lr", final_lr)?;
        }
    }
    let Warmup { steps, begin_lr, constant } = schedule.warmup;
    dictionary.set_item("base_lr", schedule.base_lr)?;
    dictionary.set_item("warmup_steps", steps)?;
    dictionary.set_item("warmup_begin_lr", begin_lr)?;
    dictionary.set_item("warmup_mode", if constant { "constant" } else { "linear" })?;
    Ok(dictionary)
}

fn refused(py: Python<'_>, error: &OptimizerError) -> PyErr {
    errors::of_class(py, "ConfigurationError", format!("optimizer: {error}"))
}

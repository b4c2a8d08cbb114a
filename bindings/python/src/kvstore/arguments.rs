//! One key or several, one value or several for each: what users write, laid out as the store wants it.

use pyo3::prelude::*;
use syncline::kvstore::Key;

use super::values::{Item, Purpose, Target, helpers, is_rows, listed};
use crate::errors;
use crate::memory::Lent;
use crate::optimizer::key_from;

/// Keys as they were written.
pub(super) struct Keys {
    pub(super) keys: Vec<Key>,
    /// A list, even of one, rather than a key.
    pub(super) many: bool,
}

impl Keys {
    pub(super) fn of(object: &Bound<'_, PyAny>) -> PyResult<Keys> {
        let Some(list) = listed(object) else { return Ok(Keys { keys: vec![key_from(object)?], many: false }) };
        let keys = list.iter().map(key_from).collect::<PyResult<Vec<Key>>>()?;
        let names = keys.iter().filter(|key| matches!(key, Key::Name(_))).count();
        if names != 0 && names != keys.len() {
            let text = "kvstore: inconsistent types of keys detected.\nhint: the keys of a store are all int or all str";
            return Err(errors::of_class(object.py(), "ConfigurationError", text));
        }
        Ok(Keys { keys, many: true })
    }

    /// What belongs to each key: one thing, or a list of them.
    pub(super) fn apart<'py>(&self, object: &Bound<'py, PyAny>, what: &str) -> PyResult<Vec<Vec<Bound<'py, PyAny>>>> {
        let whole = |each: &Bound<'py, PyAny>| listed(each).unwrap_or_else(|| vec![each.clone()]);
        if !self.many {
            return Ok(vec![whole(object)]);
        }
        let list = listed(object).filter(|list| list.len() == self.keys.len());
        let Some(list) = list else {
            let found = listed(object).map_or(1, |list| list.len());
            let error = helpers(object.py())?.call_method1("refuse_count", (what, self.keys.len(), found))?;
            return Err(PyErr::from_value(error));
        };
        Ok(list.iter().map(whole).collect())
    }

    /// The values of each key.
    pub(super) fn items(&self, object: &Bound<'_, PyAny>, operation: &'static str) -> PyResult<Vec<Vec<Item>>> {
        let of_key =
            |(list, key): (&Vec<Bound<'_, PyAny>>, &Key)| list.iter().map(|each| Item::of(each, Purpose::new(operation, key))).collect();
        self.apart(object, "values")?.iter().zip(&self.keys).map(of_key).collect()
    }

    /// The outputs of each key. The same array twice is written once.
    pub(super) fn targets<'py>(&self, object: &Bound<'py, PyAny>, operation: &'static str) -> PyResult<Vec<Vec<Target<'py>>>> {
        let mut targets: Vec<Vec<Target<'py>>> = Vec::new();
        for (list, key) in self.apart(object, "outputs")?.iter().zip(&self.keys) {
            let mut outputs = Vec::with_capacity(list.len());
            for (place, each) in list.iter().enumerate() {
                if !list[..place].iter().any(|before| before.is(each)) {
                    outputs.push(Target::of(each, Purpose::new(operation, key))?);
                }
            }
            targets.push(outputs);
        }
        let memory: Vec<&Lent> = targets.iter().flatten().filter_map(Target::memory).collect();
        let overlap = memory.iter().enumerate().any(|(place, one)| memory[..place].iter().any(|other| one.overlaps(other)));
        if overlap {
            let text = format!("{operation}: two outputs lie in the same memory");
            return Err(errors::of_class(object.py(), "ShapeMismatch", text));
        }
        Ok(targets)
    }

    /// Whether a value lies where an output does.
    pub(super) fn collide(items: &[Vec<Item>], targets: &[Vec<Target<'_>>]) -> bool {
        let given = items.iter().flatten().filter_map(|item| match item {
            Item::Dense { lent, .. } => Some(lent),
            Item::Rows(_) => None,
        });
        let outputs: Vec<&Lent> = targets.iter().flatten().filter_map(Target::memory).collect();
        given.into_iter().any(|value| outputs.iter().any(|output| output.overlaps(value)))
    }
}

/// The rows that are wanted for each output of one key, `count` of them: one list of ids for all, or one for each.
pub(super) fn row_ids(object: &Bound<'_, PyAny>, count: usize, purpose: Purpose<'_>) -> PyResult<Vec<Vec<i64>>> {
    let py = object.py();
    let several = match listed(object) {
        Some(list) if !helpers(py)?.call_method1("is_sequence_of_numbers", (object,))?.extract::<bool>()? => Some(list),
        _ => None,
    };
    match several {
        None => Ok(vec![one_list(object, purpose)?; count.max(1)]),
        Some(list) if list.len() == 1 => Ok(vec![one_list(&list[0], purpose)?; count.max(1)]),
        Some(list) if list.len() == count => list.iter().map(|each| one_list(each, purpose)).collect(),
        Some(list) => {
            let text = format!("{purpose}: the number of row_ids doesn't match the number of values: {} and {count}", list.len());
            Err(errors::of_class(py, "ShapeMismatch", text))
        }
    }
}

/// One list of ids.
pub(super) fn one_list(object: &Bound<'_, PyAny>, purpose: Purpose<'_>) -> PyResult<Vec<i64>> {
    let array = helpers(object.py())?.call_method1("row_ids", (object, purpose.to_string()))?;
    Ok(super::values::contiguous(&array)?.ids().map(<[i64]>::to_vec).unwrap_or_default())
}

/// Refuses what only a row-sparse output can take.
pub(super) fn needs_rows(object: &Bound<'_, PyAny>) -> PyResult<()> {
    if is_rows(object)? {
        return Ok(());
    }
    let text = "row_sparse_pull: the output must be a RowSparse\nhint: pull() fills dense arrays";
    Err(errors::of_class(object.py(), "DTypeMismatch", text))
}

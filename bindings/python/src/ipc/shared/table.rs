//! Shared tables.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use syncline::ipc::{self, Family, Value};

use super::family;
use super::handle::{Handled, reduce};
use super::parcel::{Arrays, Parcel, unpacked};
use super::wait;
use crate::errors;

/// A mapping that threads and processes share; `syncline.ipc.sharedtable()` makes it.
///
/// What is read is a copy (but for large arrays, which are read where they lie and stay as they are): a nested dict has to be assigned again to be changed, or be a shared table itself. Each call is one step for
/// all others; what takes several (`t[k] += 1`) needs a mutex.
#[pyclass(frozen, module = "syncline.ipc")]
pub(crate) struct SharedTable {
    inner: ipc::SharedTable,
    family: Family,
}

impl SharedTable {
    pub(super) fn over(family: &Family, inner: ipc::SharedTable) -> SharedTable {
        SharedTable { inner, family: family.clone() }
    }

    fn found<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let key = Key::of(key)?;
        let found = wait(py, || self.inner.get(&key.0))?;
        found.map(|value| unpacked(py, value, Arrays::Common)).transpose()
    }
}

impl Handled for SharedTable {
    fn handle(&self) -> Result<Value<'static>, ipc::Error> {
        Ok(self.inner.handle())
    }

    fn family(&self) -> &Family {
        &self.family
    }
}

/// A key, which holds its bytes itself.
struct Key(Value<'static>);

impl Key {
    fn of(object: &Bound<'_, PyAny>) -> PyResult<Key> {
        let py = object.py();
        object.hash()?; // as for any other mapping
        let parcel = Parcel::of(object)?;
        let value = parcel.value(py).map_err(|cause| errors::of_ipc(py, &ipc::Error::Unsendable { operation: "key", cause }))?;
        if let Value::Nil = value {
            return Err(errors::of_class(py, "ConfigurationError", "sharedtable: None cannot be a key"));
        }
        Ok(Key(value.into_owned()))
    }
}

fn missing(py: Python<'_>, key: &Bound<'_, PyAny>) -> PyErr {
    errors::of_class(py, "UnknownKey", key.repr().map_or_else(|_| "the key".to_owned(), |text| text.to_string()))
}

#[pymethods]
impl SharedTable {
    #[new]
    fn new(py: Python<'_>) -> PyResult<SharedTable> {
        let family = family::home(py)?;
        let inner = wait(py, || ipc::SharedTable::new(&family))?;
        Ok(SharedTable { inner, family })
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.found(py, key)?.ok_or_else(|| missing(py, key))
    }

    fn __setitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let (key, parcel) = (Key::of(key)?, Parcel::of(value)?);
        let value = parcel.value(py).map_err(|cause| errors::of_ipc(py, &ipc::Error::Unsendable { operation: "set", cause }))?;
        wait(py, || self.inner.set(&key.0, &value)).map(drop)
    }

    fn __delitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let given = Key::of(key)?;
        if wait(py, || self.inner.remove(&given.0))? { Ok(()) } else { Err(missing(py, key)) }
    }

    fn __contains__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let key = Key::of(key)?;
        Ok(wait(py, || self.inner.get(&key.0))?.is_some())
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        wait(py, || self.inner.len())
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.keys(py)?.try_iter()?.into_any())
    }

    /// The value of `key`, or `default`.
    #[pyo3(signature = (key, default = None))]
    fn get<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>, default: Option<Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.found(py, key)?.or(default).unwrap_or_else(|| py.None().into_bound(py)))
    }

    /// Removes `key` and returns its value; `default`, if one is given, when it is not there.
    #[pyo3(signature = (key, *default))]
    fn pop<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>, default: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
        let given = Key::of(key)?;
        match wait(py, || self.inner.take(&given.0))? {
            Some(value) => unpacked(py, value, Arrays::Common),
            None => default.get_item(0).map_err(|_| missing(py, key)),
        }
    }

    /// Removes all pairs, as one step.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        wait(py, || self.inner.clear())
    }

    /// All pairs as they are at one moment.
    fn pairs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let pairs = wait(py, || self.inner.pairs())?;
        let pairs: Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)> = pairs
            .into_iter()
            .map(|(key, value)| Ok((unpacked(py, key, Arrays::Common)?, unpacked(py, value, Arrays::Common)?)))
            .collect::<PyResult<_>>()?;
        PyList::new(py, pairs)
    }

    /// The same as `pairs()`.
    fn items<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.pairs(py)
    }

    /// The keys as they are at one moment.
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let pairs = wait(py, || self.inner.pairs())?;
        let keys: Vec<Bound<'py, PyAny>> = pairs.into_iter().map(|(key, _)| unpacked(py, key, Arrays::Common)).collect::<PyResult<_>>()?;
        PyList::new(py, keys)
    }

    /// The values as they are at one moment.
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let pairs = wait(py, || self.inner.pairs())?;
        let values: Vec<Bound<'py, PyAny>> =
            pairs.into_iter().map(|(_, value)| unpacked(py, value, Arrays::Common)).collect::<PyResult<_>>()?;
        PyList::new(py, values)
    }

    /// Takes over every pair of another mapping, or of an iterable of pairs.
    fn update(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<()> {
        let other = match other.hasattr("items")? {
            true => other.call_method0("items")?,
            false => other.clone(),
        };
        for pair in other.try_iter()? {
            let (key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair?.extract()?;
            self.__setitem__(py, &key, &value)?;
        }
        Ok(())
    }

    /// Everything as a dict of this process's own.
    fn copy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        PyDict::from_sequence(&self.pairs(py)?.into_any())
    }

    /// How many bytes it takes.
    fn size(&self, py: Python<'_>) -> PyResult<usize> {
        wait(py, || self.inner.size())
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        reduce(py, self)
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast_exact::<SharedTable>().is_ok_and(|other| other.get().inner.handle() == self.inner.handle())
    }

    fn __hash__(&self) -> u64 {
        super::number(&self.inner.handle())
    }
}

//! What a call takes in and gives out: by pointer where dtype and layout are the table's, through NumPy where not.
//!
//! ```text
//!   add(delta)   right dtype, C order ── pointer ──────────────────────▶ table
//!                anything else ── syncline._arrays, one copy ──────────▶ table
//!   get(out)     right dtype, C order, writable ◀── pointer ───────────── table
//!                another array ◀── one copy ── a fresh one ◀───────────── table
//! ```

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;
use syncline::DType;

use crate::errors;
use crate::memory::Lent;

/// Numbers that came in.
pub(crate) struct Given(Lent);

impl Given {
    /// `object` as exactly `count` numbers of `dtype`, whatever its shape. `operation` begins the error's text.
    pub(crate) fn numbers(object: &Bound<'_, PyAny>, dtype: DType, count: usize, operation: &dyn Fn() -> String) -> PyResult<Given> {
        let given = Given::any_numbers(object, dtype, operation)?;
        check_count(object.py(), given.0.count(), count, dtype, "were given", operation)?;
        Ok(given)
    }

    /// `object` as numbers of `dtype`, however many.
    pub(crate) fn any_numbers(object: &Bound<'_, PyAny>, dtype: DType, operation: &dyn Fn() -> String) -> PyResult<Given> {
        match Lent::by(object) {
            Some(lent) if lent.dtype == Some(dtype) => Ok(Given(lent)),
            _ => {
                let converted = python(object.py())?.call_method1("converted", (object, dtype.name(), operation()))?;
                contiguous(&converted).map(Given)
            }
        }
    }

    /// Its bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    /// Its bytes apart from `out`: a copy when both are the same memory.
    pub(crate) fn apart_from(&self, out: &Out<'_>) -> Option<Vec<u8>> {
        self.0.overlaps(&out.lent).then(|| self.0.bytes().to_vec())
    }
}

/// Row ids or keys that came in.
pub(crate) struct Ids {
    lent: Lent,
    /// A single number rather than a sequence.
    pub(crate) single: bool,
}

impl Ids {
    /// `object` as 64-bit whole numbers; `what` names it in errors.
    pub(crate) fn sequence(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Ids> {
        match Lent::by(object) {
            Some(lent) if lent.dimensions == 1 && lent.ids().is_some() => Ok(Ids { lent, single: false }),
            _ => Ids::converted(object, what, false),
        }
    }

    /// The same, where one number stands for a sequence of one.
    pub(crate) fn sequence_or_one(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Ids> {
        match Lent::by(object) {
            Some(lent) if lent.dimensions <= 1 && lent.ids().is_some() => Ok(Ids { single: lent.dimensions == 0, lent }),
            _ => Ids::converted(object, what, true),
        }
    }

    fn converted(object: &Bound<'_, PyAny>, what: &str, one_is_fine: bool) -> PyResult<Ids> {
        let (array, single): (Bound<'_, PyAny>, bool) =
            python(object.py())?.call_method1("whole_numbers", (object, what, one_is_fine))?.extract()?;
        Ok(Ids { lent: contiguous(&array)?, single })
    }

    /// The numbers.
    pub(crate) fn as_slice(&self) -> &[i64] {
        self.lent.ids().expect("checked when it was made")
    }
}

/// Where a result goes.
pub(crate) struct Out<'py> {
    lent: Lent,
    dtype: DType,
    into: Into<'py>,
}

enum Into<'py> {
    /// The caller's array, written in place.
    Given(Bound<'py, PyAny>),
    /// A fresh array.
    Fresh(Bound<'py, PyAny>),
    /// A fresh one first, then the caller's: its dtype or layout differs.
    Through { fresh: Bound<'py, PyAny>, target: Bound<'py, PyAny>, name: String, given: Bound<'py, PyAny> },
}

impl<'py> Out<'py> {
    /// A fresh array of this shape.
    pub(crate) fn fresh(numpy: &Numpy, dtype: DType, shape: &Bound<'py, PyTuple>) -> PyResult<Out<'py>> {
        let fresh = numpy.empty.bind(shape.py()).call1((shape, &numpy.storage))?;
        Ok(Out { lent: contiguous(&fresh)?, dtype, into: Into::Fresh(fresh) })
    }

    /// The caller's array, which must hold exactly `count` numbers, whatever its shape.
    pub(crate) fn given(
        out: &Bound<'py, PyAny>,
        numpy: &Numpy,
        dtype: DType,
        count: usize,
        operation: &dyn Fn() -> String,
    ) -> PyResult<Out<'py>> {
        if let Some(lent) = Lent::by(out).filter(|lent| lent.dtype == Some(dtype) && lent.writable) {
            check_count(out.py(), lent.count(), count, dtype, "fit into `out`", operation)?;
            return Ok(Out { lent, dtype, into: Into::Given(out.clone()) });
        }
        let target = python(out.py())?.call_method1("target", (out, dtype.name(), operation()))?;
        let (target, name, direct): (Bound<'py, PyAny>, String, bool) = target.extract()?;
        let there: usize = target.getattr("size")?.extract()?;
        check_count(out.py(), there, count, dtype, "fit into `out`", operation)?;
        if direct {
            return Ok(Out { lent: contiguous(&target)?, dtype, into: Into::Given(out.clone()) });
        }
        let fresh = numpy.empty.bind(out.py()).call1((count, &numpy.storage))?;
        Ok(Out { lent: contiguous(&fresh)?, dtype, into: Into::Through { fresh, target, name, given: out.clone() } })
    }

    /// The caller's array if there is one, else a fresh one.
    pub(crate) fn of(
        out: Option<&Bound<'py, PyAny>>,
        numpy: &Numpy,
        dtype: DType,
        shape: &Bound<'py, PyTuple>,
        count: usize,
        operation: &dyn Fn() -> String,
    ) -> PyResult<Out<'py>> {
        match out {
            Some(out) => Out::given(out, numpy, dtype, count, operation),
            None => Out::fresh(numpy, dtype, shape),
        }
    }

    /// The memory to write to.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.lent.bytes_mut()
    }

    /// What the caller gets.
    pub(crate) fn finish(self) -> PyResult<Bound<'py, PyAny>> {
        match self.into {
            Into::Given(out) => Ok(out),
            Into::Fresh(fresh) => presented(fresh, self.dtype),
            Into::Through { fresh, target, name, given } => {
                python(fresh.py())?.call_method1("pour", (fresh, self.dtype.name(), target, name))?;
                Ok(given)
            }
        }
    }
}

impl Out<'_> {
    /// The end of a call that wrote only these rows of a table of this shape: the others stay what they are, to the last bit.
    pub(crate) fn finish_rows(self, rows: &Bound<'_, PyAny>, shape: (usize, usize)) -> PyResult<()> {
        if let Into::Through { fresh, target, name, .. } = self.into {
            python(fresh.py())?.call_method1("pour_rows", (fresh, self.dtype.name(), target, name, rows, shape))?;
        }
        Ok(())
    }
}

/// What a table needs of NumPy, looked up once.
pub(crate) struct Numpy {
    empty: Py<PyAny>,
    /// The dtype its bytes are kept in: the table's, or 16 plain bits for bfloat16.
    storage: Py<PyAny>,
}

impl Numpy {
    pub(crate) fn of(py: Python<'_>, dtype: DType) -> PyResult<Numpy> {
        let (empty, storage) = python(py)?.call_method1("makers", (dtype.name(),))?.extract()?;
        Ok(Numpy { empty, storage })
    }
}

/// A fresh array as users see it: bfloat16 takes the best form there is, all others are what they are.
pub(crate) fn presented(array: Bound<'_, PyAny>, dtype: DType) -> PyResult<Bound<'_, PyAny>> {
    match dtype {
        DType::BF16 => python(array.py())?.call_method1("as_bfloat16", (array,)),
        _ => Ok(array),
    }
}

/// The dtype that a user named: a string, NumPy's object for it, or a type; float32 where nothing is said.
pub(crate) fn dtype_named(dtype: Option<&Bound<'_, PyAny>>) -> PyResult<DType> {
    let Some(dtype) = dtype else { return Ok(DType::F32) };
    let name: String = match dtype.extract() {
        Ok(name) => name,
        Err(_) => python(dtype.py())?.call_method1("dtype_name", (dtype,))?.extract()?,
    };
    DType::from_name(&name).map_err(|_| {
        let known = DType::ALL.map(DType::name).join(", ");
        errors::of_class(dtype.py(), "ConfigurationError", format!("dtype {name:?} is not one of {known}"))
    })
}

/// The module with all that is better said in NumPy.
pub(crate) fn python(py: Python<'_>) -> PyResult<&Bound<'_, PyModule>> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    Ok(MODULE.get_or_try_init(py, || py.import("syncline._arrays").map(Bound::unbind))?.bind(py))
}

fn contiguous<'py>(array: &Bound<'py, PyAny>) -> PyResult<Lent> {
    Lent::by(array).ok_or_else(|| errors::of_class(array.py(), "SynclineError", "an array that was just made lends no memory"))
}

fn check_count(py: Python<'_>, there: usize, wanted: usize, dtype: DType, how: &str, operation: &dyn Fn() -> String) -> PyResult<()> {
    if there == wanted {
        return Ok(());
    }
    let text = format!("{}: {there} numbers {how}, {wanted} of {dtype} are needed", operation());
    Err(errors::of_class(py, "ShapeMismatch", text))
}

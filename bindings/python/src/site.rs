//! Where in the user's program a call stands, remembered by instruction.
//!
//! The words are made in Python (`_site.py`), which takes longer than a small array's reduction. A loop calls from the same
//! few instructions again and again: these are known by their code object and their place in it.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::{ffi, intern};

/// An instruction that called before. Its code is kept, so that no other one gets its address.
struct Known {
    code: Py<PyAny>,
    instruction: i32,
    site: Arc<str>,
}

/// The last few of them, the newest first. Touched only while the interpreter is held, and for a moment.
static KNOWN: Mutex<Vec<Known>> = Mutex::new(Vec::new());
const KEPT: usize = 16;

/// `file:line` of the innermost frame that is not Syncline's own.
pub(crate) fn here(py: Python<'_>) -> PyResult<Arc<str>> {
    static INNERMOST: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let instruction = instruction(py);
    if let Some((code, place)) = &instruction {
        let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.iter().find(|known| known.instruction == *place && known.code.is(code)) {
            return Ok(Arc::clone(&found.site));
        }
    }
    let innermost = INNERMOST.get_or_try_init(py, || Ok::<_, PyErr>(py.import("syncline._site")?.getattr("innermost")?.unbind()))?;
    let (site, calls): (String, bool) = innermost.bind(py).call0()?.extract()?;
    let site: Arc<str> = site.into();
    if let Some((code, instruction)) = instruction.filter(|_| calls) {
        let known = Known { code: code.unbind(), instruction, site: Arc::clone(&site) };
        let forgotten = {
            let mut all = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
            all.insert(0, known);
            if all.len() > KEPT { all.pop() } else { None }
        };
        drop(forgotten); // after the lock: dropping an object may run any code
    }
    Ok(site)
}

/// The code that runs in Python right now, and the place in it. None where no Python code runs.
fn instruction(py: Python<'_>) -> Option<(Bound<'_, PyAny>, i32)> {
    // SAFETY: the interpreter is held; the frame, lent, is that of the code that called us and runs on after we return.
    let frame = unsafe { Bound::from_borrowed_ptr_or_opt(py, ffi::PyEval_GetFrame().cast()) }?;
    let code = frame.getattr(intern!(py, "f_code")).ok()?;
    let place = frame.getattr(intern!(py, "f_lasti")).ok()?.extract().ok()?;
    Some((code, place))
}

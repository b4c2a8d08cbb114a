//! A value that is laid out once and read many times, from any thread: torch-ipc's `marshal`.
//!
//! Each read makes a value of its own: readers cannot see what others do to theirs.

use std::sync::{Arc, PoisonError, RwLock};

use syncline_wire::{Limits, Value};

use crate::Error;

/// The bytes of a value.
///
/// ```
/// use syncline_ipc::{Marshal, Value};
///
/// let weights = Marshal::new(&Value::from(vec![Value::from("conv1"), Value::from(0.5)]))?;
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| assert!(matches!(weights.read(), Ok(Value::List(items)) if items.len() == 2)));
///     }
/// });
/// # Ok::<(), syncline_ipc::Error>(())
/// ```
#[derive(Debug)]
pub struct Marshal {
    laid_out: RwLock<Option<Arc<LaidOut>>>,
}

#[derive(Debug)]
struct LaidOut {
    structure: Vec<u8>,
    bulk: Vec<u8>,
}

impl Marshal {
    /// Lays `value` out. Nil is refused: there would be nothing to read.
    pub fn new(value: &Value<'_>) -> Result<Marshal, Error> {
        const OPERATION: &str = "marshal";
        if let Value::Nil = value {
            return Err(Error::Configuration { operation: OPERATION, detail: "there is nothing to marshal in nil".into() });
        }
        let encoded = value.encode(&Limits::default()).map_err(|cause| Error::Unsendable { operation: OPERATION, cause })?;
        let laid_out = LaidOut { structure: encoded.meta().to_vec(), bulk: encoded.payload_to_vec() };
        Ok(Marshal { laid_out: RwLock::new(Some(Arc::new(laid_out))) })
    }

    /// The value, with memory of its own.
    pub fn read(&self) -> Result<Value<'static>, Error> {
        const OPERATION: &str = "read";
        let laid_out = self.laid_out.read().unwrap_or_else(PoisonError::into_inner).clone();
        let laid_out = laid_out.ok_or_else(|| Error::Closed { operation: OPERATION, what: "marshal is closed".into() })?;
        let value = Value::decode(&laid_out.structure, &laid_out.bulk, &Limits::default());
        value.map(Value::into_owned).map_err(|cause| Error::Unsendable { operation: OPERATION, cause })
    }

    /// How many bytes it keeps.
    pub fn size(&self) -> usize {
        let laid_out = self.laid_out.read().unwrap_or_else(PoisonError::into_inner);
        laid_out.as_ref().map_or(0, |laid_out| laid_out.structure.len() + laid_out.bulk.len())
    }

    /// Gives the bytes back; a read after it fails. A second time does nothing.
    pub fn close(&self) {
        *self.laid_out.write().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

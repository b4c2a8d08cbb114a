//! A value that is laid out once and read many times, from any thread or process: torch-ipc's `marshal`.
//!
//! Each read makes a value of its own around tensors that lie where they were laid out, so nobody sees what others do to theirs.

use std::sync::{Arc, PoisonError, RwLock};

use syncline_shm::estate::{Held, KIND_DEPOSIT};
use syncline_wire::{HandleKind, Limits, Value};

use crate::deposit::{deposited, laid_out, objects_of};
use crate::handle::{handle, held_by};
use crate::{Error, Family};

/// A value in the memory of a family.
///
/// ```
/// use syncline_ipc::{Family, Marshal, Value};
///
/// let family = Family::alone()?;
/// let weights = Marshal::new(&family, &Value::from(vec![Value::from("conv1"), Value::from(0.5)]))?;
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| assert!(matches!(weights.read(), Ok(Value::List(items)) if items.len() == 2)));
///     }
/// });
/// let handle = weights.handle()?; // travels through channels and tables, also to other processes of the family
/// assert_eq!(Marshal::open(&family, &handle)?.read()?, weights.read()?);
/// # Ok::<(), syncline_ipc::Error>(())
/// ```
pub struct Marshal {
    family: Family,
    held: RwLock<Option<Arc<Held>>>,
}

impl Marshal {
    /// Lays `value` out. Nil is refused: there would be nothing to read.
    pub fn new(family: &Family, value: &Value<'_>) -> Result<Marshal, Error> {
        const OPERATION: &str = "marshal";
        family.check(OPERATION)?;
        if let Value::Nil = value {
            return Err(Error::Configuration { operation: OPERATION, detail: "there is nothing to marshal in nil".into() });
        }
        let encoded =
            value.encode_local(Vec::new(), &Limits::default()).map_err(|cause| Error::Unsendable { operation: OPERATION, cause })?;
        let deposit = laid_out(family, &encoded, &objects_of(family, value, OPERATION)?, OPERATION)?;
        Ok(Self::over(family, Arc::clone(deposit.held())))
    }

    fn over(family: &Family, held: Arc<Held>) -> Marshal {
        Marshal { family: family.clone(), held: RwLock::new(Some(held)) }
    }

    /// The one that a handle leads to.
    pub fn open(family: &Family, handle: &Value<'_>) -> Result<Marshal, Error> {
        Ok(Self::over(family, held_by(family, handle, HandleKind::Marshal, KIND_DEPOSIT, "marshal")?))
    }

    /// A handle, to be sent through channels, queues and tables.
    pub fn handle(&self) -> Result<Value<'static>, Error> {
        Ok(handle(&self.family, &self.held("handle")?, HandleKind::Marshal))
    }

    /// The value. Its tensors are read where they lie, all else is this reader's own.
    pub fn read(&self) -> Result<Value<'static>, Error> {
        const OPERATION: &str = "read";
        self.family.check(OPERATION)?;
        deposited(&self.family, self.held(OPERATION)?, OPERATION).map(|(value, _)| value)
    }

    /// How many bytes it keeps; none after it was closed.
    pub fn size(&self) -> usize {
        let held = self.held("size").ok();
        held.and_then(|held| deposited(&self.family, held, "size").ok()).map_or(0, |(_, len)| len)
    }

    /// Lets go of the bytes, which go with the last who holds them; a read after it fails. A second time does nothing.
    pub fn close(&self) {
        *self.held.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn held(&self, operation: &'static str) -> Result<Arc<Held>, Error> {
        let held = self.held.read().unwrap_or_else(PoisonError::into_inner).clone();
        held.ok_or_else(|| Error::Closed { operation, what: "marshal is closed".into() })
    }
}

impl std::fmt::Debug for Marshal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.held("debug") {
            Ok(held) => write!(f, "Marshal({:x})", held.number()),
            Err(_) => f.write_str("Marshal(closed)"),
        }
    }
}

//! Where numbers lie: in memory of their own, which several threads may share, or in somebody else's.

use std::cell::RefCell;
use std::sync::{Arc, PoisonError, RwLock, TryLockError};

use super::room::Room;
use crate::reply::Failure;
use mlua::Value;

#[derive(Clone)]
pub(super) enum Memory {
    /// A tensor, from one of its bytes on.
    Own { tensor: Arc<RwLock<Room>>, from: usize },
    /// Memory at an address, kept alive by its owner.
    Lent { address: usize, _owner: Value },
}

thread_local! {
    /// The tensors that the calls of this thread are just using. Two uses in one call are a mistake of the program's, and
    /// must not wait for each other.
    static IN_USE: RefCell<Vec<*const RwLock<Room>>> = const { RefCell::new(Vec::new()) };
}

/// Notes that this thread uses a tensor until it is dropped.
struct Using(*const RwLock<Room>);

impl Using {
    fn begin(tensor: &Arc<RwLock<Room>>) -> Using {
        IN_USE.with_borrow_mut(|all| all.push(Arc::as_ptr(tensor)));
        Using(Arc::as_ptr(tensor))
    }
}

impl Drop for Using {
    fn drop(&mut self) {
        IN_USE.with_borrow_mut(|all| {
            if let Some(place) = all.iter().rposition(|used| *used == self.0) {
                all.swap_remove(place);
            }
        });
    }
}

fn is_used_here(tensor: &Arc<RwLock<Room>>) -> bool {
    IN_USE.with_borrow(|all| all.contains(&Arc::as_ptr(tensor)))
}

/// The lock, at once if nobody has it. Another thread's call is waited for, one of this thread's would wait for itself.
fn locked<G>(
    tensor: &Arc<RwLock<Room>>,
    now: Result<G, TryLockError<G>>,
    wait: impl FnOnce() -> Result<G, PoisonError<G>>,
) -> Result<G, Failure> {
    match now {
        Ok(guard) => Ok(guard),
        Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()), // numbers are whole whatever happens
        Err(TryLockError::WouldBlock) if is_used_here(tensor) => {
            Err(Failure::argument("the same tensor cannot be read and written in one call"))
        }
        Err(TryLockError::WouldBlock) => Ok(wait().unwrap_or_else(PoisonError::into_inner)),
    }
}

impl Memory {
    pub(super) fn own(room: Room) -> Memory {
        Memory::Own { tensor: Arc::new(RwLock::new(room)), from: 0 }
    }

    /// Lends `size` bytes.
    pub(super) fn read<T>(&self, size: usize, read: impl FnOnce(&[u8]) -> Result<T, Failure>) -> Result<T, Failure> {
        match self {
            Memory::Own { tensor, from } => {
                let guard = locked(tensor, tensor.try_read(), || tensor.read())?;
                let _using = Using::begin(tensor);
                read(&guard.bytes()[*from..][..size])
            }
            Memory::Lent { address, .. } => {
                // SAFETY: `lend` was told that so many bytes lie there, its owner is kept alive, and no Lua runs meanwhile.
                read(unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(*address), size) })
            }
        }
    }

    /// Lends `size` bytes to be written.
    pub(super) fn write<T>(&self, size: usize, write: impl FnOnce(&mut [u8]) -> Result<T, Failure>) -> Result<T, Failure> {
        match self {
            Memory::Own { tensor, from } => {
                let mut guard = locked(tensor, tensor.try_write(), || tensor.write())?;
                let _using = Using::begin(tensor);
                write(&mut guard.bytes_mut()[*from..][..size])
            }
            Memory::Lent { address, .. } => {
                // SAFETY: as in `read`; nobody else uses the memory, since no Lua runs and the library gets it once.
                write(unsafe { std::slice::from_raw_parts_mut(std::ptr::with_exposed_provenance_mut(*address), size) })
            }
        }
    }

    /// The same memory, `offset` bytes further on.
    pub(super) fn from(&self, offset: usize) -> Memory {
        match self {
            Memory::Own { tensor, from } => Memory::Own { tensor: Arc::clone(tensor), from: from + offset },
            Memory::Lent { address, _owner } => Memory::Lent { address: address + offset, _owner: _owner.clone() },
        }
    }
}

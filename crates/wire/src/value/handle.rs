//! A handle as a value: the name of an object that a family of processes shares.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// What a handle leads to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum HandleKind {
    /// A channel.
    Channel = 1,
    /// A workqueue.
    Workqueue = 2,
    /// A mutex.
    Mutex = 3,
    /// A shared table.
    SharedTable = 4,
    /// A value that was marshalled once, to be read many times.
    Marshal = 5,
}

impl HandleKind {
    /// The kind with this number.
    pub fn from_code(code: u8) -> Option<HandleKind> {
        Some(match code {
            1 => HandleKind::Channel,
            2 => HandleKind::Workqueue,
            3 => HandleKind::Mutex,
            4 => HandleKind::SharedTable,
            5 => HandleKind::Marshal,
            _ => return None,
        })
    }

    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            HandleKind::Channel => "channel",
            HandleKind::Workqueue => "workqueue",
            HandleKind::Mutex => "mutex",
            HandleKind::SharedTable => "shared table",
            HandleKind::Marshal => "marshalled value",
        }
    }
}

/// Which object, and of which family. Two handles are equal when they lead to the same object.
#[derive(Clone)]
pub struct Handle {
    /// What it leads to.
    pub kind: HandleKind,
    /// The family whose memory the object lives in.
    pub family: u64,
    /// The object's number there.
    pub object: u64,
    /// Whatever keeps the object alive while this handle is on its way; a codec neither writes nor reads it.
    pub keeper: Option<Arc<dyn Any + Send + Sync>>,
}

impl PartialEq for Handle {
    fn eq(&self, other: &Handle) -> bool {
        (self.kind, self.family, self.object) == (other.kind, other.family, other.object)
    }
}

impl Eq for Handle {}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({} {:x} of family {:x})", self.kind.name(), self.object, self.family)
    }
}

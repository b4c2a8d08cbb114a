//! A store as its users hold it.

mod background;
mod calls;
mod commands;
mod saving;
mod settings;
mod together;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use syncline_cluster::{Deadline, Error};
use syncline_optimizer::{Key, Optimizer};

use crate::compression::Compression;
use crate::distributed::{Distributed, Member};
use crate::memory::Rule;
use crate::queue::Queue;
use crate::register::Register;
use crate::slot::{Held, Slot};
use crate::value::{Output, Value};
use crate::{Kind, memory};

/// A handle on a store. Clones are handles on the same store; any number of threads may use them.
///
/// Calls take lists of keys. Everything is checked before anything happens: a refused call has changed nothing.
#[derive(Clone)]
pub struct KvStore {
    shared: Arc<Shared>,
}

struct Shared {
    kind: Kind,
    home: Home,
    keys: Register,
    /// Keys whose init is under way, and which kind of key this store has.
    making: Mutex<Making>,
    compression: RwLock<Option<Compression>>,
    /// Whether there is one: every call asks.
    compresses: AtomicBool,
    queue: Queue,
    /// How patient calls in the background are.
    timeout: Duration,
}

#[derive(Default)]
struct Making {
    under_way: HashSet<Key>,
    names: Option<bool>,
}

/// Where values live.
enum Home {
    Memory(Arc<Rule>),
    Job(Distributed),
}

/// One key of a push: its values are summed, left to right.
#[derive(Clone, Copy, Debug)]
pub struct Push<'a> {
    /// Which.
    pub key: &'a Key,
    /// One, or one of each device.
    pub values: &'a [Value<'a>],
}

/// One key of a pull: all outputs get its value.
#[derive(Debug)]
pub struct Pull<'a, 'o> {
    /// Which.
    pub key: &'a Key,
    /// Where it goes.
    pub outputs: &'a mut [Output<'o>],
}

/// Some rows of one key: all outputs get exactly these.
#[derive(Debug)]
pub struct RowPull<'a, 'o> {
    /// Which.
    pub key: &'a Key,
    /// Rows in any order; repeated ones count once.
    pub ids: &'a [i64],
    /// Where they go.
    pub outputs: &'a mut [Output<'o>],
}

impl KvStore {
    /// A store in the memory of this process.
    ///
    /// # Errors
    /// `Configuration` for a kind that needs a job.
    ///
    /// ```
    /// use std::time::Duration;
    /// use syncline_cluster::Deadline;
    /// use syncline_kvstore::{Key, Kind, KvStore, Push, Value};
    /// use syncline_tensor::Tensor;
    ///
    /// let by = Deadline::after(Duration::from_secs(1));
    /// let store = KvStore::local(Kind::from_name("local")?)?;
    /// let (key, ones) = (Key::from(3), Tensor::from_slice(&[2, 2], &[1.0f32; 4])?);
    /// store.init(&[(&key, Value::from(&ones))], "here", by)?;
    /// store.push(&[Push { key: &key, values: &[Value::from(&ones), Value::from(&ones)] }], by)?;
    /// assert_eq!(store.pull_new(&key, by)?.as_slice::<f32>()?, [2.0; 4]); // without an updater a push replaces
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn local(kind: Kind) -> Result<KvStore, Error> {
        if kind.is_distributed() {
            let detail =
                format!("kvstore: a store of type {} belongs to a job\nhint: open a session and ask it for the store", kind.name());
            return Err(Error::Configuration { detail });
        }
        Ok(KvStore::new(kind, Home::Memory(Arc::default()), Duration::from_secs(30)))
    }

    /// A store of a job. Every worker makes it, in the same order as other stores and with the same kind; dedicated servers need no call.
    ///
    /// # Errors
    /// `ContractMismatch` with both call sites when workers want different ones; `Configuration` on a dedicated server or for a local kind.
    pub fn distributed(kind: Kind, member: Member, site: &str, by: Deadline) -> Result<KvStore, Error> {
        if !kind.is_distributed() {
            return Err(Error::Configuration { detail: format!("kvstore: a store of type {} belongs to one process", kind.name()) });
        }
        let timeout = member.job.timeout();
        Ok(KvStore::new(kind, Home::Job(Distributed::join(kind, member, site, by)?), timeout))
    }

    fn new(kind: Kind, home: Home, timeout: Duration) -> KvStore {
        let shared = Shared {
            kind,
            home,
            keys: Register::default(),
            making: Mutex::default(),
            compression: RwLock::default(),
            compresses: AtomicBool::new(false),
            queue: Queue::default(),
            timeout,
        };
        KvStore { shared: Arc::new(shared) }
    }

    /// What it is.
    pub fn kind(&self) -> Kind {
        self.shared.kind
    }

    /// This process's number among the workers; 0 in a local store.
    pub fn rank(&self) -> u32 {
        match &self.shared.home {
            Home::Memory(_) => 0,
            Home::Job(job) => job.worker,
        }
    }

    /// How many workers push; 1 in a local store.
    pub fn num_workers(&self) -> u32 {
        match &self.shared.home {
            Home::Memory(_) => 1,
            Home::Job(job) => job.workers,
        }
    }

    /// How many processes of the job died; 0 in a local store.
    pub fn num_dead_node(&self) -> u32 {
        match &self.shared.home {
            Home::Memory(_) => 0,
            Home::Job(job) => job.dead(),
        }
    }

    /// Whether the store can do something; `optimizer` is all that is ever asked.
    ///
    /// # Errors
    /// `Configuration` for any other word.
    pub fn is_capable(&self, capability: &str) -> Result<bool, Error> {
        match capability.to_lowercase().as_str() {
            "optimizer" => Ok(true),
            _ => Err(Error::Configuration { detail: format!("kvstore: unknown capability {capability:?}\nhint: optimizer") }),
        }
    }

    /// The keys there are, in order.
    pub fn keys(&self) -> Vec<Key> {
        let mut keys: Vec<Key> = self.shared.keys.slots().map(|slot| slot.spec.key.clone()).collect();
        keys.sort();
        keys
    }

    /// Returns when all calls in the background have ended.
    pub fn flush(&self, by: Deadline) -> Result<(), Error> {
        memory::not_updating("kvstore")?;
        self.shared.queue.flush("kvstore", by)
    }

    /// Returns when every worker has called it, after what they queued before.
    pub fn barrier(&self, by: Deadline) -> Result<(), Error> {
        self.flush(by)?;
        match &self.shared.home {
            Home::Memory(_) => Ok(()),
            Home::Job(job) => job.barrier(by),
        }
    }
}

impl Shared {
    fn making(&self) -> MutexGuard<'_, Making> {
        self.making.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn compression(&self) -> Option<Compression> {
        if !self.compresses.load(Relaxed) {
            return None;
        }
        *self.compression.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The key's place, or why there is none.
    #[inline]
    fn slot(&self, operation: &str, key: &Key) -> Result<&Arc<Slot>, Error> {
        match self.keys.get(key) {
            Some(slot) => Ok(slot),
            None => Err(self.no_slot(operation, key)),
        }
    }

    #[cold]
    fn no_slot(&self, operation: &str, key: &Key) -> Error {
        if let Err(mixed) = self.check_kind(operation, key, self.making().names) {
            return mixed;
        }
        let detail = format!("key {key} doesn't exist. Did you init?");
        Error::UnknownKey { operation: operation.into(), detail }
    }

    /// Refuses an optimizer that one of the keys could not follow.
    fn check_optimizer(&self, operation: &str, optimizer: &Optimizer) -> Result<(), Error> {
        self.keys.slots().try_for_each(|slot| match &slot.held {
            Held::Table(table) => table.ready_for(operation, optimizer),
            Held::Memory { .. } => Ok(()),
        })
    }

    /// Numbers and names do not mix in one store.
    fn check_kind(&self, operation: &str, key: &Key, names: Option<bool>) -> Result<(), Error> {
        match names {
            Some(names) if names != is_name(key) => {
                let (found, used) = if names { ("a number", "names") } else { ("a name", "numbers") };
                let detail =
                    format!("{operation}: key {key} is {found}, the keys of this store are {used}: Mixed key types are not allowed");
                Err(Error::Configuration { detail })
            }
            _ => Ok(()),
        }
    }
}

fn is_name(key: &Key) -> bool {
    matches!(key, Key::Name(_))
}

impl std::fmt::Debug for KvStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KvStore({}, {} keys)", self.shared.kind.name(), self.shared.keys.slots().count())
    }
}

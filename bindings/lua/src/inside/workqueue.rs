//! Workqueues: questions from the thread that made one, answers from all others.
//!
//! A worker that reads a question has it in hand until it writes an answer or reads the next one, so that `drain` waits for those that
//! are being worked on too.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use mlua::{Lua, MultiValue, UserData, UserDataRef};
use syncline::Value;
use syncline::ipc::{Item, Side, Taken, Workqueue};

use super::family;
use super::parcel::{pack_all, send, unpack};
use super::shelf::Shelf;
use crate::interrupt::no_deadline;
use crate::reply::Failure;

/// A queue, as all states of this process see it.
pub(super) struct Shared {
    queue: Workqueue,
    shelf: Shelf,
    key: Key,
}

/// A family's name, and a queue's number in it.
type Key = (u64, u64);

/// The queues that are open: two that open one name have the same shelf.
static OPEN: Mutex<Option<HashMap<Key, Weak<Shared>>>> = Mutex::new(None);

thread_local! {
    /// The questions that this thread has in hand.
    static IN_HAND: RefCell<HashMap<Key, Item>> = RefCell::new(HashMap::new());
}

fn finish_in_hand(key: Key) -> Result<(), Failure> {
    // Not there any more at the very end of a thread; then its questions are finished already.
    let item = IN_HAND.try_with(|all| all.borrow_mut().remove(&key)).ok().flatten();
    Ok(item.map_or(Ok(()), Item::done)?)
}

impl Shared {
    fn of(queue: Workqueue) -> Arc<Shared> {
        let number = if let Value::Handle(handle) = queue.handle() { handle.object } else { 0 };
        let key = (queue.family().id(), number);
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let open = open.get_or_insert_default();
        if let Some(known) = open.get(&key).and_then(Weak::upgrade) {
            return known;
        }
        open.retain(|_, queue| queue.strong_count() > 0);
        let shared = Arc::new(Shared { queue, shelf: Shelf::default(), key });
        open.insert(key, Arc::downgrade(&shared));
        shared
    }
}

/// A state's handle, until it is closed.
pub(crate) struct Handle(RefCell<Option<Arc<Shared>>>);

impl UserData for Handle {}

type Given = UserDataRef<Handle>;

impl Handle {
    pub(super) fn of(queue: Arc<Shared>) -> Handle {
        Handle(RefCell::new(Some(queue)))
    }

    pub(super) fn open(&self) -> Result<Arc<Shared>, Failure> {
        self.0.borrow().clone().ok_or_else(|| Failure::new("Closed", "workqueue is not open"))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Some(queue) = self.0.take() {
            let _ = finish_in_hand(queue.key); // nobody is left to tell
        }
    }
}

/// The queue of that name, or a new one; 1 if this call made it.
pub(crate) fn open(_: &Lua, name: Option<String>) -> Result<(Handle, i64), Failure> {
    let family = family()?;
    let (queue, made) = match name {
        Some(name) => Workqueue::named(&family, &name)?,
        None => (Workqueue::new(&family)?, true),
    };
    Ok((Handle::of(Shared::of(queue)), i64::from(made)))
}

/// Writes each argument as an item: questions of the owner, answers of anybody else.
pub(crate) fn write(lua: &Lua, (queue, closures, items): (Given, bool, MultiValue)) -> Result<(), Failure> {
    let queue = queue.open()?;
    let parcels = pack_all(lua, &items, "write", closures)?;
    send(parcels, &queue.shelf, |values| queue.queue.write_all(values, no_deadline()), |()| true)?;
    if queue.queue.side() == Side::Worker { finish_in_hand(queue.key) } else { Ok(()) }
}

/// The next item, or nothing if there is none and the call must not wait.
pub(crate) fn read(lua: &Lua, (queue, nonblocking): (Given, bool)) -> Result<MultiValue, Failure> {
    let queue = queue.open()?;
    finish_in_hand(queue.key)?;
    let taken = if nonblocking { queue.queue.try_read()? } else { queue.queue.read(no_deadline())? };
    let Taken::Item(item) = taken else { return Ok(MultiValue::new()) };
    // A nil is how an owner says that there is no more work: nobody works on it.
    let value = if queue.queue.side() == Side::Worker && *item.value() != Value::Nil {
        let value = item.value().clone();
        IN_HAND.with_borrow_mut(|all| all.insert(queue.key, item));
        value
    } else {
        item.into_value()?
    };
    Ok(MultiValue::from_iter([unpack(lua, value, false, |number| queue.shelf.take(number))?]))
}

/// Waits until every question is answered.
pub(crate) fn drain(_: &Lua, queue: Given) -> Result<(), Failure> {
    Ok(queue.open()?.queue.drain(no_deadline())?)
}

/// Drops this handle.
pub(crate) fn close(_: &Lua, queue: Given) -> Result<(), Failure> {
    match queue.0.take() {
        Some(queue) => finish_in_hand(queue.key),
        None => Err(Failure::new("Closed", "workqueue is already closed")),
    }
}

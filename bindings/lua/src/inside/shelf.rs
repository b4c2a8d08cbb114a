//! Objects and tensors on their way from thread to thread, by number. They are not copied.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mlua::{AnyUserData, Lua, Value as LuaValue};
use syncline::ipc;

use super::channel::Shared as Channel;
use super::marshal::Shared as Marshal;
use super::table::Shared as Table;
use super::workqueue::Shared as Workqueue;
use super::{channel, marshal, mutex, table, workqueue};
use crate::ipc::SharedClient;
use crate::numbers::{Numbers, SharedNumbers};
use crate::reply::Failure;
use crate::values::presented;

/// Something that two Lua states can both have.
#[derive(Clone)]
pub(super) enum Reference {
    Numbers(SharedNumbers),
    Workqueue(Arc<Workqueue>),
    Channel(Arc<Channel>),
    Mutex(ipc::Mutex),
    Table(Arc<Table>),
    Marshal(Arc<Marshal>),
    Client(SharedClient),
    /// An object of Torch7's: its class and its address. Whoever put it here has retained it once.
    Torch(String, u64),
}

impl Reference {
    /// What another state may have of an object; none of one that belongs to its state.
    pub(super) fn to(object: &AnyUserData) -> Result<Option<Reference>, Failure> {
        Ok(Some(if let Ok(numbers) = object.borrow::<Numbers>() {
            match numbers.share() {
                Some(shared) => Reference::Numbers(shared),
                None => return Ok(None),
            }
        } else if let Ok(queue) = object.borrow::<workqueue::Handle>() {
            Reference::Workqueue(queue.open()?)
        } else if let Ok(channel) = object.borrow::<channel::Handle>() {
            Reference::Channel(channel.0.clone())
        } else if let Ok(mutex) = object.borrow::<mutex::Handle>() {
            Reference::Mutex(mutex.0.clone())
        } else if let Ok(table) = object.borrow::<table::Handle>() {
            Reference::Table(table.0.clone())
        } else if let Ok(marshal) = object.borrow::<marshal::Handle>() {
            Reference::Marshal(marshal.open()?)
        } else if let Ok(client) = object.borrow::<SharedClient>() {
            Reference::Client(client.clone())
        } else {
            return Ok(None);
        }))
    }

    /// The object in this state, and the name of its class in `libipc.lua`.
    pub(super) fn into_lua(self, lua: &Lua) -> Result<(LuaValue, &'static str), Failure> {
        let (data, class) = match self {
            Reference::Numbers(shared) => return Ok((presented(lua, Numbers::shared(shared))?, "")),
            Reference::Workqueue(queue) => (lua.create_userdata(workqueue::Handle::of(queue))?, "workqueue"),
            Reference::Channel(channel) => (lua.create_userdata(channel::Handle(channel))?, "channel"),
            Reference::Mutex(mutex) => (lua.create_userdata(mutex::Handle(mutex))?, "mutex"),
            Reference::Table(table) => (lua.create_userdata(table::Handle(table))?, "sharedtable"),
            Reference::Marshal(marshal) => (lua.create_userdata(marshal::Handle::of(marshal))?, "marshal"),
            Reference::Client(client) => (lua.create_userdata(client)?, "client"),
            Reference::Torch(class, _) => return Err(Failure::argument(format!("{class}: Torch7 is not loaded here"))),
        };
        Ok((LuaValue::UserData(data), class))
    }
}

/// The objects that the items of one container name.
#[derive(Default)]
pub(super) struct Shelf(Mutex<HashMap<u64, Reference>>);

impl Shelf {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Reference>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner) // one insertion or removal at a time: nothing is left half done
    }

    pub(super) fn put(&self, references: &[(u64, Reference)]) {
        if !references.is_empty() {
            self.lock().extend(references.iter().cloned());
        }
    }

    pub(super) fn take(&self, number: u64) -> Option<Reference> {
        self.lock().remove(&number)
    }

    pub(super) fn look(&self, number: u64) -> Option<Reference> {
        self.lock().get(&number).cloned()
    }

    /// Takes them back: what names them was never sent, or is gone.
    pub(super) fn clear_away(&self, numbers: impl IntoIterator<Item = u64>) {
        let gone: Vec<_> = numbers.into_iter().filter_map(|number| self.take(number)).collect();
        drop(gone); // outside of the lock: the last handle of another container may be among them
    }
}

/// A number that no other reference of this process has.
pub(super) fn fresh_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Relaxed)
}

//! A value that is laid out once and read many times, from any thread.

use std::cell::RefCell;
use std::sync::Arc;

use mlua::{Lua, UserData, UserDataRef, Value};

use super::parcel::{Parcel, pack};
use crate::reply::Failure;

/// A value, as all states of this process see it.
pub(super) type Shared = Parcel;

/// A state's handle, until it is closed.
pub(crate) struct Handle(RefCell<Option<Arc<Shared>>>);

impl UserData for Handle {}

type Given = UserDataRef<Handle>;

impl Handle {
    pub(super) fn of(parcel: Arc<Shared>) -> Handle {
        Handle(RefCell::new(Some(parcel)))
    }

    pub(super) fn open(&self) -> Result<Arc<Shared>, Failure> {
        self.0.borrow().clone().ok_or_else(|| Failure::new("Closed", "marshal is not open"))
    }
}

pub(crate) fn open(lua: &Lua, (value, closures): (Value, bool)) -> Result<Handle, Failure> {
    if value.is_nil() {
        return Err(Failure::argument("marshal arg #1: there is nothing to marshal in nil"));
    }
    Ok(Handle::of(Arc::new(pack(lua, &value, "marshal", closures)?)))
}

pub(crate) fn read(lua: &Lua, marshal: Given) -> Result<Value, Failure> {
    marshal.open()?.open(lua)
}

/// Drops this handle; a second time does nothing.
pub(crate) fn close(_: &Lua, marshal: Given) -> Result<(), Failure> {
    marshal.0.take();
    Ok(())
}

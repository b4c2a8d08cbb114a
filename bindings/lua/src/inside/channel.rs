//! Channels: many writers, many readers.

use std::sync::Arc;

use mlua::{Lua, MultiValue, UserData, UserDataRef, Value as LuaValue};
use syncline::ipc::{Channel, ChannelOptions, Status};

use super::family;
use super::parcel::{pack_all, send, unpack};
use super::shelf::Shelf;
use crate::arguments::Whole;
use crate::interrupt::no_deadline;
use crate::numbers::integer;
use crate::reply::Failure;

/// A channel, as all states of this process see it.
pub(super) struct Shared {
    channel: Channel,
    shelf: Shelf,
}

pub(crate) struct Handle(pub(super) Arc<Shared>);

impl UserData for Handle {}

type Given = UserDataRef<Handle>;

/// A channel for any number of items, or for `capacity`: then who writes more waits.
pub(crate) fn open(_: &Lua, capacity: Option<Whole>) -> Result<Handle, Failure> {
    let capacity = capacity.map(|Whole(capacity)| usize::try_from(capacity).ok().filter(|capacity| *capacity > 0));
    let capacity = match capacity {
        Some(None) => return Err(Failure::argument("channel: a capacity is a number from 1 on")),
        Some(some) => some,
        None => None,
    };
    let channel = Channel::with(&family()?, ChannelOptions { capacity, leases: false })?;
    Ok(Handle(Arc::new(Shared { channel, shelf: Shelf::default() })))
}

/// Writes each argument as an item; OPEN if they are written.
pub(crate) fn write(lua: &Lua, (handle, items): (Given, MultiValue)) -> Result<u8, Failure> {
    let Shared { channel, shelf } = &*handle.0;
    let parcels = pack_all(lua, &items, "write", false)?;
    if parcels.is_empty() || channel.closed() {
        return Ok(status(channel) as u8);
    }
    // One that was closed meanwhile may have taken some of them.
    let went = |status: &Status| *status != Status::Drained;
    Ok(send(parcels, shelf, |values| channel.write_all(values, no_deadline()), went)? as u8)
}

fn status(channel: &Channel) -> Status {
    match (channel.closed(), channel.drained()) {
        (false, _) => Status::Open,
        (true, false) => Status::Closed,
        (true, true) => Status::Drained,
    }
}

/// The channel's status, and the next item if there is one.
pub(crate) fn read(lua: &Lua, (handle, nonblocking): (Given, bool)) -> Result<MultiValue, Failure> {
    let Shared { channel, shelf } = &*handle.0;
    let read = if nonblocking { channel.try_read()? } else { channel.read(no_deadline())? };
    let mut answer: Vec<LuaValue> = vec![integer(read.status as i64)];
    if let Some(item) = read.item {
        answer.push(unpack(lua, item, false, |number| shelf.take(number))?);
    }
    Ok(MultiValue::from_vec(answer))
}

pub(crate) fn close(_: &Lua, handle: Given) -> Result<(), Failure> {
    Ok(handle.0.channel.close()?)
}

pub(crate) fn closed(_: &Lua, handle: Given) -> Result<bool, Failure> {
    Ok(handle.0.channel.closed())
}

pub(crate) fn drained(_: &Lua, handle: Given) -> Result<bool, Failure> {
    Ok(handle.0.channel.drained())
}

pub(crate) fn num_items(_: &Lua, handle: Given) -> Result<usize, Failure> {
    Ok(handle.0.channel.num_items())
}

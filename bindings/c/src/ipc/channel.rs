//! Channels: many writers, many readers, first in first out.

use std::ffi::c_int;

use syncline::Value;
use syncline::ipc::{Channel, ChannelOptions, Read, Status, select};

use super::family::{FAMILIES, syncline_family};
use super::item::{give_taken, syncline_item};
use crate::border::{guarded, until};
use crate::failure::{Failure, syncline_status};
use crate::handles::Handles;
use crate::memory;
use crate::values::{VALUES, give as give_value, give_if_any, syncline_value};

/// Many writers, many readers, first in first out, between threads and processes alike.
pub struct syncline_channel {
    _private: [u8; 0],
}

static CHANNELS: Handles<syncline_channel, Channel> = Handles::new("channel", 11);

/// How far a channel has come.
#[repr(C)]
pub enum syncline_channel_state {
    /// Takes items.
    SYNCLINE_OPEN = 0,
    /// Was closed; has items that nobody has read.
    SYNCLINE_CHANNEL_CLOSED = 1,
    /// Was closed, and everything was read.
    SYNCLINE_DRAINED = 2,
}

const _: () = {
    assert!(Status::Open as i32 == syncline_channel_state::SYNCLINE_OPEN as i32);
    assert!(Status::Drained as i32 == syncline_channel_state::SYNCLINE_DRAINED as i32);
};

/// Makes a channel with room for `capacity` items; 0 is as many as memory holds. With `leases` not 0, items may be read by
/// syncline_channel_lease.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_channel_create(
    family: *mut syncline_family,
    capacity: usize,
    leases: c_int,
    out: *mut *mut syncline_channel,
) -> syncline_status {
    guarded(|| {
        let family = FAMILIES.get(family)?;
        let options = ChannelOptions { capacity: Some(capacity).filter(|capacity| *capacity > 0), leases: leases != 0 };
        // SAFETY: the caller's promise.
        unsafe { CHANNELS.give(out, || Ok(Channel::with(&family, options)?)) }
    })
}

/// The channel that a value of syncline_channel_handle leads to.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_channel_open(
    family: *mut syncline_family,
    handle: *const syncline_value,
    out: *mut *mut syncline_channel,
) -> syncline_status {
    guarded(|| {
        let (family, handle) = (FAMILIES.get(family)?, VALUES.get(handle)?);
        // SAFETY: the caller's promise.
        unsafe { CHANNELS.give(out, || Ok(Channel::open(&family, handle.value())?)) }
    })
}

/// A value that leads to the channel, to be sent through anything else of its family. It keeps the channel alive. The first one moves the
/// channel into the family's memory, where processes other than its maker's find it; that fails, and changes nothing, where there is no room.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_channel_handle(channel: *mut syncline_channel, out: *mut *mut syncline_value) -> syncline_status {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { give_value(out, CHANNELS.get(channel)?.handle()?) })
}

/// Writes an item; waits `timeout` seconds for room in a channel that is full, 0 as long as it takes. `state` tells whether it was
/// written (SYNCLINE_OPEN) or the channel was closed before.
///
/// # Safety
/// `state` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_channel_write(
    channel: *mut syncline_channel,
    value: *const syncline_value,
    timeout: f64,
    state: *mut i32,
) -> syncline_status {
    guarded(|| {
        let (channel, value) = (CHANNELS.get(channel)?, VALUES.get(value)?);
        let written = channel.write(value.value(), until(timeout)?)?;
        // SAFETY: the caller's promise.
        unsafe { memory::give_if(state, "state", written as i32) }
    })
}

/// Writes `count` items together; else as syncline_channel_write.
///
/// # Safety
/// `values` has `count` values; `state` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_channel_write_all(
    channel: *mut syncline_channel,
    values: *const *const syncline_value,
    count: usize,
    timeout: f64,
    state: *mut i32,
) -> syncline_status {
    guarded(|| {
        let channel = CHANNELS.get(channel)?;
        // SAFETY: the caller's promise.
        let values = unsafe { collected(values, count) }?;
        let written = channel.write_all(&values, until(timeout)?)?;
        // SAFETY: the caller's promise.
        unsafe { memory::give_if(state, "state", written as i32) }
    })
}

/// The values behind an array of handles.
///
/// # Safety
/// `values` has `count` of them.
pub(super) unsafe fn collected(values: *const *const syncline_value, count: usize) -> Result<Vec<Value<'static>>, Failure> {
    // SAFETY: the caller's promise.
    let handles = unsafe { memory::values(values, count, "values") }?;
    handles.iter().map(|handle| Ok(VALUES.get(*handle)?.value().clone())).collect()
}

/// # Safety
/// `state` is NULL or may be written; `item` may be written.
unsafe fn give_read(state: *mut i32, item: *mut *mut syncline_value, read: impl FnOnce() -> Result<Read, Failure>) -> Result<(), Failure> {
    let read = || {
        let read = read()?;
        // SAFETY: the caller's promise.
        unsafe { memory::give_if(state, "state", read.status as i32) }?;
        Ok(read.item)
    };
    // SAFETY: the caller's promise.
    unsafe { give_if_any(item, read) }
}

/// The next item; waits for one `timeout` seconds, 0 as long as it takes. NULL and SYNCLINE_DRAINED when there will be none.
///
/// # Safety
/// `state` is NULL or may be written; `item` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_channel_read(
    channel: *mut syncline_channel,
    timeout: f64,
    state: *mut i32,
    item: *mut *mut syncline_value,
) -> syncline_status {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { give_read(state, item, || Ok(CHANNELS.get(channel)?.read(until(timeout)?)?)) })
}

/// The next item if there is one, else NULL.
///
/// # Safety
/// As syncline_channel_read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_channel_try_read(
    channel: *mut syncline_channel,
    state: *mut i32,
    item: *mut *mut syncline_value,
) -> syncline_status {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { give_read(state, item, || Ok(CHANNELS.get(channel)?.try_read()?)) })
}

/// A list of at least one and at most `most` items, those that are there; waits for the first as syncline_channel_read does. It
/// is empty only when the channel is drained.
///
/// # Safety
/// `state` is NULL or may be written; `items` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_channel_read_many(
    channel: *mut syncline_channel,
    most: usize,
    timeout: f64,
    state: *mut i32,
    items: *mut *mut syncline_value,
) -> syncline_status {
    guarded(|| {
        memory::check_out(items, "items")?;
        let (status, read) = CHANNELS.get(channel)?.read_many(most, until(timeout)?)?;
        // SAFETY: the caller's promise.
        unsafe {
            memory::give_if(state, "state", status as i32)?;
            give_value(items, Value::List(read))
        }
    })
}

/// The next item of a channel with leases, which comes back to the channel if this process dies before it is done with it. NULL and
/// `over` 1 when there will be none.
///
/// # Safety
/// `item` may be written; `over` is NULL or may be.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_channel_lease(
    channel: *mut syncline_channel,
    timeout: f64,
    item: *mut *mut syncline_item,
    over: *mut c_int,
) -> syncline_status {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { give_taken(item, over, || Ok(CHANNELS.get(channel)?.lease(until(timeout)?)?)) })
}

/// The next item of a channel with leases if there is one, else NULL.
///
/// # Safety
/// As syncline_channel_lease.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_channel_try_lease(
    channel: *mut syncline_channel,
    item: *mut *mut syncline_item,
    over: *mut c_int,
) -> syncline_status {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { give_taken(item, over, || Ok(CHANNELS.get(channel)?.try_lease()?)) })
}

/// Takes an item from the first of `count` channels that has one, and tells which; they take turns. NULL when all are drained;
/// `which` is then `count`.
///
/// # Safety
/// `channels` has `count` of them; `which` and `state` are NULL or may be written; `item` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_select(
    channels: *const *mut syncline_channel,
    count: usize,
    timeout: f64,
    which: *mut usize,
    state: *mut i32,
    item: *mut *mut syncline_value,
) -> syncline_status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let handles = unsafe { memory::values(channels, count, "channels") }?;
        if handles.is_empty() {
            return Err(Failure::argument("select among no channels"));
        }
        let all = handles.iter().map(|handle| CHANNELS.get(*handle)).collect::<Result<Vec<_>, _>>()?;
        let all: Vec<&Channel> = all.iter().map(AsRef::as_ref).collect();
        let selected = || {
            let selected = select(&all, until(timeout)?)?;
            // SAFETY: the caller's promise.
            unsafe { memory::give_if(which, "which", selected.index.unwrap_or(count)) }?;
            Ok(selected.read)
        };
        // SAFETY: the caller's promise.
        unsafe { give_read(state, item, selected) }
    })
}

/// Takes no more items and wakes whoever waits; what is in it can still be read. A second time does nothing.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_channel_close(channel: *mut syncline_channel) -> syncline_status {
    guarded(|| Ok(CHANNELS.get(channel)?.close()?))
}

/// How far the channel is (a syncline_channel_state), how many items it has, and how many it has room for (0: as many as memory holds).
///
/// # Safety
/// The three are NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_channel_look(
    channel: *mut syncline_channel,
    state: *mut i32,
    num_items: *mut usize,
    capacity: *mut usize,
) -> syncline_status {
    guarded(|| {
        let channel = CHANNELS.get(channel)?;
        let status = match (channel.closed(), channel.drained()) {
            (_, true) => Status::Drained,
            (true, false) => Status::Closed,
            (false, false) => Status::Open,
        };
        // SAFETY: the caller's promise.
        unsafe {
            memory::give_if(state, "state", status as i32)?;
            memory::give_if(num_items, "num_items", channel.num_items())?;
            memory::give_if(capacity, "capacity", channel.capacity().unwrap_or(0))
        }
    })
}

/// Frees the handle; the channel ends with the last handle to it, in whatever process.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_channel_free(channel: *mut syncline_channel) -> syncline_status {
    guarded(|| CHANNELS.take(channel).map(drop))
}

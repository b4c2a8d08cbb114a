//! What both ends of a connection do alike: a client, and a peer, which is a client in the hands of its server.

use std::ffi::c_void;
use std::time::Duration;

use syncline::ipc::{Client, Error, NetStats, Peer, TensorView, TensorViewMut, Traffic};
use syncline::{DType, Deadline, Value};

use crate::border::deadline;
use crate::failure::Failure;
use crate::values::{VALUES, give as give_value, give_if_any, syncline_value};
use crate::{facts, memory};

/// A connection's end, or a server, and its patience.
pub(super) struct Patient<T> {
    pub(super) end: T,
    pub(super) timeout: Duration,
}

/// The calls that have one meaning on both ends.
pub(super) trait End {
    fn send_by(&self, value: &Value<'_>, by: Deadline) -> Result<(), Error>;
    fn send_tensor_by(&self, tensor: &TensorView<'_>, by: Deadline) -> Result<(), Error>;
    fn recv_by(&self, by: Deadline) -> Result<Value<'static>, Error>;
    fn recv_into_by(&self, target: &mut TensorViewMut<'_>, by: Deadline) -> Result<(), Error>;
    fn try_recv(&self) -> Result<Option<Value<'static>>, Error>;
}

macro_rules! ends {
    ($($end:ty),*) => {$(
        impl End for $end {
            fn send_by(&self, value: &Value<'_>, by: Deadline) -> Result<(), Error> {
                <$end>::send_by(self, value, by)
            }

            fn send_tensor_by(&self, tensor: &TensorView<'_>, by: Deadline) -> Result<(), Error> {
                <$end>::send_tensor_by(self, tensor, by)
            }

            fn recv_by(&self, by: Deadline) -> Result<Value<'static>, Error> {
                <$end>::recv_by(self, by)
            }

            fn recv_into_by(&self, target: &mut TensorViewMut<'_>, by: Deadline) -> Result<(), Error> {
                <$end>::recv_into_by(self, target, by)
            }

            fn try_recv(&self) -> Result<Option<Value<'static>>, Error> {
                <$end>::try_recv(self)
            }
        }
    )*};
}
ends!(Client, Peer);

impl<T> Patient<T> {
    pub(super) fn deadline(&self) -> Deadline {
        deadline(self.timeout)
    }
}

impl<E: End> Patient<E> {
    pub(super) fn send(&self, value: *const syncline_value) -> Result<(), Failure> {
        Ok(self.end.send_by(VALUES.get(value)?.value(), self.deadline())?)
    }

    /// # Safety
    /// `dims` has `axes` extents, `data` as many numbers as they multiply to.
    pub(super) unsafe fn send_array(&self, dtype: i32, dims: *const usize, axes: usize, data: *const c_void) -> Result<(), Failure> {
        let dtype = facts::dtype(dtype)?;
        // SAFETY: the caller's promise.
        let view = unsafe { view(dtype, dims, axes, data) }?;
        Ok(self.end.send_tensor_by(&view, self.deadline())?)
    }

    /// # Safety
    /// `out` may be written.
    pub(super) unsafe fn recv(&self, out: *mut *mut syncline_value) -> Result<(), Failure> {
        memory::check_out(out, "out")?;
        // SAFETY: the caller's promise.
        unsafe { give_value(out, self.end.recv_by(self.deadline())?) }
    }

    /// # Safety
    /// `out` may be written.
    pub(super) unsafe fn try_recv(&self, out: *mut *mut syncline_value) -> Result<(), Failure> {
        // SAFETY: the caller's promise.
        unsafe { give_if_any(out, || Ok(self.end.try_recv()?)) }
    }

    /// # Safety
    /// `dims` has `axes` extents, `data` room for as many numbers as they multiply to, which nobody else uses meanwhile.
    pub(super) unsafe fn recv_into(&self, dtype: i32, dims: *const usize, axes: usize, data: *mut c_void) -> Result<(), Failure> {
        let dtype = facts::dtype(dtype)?;
        // SAFETY: the caller's promise.
        let mut target = unsafe { view_mut(dtype, dims, axes, data) }?;
        Ok(self.end.recv_into_by(&mut target, self.deadline())?)
    }
}

/// # Safety
/// `dims` has `axes` extents, `data` as many numbers as they multiply to.
unsafe fn view<'a>(dtype: DType, dims: *const usize, axes: usize, data: *const c_void) -> Result<TensorView<'a>, Failure> {
    // SAFETY: the caller's promise.
    let shape = unsafe { memory::shape(dims, axes) }?;
    // SAFETY: the caller's promise.
    let bytes = unsafe { memory::numbers(data, shape.elements(), dtype, "data") }?;
    TensorView::contiguous(bytes, dtype, shape).map_err(|error| Failure::argument(error.to_string()))
}

/// # Safety
/// As [`view`], and nobody else uses `data`.
unsafe fn view_mut<'a>(dtype: DType, dims: *const usize, axes: usize, data: *mut c_void) -> Result<TensorViewMut<'a>, Failure> {
    // SAFETY: the caller's promise.
    let shape = unsafe { memory::shape(dims, axes) }?;
    // SAFETY: the caller's promise.
    let bytes = unsafe { memory::numbers_mut(data, shape.elements(), dtype, "data") }?;
    TensorViewMut::contiguous(bytes, dtype, shape).map_err(|error| Failure::argument(error.to_string()))
}

/// Counts of one direction.
#[repr(C)]
pub struct syncline_traffic {
    /// Bytes of messages, headers included.
    num_bytes: u64,
    /// Pieces of memory that they were gathered from, or scattered to.
    num_regions: u64,
    /// Messages.
    num_calls: u64,
    /// Attempts to move bytes, each of them about one system call.
    num_system_calls: u64,
    /// Seconds spent in calls that send, or receive.
    total_seconds: f64,
    /// Seconds of these that were spent in the system calls.
    system_seconds: f64,
}

fn counted(traffic: Traffic) -> syncline_traffic {
    syncline_traffic {
        num_bytes: traffic.num_bytes,
        num_regions: traffic.num_regions,
        num_calls: traffic.num_calls,
        num_system_calls: traffic.num_system_calls,
        total_seconds: traffic.total_seconds,
        system_seconds: traffic.system_seconds,
    }
}

/// # Safety
/// `sent` and `received` are NULL or may be written.
pub(super) unsafe fn give_stats(stats: NetStats, sent: *mut syncline_traffic, received: *mut syncline_traffic) -> Result<(), Failure> {
    // SAFETY: the caller's promise.
    unsafe {
        memory::give_if(sent, "sent", counted(stats.tx))?;
        memory::give_if(received, "received", counted(stats.rx))
    }
}

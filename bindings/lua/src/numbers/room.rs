//! Memory for tensors: what the collector has let go of is used again, and the collector is made to run in time.
//!
//! To Lua's collector a tensor is a few words, however many megabytes hang from it. Left to itself it lets a loop of `t = handler:get()` fill the
//! machine, and each new tensor pays for pages that the kernel hands out one by one: a get of a megabyte took nine times as long as Rust's. So
//! bytes are counted here, garbage is collected when there is much of it, and large pieces of memory go from one tensor to the next.

use std::cell::Cell;
use std::ops::{Deref, DerefMut, RangeInclusive};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use mlua::{Error, Lua};
use syncline::DType;
use syncline_tensor::{Shape, Tensor};

/// Smaller pieces are used again by `malloc` itself, without asking the kernel.
const LARGE: usize = 64 << 10;
/// Bytes that wait for another tensor.
const MOST_KEPT: usize = 64 << 20;
/// Bytes of garbage that are worth a look at everything Lua has, for each byte that it has. A look took 0.13 to 0.24 ns per byte; this makes it 3 to 6 µs for each
/// megabyte of garbage. The time itself was tried: a look after much garbage finds its memory thrown out of the caches and takes longer, so that there was more of it.
const GARBAGE_PER_BYTE: usize = 40;
/// Within these: 4 MB are still in a cache of 8 when they are used again; beyond 16, memory that comes
/// from no cache costs more than looks that are spared.
const GARBAGE: RangeInclusive<usize> = 4 << 20..=16 << 20;

/// Bytes of all tensors of this process, garbage among them.
static HELD: AtomicUsize = AtomicUsize::new(0);
static KEPT: Mutex<Vec<Tensor>> = Mutex::new(Vec::new());

thread_local! {
    /// From so many bytes on this thread's interpreter collects.
    static LIMIT: Cell<usize> = const { Cell::new(*GARBAGE.start()) };
}

fn kept() -> MutexGuard<'static, Vec<Tensor>> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner) // a list of tensors is whole between any two steps
}

/// A tensor whose memory is used again.
pub(super) struct Room(Option<Tensor>);

impl Room {
    pub(super) fn of(tensor: Tensor) -> Room {
        HELD.fetch_add(tensor.bytes().len(), Relaxed);
        Room(Some(tensor))
    }

    /// Numbers of any value, for whoever writes all of them.
    pub(super) fn to_fill(dtype: DType, shape: Shape) -> Room {
        Room::of(Room::used(dtype, &shape).unwrap_or_else(|| Tensor::zeros(dtype, shape)))
    }

    pub(super) fn zeros(dtype: DType, shape: Shape) -> Room {
        let used = Room::used(dtype, &shape).map(|mut tensor| {
            tensor.bytes_mut().fill(0);
            tensor
        });
        Room::of(used.unwrap_or_else(|| Tensor::zeros(dtype, shape)))
    }

    fn used(dtype: DType, shape: &Shape) -> Option<Tensor> {
        if shape.byte_len(dtype) < LARGE {
            return None;
        }
        let mut kept = kept();
        // The last one is the likeliest to be in a cache.
        let place = kept.iter().rposition(|tensor| tensor.dtype() == dtype && tensor.shape() == shape)?;
        Some(kept.remove(place))
    }
}

impl Deref for Room {
    type Target = Tensor;

    fn deref(&self) -> &Tensor {
        self.0.as_ref().expect("only `drop` takes it")
    }
}

impl DerefMut for Room {
    fn deref_mut(&mut self) -> &mut Tensor {
        self.0.as_mut().expect("only `drop` takes it")
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let Some(tensor) = self.0.take() else { return };
        let size = tensor.bytes().len();
        HELD.fetch_sub(size, Relaxed);
        if !(LARGE..=MOST_KEPT).contains(&size) {
            return;
        }
        let mut kept = kept();
        kept.push(tensor);
        let mut all: usize = kept.iter().map(|tensor| tensor.bytes().len()).sum();
        while all > MOST_KEPT {
            all -= kept.remove(0).bytes().len();
        }
    }
}

/// Collects garbage if there may be much of it.
#[inline]
pub(crate) fn relieve(lua: &Lua) {
    if HELD.load(Relaxed) > LIMIT.get() {
        collect(lua);
    }
}

#[cold]
fn collect(lua: &Lua) {
    LIMIT.set(usize::MAX); // functions of the user's that run meanwhile begin no second round
    // What a finaliser raises is not the fault of the call that happened to come now. In 5.1 it ends the collection, too, and the finalisers
    // behind it, which tensors have as well, wait for a later one: so this one is carried to its end.
    let mut ended = lua.gc_collect().map(|()| true);
    while !matches!(ended, Ok(true) | Err(Error::MemoryError(_) | Error::StackError)) {
        ended = lua.gc_step();
    }
    let worth = lua.used_memory().saturating_mul(GARBAGE_PER_BYTE).clamp(*GARBAGE.start(), *GARBAGE.end());
    let held = HELD.load(Relaxed);
    LIMIT.set(held + worth.max(held / 2)); // half of what lives, if that is more: those who hold gigabytes are used to so much
}

//! Memory for tensors: what the collector has let go of is used again, and the collector is made to run in time.
//!
//! To Lua's collector a tensor is a few words, however many megabytes hang from it. Left to itself it lets a loop of `t = handler:get()` fill the
//! machine, and each new tensor pays for pages that the kernel hands out one by one: a get of a megabyte took nine times as long as Rust's. So
//! bytes are counted here, garbage is collected when there is much of it, and large pieces of memory go from one tensor to the next.

use std::cell::Cell;
#[cfg(feature = "lua51")]
use std::ffi::c_int;
use std::ops::{Deref, DerefMut, RangeInclusive};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use mlua::{Error, Lua};
use syncline::DType;
use syncline_tensor::{Shape, Tensor};

/// Smaller pieces are used again by `malloc` itself, without asking the kernel.
const LARGE: usize = 64 << 10;
/// Bytes that wait for another tensor.
const MOST_KEPT: usize = 64 << 20;
/// Bytes of garbage that are worth a look at everything Lua has, for each byte that it has. A look took 0.15 to 0.2 ns per byte; this makes it about 6 µs
/// for each megabyte of garbage. The time itself was tried: a look after much garbage finds its memory thrown out of the caches and takes longer, so that
/// there was more of it.
const GARBAGE_PER_BYTE: usize = 32;
/// Within these: few pieces of memory in turn stay in a near cache; beyond 16 MB, memory that comes from no cache costs more than looks that are spared.
const GARBAGE: RangeInclusive<usize> = 1 << 20..=16 << 20;
/// Where Lua holds megabytes itself a look takes milliseconds, and is spared as long as there is less than so many bytes of garbage for each of Lua's, which
/// programs of that size do not notice.
const UNNOTICED_PER_BYTE: usize = 4;

/// Bytes of all tensors of this process, garbage among them.
static HELD: AtomicUsize = AtomicUsize::new(0);
static KEPT: Mutex<Vec<Used>> = Mutex::new(Vec::new());
/// Tensors so far.
static MADE: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// From so many bytes on this thread's interpreter collects.
    static LIMIT: Cell<usize> = const { Cell::new(*GARBAGE.start()) };
}

/// Memory, and which tensor it was: what was written last is the likeliest to be in a cache.
struct Used {
    tensor: Tensor,
    number: u64,
}

fn kept() -> MutexGuard<'static, Vec<Used>> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner) // a list of tensors is whole between any two steps
}

/// A tensor whose memory is used again.
pub(super) struct Room(Option<Used>);

impl Room {
    pub(super) fn of(tensor: Tensor) -> Room {
        HELD.fetch_add(tensor.bytes().len(), Relaxed);
        Room(Some(Used { tensor, number: MADE.fetch_add(1, Relaxed) }))
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

    /// The youngest that fits. A collector ends the youngest first, so the last that came back would be the oldest and each would be met again when
    /// all others had their turn; the youngest first goes through them to and fro, and finds what a cache still holds.
    fn used(dtype: DType, shape: &Shape) -> Option<Tensor> {
        if shape.byte_len(dtype) < LARGE {
            return None;
        }
        let mut kept = kept();
        let fitting = kept.iter().enumerate().filter(|(_, used)| used.tensor.dtype() == dtype && used.tensor.shape() == shape);
        let (place, _) = fitting.max_by_key(|(_, used)| used.number)?;
        Some(kept.swap_remove(place).tensor)
    }
}

impl Deref for Room {
    type Target = Tensor;

    fn deref(&self) -> &Tensor {
        &self.0.as_ref().expect("only `drop` takes it").tensor
    }
}

impl DerefMut for Room {
    fn deref_mut(&mut self) -> &mut Tensor {
        &mut self.0.as_mut().expect("only `drop` takes it").tensor
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let Some(used) = self.0.take() else { return };
        let size = used.tensor.bytes().len();
        HELD.fetch_sub(size, Relaxed);
        if !(LARGE..=MOST_KEPT).contains(&size) {
            return;
        }
        let mut kept = kept();
        kept.push(used);
        let mut all: usize = kept.iter().map(|used| used.tensor.bytes().len()).sum();
        while all > MOST_KEPT {
            let Some((oldest, _)) = kept.iter().enumerate().min_by_key(|(_, used)| used.number) else { return };
            all -= kept.swap_remove(oldest).tensor.bytes().len();
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
    let before = HELD.load(Relaxed);
    end_cycle(lua);
    if HELD.load(Relaxed) == before {
        end_cycle(lua); // the cycle that ended may have begun, and looked at the tensors, when they were no garbage yet
    }
    let held = HELD.load(Relaxed);
    let of_lua = lua.used_memory();
    // What is kept is all that can be used again. Half of what lives, if that is more: those who hold gigabytes are used to so much.
    let most = of_lua.saturating_mul(UNNOTICED_PER_BYTE).clamp(*GARBAGE.end(), MOST_KEPT).max(held / 2);
    LIMIT.set(held + of_lua.saturating_mul(GARBAGE_PER_BYTE).clamp(*GARBAGE.start(), most));
}

/// Lets the collector go on to the end of its cycle, or through a whole one if it has none in hand.
///
/// What a finaliser raises is not the fault of the call that happened to come now. In 5.1 it ends the step, too, and the finalisers behind it, which
/// tensors have as well, wait for a later one: so the cycle is carried to its end.
fn end_cycle(lua: &Lua) {
    while !matches!(step(lua), Ok(true) | Err(Error::MemoryError(_) | Error::StackError)) {}
}

/// A step as large as a cycle; whether the cycle has ended. What Lua 5.1 calls a full collection sweeps everything before its cycle and once more after it, which
/// made it longer by a third.
#[cfg(feature = "lua51")]
fn step(lua: &Lua) -> mlua::Result<bool> {
    const KILOBYTES: c_int = 1 << 20;
    // SAFETY: the collector is asked for a step, one value is pushed, and what a finaliser raises is caught around both.
    unsafe {
        lua.exec_raw((), |state| {
            let ended = mlua::ffi::lua_gc(state, mlua::ffi::LUA_GCSTEP, KILOBYTES);
            mlua::ffi::lua_pushboolean(state, ended);
        })
    }
}

#[cfg(feature = "lua54")]
fn step(lua: &Lua) -> mlua::Result<bool> {
    lua.gc_collect().map(|()| true)
}

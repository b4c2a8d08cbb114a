//! An item that was taken out of a workqueue or a channel with leases, and what becomes of it.

use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use syncline::ipc::{Item, Taken};

use crate::border::{deadline, guarded};
use crate::failure::{Failure, syncline_status};
use crate::handles::Handles;
use crate::memory;
use crate::values::{VALUES, give as give_value, syncline_value};

/// An item that was taken. On a lease it is not gone yet: if this process dies before it is done, another reader gets it.
pub struct syncline_item {
    _private: [u8; 0],
}

/// Empty once somebody has decided what becomes of it.
struct Slot(Mutex<Option<Item>>);

static ITEMS: Handles<syncline_item, Slot> = Handles::new("item", 12);

impl Slot {
    fn lock(&self) -> MutexGuard<'_, Option<Item>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// # Safety
/// `item` may be written; `over` is NULL or may be.
pub(super) unsafe fn give_taken(
    item: *mut *mut syncline_item,
    over: *mut c_int,
    take: impl FnOnce() -> Result<Taken, Failure>,
) -> Result<(), Failure> {
    let taken = || {
        let taken = take()?;
        // SAFETY: the caller's promise.
        unsafe { memory::give_if(over, "over", c_int::from(matches!(taken, Taken::Over))) }?;
        Ok(taken.item().map(|item| Slot(Mutex::new(Some(item)))))
    };
    // SAFETY: the caller's promise.
    unsafe { ITEMS.give_if_any(item, taken) }
}

fn with<T>(item: *mut syncline_item, look: impl FnOnce(&Item) -> T) -> Result<T, Failure> {
    let slot = ITEMS.get(item)?;
    let held = slot.lock();
    held.as_ref().map(look).ok_or_else(|| Failure::argument("the item is being finished by another thread"))
}

/// The item, whose handle is void from now on.
fn taken(item: *mut syncline_item) -> Result<Item, Failure> {
    let slot = ITEMS.take(item)?;
    let mut held = slot.lock();
    held.take().ok_or_else(|| Failure::argument("the item was finished by another thread"))
}

/// Its value, which outlives the item.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_item_value(item: *mut syncline_item, out: *mut *mut syncline_value) -> syncline_status {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { give_value(out, with(item, |item| item.value().clone())?) })
}

/// Its number in the queue (modulo 2³²), of an answer that of its question; how often it was taken before and came back; and
/// whether it is on a lease, 1 or 0.
///
/// # Safety
/// The three are NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_item_look(
    item: *mut syncline_item,
    id: *mut u64,
    attempts: *mut u32,
    leased: *mut c_int,
) -> syncline_status {
    guarded(|| {
        let (number, tries, lease) = with(item, |item| (item.id(), item.attempts(), item.is_leased()))?;
        // SAFETY: the caller's promise.
        unsafe {
            memory::give_if(id, "id", number)?;
            memory::give_if(attempts, "attempts", tries)?;
            memory::give_if(leased, "leased", c_int::from(lease))
        }
    })
}

/// Finishes the item and frees it.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_item_done(item: *mut syncline_item) -> syncline_status {
    guarded(|| Ok(taken(item)?.done()?))
}

/// Gives the item to whoever reads next, ahead of all newer ones, and frees it.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_item_give_back(item: *mut syncline_item) -> syncline_status {
    guarded(|| Ok(taken(item)?.give_back()?))
}

/// How long an answer may wait for room: there is some as long as anybody reads answers at all.
const ROOM: Duration = Duration::from_secs(300);

/// Answers a question of a workqueue, finishes it and frees it, as one step: whoever dies, each question is answered exactly once.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_item_answer(item: *mut syncline_item, answer: *const syncline_value) -> syncline_status {
    guarded(|| {
        let answer = VALUES.get(answer)?;
        Ok(taken(item)?.answer(answer.value(), deadline(ROOM))?)
    })
}

//! The queue of a channel that only threads of this process use; the folder's README says how it works.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use syncline_shm::bell::Bell;
use syncline_shm::guarded::Guarded;
use syncline_shm::wait::{Deadline, Patience, WaitError, look_for, wait_for, wait_watchfully};
use syncline_wire::Value;

use super::batch::{Batch, Space};

/// Looks of a waiting writer that are only content with room for many.
const PATIENT_LOOKS: u32 = 60;

/// From this capacity on, writers are woken for a quarter of it.
const LARGE_CAPACITY: u64 = 16;

/// Alone on its cache lines: the neighbouring line is fetched along on some processors.
#[repr(align(128))]
#[derive(Default)]
struct Apart<T>(T);

/// A queue between threads.
pub(super) struct Local {
    /// The most items; any number is `u64::MAX`.
    capacity: u64,
    closed: AtomicBool,
    moved: AtomicBool,
    write: Apart<Side<Inbox>>,
    read: Apart<Side<Outbox>>,
    /// Readers sleep here, and writers there.
    items: Apart<Bell>,
    room: Apart<Bell>,
}

/// One end: its lock, and the items that went through it so far, which anybody may look at. Stored under the lock.
#[derive(Default)]
struct Side<T> {
    locked: Guarded<T>,
    passed: AtomicU64,
}

#[derive(Default)]
struct Inbox {
    batch: Batch,
    /// What was taken when a writer looked last.
    seen_taken: u64,
}

#[derive(Default)]
struct Outbox {
    batch: Batch,
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Put {
    /// It is in the queue.
    Done,
    /// There is no room.
    Full,
    /// Nothing may be written any more.
    Closed,
    /// The channel lies in shared memory now.
    Moved,
}

/// What an attempt to read brought.
pub(super) enum Took<'s> {
    Item(Value<'s>),
    Nothing,
    /// The channel lies in shared memory now.
    Moved,
}

impl Local {
    /// A queue for so many items; none is any number.
    pub(super) fn new(capacity: Option<usize>) -> Local {
        Local {
            capacity: capacity.map_or(u64::MAX, |capacity| capacity as u64),
            closed: AtomicBool::new(false),
            moved: AtomicBool::new(false),
            write: Apart::default(),
            read: Apart::default(),
            items: Apart::default(),
            room: Apart::default(),
        }
    }

    /// Whether the channel lies in shared memory now.
    #[inline]
    pub(super) fn has_moved(&self) -> bool {
        self.moved.load(Ordering::Acquire) // pairs with the Release in `move_out`: what is shared is complete
    }

    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// How many items there are. Takes no lock: a forked child may ask.
    pub(super) fn len(&self) -> usize {
        // Taken first: what was written is never less than that.
        let taken = self.read.0.passed.load(Ordering::Acquire);
        self.write.0.passed.load(Ordering::Acquire).wrapping_sub(taken) as usize
    }

    /// What readers listen to.
    pub(super) fn bell(&self) -> &Bell {
        &self.items.0
    }

    /// Lets `push` write an item, if there is room for it.
    #[inline(always)]
    pub(super) fn put(&self, push: impl FnOnce(&mut Batch), by: Deadline) -> Result<Put, WaitError> {
        let side = &self.write.0;
        let mut inbox = side.locked.lock(by)?;
        let written = side.passed.load(Ordering::Relaxed);
        match self.may_put(&mut inbox, written) {
            Put::Done => {}
            refused => return Ok(refused),
        }
        push(&mut inbox.batch);
        // Release pairs with the Acquire of `len` and `looks_ready`; the item itself is found under the lock.
        side.passed.store(written + 1, Ordering::Release);
        drop(inbox);
        // A sleeper's last look was made under the lock: either it saw the item, or its registration is seen here.
        self.items.0.ring_some_if_waiting_for_published(1);
        Ok(Put::Done)
    }

    /// Lets `push` write `most` items one after the other, as many as there is room for, and says how it ended.
    pub(super) fn put_many(&self, most: usize, push: &mut dyn FnMut(&mut Batch), by: Deadline) -> Result<(usize, Put), WaitError> {
        let side = &self.write.0;
        let mut inbox = side.locked.lock(by)?;
        let before = side.passed.load(Ordering::Relaxed);
        let mut count = 0;
        let end = loop {
            match self.may_put(&mut inbox, before + count) {
                // Whoever has nothing (left) to write needs no room.
                Put::Done | Put::Full if count == most as u64 => break Put::Done,
                Put::Done => push(&mut inbox.batch),
                refused => break refused,
            }
            count += 1;
        };
        side.passed.store(before + count, Ordering::Release);
        drop(inbox);
        if count > 0 {
            self.items.0.ring_some_if_waiting_for_published(count as u32);
        }
        Ok((count as usize, end))
    }

    /// Whether an item may be written behind the `written` first ones.
    #[inline(always)]
    fn may_put(&self, inbox: &mut Inbox, written: u64) -> Put {
        // Both are set under this lock.
        if self.moved.load(Ordering::Relaxed) {
            return Put::Moved;
        }
        if self.closed.load(Ordering::Relaxed) {
            return Put::Closed;
        }
        if written.wrapping_sub(inbox.seen_taken) >= self.capacity {
            inbox.seen_taken = self.read.0.passed.load(Ordering::Acquire);
            if written.wrapping_sub(inbox.seen_taken) >= self.capacity {
                return Put::Full;
            }
        }
        Put::Done
    }

    /// Takes the oldest item; short text lies in `space`.
    #[inline(always)]
    pub(super) fn take<'s>(&self, space: &'s mut Space, by: Deadline) -> Result<Took<'s>, WaitError> {
        let side = &self.read.0;
        let mut outbox = side.locked.lock(by)?;
        let Some(value) = self.next(&mut outbox, space)? else {
            let moved = self.moved.load(Ordering::Relaxed);
            return Ok(if moved { Took::Moved } else { Took::Nothing });
        };
        let taken = side.passed.load(Ordering::Relaxed) + 1;
        side.passed.store(taken, Ordering::Release);
        drop(outbox);
        self.tell_writers(taken);
        Ok(Took::Item(value))
    }

    /// Takes up to `most` items; true if the channel has moved.
    pub(super) fn take_many(&self, most: usize, into: &mut Vec<Value<'static>>, by: Deadline) -> Result<bool, WaitError> {
        let side = &self.read.0;
        let mut outbox = side.locked.lock(by)?;
        let before = into.len();
        while into.len() - before < most {
            match self.next(&mut outbox, &mut Space::new()) {
                Ok(Some(value)) => into.push(value.into_owned()),
                Err(error) if into.len() == before => return Err(error),
                Ok(None) | Err(_) => break, // What was taken is the caller's.
            }
        }
        let taken = side.passed.load(Ordering::Relaxed) + (into.len() - before) as u64;
        side.passed.store(taken, Ordering::Release);
        let moved = self.moved.load(Ordering::Relaxed);
        drop(outbox);
        self.tell_writers(taken);
        Ok(moved)
    }

    /// The oldest item, from the inbox if need be: all of that changes hands.
    #[inline(always)]
    fn next<'s>(&self, outbox: &mut Outbox, space: &'s mut Space) -> Result<Option<Value<'s>>, WaitError> {
        if outbox.batch.is_empty() && !self.turn_over(outbox)? {
            return Ok(None);
        }
        Ok(outbox.batch.pop(space))
    }

    /// Takes the whole inbox and leaves an empty one; false when there is nothing in it.
    #[inline(never)]
    fn turn_over(&self, outbox: &mut Outbox) -> Result<bool, WaitError> {
        outbox.batch.begin_anew();
        // The count of what was taken may be behind in this call; then the inbox is asked for nothing.
        if self.len() == 0 {
            return Ok(false);
        }
        // Nobody is asked for an interrupt here: that might wait for an interpreter which waits for the lock that this thread has.
        let mut inbox = self.write.0.locked.lock(Deadline::never())?;
        std::mem::swap(&mut inbox.batch, &mut outbox.batch);
        Ok(!outbox.batch.is_empty())
    }

    /// Wakes writers that wait for room, if there is enough of it.
    #[inline(always)]
    fn tell_writers(&self, taken: u64) {
        // A sleeper's last look was made under the readers' lock: see `put`.
        if self.room.0.has_waiters() && self.has_room_after(taken, true) {
            self.room.0.ring();
        }
    }

    /// Whether there is room when so many items were taken. With `much`, whether it is worth a writer's while: one that comes back for each
    /// item costs more than it brings.
    fn has_room_after(&self, taken: u64, much: bool) -> bool {
        // Others may have taken more meanwhile.
        let unread = self.write.0.passed.load(Ordering::Acquire).saturating_sub(taken);
        let enough = if much && self.capacity >= LARGE_CAPACITY { self.capacity - self.capacity / 4 } else { self.capacity - 1 };
        unread <= enough
    }

    /// Waits until a read might bring something other than nothing.
    pub(super) fn wait_for_items(&self, by: Deadline, between: &dyn Fn() -> bool) -> Result<(), WaitError> {
        if look_for(|| self.looks_ready().then_some(()), Patience::streaming()).is_some() {
            return Ok(());
        }
        wait_for(|| self.is_ready().then_some(()), &self.items.0, Patience::none(), by, between)
    }

    fn looks_ready(&self) -> bool {
        self.len() > 0 || self.is_closed() || self.has_moved()
    }

    /// Whether a read might bring something other than nothing, for somebody who is about to sleep and has registered.
    pub(super) fn is_ready(&self) -> bool {
        // Whoever cannot have the lock looks again: the next call says what is wrong.
        let Ok(_writers_wait) = self.write.0.locked.lock(Deadline::never()) else { return true };
        self.looks_ready()
    }

    /// Waits until there is room for an item, the channel is closed or has moved.
    pub(super) fn wait_for_room(&self, by: Deadline, between: &dyn Fn() -> bool) -> Result<(), WaitError> {
        let over = || self.is_closed() || self.has_moved();
        let mut looks = 0;
        let look = || {
            looks += 1;
            let taken = self.read.0.passed.load(Ordering::Acquire);
            (over() || self.has_room_after(taken, looks < PATIENT_LOOKS)).then_some(())
        };
        if look_for(look, Patience::streaming()).is_some() {
            return Ok(());
        }
        let room = || {
            let Ok(_readers_wait) = self.read.0.locked.lock(Deadline::never()) else { return Some(()) };
            let taken = self.read.0.passed.load(Ordering::Acquire);
            (over() || self.has_room_after(taken, false)).then_some(())
        };
        if self.capacity < LARGE_CAPACITY {
            wait_for(room, &self.room.0, Patience::none(), by, between)
        } else {
            wait_watchfully(room, &self.room.0, Patience::none(), by, between) // readers do not ring for little room
        }
    }

    /// Forbids further writing and wakes everybody. True if it has moved: then the other one is to be closed.
    pub(super) fn close(&self, by: Deadline) -> Result<bool, WaitError> {
        let inbox = self.write.0.locked.lock(by)?;
        if self.moved.load(Ordering::Relaxed) {
            return Ok(true);
        }
        self.closed.store(true, Ordering::Release);
        drop(inbox);
        self.ring();
        Ok(false)
    }

    /// Shows all items to `carry`, in order, while nobody reads or writes, and whether the queue is closed. When that succeeds, the channel
    /// has moved: everybody is woken and finds out. When it fails, nothing has happened.
    pub(super) fn move_out<E>(
        &self,
        carry: impl FnOnce(&[Cow<'_, Value<'_>>], bool) -> Result<(), E>,
        by: Deadline,
    ) -> Result<Result<(), E>, WaitError> {
        let mut outbox = self.read.0.locked.lock(by)?;
        let mut inbox = self.write.0.locked.lock(by)?;
        if self.moved.load(Ordering::Relaxed) {
            return Ok(Ok(()));
        }
        let mut all = outbox.batch.values();
        all.extend(inbox.batch.values());
        let carried = carry(&all, self.closed.load(Ordering::Relaxed));
        drop(all);
        if carried.is_err() {
            return Ok(carried);
        }
        self.moved.store(true, Ordering::Release);
        let carried = (std::mem::take(&mut outbox.batch), std::mem::take(&mut inbox.batch));
        drop((inbox, outbox));
        drop(carried); // not under the locks: what a value keeps may have locks of its own
        self.ring();
        Ok(Ok(()))
    }

    fn ring(&self) {
        self.items.0.ring();
        self.room.0.ring();
    }
}

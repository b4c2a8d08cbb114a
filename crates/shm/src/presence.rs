//! Coming to a numbered meeting, and leaving it before it is held.
//!
//! Each member has words that only it writes: the last meeting it has *come* to, the last one it has *left* again, and why.
//! A meeting is held for whoever sees that all have come and, after a fence, that nobody has left. Between the two looks
//! lies the whole point: a member that left and then still found somebody missing can be sure that nobody holds the meeting,
//! now or later. A member that left and found that all had come cannot be sure: some may have looked before it left. It has
//! to wait until each of the others has left too, or has said that it is done.
//!
//! Why the fences do it: who leaves stores `left`, fences, and reads a `come` that is still old; who holds the meeting reads
//! that `come` new, fences, and reads `left`. The first fence therefore comes before the second, and the second reader sees
//! what the first one stored. Checked in `tests/loom.rs`.
//!
//! A member that dies neither comes nor leaves any more; what it said stays said.

use crate::placed::AtomicWord;
use crate::sync::{Ordering, fence};

/// One member's words.
#[repr(C)]
#[derive(Default)]
pub struct Presence {
    come: AtomicWord,
    left: AtomicWord,
    /// Why it left; the member's users know what it means.
    why: AtomicWord,
}

impl Presence {
    /// Comes to `meeting`, and keeps later looks behind that.
    #[inline]
    pub fn come(&self, meeting: u64) {
        self.come.publish(meeting);
    }

    /// Whether the member has come to `meeting`.
    #[inline(always)]
    pub fn has_come(&self, meeting: u64) -> bool {
        self.come.get() >= meeting
    }

    /// The last meeting that the member came to.
    pub fn last(&self) -> u64 {
        self.come.get()
    }

    /// Leaves `meeting`, saying `why`, and keeps later looks behind that. There is no way back.
    pub fn leave(&self, meeting: u64, why: u64) {
        self.why.set(why);
        self.left.publish(meeting);
    }

    /// Whether the member has left `meeting`.
    #[inline]
    pub fn has_left(&self, meeting: u64) -> bool {
        self.left.get() == meeting
    }

    /// Why it left the meeting that it was seen to leave.
    pub fn why(&self) -> u64 {
        self.why.get()
    }
}

/// The first of `members` that has left `meeting`: to be asked by whoever saw all of them come to it.
#[inline]
pub fn first_to_leave<'a>(members: impl IntoIterator<Item = &'a Presence>, meeting: u64) -> Option<usize> {
    fence(Ordering::SeqCst);
    members.into_iter().position(|member| member.has_left(meeting))
}

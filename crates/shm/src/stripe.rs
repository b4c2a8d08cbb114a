//! The word that guards one stripe: who changes it now, and how often it was changed.
//!
//! ```text
//!   63            32 31             0
//!   [ changes so far ][ hand, or 0   ]
//! ```
//! A hand that takes the word writes itself into the low half; letting go counts one change and clears it. A reader
//! notes the word, copies, and looks again: the same word with no hand in it means that nothing moved meanwhile. The
//! count would have to wrap within one copy (2³² changes) to fool it.
//!
//! If the process behind a hand dies, the word keeps naming it, so the next one knows whose redo record to look at; it
//! takes over with [`StripeWord::inherit`], which only one can win.

use crate::sync::{AtomicU64, Ordering, fence};

/// The guard of one stripe.
#[repr(transparent)]
#[derive(Default)]
pub struct StripeWord(AtomicU64);

/// A hand holds the stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy {
    /// Its number, from 0.
    pub hand: u32,
}

const HAND: u64 = 0xffff_ffff;
const ONE_CHANGE: u64 = 1 << 32;

fn busy(word: u64) -> Option<Busy> {
    (word & HAND != 0).then(|| Busy { hand: (word & HAND) as u32 - 1 })
}

impl StripeWord {
    /// Takes the stripe for `hand`.
    #[inline]
    pub fn try_take(&self, hand: u32) -> Result<(), Busy> {
        let seen = self.0.load(Ordering::Relaxed);
        if let Some(busy) = busy(seen) {
            return Err(busy);
        }
        // SeqCst: pairs with a reader that announces itself and then looks at the stripe (changed-row tracking).
        let taken = self.0.compare_exchange(seen, seen | (u64::from(hand) + 1), Ordering::SeqCst, Ordering::Relaxed);
        // A reader that sees any of the changes to come must also see, at its second look, that somebody is at it.
        fence(Ordering::Release);
        // Seen just before, lost meanwhile: whoever holds it now may have let go again, so any answer names somebody.
        taken.map(drop).map_err(|now| busy(now).unwrap_or(Busy { hand }))
    }

    /// Lets go: what was changed is visible to whoever takes or reads the stripe next. Returns what the word says then.
    #[inline]
    pub fn let_go(&self) -> u64 {
        let held = self.0.load(Ordering::Relaxed);
        let free = (held & !HAND).wrapping_add(ONE_CHANGE);
        self.0.store(free, Ordering::Release);
        free
    }

    /// Whether the word still says what [`let_go`](StripeWord::let_go) left: nobody has taken the stripe since.
    #[inline]
    pub fn is_as_left(&self, left: u64) -> bool {
        self.0.load(Ordering::Relaxed) == left
    }

    /// Takes the stripe over from a hand whose process is dead. False when somebody else did, or it is free.
    pub fn inherit(&self, dead: u32, heir: u32) -> bool {
        let seen = self.0.load(Ordering::Relaxed);
        // No fence here: readers have seen the stripe held since the dead hand took it.
        seen & HAND == u64::from(dead) + 1
            && self.0.compare_exchange(seen, (seen & !HAND) | (u64::from(heir) + 1), Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Who holds it.
    #[inline]
    pub fn holder(&self) -> Option<Busy> {
        busy(self.0.load(Ordering::Acquire))
    }

    /// Begins to read: what to show [`unchanged`](StripeWord::unchanged) afterwards.
    #[inline]
    pub fn begin(&self) -> Result<u64, Busy> {
        let seen = self.0.load(Ordering::Acquire); // pairs with the Release in `let_go`
        busy(seen).map_or(Ok(seen), Err)
    }

    /// Whether nothing changed since [`begin`](StripeWord::begin), so that what was copied is one state.
    #[inline]
    pub fn unchanged(&self, begun: u64) -> bool {
        fence(Ordering::Acquire); // the copy's loads stay before the second look
        self.0.load(Ordering::Relaxed) == begun
    }
}

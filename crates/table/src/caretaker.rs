//! Applies large adds that no get came for.
//!
//! A large add is left in its outbox, because the get that usually follows can apply it in the same pass. If none comes,
//! others should see the add all the same: a thread looks every few milliseconds at the tables that left something, and
//! applies what it finds there twice. It sleeps for good while nothing is left anywhere.

use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::Duration;

use syncline_cluster::Deadline;

use crate::table::Inner;

const TICK: Duration = Duration::from_millis(2);
/// Looks at a table that leaves nothing before it is forgotten.
const QUIET: u32 = 20;

#[derive(Default)]
pub(crate) struct Caretaker {
    state: Mutex<State>,
    news: Condvar,
}

#[derive(Default)]
struct State {
    started: bool,
    stopped: bool,
    noted: Vec<Noted>,
}

pub(crate) struct Noted {
    table: Weak<Inner>,
    /// How many adds were applied when the last look found more of them: who goes on adding does not keep the others from seeing it.
    seen: Option<u64>,
    /// Looks in a row that found nothing.
    quiet: u32,
}

impl Caretaker {
    /// Keeps an eye on `table` for a while. The table remembers that it is noted, so that this is rare.
    pub(crate) fn note(self: &Arc<Self>, table: &Arc<Inner>) {
        let mut state = self.state.lock().expect("no panic while held");
        state.noted.push(Noted::new(table));
        if !state.started && !state.stopped {
            state.started = true;
            let caretaker = Arc::clone(self);
            // Without the thread adds are applied at the next get or barrier, which is late but right.
            let _ = std::thread::Builder::new().name("syncline-adds".into()).spawn(move || caretaker.look_after());
        }
        self.news.notify_one();
    }

    pub(crate) fn stop(&self) {
        self.state.lock().expect("no panic while held").stopped = true;
        self.news.notify_all();
    }

    fn look_after(&self) {
        let mut state = self.state.lock().expect("no panic while held");
        while !state.stopped {
            if state.noted.is_empty() {
                state = self.news.wait(state).expect("no panic while held");
                continue;
            }
            let mut noted = std::mem::take(&mut state.noted);
            drop(state);
            std::thread::sleep(TICK);
            noted.retain_mut(Noted::look);
            state = self.state.lock().expect("no panic while held");
            state.noted.append(&mut noted);
        }
    }
}

impl Noted {
    pub(crate) fn new(table: &Arc<Inner>) -> Noted {
        Noted { table: Arc::downgrade(table), seen: None, quiet: 0 }
    }

    /// Whether to go on looking.
    pub(crate) fn look(&mut self) -> bool {
        let Some(table) = self.table.upgrade() else { return false };
        let applied = table.applied_of_more();
        let Some(applied) = applied else {
            self.seen = None;
            self.quiet += 1;
            if self.quiet == QUIET {
                table.forget_noted();
            }
            // One look more: an add may have come that found the table still noted.
            return self.quiet <= QUIET;
        };
        if self.quiet >= QUIET && !table.note_again() {
            return false; // Somebody else has noted it meanwhile.
        }
        self.quiet = 0;
        if self.seen.replace(applied) == Some(applied) {
            table.apply_left_over(Deadline::after(Duration::from_secs(60)));
        }
        true
    }
}

//! Whose turn it is: calls of one group run one after the other, in the order in which they were issued.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use syncline_cluster::{Deadline, Error};

/// How long a wait lasts before it asks whether the user wants to give up.
const SLICE: Duration = Duration::from_millis(100);

/// Hands out tickets and calls them up.
#[derive(Default)]
pub(super) struct Turn {
    issued: AtomicU64,
    serving: AtomicU64,
    /// Tickets that somebody has to be woken for: threads wait for them, or they were given up and are still to be passed over.
    waiting: AtomicU64,
    /// Tickets that nobody will come with.
    given_up: Mutex<BTreeSet<u64>>,
    called_up: Condvar,
}

/// A place in the queue, whose holder must come.
#[derive(Debug)]
#[must_use = "everybody behind waits for it"]
pub(super) struct Ticket(u64);

impl Turn {
    /// A place behind all others.
    #[inline]
    pub(super) fn ticket(&self) -> Ticket {
        Ticket(self.issued.fetch_add(1, Relaxed))
    }

    /// Waits for the ticket to be called up; it is one's turn until the guard is dropped.
    ///
    /// `operation` names the call in the error of a wait that ends early, after which the ticket is given up.
    #[inline]
    pub(super) fn wait(&self, ticket: Ticket, operation: &str, by: Deadline) -> Result<MyTurn<'_>, Error> {
        if self.serving.load(Acquire) != ticket.0 {
            self.queue(&ticket, operation, by)?;
        }
        Ok(MyTurn { turn: self, ticket: ticket.0 })
    }

    #[cold]
    fn queue(&self, ticket: &Ticket, operation: &str, by: Deadline) -> Result<(), Error> {
        let started = Instant::now();
        self.waiting.fetch_add(1, SeqCst);
        let mut given_up = self.given_up();
        let outcome = loop {
            // SeqCst with the counter above and both in `pass_on`: either that sees a waiter, or this sees its turn.
            if self.serving.load(SeqCst) == ticket.0 {
                break Ok(());
            }
            let operation = || format!("{operation}, behind another call of this process");
            if by.interrupted() {
                break Err(Error::Interrupted { operation: operation(), waited: started.elapsed() });
            }
            if by.expired() {
                let hint = "the other call waits for other ranks".into();
                break Err(Error::Timeout {
                    operation: operation(),
                    missing: vec![],
                    detail: String::new(),
                    waited: started.elapsed(),
                    hint,
                });
            }
            given_up = self.called_up.wait_timeout(given_up, by.slice(SLICE)).unwrap_or_else(PoisonError::into_inner).0;
        };
        match outcome {
            Ok(()) => drop(self.waiting.fetch_sub(1, SeqCst)),
            Err(_) => {
                given_up.insert(ticket.0);
                self.call_up(&mut given_up);
            }
        }
        outcome
    }

    /// Passes over tickets that were given up, and wakes those who wait.
    fn call_up(&self, given_up: &mut BTreeSet<u64>) {
        while given_up.remove(&self.serving.load(SeqCst)) {
            self.serving.fetch_add(1, SeqCst);
            self.waiting.fetch_sub(1, SeqCst);
        }
        self.called_up.notify_all();
    }

    #[inline]
    fn pass_on(&self, ticket: u64) {
        self.serving.store(ticket + 1, SeqCst);
        if self.waiting.load(SeqCst) != 0 {
            self.call_up(&mut self.given_up());
        }
    }

    fn given_up(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.given_up.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// It is this thread's turn.
pub(super) struct MyTurn<'a> {
    turn: &'a Turn,
    ticket: u64,
}

impl Drop for MyTurn<'_> {
    #[inline]
    fn drop(&mut self) {
        self.turn.pass_on(self.ticket);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn tickets_are_called_up_in_order_and_those_given_up_are_passed_over() {
        let (turn, order) = (Turn::default(), Mutex::new(Vec::new()));
        let (first, second, third, fourth) = (turn.ticket(), turn.ticket(), turn.ticket(), turn.ticket());
        let by = Deadline::after(Duration::from_secs(20));
        let mine = turn.wait(first, "a", by).expect("nobody is before it");
        std::thread::scope(|scope| {
            for (name, ticket) in [("fourth", fourth), ("second", second)] {
                let (turn, order) = (&turn, &order);
                scope.spawn(move || {
                    let _mine = turn.wait(ticket, name, by).expect("its turn comes");
                    order.lock().unwrap().push(name);
                });
            }
            let late = turn.wait(third, "third", Deadline::after(Duration::from_millis(20)));
            assert!(late.is_err_and(|error| error.to_string().contains("third, behind another call")));
            drop(mine);
        });
        assert_eq!(*order.lock().unwrap(), ["second", "fourth"]);
    }

    #[test]
    fn a_ticket_that_was_given_up_holds_up_nobody_who_comes_later() {
        let turn = Turn::default();
        let by = Deadline::after(Duration::from_secs(20));
        let first = turn.wait(turn.ticket(), "first", by).expect("nobody is before it");
        for _ in 0..2 {
            assert!(turn.wait(turn.ticket(), "impatient", Deadline::after(Duration::ZERO)).is_err());
        }
        drop(first); // Nobody waits at this moment.
        let started = Instant::now();
        drop(turn.wait(turn.ticket(), "late", by).expect("nobody is before it"));
        drop(turn.wait(turn.ticket(), "last", by).expect("nobody is before it"));
        assert!(started.elapsed() < Duration::from_secs(10), "only a wait for a ticket that nobody holds takes that long");
        assert_eq!(turn.waiting.load(SeqCst), 0);
    }
}

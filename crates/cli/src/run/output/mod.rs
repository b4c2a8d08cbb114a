//! What the ranks say, brought to the reader: one thread that reads every rank's stdout and stderr and writes our own.
//!
//! ```text
//! rank 0 stdout ─┐            ┌▶ DIR/rank-0.out     as it came
//! rank 0 stderr ─┼▶ pump ─────┤
//! rank 1 stdout ─┘   ▲        └▶ our stdout/stderr  whole lines, prefixed
//!                    │ orders: listen, say, settle
//!                 launcher
//! ```
//! It is a thread of its own because writing to a terminal or pager may block for as long as the reader likes, and the
//! launcher must hear of deaths and signals all the while. A rank that writes faster than the reader reads is slowed down
//! by its own pipe, as it would be without a launcher.

mod logs;
mod prefix;
mod pump;
mod screen;
mod stream;
mod tail;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use rustix::event::{EventfdFlags, eventfd};

pub(super) use logs::LogDir;
pub(super) use prefix::Prefixes;
use pump::Pump;
use screen::{Screen, Sink};

use super::child::Voices;

/// The launcher's side of the pump.
pub(super) struct Output {
    orders: Sender<Order>,
    bell: OwnedFd,
    settled: OwnedFd,
    last_words: Receiver<LastWords>,
}

/// For each rank, in the order in which they were listened to, the last lines of its stderr.
pub(super) type LastWords = Vec<(u32, Vec<String>)>;

enum Order {
    Listen { rank: u32, voices: Voices, logs: Option<logs::Files> },
    Say(String),
    Settle { at_most_until: Instant },
}

impl Output {
    /// Starts the thread. It ends with the process, or when this value is gone and all is written.
    pub(super) fn start(prefixes: Prefixes) -> io::Result<Output> {
        let screen = Screen::new(Sink::stdout()?, Sink::stderr()?, prefixes);
        let (orders, inbox) = channel();
        let (reply, last_words) = channel();
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let settled = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let pump = Pump::new(screen, inbox, bell.try_clone()?, reply, settled.try_clone()?);
        std::thread::Builder::new().name("output".into()).spawn(move || pump.run())?;
        Ok(Output { orders, bell, settled, last_words })
    }

    /// Reads and shows what a new rank says from now on.
    pub(super) fn listen(&self, rank: u32, voices: Voices, logs: Option<logs::Files>) {
        self.order(Order::Listen { rank, voices, logs });
    }

    /// Shows whole lines of our own on stderr, after what the ranks said so far.
    pub(super) fn say(&self, text: impl Into<String>) {
        self.order(Order::Say(text.into()));
    }

    /// Asks for an end: everything said is written; [`Output::settled`] becomes readable when it is.
    ///
    /// A descriptor that somebody still holds open is let go at the given time, after reading what is in it.
    pub(super) fn settle(&self, at_most_until: Instant) {
        self.order(Order::Settle { at_most_until });
    }

    /// Readable when the last [`Output::settle`] is done.
    pub(super) fn settled(&self) -> BorrowedFd<'_> {
        self.settled.as_fd()
    }

    /// What the ranks said last, if settled.
    pub(super) fn take_last_words(&self) -> Option<LastWords> {
        let mut count = [0; 8];
        rustix::io::read(&self.settled, &mut count).ok()?;
        self.last_words.try_recv().ok()
    }

    fn order(&self, order: Order) {
        // The thread ends before us only by a bug of its own, which its panic message tells.
        let _ = self.orders.send(order);
        ring(&self.bell);
    }
}

fn ring(bell: &OwnedFd) {
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes()); // Full means it rings already.
}

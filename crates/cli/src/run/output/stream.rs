//! One stream of one rank: cuts what arrives into lines, and decides when an unfinished line is shown as it is.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use super::screen::{Screen, Target};
use super::tail::Tail;

/// A longer line is shown in pieces, while the other ranks wait for its end (see `Pump`).
const LONGEST_HELD: usize = 256 * 1024;
/// An unfinished line appears after this time: on a terminal somebody is watching, elsewhere whole lines matter more.
const UNFINISHED_ON_TERMINAL: Duration = Duration::from_millis(100);
const UNFINISHED_ELSEWHERE: Duration = Duration::from_secs(1);

pub(super) struct Stream {
    pub(super) rank: u32,
    pub(super) target: Target,
    pub(super) source: OwnedFd,
    pub(super) tail: Tail,
    prefix: Vec<u8>,
    log: Option<File>,
    held: Vec<u8>,
    /// When the oldest byte in `held` came.
    held_since: Option<Instant>,
    patience: Duration,
    in_long_line: bool,
}

impl Stream {
    pub(super) fn new(rank: u32, target: Target, source: OwnedFd, log: Option<File>, screen: &Screen) -> Stream {
        let patience = if screen.is_terminal(target) { UNFINISHED_ON_TERMINAL } else { UNFINISHED_ELSEWHERE };
        Stream {
            rank,
            target,
            source,
            tail: Tail::default(),
            prefix: screen.prefix(rank, target),
            log,
            held: Vec::new(),
            held_since: None,
            patience,
            in_long_line: false,
        }
    }

    /// Takes what arrived, shows the lines that are complete.
    pub(super) fn take(&mut self, bytes: &[u8], now: Instant, screen: &mut Screen) {
        self.write_log(bytes, screen);
        self.tail.push(bytes);
        let rest = match bytes.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => {
                self.show_held(screen);
                screen.show(self.rank, self.target, &self.prefix, &bytes[..=end]);
                self.in_long_line = false;
                &bytes[end + 1..]
            }
            None => bytes,
        };
        self.held.extend_from_slice(rest);
        if self.held.len() > LONGEST_HELD {
            self.show_held(screen);
            self.in_long_line = true;
        }
        if !self.held.is_empty() {
            self.held_since.get_or_insert(now);
        }
    }

    /// When the unfinished line should appear.
    pub(super) fn due(&self) -> Option<Instant> {
        self.held_since.map(|since| since + self.patience)
    }

    /// Shows the unfinished line if it waited long enough.
    pub(super) fn show_if_due(&mut self, now: Instant, screen: &mut Screen) {
        if self.due().is_some_and(|due| due <= now) {
            self.show_held(screen);
        }
    }

    /// Whether part of a very long line is shown and its end is still to come.
    pub(super) fn is_in_long_line(&self) -> bool {
        self.in_long_line
    }

    /// Lets the others speak although the end of a very long line is still to come.
    pub(super) fn leave_long_line(&mut self) {
        self.in_long_line = false;
    }

    /// There is no more to come.
    pub(super) fn end(&mut self, screen: &mut Screen) {
        self.show_held(screen);
        screen.end_line_of(self.rank, self.target);
    }

    /// Whether anybody still wants what this stream says.
    pub(super) fn is_wanted(&self, screen: &Screen) -> bool {
        self.log.is_some() || self.target == Target::Stderr || !screen.reader_left(self.target)
    }

    fn show_held(&mut self, screen: &mut Screen) {
        screen.show(self.rank, self.target, &self.prefix, &self.held);
        self.held.clear();
        self.held_since = None;
    }

    fn write_log(&mut self, bytes: &[u8], screen: &mut Screen) {
        if let Some(Err(error)) = self.log.as_mut().map(|log| log.write_all(bytes)) {
            screen.say(&format!("syncline: the log of rank {} ends here: {error}\n", self.rank));
            self.log = None;
        }
    }
}

//! The loop of the output thread: waits for any rank to speak, for an order, or for an unfinished line to be shown.
//!
//! A line longer than a stream may hold is shown in pieces. While that happens only this stream is read, so nobody speaks
//! into the middle of it; when it pauses, the others get their turn again.

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::{Duration, Instant};

use rustix::io::{Errno, ioctl_fionread, read};

use super::screen::{Screen, Target};
use super::stream::Stream;
use super::{LastWords, Order, ring};
use crate::run::waiting::readable;

const CHUNK: usize = 64 * 1024;
/// A long line that pauses for this time lets others speak.
const FLOOR_PAUSE: Duration = Duration::from_millis(300);

pub(super) struct Pump {
    screen: Screen,
    streams: Vec<Stream>,
    last_words: LastWords,
    inbox: Receiver<Order>,
    bell: OwnedFd,
    reply: Sender<LastWords>,
    settled: OwnedFd,
    settle_by: Option<Instant>,
    launcher_left: bool,
    chunk: Vec<u8>,
}

impl Pump {
    pub(super) fn new(screen: Screen, inbox: Receiver<Order>, bell: OwnedFd, reply: Sender<LastWords>, settled: OwnedFd) -> Pump {
        Pump {
            screen,
            streams: Vec::new(),
            last_words: Vec::new(),
            inbox,
            bell,
            reply,
            settled,
            settle_by: None,
            launcher_left: false,
            chunk: vec![0; CHUNK],
        }
    }

    pub(super) fn run(mut self) {
        while !(self.launcher_left && self.streams.is_empty()) {
            self.wait_and_read(self.next_moment());
            self.follow_orders();
            let now = Instant::now();
            for stream in &mut self.streams {
                stream.show_if_due(now, &mut self.screen);
            }
            self.screen.flush();
            self.let_unwanted_go();
            self.settle_if_possible(now);
        }
        self.screen.flush();
    }

    /// When something is to be done even if nobody speaks.
    fn next_moment(&self) -> Option<Instant> {
        self.streams.iter().filter_map(Stream::due).chain(self.settle_by).min()
    }

    fn wait_and_read(&mut self, until: Option<Instant>) {
        let Some(speaker) = self.streams.iter().position(Stream::is_in_long_line) else {
            self.read_ready(until, 0..self.streams.len());
            return;
        };
        let pause = Instant::now() + FLOOR_PAUSE;
        if !self.read_ready(Some(until.map_or(pause, |until| until.min(pause))), speaker..speaker + 1) {
            self.streams[speaker].leave_long_line();
        }
    }

    /// Waits for an order or for one of the given streams, then reads once from each that speaks; false if it only waited.
    fn read_ready(&mut self, until: Option<Instant>, streams: Range<usize>) -> bool {
        let first = streams.start;
        let sources = self.streams[streams].iter().map(|stream| stream.source.as_fd());
        let descriptors: Vec<BorrowedFd<'_>> = std::iter::once(self.bell.as_fd()).chain(sources).collect();
        let ready = readable(&descriptors, until).expect("the ranks' output can be polled");
        let speaking: Vec<usize> = ready.iter().filter(|at| **at > 0).map(|at| first + at - 1).collect();
        let ended: Vec<usize> = speaking.iter().copied().filter(|index| !self.read_from(*index)).collect();
        for index in ended.into_iter().rev() {
            self.remove(index);
        }
        !ready.is_empty()
    }

    /// Reads a chunk; false at the end of the stream or at an error that will not pass.
    fn read_from(&mut self, index: usize) -> bool {
        match read(&self.streams[index].source, &mut self.chunk[..]) {
            Ok(0) => return false,
            Ok(count) => self.streams[index].take(&self.chunk[..count], Instant::now(), &mut self.screen),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(_) => return false,
        }
        true
    }

    fn remove(&mut self, index: usize) {
        let mut stream = self.streams.swap_remove(index);
        stream.end(&mut self.screen);
        if stream.target == Target::Stderr {
            self.last_words.push((stream.rank, stream.tail.lines()));
        }
    }

    fn follow_orders(&mut self) {
        let _ = read(&self.bell, &mut [0u8; 8]); // Ringing or not: the inbox tells.
        loop {
            match self.inbox.try_recv() {
                Ok(Order::Listen { rank, voices, logs }) => {
                    let (out, err) = logs.map_or((None, None), |files| (Some(files.out), Some(files.err)));
                    let voices = [(Target::Stdout, voices.stdout, out), (Target::Stderr, voices.stderr, err)];
                    self.streams.extend(voices.map(|(target, source, log)| Stream::new(rank, target, source, log, &self.screen)));
                }
                Ok(Order::Say(text)) => {
                    self.read_ready(Some(Instant::now()), 0..self.streams.len());
                    self.screen.say(&text);
                }
                Ok(Order::Settle { at_most_until }) => self.settle_by = Some(at_most_until),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    self.launcher_left = true;
                    return;
                }
            }
        }
    }

    /// Whoever read our stdout is gone: let the ranks feel it as they would without us, by a broken pipe at their next write.
    fn let_unwanted_go(&mut self) {
        for index in (0..self.streams.len()).rev() {
            if !self.streams[index].is_wanted(&self.screen) {
                self.remove(index);
            }
        }
    }

    fn settle_if_possible(&mut self, now: Instant) {
        let Some(by) = self.settle_by else { return };
        if now >= by {
            for index in (0..self.streams.len()).rev() {
                self.read_what_is_there(index);
            }
        }
        if self.streams.is_empty() {
            self.screen.flush();
            self.settle_by = None;
            let _ = self.reply.send(std::mem::take(&mut self.last_words));
            ring(&self.settled);
        }
    }

    /// Reads what a rank left in its pipe, and no more: somebody else holds the pipe and may go on for ever.
    fn read_what_is_there(&mut self, index: usize) {
        let mut left = ioctl_fionread(&self.streams[index].source).unwrap_or(0);
        while left > 0 {
            let most = self.chunk.len().min(left as usize);
            let Ok(count @ 1..) = read(&self.streams[index].source, &mut self.chunk[..most]) else { break };
            left -= count as u64;
            self.streams[index].take(&self.chunk[..count], Instant::now(), &mut self.screen);
        }
        self.remove(index);
    }
}

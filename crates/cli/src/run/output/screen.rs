//! Our own stdout and stderr: whole lines of many ranks, without one rank's line breaking another's.
//!
//! A line that is not finished yet may stand on the screen (a prompt, a progress bar). It stays *open*: its rank continues
//! it, anyone else first ends it. Where stdout and stderr lead to the same place they share that state.
//! On a terminal, a carriage return brings the prefix back too. A progress bar gives way to whoever speaks next, and stands
//! there again when its rank goes on: so bars of several ranks share a line, and each leaves its last state behind.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::prefix::Prefixes;

/// Lines are collected up to this size, so that a flood does not cost a system call for each.
const COLLECTED: usize = 64 * 1024;

/// What is longer than any terminal is wide is no progress bar.
const LONGEST_BAR: usize = 1024;

/// Which of our two streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Target {
    Stdout,
    Stderr,
}

/// One of our streams.
pub(super) struct Sink {
    file: Box<dyn Write + Send>,
    /// Device and number of what it leads to: the same for `2>&1`.
    place: (u64, u64),
    terminal: bool,
    reader_left: bool,
}

/// One of a rank's two voices.
type Voice = (u32, Target);

/// Who may continue the line at the end of a stream.
struct OpenLine {
    voice: Voice,
    /// What stands there since the last carriage return, if there was one: the state of a progress bar.
    bar: Option<Vec<u8>>,
}

pub(super) struct Screen {
    sinks: [Sink; 2],
    open: [Option<OpenLine>; 2],
    shared: bool,
    /// Bars that gave way and may come back.
    hidden_bars: HashMap<Voice, Vec<u8>>,
    prefixes: Prefixes,
    collected: Vec<u8>,
    collected_for: Target,
}

impl Sink {
    pub(super) fn stdout() -> io::Result<Sink> {
        Sink::new(io::stdout(), io::stdout().is_terminal())
    }

    pub(super) fn stderr() -> io::Result<Sink> {
        Sink::new(io::stderr(), io::stderr().is_terminal())
    }

    fn new(stream: impl AsFd, terminal: bool) -> io::Result<Sink> {
        let file = File::from(stream.as_fd().try_clone_to_owned()?);
        let stat = rustix::fs::fstat(&file)?;
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Ok(Sink { file: Box::new(Patient(file)), place: (stat.st_dev, stat.st_ino), terminal: terminal && !dumb, reader_left: false })
    }
}

impl Screen {
    pub(super) fn new(stdout: Sink, stderr: Sink, prefixes: Prefixes) -> Screen {
        Screen {
            shared: stdout.place == stderr.place,
            sinks: [stdout, stderr],
            open: [None, None],
            hidden_bars: HashMap::new(),
            prefixes,
            collected: Vec::new(),
            collected_for: Target::Stdout,
        }
    }

    pub(super) fn is_terminal(&self, target: Target) -> bool {
        self.sinks[target as usize].terminal
    }

    /// Nobody reads this stream any more.
    pub(super) fn reader_left(&self, target: Target) -> bool {
        self.sinks[target as usize].reader_left
    }

    /// The prefix of a rank on one of the streams.
    pub(super) fn prefix(&self, rank: u32, target: Target) -> Vec<u8> {
        self.prefixes.of(rank, self.is_terminal(target))
    }

    /// Shows what a rank said: any number of lines, the last of which may be unfinished.
    pub(super) fn show(&mut self, rank: u32, target: Target, prefix: &[u8], bytes: &[u8]) {
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let mut bar = self.begin((rank, target), prefix);
            self.put_line(target, prefix, line);
            if !line.ends_with(b"\n") {
                match line.iter().rposition(|byte| *byte == b'\r') {
                    Some(at) => bar = Some(line[at + 1..].to_vec()),
                    None => bar.iter_mut().for_each(|bar| bar.extend_from_slice(line)),
                }
                let bar = bar.filter(|bar| bar.len() <= LONGEST_BAR);
                *self.open_line(target) = Some(OpenLine { voice: (rank, target), bar });
            }
        }
    }

    /// Ends the line that a rank left unfinished, because it will not go on.
    pub(super) fn end_line_of(&mut self, rank: u32, target: Target) {
        let is_open = self.open_line(target).as_ref().is_some_and(|open| open.voice == (rank, target));
        if is_open {
            *self.open_line(target) = None;
        } else if let Some(bar) = self.hidden_bars.remove(&(rank, target)) {
            let prefix = self.prefix(rank, target);
            self.make_way(target);
            self.put(target, &prefix);
            self.put(target, &bar);
        } else {
            return;
        }
        self.put(target, b"\n");
    }

    /// Shows lines of our own.
    pub(super) fn say(&mut self, text: &str) {
        self.make_way(Target::Stderr);
        self.put(Target::Stderr, text.as_bytes());
    }

    /// Writes what was collected.
    pub(super) fn flush(&mut self) {
        let sink = &mut self.sinks[self.collected_for as usize];
        if !sink.reader_left {
            // Other errors (a terminal that is gone, a full disk) lose the line but not the job.
            sink.reader_left = matches!(sink.file.write_all(&self.collected), Err(e) if e.kind() == io::ErrorKind::BrokenPipe);
        }
        self.collected.clear();
    }

    fn open_line(&mut self, target: Target) -> &mut Option<OpenLine> {
        &mut self.open[if self.shared { 0 } else { target as usize }]
    }

    /// Goes to where this voice may continue; returns the bar that stands there.
    fn begin(&mut self, voice: Voice, prefix: &[u8]) -> Option<Vec<u8>> {
        let (_, target) = voice;
        if let Some(own) = self.open_line(target).take_if(|open| open.voice == voice) {
            return own.bar;
        }
        self.make_way(target);
        self.put(target, prefix);
        let bar = self.hidden_bars.remove(&voice);
        self.put(target, bar.as_deref().unwrap_or_default());
        bar
    }

    /// Ends whatever line is open where `target` is about to write.
    fn make_way(&mut self, target: Target) {
        let Some(OpenLine { voice, bar }) = self.open_line(target).take() else { return };
        match bar.filter(|_| self.is_terminal(voice.1)) {
            Some(bar) => {
                self.put(voice.1, b"\r\x1b[K");
                self.hidden_bars.insert(voice, bar);
            }
            None => self.put(voice.1, b"\n"),
        }
    }

    fn put_line(&mut self, target: Target, prefix: &[u8], line: &[u8]) {
        if !self.is_terminal(target) || prefix.is_empty() {
            return self.put(target, line);
        }
        let (text, end) = match line {
            [text @ .., b'\r', b'\n'] => (text, &b"\n"[..]),
            [text @ .., b'\n'] => (text, &b"\n"[..]),
            text => (text, &b""[..]),
        };
        for (index, state) in text.split(|byte| *byte == b'\r').enumerate() {
            if index > 0 {
                self.put(target, b"\r");
                self.put(target, prefix);
            }
            self.put(target, state);
        }
        self.put(target, end);
    }

    fn put(&mut self, target: Target, bytes: &[u8]) {
        if self.collected_for != target || self.collected.len() >= COLLECTED {
            self.flush();
            self.collected_for = target;
        }
        self.collected.extend_from_slice(bytes);
    }
}

/// A file whose writes wait, even if somebody who shares it made it non-blocking.
struct Patient(File);

impl Write for Patient {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match rustix::io::write(&self.0, bytes) {
                Err(Errno::AGAIN) => poll(&mut [PollFd::new(&self.0, PollFlags::OUT)], None)
                    .map(|_| ())
                    .or_else(|error| if error == Errno::INTR { Ok(()) } else { Err(error) })?,
                Err(Errno::INTR) => {}
                result => return Ok(result?),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<Vec<u8>>>);

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Shows the given pieces and returns what both streams together received.
    fn shown(terminal: bool, shared: bool, pieces: &[(u32, Target, &str)]) -> String {
        let paper = Paper::default();
        let sink = |inode| Sink { file: Box::new(paper.clone()), place: (0, inode), terminal, reader_left: false };
        let mut screen = Screen::new(sink(1), sink(if shared { 1 } else { 2 }), Prefixes::Plain);
        for (rank, target, text) in pieces {
            let prefix = format!("{rank}: ").into_bytes();
            screen.show(*rank, *target, &prefix, text.as_bytes());
        }
        screen.flush();
        String::from_utf8(paper.0.lock().unwrap().clone()).unwrap()
    }

    use Target::{Stderr, Stdout};

    #[test]
    fn an_unfinished_line_is_continued_by_its_rank_and_ended_by_others() {
        assert_eq!(shown(false, true, &[(0, Stdout, "a"), (0, Stdout, "b\nc\n")]), "0: ab\n0: c\n");
        assert_eq!(shown(false, true, &[(0, Stdout, "a"), (1, Stdout, "b\n"), (0, Stdout, "c\n")]), "0: a\n1: b\n0: c\n");
        assert_eq!(shown(false, true, &[(0, Stdout, "a"), (0, Stderr, "b\n")]), "0: a\n0: b\n");
    }

    #[test]
    fn streams_that_lead_to_different_places_do_not_disturb_each_other() {
        assert_eq!(shown(false, false, &[(0, Stdout, "a"), (1, Stderr, "b\n"), (0, Stdout, "c\n")]), "0: a1: b\nc\n");
    }

    #[test]
    fn on_a_terminal_a_progress_bar_keeps_its_prefix_and_gives_way() {
        let bars = [(0, Stderr, "\r10%"), (0, Stderr, "\r20%"), (1, Stdout, "x\r\n"), (0, Stderr, "\r30%\n")];
        assert_eq!(shown(true, true, &bars), "0: \r0: 10%\r0: 20%\r\x1b[K1: x\n0: 20%\r0: 30%\n");
    }

    #[test]
    fn each_of_several_progress_bars_leaves_its_last_state() {
        let bars = [(0, Stderr, "\r99%"), (1, Stderr, "\r98%"), (0, Stderr, " done"), (1, Stderr, "\n"), (0, Stderr, "\n")];
        assert_eq!(shown(true, true, &bars), "0: \r0: 99%\r\x1b[K1: \r1: 98%\r\x1b[K0: 99% done\r\x1b[K1: 98%\n0: 99% done\n");
    }

    #[test]
    fn in_a_file_every_byte_stays() {
        assert_eq!(shown(false, true, &[(0, Stdout, "\r1\r2\r\n\0\n")]), "0: \r1\r2\r\n0: \0\n");
    }
}

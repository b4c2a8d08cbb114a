//! What became of the ranks, told so that a reader needs nothing else: who failed first, how, what it said last, who followed.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ended {
    /// It left with this exit code.
    Code(i32),
    /// This signal killed it.
    Signal(i32),
}

impl Ended {
    pub(super) fn is_success(self) -> bool {
        self == Ended::Code(0)
    }

    /// The exit code that tells of it: the process's own, or 128 + signal as in a shell.
    pub(super) fn exit_code(self) -> u8 {
        match self {
            Ended::Code(code) => (code & 0xff) as u8,
            Ended::Signal(signal) => (128 + signal) as u8,
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Ended::Code(0) => write!(out, "finished"),
            Ended::Code(code) => write!(out, "exited with code {code}"),
            Ended::Signal(signal) => match signal_hook::low_level::signal_name(signal) {
                Some(name) => write!(out, "was killed by signal {signal} ({name})"),
                None => write!(out, "was killed by signal {signal}"),
            },
        }
    }
}

/// The end of one rank.
#[derive(Clone, Debug)]
pub(super) struct Fate {
    pub(super) rank: u32,
    pub(super) pid: i32,
    pub(super) ended: Ended,
    /// How long it lived.
    pub(super) after: Duration,
    /// The signal by which the launcher asked it to end, if it did.
    pub(super) told: Option<Signal>,
}

impl Fate {
    /// One line for the moment it happens: `rank 2 (pid 123) exited with code 3 1.2 s after the start`.
    pub(super) fn sentence(&self) -> String {
        format!("rank {} (pid {}) {} {} after the start", self.rank, self.pid, self.ended, shown_duration(self.after))
    }

    fn told_apart(&self) -> String {
        match (self.ended, self.told) {
            (Ended::Signal(signal), Some(told)) if signal == told.as_raw() => {
                let name = signal_hook::low_level::signal_name(signal).unwrap_or("a signal");
                format!("stopped by the launcher ({name})")
            }
            (ended, _) => ended.to_string(),
        }
    }
}

/// The first failure with all that is known about it.
pub(super) struct Verdict {
    pub(super) first: Fate,
    /// The last lines of its stderr.
    pub(super) last_words: Vec<String>,
    /// Everyone who ended after it.
    pub(super) followers: Vec<Fate>,
    /// Where its whole stderr was written, with `--log-dir`.
    pub(super) log: Option<PathBuf>,
    /// Somebody told the launcher to end while it was still bringing the others down: no restart, then.
    pub(super) stopped_meanwhile: bool,
}

impl Verdict {
    pub(super) fn exit_code(&self) -> u8 {
        self.first.ended.exit_code()
    }

    /// The text at the end of the job, lines and all.
    pub(super) fn text(&self) -> String {
        let mut text = format!("syncline: {}", self.first.sentence());
        if self.last_words.is_empty() {
            text.push_str("; it wrote nothing to stderr\n");
        } else {
            text.push_str("; it said last:\n");
            for line in &self.last_words {
                text.push_str(&format!("  | {line}\n"));
            }
        }
        if !self.followers.is_empty() {
            text.push_str(&format!("syncline: after it: {}\n", summary(&self.followers)));
        }
        text.push_str(&format!("hint: {}\n", self.hint()));
        text
    }

    fn hint(&self) -> String {
        let cause = match self.first.ended {
            Ended::Signal(9) => Some("SIGKILL comes from a person or, when memory ran out, from the kernel: `dmesg` tells which"),
            Ended::Signal(4 | 6 | 7 | 8 | 11) => Some("it crashed in native code; PYTHONFAULTHANDLER=1 shows where Python was"),
            Ended::Signal(13) => Some("whoever read the output went away"),
            Ended::Signal(1 | 2 | 15) => Some("somebody else sent this signal; the launcher did not"),
            Ended::Code(127) => Some("a shell says 127 when it does not find a command"),
            _ => None,
        };
        let log = self.log.as_ref().map(|path| format!("all it said is in {}", path.display()));
        match (cause, log) {
            (Some(cause), Some(log)) => format!("{cause}; {log}"),
            (Some(cause), None) => cause.to_owned(),
            (None, Some(log)) => log,
            (None, None) => "--log-dir DIR keeps all that each rank says".to_owned(),
        }
    }
}

/// `ranks 0-2 exited with code 1; rank 3 stopped by the launcher (SIGTERM)`: one entry for each way to end.
pub(super) fn summary(fates: &[Fate]) -> String {
    let mut ways: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for fate in fates {
        ways.entry(fate.told_apart()).or_default().push(fate.rank);
    }
    let mut parts: Vec<(Vec<u32>, String)> = ways.into_iter().map(|(way, ranks)| (ranks, way)).collect();
    for (ranks, _) in &mut parts {
        ranks.sort_unstable();
    }
    parts.sort();
    let told = |(ranks, way): (Vec<u32>, String)| match way.strip_prefix("was ") {
        Some(rest) if ranks.len() > 1 => format!("{} were {rest}", shown_ranks(&ranks)),
        _ => format!("{} {way}", shown_ranks(&ranks)),
    };
    parts.into_iter().map(told).collect::<Vec<String>>().join("; ")
}

fn shown_ranks(sorted: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &rank in sorted {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == rank => *last = rank,
            _ => ranges.push((rank, rank)),
        }
    }
    let texts: Vec<String> =
        ranges.iter().map(|&(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") }).collect();
    format!("rank{} {}", if sorted.len() == 1 { "" } else { "s" }, texts.join(", "))
}

/// `0.03 s`, `1.2 s`, `74 s`, `3 h 07 min`: as exact as a reader cares.
pub(super) fn shown_duration(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        ..120.0 if time.subsec_nanos() == 0 => format!("{seconds} s"),
        ..0.095 => format!("{seconds:.2} s"),
        ..9.95 => format!("{seconds:.1} s"),
        ..120.0 => format!("{seconds:.0} s"),
        ..7200.0 => format!("{} min {:02} s", time.as_secs() / 60, time.as_secs() % 60),
        _ => format!("{} h {:02} min", time.as_secs() / 3600, time.as_secs() / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fate(rank: u32, ended: Ended, told: Option<Signal>) -> Fate {
        Fate { rank, pid: 100 + rank as i32, ended, after: Duration::from_millis(1234), told }
    }

    #[test]
    fn a_verdict_reads_like_a_report() {
        let verdict = Verdict {
            first: fate(2, Ended::Signal(9), None),
            last_words: vec!["loading".into(), "  File \"a.py\"".into()],
            followers: vec![
                fate(5, Ended::Signal(15), Some(Signal::TERM)),
                fate(1, Ended::Code(1), None),
                fate(0, Ended::Code(1), None),
                fate(3, Ended::Code(1), None),
                fate(4, Ended::Code(0), None),
            ],
            log: None,
            stopped_meanwhile: false,
        };
        assert_eq!(
            verdict.text(),
            "syncline: rank 2 (pid 102) was killed by signal 9 (SIGKILL) 1.2 s after the start; it said last:\n\
             \x20 | loading\n\
             \x20 |   File \"a.py\"\n\
             syncline: after it: ranks 0-1, 3 exited with code 1; rank 4 finished; rank 5 stopped by the launcher (SIGTERM)\n\
             hint: SIGKILL comes from a person or, when memory ran out, from the kernel: `dmesg` tells which\n"
        );
        assert_eq!(verdict.exit_code(), 137);
    }

    #[test]
    fn several_that_were_killed_are_several() {
        let fates: Vec<Fate> = (0..2).map(|rank| fate(rank, Ended::Signal(9), None)).collect();
        assert_eq!(summary(&fates), "ranks 0-1 were killed by signal 9 (SIGKILL)");
        assert_eq!(summary(&fates[1..]), "rank 1 was killed by signal 9 (SIGKILL)");
    }

    #[test]
    fn a_silent_failure_names_its_log() {
        let verdict = Verdict {
            first: fate(0, Ended::Code(3), None),
            last_words: vec![],
            followers: vec![],
            log: Some("logs/rank-0.err".into()),
            stopped_meanwhile: false,
        };
        assert_eq!(
            verdict.text(),
            "syncline: rank 0 (pid 100) exited with code 3 1.2 s after the start; it wrote nothing to stderr\n\
             hint: all it said is in logs/rank-0.err\n"
        );
        assert_eq!(verdict.exit_code(), 3);
    }

    #[test]
    fn durations_are_as_exact_as_a_reader_cares() {
        let shown: Vec<String> = [0.034, 0.5, 5.0, 9.94, 74.4, 185.0, 11_220.0].map(Duration::from_secs_f64).map(shown_duration).to_vec();
        assert_eq!(shown, ["0.03 s", "0.5 s", "5 s", "9.9 s", "74 s", "3 min 05 s", "3 h 07 min"]);
    }
}

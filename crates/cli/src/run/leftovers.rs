//! Finds processes of a job that are still there when no rank is, and ends them.
//!
//! Some belong to the process group of a rank, some left it (a daemon, a shell's background job) but still carry the job's
//! name in their environment. Both marks are looked for in `/proc`, so it takes neither a parent nor a cgroup to find them.
//!
//! `/proc` is not read in one instant. A process in the middle of an `exec` or of its end shows no environment for a moment:
//! it counts as *unclear* and is looked at again. And once anything was found, only two looks in a row that find nothing count.

use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::job::JOB_VARIABLE;
use super::ladder::{LAST_MOMENT, Ladder};

/// How the processes of a job are recognised.
#[derive(Default)]
pub(super) struct Marks {
    pub(super) job: String,
    pub(super) groups: Vec<Pid>,
}

/// A process of the job.
#[derive(Debug)]
pub(super) struct Leftover {
    pub(super) pid: Pid,
    pub(super) name: String,
}

/// How much patience leftovers meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// The job went well: they may finish what they do (`tee` its last line), then SIGTERM, then SIGKILL.
    Patient,
    /// The job failed or was stopped: SIGTERM, then SIGKILL.
    Polite,
    /// SIGKILL.
    Firm,
}

const PATIENCE: Duration = Duration::from_secs(1);
/// How often, a millisecond apart, a young process without an environment is looked at again.
const UNCLEAR_LOOKS: u32 = 20;

/// What `/proc/PID/stat` says.
struct Entry {
    name: String,
    group: Option<Pid>,
    /// In clock ticks since the machine started.
    started: u64,
    is_dead: bool,
    is_kernel_thread: bool,
}

/// A process number as written somewhere. `/proc` says -1 for the group of a process that is just vanishing.
pub(super) fn process_number(text: &str) -> Option<Pid> {
    text.parse().ok().filter(|number| *number > 0).and_then(Pid::from_raw)
}

impl Entry {
    fn of(pid: Pid) -> Option<Entry> {
        let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        Entry::parse(&String::from_utf8_lossy(&stat))
    }

    /// `pid (name) state parent group …`, where the name may itself contain spaces and parentheses; see proc(5).
    fn parse(stat: &str) -> Option<Entry> {
        let (head, tail) = stat.rsplit_once(") ")?;
        let fields: Vec<&str> = tail.split_ascii_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        let threads = number(17)?;
        Some(Entry {
            name: head.split_once('(')?.1.to_owned(),
            group: process_number(fields.get(2)?),
            started: number(19)?,
            // A first thread that ended before the others looks like a zombie, too.
            is_dead: matches!(fields[0], "Z" | "X") && threads <= 1,
            is_kernel_thread: number(6)? & 0x0020_0000 != 0,
        })
    }
}

impl Marks {
    /// Ends all processes of the job and tells which ones had to be asked.
    pub(super) fn end_leftovers(&self, manner: Manner) -> Vec<Leftover> {
        let now = Instant::now();
        let mut ladder = match manner {
            Manner::Patient => Ladder::after_failure(now, PATIENCE),
            Manner::Polite => Ladder::after_failure(now, Duration::ZERO),
            Manner::Firm => Ladder::at_once(now),
        };
        let mut asked: Vec<Leftover> = Vec::new();
        let mut pause = Duration::from_millis(1);
        let mut signal = None;
        let mut looks_needed = if manner == Manner::Firm { 2 } else { 1 };
        // Whoever survives SIGKILL for that long hangs in the kernel: nothing more can be done.
        let hopeless = now + PATIENCE + LAST_MOMENT + LAST_MOMENT;
        while looks_needed > 0 && Instant::now() < hopeless {
            let present = self.find();
            if present.is_empty() {
                looks_needed -= 1;
            } else {
                looks_needed = 2;
                signal = ladder.take_due(Instant::now()).or(signal.filter(|last| *last == Signal::KILL));
            }
            for leftover in present {
                if let Some(signal) = signal {
                    self.send(leftover.pid, signal);
                    if !asked.iter().any(|known| known.pid == leftover.pid) {
                        asked.push(leftover);
                    }
                }
            }
            if looks_needed > 0 {
                std::thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(20));
            }
        }
        asked
    }

    fn find(&self) -> Vec<Leftover> {
        let Ok(processes) = std::fs::read_dir("/proc") else {
            return Vec::new();
        };
        // Whoever is older than this process belongs to no job of it.
        let oldest = Entry::of(rustix::process::getpid()).map_or(0, |own| own.started);
        let pids = processes.filter_map(|entry| process_number(entry.ok()?.file_name().to_str()?));
        let young = pids.filter_map(|pid| Some((pid, Entry::of(pid).filter(|entry| entry.started >= oldest)?)));
        young.filter(|(pid, entry)| self.recognises(*pid, entry)).map(|(pid, entry)| Leftover { pid, name: entry.name }).collect()
    }

    fn recognises(&self, pid: Pid, entry: &Entry) -> bool {
        if entry.is_dead {
            return false;
        }
        if entry.group.is_some_and(|group| self.groups.contains(&group)) {
            return true;
        }
        let wanted = format!("{JOB_VARIABLE}={}", self.job);
        for _ in 0..UNCLEAR_LOOKS {
            // Processes of other users cannot be read, and are not ours.
            let Ok(environment) = std::fs::read(format!("/proc/{pid}/environ")) else { return false };
            if !environment.is_empty() || entry.is_kernel_thread {
                return environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes());
            }
            std::thread::sleep(Duration::from_millis(1));
            if Entry::of(pid).is_none_or(|entry| entry.is_dead) {
                return false;
            }
        }
        false // It really has no environment.
    }

    /// Sends through a descriptor that was looked at again, so that a number which changed hands hits nobody.
    fn send(&self, pid: Pid, signal: Signal) {
        let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else {
            return;
        };
        if Entry::of(pid).is_some_and(|entry| self.recognises(pid, &entry)) {
            let _ = pidfd_send_signal(&pidfd, signal); // It may have ended by itself in between.
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_whatever_it_calls_itself() {
        let own = Entry::of(Pid::from_raw(std::process::id() as i32).unwrap()).unwrap();
        assert!(!own.is_dead && !own.is_kernel_thread && own.started > 0);

        let stat = "7 (a) R (b) Z 1 42 42 0 -1 2097216 0 0 0 0 0 0 0 0 20 0 1 0 77 0 0";
        let entry = Entry::parse(stat).unwrap();
        assert_eq!((entry.name.as_str(), entry.group, entry.started), ("a) R (b", Pid::from_raw(42), 77));
        assert!(entry.is_dead && entry.is_kernel_thread);
        assert!(!Entry::parse(&stat.replace(" 1 0 77", " 2 0 77")).unwrap().is_dead, "other threads live on");
        assert_eq!(Entry::parse(&stat.replace(" 42 42", " -1 -1")).unwrap().group, None, "vanishing");
        assert!(Entry::parse("7 (a").is_none());
    }
}

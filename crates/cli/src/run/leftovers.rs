//! Finds processes of a job that are still there when no rank is, and ends them.
//!
//! Some belong to the process group of a rank, some left it (a daemon, a shell's background job) but still carry the job's
//! name in their environment. Both marks are looked for in `/proc`, so it takes neither a parent nor a cgroup to find them.

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
        // Whoever survives SIGKILL for that long hangs in the kernel: nothing more can be done.
        let hopeless = now + PATIENCE + LAST_MOMENT + LAST_MOMENT;
        loop {
            let present = self.find();
            if present.is_empty() || Instant::now() > hopeless {
                return asked;
            }
            signal = ladder.take_due(Instant::now()).or(signal.filter(|last| *last == Signal::KILL));
            for leftover in present {
                if let Some(signal) = signal {
                    self.send(leftover.pid, signal);
                    if !asked.iter().any(|known| known.pid == leftover.pid) {
                        asked.push(leftover);
                    }
                }
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }

    fn find(&self) -> Vec<Leftover> {
        let Ok(processes) = std::fs::read_dir("/proc") else {
            return Vec::new();
        };
        let numbers = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        numbers.filter_map(Pid::from_raw).filter_map(|pid| self.recognise(pid)).collect()
    }

    fn recognise(&self, pid: Pid) -> Option<Leftover> {
        let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        let stat = String::from_utf8_lossy(&stat);
        // `pid (name) state parent group …`, where the name may itself contain spaces and parentheses.
        let (head, tail) = stat.rsplit_once(") ")?;
        let mut fields = tail.split(' ');
        let state = fields.next()?;
        let group = fields.nth(1)?.parse().ok().and_then(Pid::from_raw);
        if matches!(state, "Z" | "X") {
            return None;
        }
        let in_group = group.is_some_and(|group| self.groups.contains(&group));
        if !in_group && !self.is_named_in(pid) {
            return None;
        }
        Some(Leftover { pid, name: head.split_once('(')?.1.to_owned() })
    }

    fn is_named_in(&self, pid: Pid) -> bool {
        let wanted = format!("{JOB_VARIABLE}={}", self.job);
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes())
    }

    /// Sends through a descriptor that was looked at again, so that a number which changed hands hits nobody.
    fn send(&self, pid: Pid, signal: Signal) {
        let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else {
            return;
        };
        if self.recognise(pid).is_some() {
            let _ = pidfd_send_signal(&pidfd, signal); // It may have ended by itself in between.
        }
    }
}

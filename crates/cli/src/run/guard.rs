//! The guard: a small process that ends the job when the launcher cannot, because it was killed.
//!
//! ```text
//! launcher ══pipe══▶ guard        the launcher alone holds the writing end
//!   "job NAME"  "group PID"…       what there is to end
//!   "forget"                       these groups are gone
//!   "farewell"                     all is well, leave
//!   end of file without it         the launcher is dead: SIGKILL to every group and every process of that name
//! ```
//! The kernel already ends the ranks themselves (see `child`); what they started is left to the guard. It leads a process
//! group of its own and goes by another name, so neither Ctrl-C nor `pkill syncline` reaches it together with the launcher.

use std::io::{BufRead, Write};
use std::process::{Child, ChildStdin, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::{io, os::unix::process::CommandExt};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};

use super::child::{signal_group, this_program};
use super::job::JOB_VARIABLE;
use super::leftovers::{Manner, Marks, process_number};

/// First word of a command line that means: stand guard.
pub(crate) const GUARD_WORD: &str = "__guard";

const FAREWELL: &str = "farewell";
const FORGET: &str = "forget";

/// The launcher's side of the guard.
pub(super) struct Guard {
    process: Child,
    orders: ChildStdin,
}

impl Guard {
    pub(super) fn post(job: &str) -> io::Result<Guard> {
        let mut command = this_program("sl-guard");
        command.arg(GUARD_WORD).env_remove(JOB_VARIABLE).process_group(0).current_dir("/");
        // It must not hold the launcher's output open: whoever reads that waits for its end.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut process = command.spawn()?;
        let orders = process.stdin.take().expect("stdin was piped");
        let mut guard = Guard { process, orders };
        guard.order(&format!("job {job}"));
        Ok(guard)
    }

    /// A new process group belongs to the job.
    pub(super) fn watch(&mut self, group: Pid) {
        self.order(&format!("group {group}"));
    }

    /// All process groups so far are gone, and their numbers may soon belong to others.
    pub(super) fn forget_groups(&mut self) {
        self.order(FORGET);
    }

    /// Lets the guard leave and waits until it has: nothing of a job remains.
    pub(super) fn dismiss(mut self) {
        self.order(FAREWELL);
        drop(self.orders);
        let Ok(pidfd) = pidfd_open(Pid::from_child(&self.process), PidfdFlags::empty()) else {
            return;
        };
        // It leaves within a millisecond, unless somebody stopped it.
        let moment = Timespec { tv_sec: 1, tv_nsec: 0 };
        let _ = poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&moment));
        let _ = self.process.try_wait();
    }

    fn order(&mut self, line: &str) {
        // Somebody may have killed the guard; the job is worth more than its insurance.
        let _ = self.orders.write_all(format!("{line}\n").as_bytes());
    }
}

/// Waits for the farewell or the death of the launcher.
pub(crate) fn stand_guard() -> ExitCode {
    let _ = rustix::thread::set_name(c"sl-guard");
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        // Heard and not acted upon: only the launcher decides when the guard leaves.
        let _ = signal_hook::flag::register(signal.as_raw(), Arc::new(AtomicBool::new(false)));
    }
    let mut marks = Marks::default();
    for line in io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        match line.split_once(' ') {
            Some(("job", name)) => marks.job = name.to_owned(),
            Some(("group", number)) => marks.groups.extend(process_number(number)),
            None if line == FORGET => marks.groups.clear(),
            None if line == FAREWELL => return ExitCode::SUCCESS,
            _ => {}
        }
    }
    for group in &marks.groups {
        signal_group(*group, Signal::KILL);
    }
    if !marks.job.is_empty() {
        marks.end_leftovers(Manner::Firm);
    }
    ExitCode::SUCCESS
}

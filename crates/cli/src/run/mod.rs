//! `syncline run`: starts the ranks of a job on this host, stands by them, and leaves nothing behind.
//!
//! ```text
//! options ─▶ program (what to execute) ─▶ job (who, token) ─▶ attempt ─▶ attempt … (--max-restarts)
//!                                                               │
//!                    child   one rank: started, watched, told to end
//!                    output  what the ranks say, line by line
//!                    verdict what became of them
//!                    guard   the process that cleans up if this one is killed
//! ```
//! **Invariants.** Only this process's main thread starts ranks (the kernel ties their life to it). Every wait is a poll that
//! also hears signals. Process numbers are signalled only while we hold them as unreaped children or looked again.

mod attempt;
mod child;
mod guard;
mod job;
mod ladder;
mod leftovers;
mod meeting;
mod options;
mod output;
mod program;
mod signals;
mod verdict;
mod waiting;

use std::fmt::Display;
use std::io;
use std::process::ExitCode;
use std::time::Instant;

pub(crate) use child::{CHILD_WORD, become_child};
pub(crate) use guard::{GUARD_WORD, stand_guard};
pub(crate) use options::RunOptions;

use attempt::{Launcher, Outcome, conduct, finished_without, stopped};
use guard::Guard;
use job::Job;
use output::{LogDir, Output, Prefixes};
use program::{Program, Surroundings};
use signals::Signals;

/// The launcher itself failed, as `timeout`, `env` and `docker run` say it.
const LAUNCHER_FAILED: u8 = 125;

/// Runs the job and tells how it ended by the exit code.
pub(crate) fn run(options: RunOptions) -> ExitCode {
    let program = match Program::of(&options, &Surroundings::of_this_process()) {
        Ok(program) => program,
        Err(problem) => {
            eprintln!("syncline: {}\nhint: {}", problem.fact, problem.hint);
            return ExitCode::from(problem.code);
        }
    };
    match Job::new(&options, program).and_then(|job| run_job(&job, &options)) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("syncline: {error}");
            if let Some(hint) = hint_for(&error) {
                eprintln!("hint: {hint}");
            }
            ExitCode::from(LAUNCHER_FAILED)
        }
    }
}

fn run_job(job: &Job, options: &RunOptions) -> io::Result<u8> {
    let mut launcher = Launcher {
        signals: Signals::listen().map_err(|error| because("cannot listen for signals", error))?,
        output: Output::start(Prefixes::chosen(options.no_prefix, options.color))?,
        guard: Guard::post(&job.id).map_err(|error| because("cannot start the guard process", error))?,
        logs: options.log_dir.clone().map(LogDir::new),
        grace: options.grace,
    };
    let result = attempts(job, options.max_restarts, &mut launcher);
    launcher.output.settle(Instant::now());
    // What is said last is short; a reader that does not take it within a second never will.
    let soon = Instant::now() + std::time::Duration::from_secs(1);
    let _ = waiting::readable(&[launcher.output.settled()], Some(soon));
    launcher.guard.dismiss();
    result
}

fn attempts(job: &Job, max_restarts: u32, launcher: &mut Launcher) -> io::Result<u8> {
    for epoch in 0.. {
        match conduct(job, epoch, launcher)? {
            Outcome::Finished => return Ok(0),
            Outcome::FinishedWithout(lost) => {
                launcher.output.say(finished_without(&lost));
                return Ok(0);
            }
            Outcome::Stopped { by, fates } => {
                launcher.output.say(stopped(by, &fates));
                return Ok(128 + by.as_raw() as u8);
            }
            Outcome::Failed(verdict) => {
                launcher.output.say(verdict.text());
                if epoch >= max_restarts || verdict.stopped_meanwhile {
                    return Ok(verdict.exit_code());
                }
                launcher.output.say(format!("syncline: starting the job again, restart {} of {max_restarts}\n", epoch + 1));
            }
        }
    }
    unreachable!("the last attempt returns")
}

fn because(fact: impl Display, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{fact}: {error}"))
}

fn hint_for(error: &io::Error) -> Option<&'static str> {
    let text = error.to_string();
    if text.contains("Too many open files") {
        Some("each rank takes three descriptors: raise `ulimit -n`")
    } else if text.contains("Resource temporarily unavailable") {
        Some("this user may not start more processes: see `ulimit -u` and the limits of the container")
    } else {
        None
    }
}

//! One attempt of a job, from the first process to the last: the loop that watches, and brings down what must not go on.
//!
//! ```text
//!            every rank ended well ──────────────▶ Finished     (or all but workers that were killed, if the ranks go on)
//! running ──▶ one failed ──▶ grace, TERM, KILL ──▶ Failed        (see `ladder`)
//!            a signal came ──▶ passed on, KILL ──▶ Stopped
//! ```
//! It waits in one `poll` over the ranks' pidfds and the signals. Nothing is asked at intervals.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use super::child::Rank;
use super::guard::Guard;
use super::job::Job;
use super::ladder::Ladder;
use super::leftovers::{Leftover, Manner, Marks};
use super::meeting::{Guests, MeetingPoint, Role};
use super::output::{LastWords, LogDir, Output};
use super::signals::{Request, Signals};
use super::verdict::{Ended, Fate, Verdict, shown_duration, summary};
use super::waiting::readable;

/// After the last process ended, a pipe that somebody outside the job holds open is read for this long.
const LAST_READING: Duration = Duration::from_secs(1);

/// What the launcher has beside the job itself.
pub(super) struct Launcher {
    pub(super) output: Output,
    pub(super) signals: Signals,
    pub(super) guard: Guard,
    pub(super) logs: Option<LogDir>,
    pub(super) grace: Duration,
}

/// How an attempt ended.
pub(super) enum Outcome {
    Finished,
    /// Some workers were killed, and the others went on and finished without them.
    FinishedWithout(Vec<Fate>),
    Failed(Verdict),
    /// A signal told the launcher to end the job.
    Stopped {
        by: Signal,
        fates: Vec<Fate>,
    },
}

struct Attempt<'a> {
    launcher: &'a mut Launcher,
    meeting: MeetingPoint,
    ranks: Vec<Rank>,
    ladder: Ladder,
    first_failure: Option<u32>,
    /// Workers without which the others go on, in the order of their ends.
    lost: Vec<u32>,
    stopped_by: Option<Signal>,
    endings_heard: u32,
}

/// Runs the job once.
///
/// Fails only when the launcher itself cannot go on; then, too, nothing of the attempt is left.
pub(super) fn conduct(job: &Job, epoch: u32, launcher: &mut Launcher) -> io::Result<Outcome> {
    let guests = Guests { job: &job.id, roles: &job.roles, token: &job.token, timeout: job.timeout, epoch };
    let meeting = MeetingPoint::open(&guests)?;
    let mut attempt = Attempt {
        launcher,
        meeting,
        ranks: Vec::with_capacity(job.roles.len()),
        ladder: Ladder::default(),
        first_failure: None,
        lost: Vec::new(),
        stopped_by: None,
        endings_heard: 0,
    };
    let watched = attempt.start_ranks(job, epoch).and_then(|()| attempt.watch());
    if watched.is_err() {
        attempt.kill_everyone();
    }
    let manner = match (&watched, attempt.endings_heard, attempt.first_failure) {
        (Err(_), _, _) | (_, 2.., _) => Manner::Firm,
        (_, 1, _) | (_, _, Some(_)) => Manner::Polite,
        _ if !attempt.lost.is_empty() => Manner::Polite, // Whoever was killed could not clean up.
        _ => Manner::Patient,
    };
    let groups: Vec<Pid> = attempt.ranks.iter().map(Rank::group).collect();
    let leftovers = Marks { job: job.id.clone(), groups }.end_leftovers(manner);
    if manner == Manner::Patient && !leftovers.is_empty() {
        attempt.launcher.output.say(left_behind(&leftovers));
    }
    let last_words = attempt.settle_output()?;
    let outcome = attempt.close(epoch, last_words);
    watched.map(|()| outcome)
}

impl Attempt<'_> {
    fn start_ranks(&mut self, job: &Job, epoch: u32) -> io::Result<()> {
        let rendezvous = self.meeting.rendezvous();
        for (number, role) in (0..).zip(job.roles.iter().copied()) {
            let logs = self.launcher.logs.as_ref().map(|logs| logs.files(epoch, number)).transpose()?;
            let environment = job.environment(number, epoch, &rendezvous);
            let (rank, voices) = Rank::start(number, role, &job.words(role), &environment)
                .map_err(|error| io::Error::new(error.kind(), format!("cannot start rank {number}: {error}")))?;
            self.launcher.guard.watch(rank.group());
            self.launcher.output.listen(number, voices, logs);
            self.ranks.push(rank);
        }
        Ok(())
    }

    /// Until no rank is alive.
    fn watch(&mut self) -> io::Result<()> {
        while self.ranks.iter().any(Rank::is_alive) {
            let alive = self.ranks.iter().filter(|rank| rank.is_alive()).map(Rank::descriptor);
            let descriptors: Vec<BorrowedFd<'_>> = alive.chain(self.launcher.signals.descriptors()).collect();
            readable(&descriptors, self.ladder.next())?;
            for request in self.launcher.signals.take() {
                self.hear(request);
            }
            self.note_deaths()?;
            while let Some(signal) = self.ladder.take_due(Instant::now()) {
                self.ranks.iter_mut().filter(|rank| rank.is_alive()).for_each(|rank| rank.tell_to_end(signal));
            }
        }
        Ok(())
    }

    fn hear(&mut self, request: Request) {
        let signal = match request {
            Request::PassOn(signal) => {
                self.ranks.iter().filter(|rank| rank.is_alive()).for_each(|rank| rank.pass_on(signal));
                return;
            }
            Request::End(signal) => signal,
        };
        self.count_ending(signal);
        let name = signal_hook::low_level::signal_name(signal.as_raw()).unwrap_or("a signal");
        let now = Instant::now();
        if self.endings_heard == 1 {
            let grace = self.launcher.grace;
            let passed_on = if signal == Signal::INT { Signal::INT } else { Signal::TERM };
            self.ladder = Ladder::after_signal(now, passed_on, grace);
            self.launcher
                .output
                .say(format!("syncline: {name}: the ranks have {} to end; once more kills them now\n", shown_duration(grace)));
        } else {
            self.ladder = Ladder::at_once(now);
        }
    }

    fn count_ending(&mut self, signal: Signal) {
        self.endings_heard += 1;
        if self.first_failure.is_none() {
            self.stopped_by.get_or_insert(signal);
        }
    }

    /// Looks who ended since the last look, and begins to bring down the others if it should not have.
    fn note_deaths(&mut self) -> io::Result<()> {
        let mut deaths: Vec<Fate> = Vec::new();
        for rank in self.ranks.iter_mut().filter(|rank| rank.is_alive()) {
            deaths.extend(rank.look()?.cloned());
        }
        // Of several that ended since the last look, one that was killed is the likelier cause.
        deaths.sort_by_key(|fate| matches!(fate.ended, Ended::Code(_)));
        for fate in deaths {
            let goes_on = self.meeting.goes_on() && self.ranks[fate.rank as usize].role == Role::Worker;
            self.meeting.child_ended(fate.rank, fate.ended);
            let is_failure = !fate.ended.is_success() && fate.told.is_none() && self.stopped_by.is_none();
            if is_failure && self.first_failure.is_none() && goes_on {
                self.lost.push(fate.rank);
                if self.ranks.iter().any(|rank| rank.is_alive() && rank.role == Role::Worker) {
                    self.launcher.output.say(format!("syncline: {}; the others go on without it\n", fate.sentence()));
                }
            } else if is_failure && self.first_failure.is_none() {
                self.first_failure = Some(fate.rank);
                self.begin_end_after(&fate);
            }
        }
        let workers_left = self.ranks.iter().any(|rank| rank.is_alive() && rank.role == Role::Worker);
        if !workers_left && !self.ladder.has_begun() {
            // Servers leave when their workers have; one that does not is asked to.
            self.ladder = Ladder::after_failure(Instant::now(), self.launcher.grace);
        }
        Ok(())
    }

    fn begin_end_after(&mut self, fate: &Fate) {
        self.ladder = Ladder::after_failure(Instant::now(), self.launcher.grace);
        if self.ranks.iter().any(Rank::is_alive) {
            let grace = shown_duration(self.launcher.grace);
            self.launcher.output.say(format!("syncline: {}; the others have {grace} to end\n", fate.sentence()));
        }
    }

    fn kill_everyone(&mut self) {
        for rank in self.ranks.iter_mut().filter(|rank| rank.is_alive()) {
            rank.tell_to_end(Signal::KILL);
        }
    }

    /// Waits until all that was said is written: as long as the reader takes, unless somebody is in a hurry.
    fn settle_output(&mut self) -> io::Result<LastWords> {
        self.launcher.output.settle(Instant::now() + LAST_READING);
        let mut give_up = match self.endings_heard {
            0 => None,
            1 => Some(Instant::now() + self.launcher.grace),
            _ => Some(Instant::now() + LAST_READING),
        };
        loop {
            let Launcher { output, signals, .. } = &mut *self.launcher;
            if let Some(words) = output.take_last_words() {
                return Ok(words);
            }
            if give_up.is_some_and(|moment| moment <= Instant::now()) {
                return Ok(LastWords::new());
            }
            let descriptors: Vec<_> = std::iter::once(output.settled()).chain(signals.descriptors()).collect();
            readable(&descriptors, give_up)?;
            for request in signals.take() {
                if let Request::End(signal) = request {
                    self.count_ending(signal);
                    give_up = Some(Instant::now());
                }
            }
        }
    }

    fn close(self, epoch: u32, mut last_words: LastWords) -> Outcome {
        let fates: Vec<Fate> = self.ranks.iter().filter_map(|rank| rank.fate().cloned()).collect();
        let works: Vec<bool> = self.ranks.iter().map(|rank| rank.role == Role::Worker).collect();
        self.ranks.into_iter().for_each(Rank::reap);
        self.launcher.guard.forget_groups();
        let failure = self.first_failure.or_else(|| worst_loss(&self.lost, &fates, &works));
        if let Some(failed) = failure {
            // The kernel may report the ends of two processes in the other order; the coordinator saw who went first.
            let ended_by_itself =
                |rank: &u32| fates.iter().any(|fate| fate.rank == *rank && fate.told.is_none() && !fate.ended.is_success());
            let failed = self.meeting.culprit().filter(|_| self.lost.is_empty()).filter(ended_by_itself).unwrap_or(failed);
            let (mut first, followers): (Vec<Fate>, Vec<Fate>) = fates.into_iter().partition(|fate| fate.rank == failed);
            let said = last_words.iter().position(|(rank, _)| *rank == failed);
            return Outcome::Failed(Verdict {
                first: first.remove(0),
                last_words: said.map(|at| last_words.swap_remove(at).1).unwrap_or_default(),
                followers,
                stopped_meanwhile: self.endings_heard > 0,
                log: self.launcher.logs.as_ref().map(|logs| logs.path(epoch, failed, "err")),
            });
        }
        match self.stopped_by {
            Some(by) => Outcome::Stopped { by, fates },
            None if self.lost.is_empty() => Outcome::Finished,
            None => Outcome::FinishedWithout(fates.into_iter().filter(|fate| self.lost.contains(&fate.rank)).collect()),
        }
    }
}

/// The lost worker that makes the job a failure, if one does. A kill comes from outside and is what the others were to survive;
/// a program that fails by itself has a reason, and so has a job of which no worker is left.
fn worst_loss(lost: &[u32], fates: &[Fate], works: &[bool]) -> Option<u32> {
    let fate_of = |rank: u32| fates.iter().find(|fate| fate.rank == rank);
    let failed = lost.iter().copied().find(|rank| fate_of(*rank).is_some_and(|fate| matches!(fate.ended, Ended::Code(_))));
    let survived = |rank: usize| works[rank] && !lost.contains(&(rank as u32));
    failed.or_else(|| lost.first().copied().filter(|_| !(0..works.len()).any(survived)))
}

/// What is told at the end of a job that finished without some of its workers.
pub(super) fn finished_without(lost: &[Fate]) -> String {
    format!("syncline: the others have finished; {}\n", summary(lost))
}

/// What is told at the end of a job that was stopped by a signal.
pub(super) fn stopped(by: Signal, fates: &[Fate]) -> String {
    let name = signal_hook::low_level::signal_name(by.as_raw()).unwrap_or("a signal");
    format!("syncline: stopped by {name}: {}\n", summary(fates))
}

fn left_behind(leftovers: &[Leftover]) -> String {
    let named: Vec<String> = leftovers.iter().take(5).map(|one| format!("{} (pid {})", one.name, one.pid)).collect();
    let more = leftovers.len() - named.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!(
        "syncline: all ranks ended but left processes behind, which were stopped: {}{more}\n\
         hint: wait for what you start before you leave\n",
        named.join(", ")
    )
}

//! When an add counts and when a get may go: the clocks of one share, as plain values.
//!
//! ```text
//!            worker 0   worker 1   worker 2 (finished)
//!  round 1      ■          ■          ■        applied, in this order
//!  round 2      ■          ■                   applied: nobody waits for worker 2
//!  round 3      ■          ·                   waits for worker 1
//! ```

use std::collections::VecDeque;

use crate::Consistency;

/// The clocks of one share and the adds that wait for their round.
#[derive(Debug)]
pub(crate) struct Rounds<A> {
    consistency: Consistency,
    applied: u64,
    workers: Vec<Clock<A>>,
}

#[derive(Debug)]
struct Clock<A> {
    staged: Option<(u64, A)>,
    published: u64,
    waiting: VecDeque<A>,
    finished: bool,
}

impl<A> Rounds<A> {
    /// Of so many workers.
    pub(crate) fn new(consistency: Consistency, workers: usize) -> Rounds<A> {
        let clock = || Clock { staged: None, published: 0, waiting: VecDeque::new(), finished: false };
        Rounds { consistency, applied: 0, workers: (0..workers).map(|_| clock()).collect() }
    }

    /// Takes over add number `sequence`; the reason why not, for people. A number that is staged already is replaced.
    pub(crate) fn stage(&mut self, worker: u32, sequence: u64, add: A) -> Result<(), String> {
        let workers = self.workers.len();
        let Some(clock) = self.workers.get_mut(worker as usize) else {
            return Err(format!("worker {worker} of {workers}"));
        };
        if sequence != clock.published + 1 {
            return Err(format!("add {sequence} of worker {worker} came after add {}", clock.published));
        }
        clock.staged = Some((sequence, add));
        Ok(())
    }

    /// Makes a staged add count and returns what is to be applied now, with whose it is. A repeated or unknown number does nothing.
    pub(crate) fn publish(&mut self, worker: u32, sequence: u64) -> Vec<(u32, A)> {
        let Some(clock) = self.workers.get_mut(worker as usize) else { return Vec::new() };
        let Some((_, add)) = clock.staged.take_if(|(staged, _)| *staged == sequence) else { return Vec::new() };
        clock.published = sequence;
        if self.consistency != Consistency::Sync {
            return vec![(worker, add)];
        }
        clock.waiting.push_back(add);
        self.complete_rounds()
    }

    /// Forgets a staged add.
    pub(crate) fn discard(&mut self, worker: u32, sequence: u64) {
        if let Some(clock) = self.workers.get_mut(worker as usize) {
            let _ = clock.staged.take_if(|(staged, _)| *staged == sequence);
        }
    }

    /// Nobody waits for this worker any more. Returns what is to be applied now.
    pub(crate) fn finish(&mut self, worker: u32) -> Vec<(u32, A)> {
        if let Some(clock) = self.workers.get_mut(worker as usize) {
            clock.finished = true;
        }
        self.complete_rounds()
    }

    /// Workers that are not finished.
    pub(crate) fn unfinished(&self) -> Vec<u32> {
        (0..).zip(&self.workers).filter(|(_, clock)| !clock.finished).map(|(worker, _)| worker).collect()
    }

    /// The last add of `worker` that counts.
    pub(crate) fn published(&self, worker: u32) -> u64 {
        self.workers.get(worker as usize).map_or(0, |clock| clock.published)
    }

    /// The workers that a get after `own_adds` adds waits for; none means that it may go.
    pub(crate) fn missing_for_get(&self, own_adds: u64) -> Vec<u32> {
        match self.consistency {
            Consistency::Async => Vec::new(),
            Consistency::Sync if self.applied >= own_adds => Vec::new(),
            Consistency::Sync => self.behind(own_adds),
            Consistency::Bounded(bound) => self.behind(own_adds.saturating_sub(bound.into())),
        }
    }

    /// The workers that hold up the application of number `sequence` of `worker`; none means that it is applied.
    pub(crate) fn missing_for_settle(&self, worker: u32, sequence: u64) -> Vec<u32> {
        match self.consistency {
            Consistency::Sync if self.applied < sequence => self.behind(sequence),
            _ if self.published(worker) < sequence => vec![worker],
            _ => Vec::new(),
        }
    }

    fn behind(&self, adds: u64) -> Vec<u32> {
        let is_behind = |clock: &Clock<A>| !clock.finished && clock.published < adds;
        (0..).zip(&self.workers).filter(|(_, clock)| is_behind(clock)).map(|(worker, _)| worker).collect()
    }

    fn complete_rounds(&mut self) -> Vec<(u32, A)> {
        let mut ready = Vec::new();
        loop {
            let next = self.applied + 1;
            let any = self.workers.iter().any(|clock| !clock.waiting.is_empty());
            if !any || !self.behind(next).is_empty() {
                return ready;
            }
            // A worker's queue begins with its add of the next round, or is empty because it finished before it.
            ready.extend((0..).zip(&mut self.workers).filter_map(|(worker, clock)| Some((worker, clock.waiting.pop_front()?))));
            self.applied = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(rounds: &mut Rounds<char>, worker: u32, sequence: u64, add: char) -> Vec<(u32, char)> {
        rounds.stage(worker, sequence, add).expect("the next number");
        rounds.publish(worker, sequence)
    }

    #[test]
    fn a_round_is_applied_in_worker_order_when_all_are_there() {
        let mut rounds = Rounds::new(Consistency::Sync, 3);
        assert_eq!(made(&mut rounds, 2, 1, 'c'), []);
        assert_eq!(made(&mut rounds, 2, 2, 'f'), []);
        assert_eq!(made(&mut rounds, 0, 1, 'a'), []);
        assert_eq!(rounds.missing_for_get(1), [1]);
        assert_eq!(made(&mut rounds, 1, 1, 'b'), [(0, 'a'), (1, 'b'), (2, 'c')]);
        assert!(rounds.missing_for_get(1).is_empty());
        assert_eq!(rounds.missing_for_settle(2, 2), [0, 1]);
    }

    #[test]
    fn a_finished_worker_holds_nobody_up_but_its_adds_still_count() {
        let mut rounds = Rounds::new(Consistency::Sync, 2);
        assert_eq!(made(&mut rounds, 0, 1, 'a'), []);
        assert_eq!(made(&mut rounds, 0, 2, 'b'), []);
        assert_eq!(rounds.finish(0), []);
        assert_eq!(made(&mut rounds, 1, 1, 'c'), [(0, 'a'), (1, 'c')]);
        assert_eq!(rounds.finish(1), [(0, 'b')], "nobody is left to wait for");
    }

    #[test]
    fn a_bound_lets_a_worker_run_ahead_so_far_and_no_further() {
        let mut rounds = Rounds::new(Consistency::Bounded(2), 2);
        for sequence in 1..=3 {
            assert_eq!(made(&mut rounds, 0, sequence, 'a').len(), 1);
        }
        assert!(rounds.missing_for_get(2).is_empty());
        assert_eq!(rounds.missing_for_get(3), [1]);
        made(&mut rounds, 1, 1, 'b');
        assert!(rounds.missing_for_get(3).is_empty());
    }

    #[test]
    fn numbers_are_published_once_and_gaps_are_refused() {
        let mut rounds = Rounds::new(Consistency::Async, 1);
        assert!(rounds.stage(0, 2, 'x').is_err() && rounds.stage(1, 1, 'x').is_err());
        assert_eq!(made(&mut rounds, 0, 1, 'a'), [(0, 'a')]);
        assert_eq!(rounds.publish(0, 1), []);
        rounds.stage(0, 2, 'b').expect("next");
        rounds.discard(0, 2);
        assert_eq!((rounds.publish(0, 2), rounds.published(0)), (vec![], 1));
    }
}

//! Rules that several workers set at once, as programs do in which every worker runs the same lines.
//!
//! Each of them wants states to begin anew, and none wants that to happen a second time because another one was late. So who finds the same rule on the board
//! leaves its generation alone, and those who find another one at the same moment begin the same generation: its number follows from what they found.

use syncline_cluster::{Deadline, Error};
use syncline_optimizer::{KeyState, Optimizer};
use syncline_shm::bulletin::{Bulletin, Number};

use super::rule::{Rule, Then, board, to_body};
use crate::{Table, Tables};

/// Makes `rule` the newest on the board, in a generation of at least this number, and returns its number and what hangs there now, for other hosts.
fn renew(board: &Bulletin, rule: &Optimizer, at_least: u32) -> Result<(Number, Vec<u8>), Error> {
    let body = to_body(Some(rule))?;
    let before = board.newest();
    let found = board.read(before.page).map(|(_, found)| found).unwrap_or_default();
    let number = Number { chapter: Then::BeginOnce(at_least).chapter_after(before, &found, &body), page: board.next(false).page };
    match board.pin(number, &body) {
        true => Ok((number, body)),
        false => Err(Error::Configuration { detail: format!("set_rule: {} bytes are too many for one rule", body.len()) }),
    }
}

impl Tables {
    /// [`set_rule`](Tables::set_rule) with an optimizer whose states begin anew, for programs in which every worker does so: if the newest rule is the same, and its
    /// generation, counted from 1, is `at_least` so high, they go on. A worker counts its calls and passes the count.
    pub fn renew_rule(&self, family: u32, rule: &Optimizer, at_least: u32, by: Deadline) -> Result<(), Error> {
        let ground = &self.shared.ground;
        ground.vigil.usable("set_rule")?;
        if ground.has_links() {
            return self.shared.named.set_rule(family, Some(rule), Then::BeginOnce(at_least), by);
        }
        renew(&board(&ground.heap, family, by)?, rule, at_least).map(drop)
    }

    /// The newest rule of a family, as this host knows it.
    pub fn rule(&self, family: u32, by: Deadline) -> Result<Option<Optimizer>, Error> {
        self.shared.ground.vigil.usable("rule")?;
        let board = board(&self.shared.ground.heap, family, by)?;
        Ok(Rule::read(&board, board.newest().page, syncline_tensor::DType::F32, family)?.optimizer)
    }
}

impl Table {
    /// Refuses, in the words of the next add, what every add would be refused for now: a gradient without an optimizer where it needs one.
    pub fn accepts_adds(&self) -> Result<(), Error> {
        self.inner.accepts_adds()
    }

    /// Refuses an optimizer that this table could not follow: LAMB and LARS where it is split over hosts.
    pub fn accepts_optimizer(&self, optimizer: &Optimizer) -> Result<(), Error> {
        self.inner.gradient.as_ref().map_or(Ok(()), |gradient| gradient.check_optimizer(optimizer))
    }

    /// Returns when all that this worker added is applied; in sync mode that needs the others' rounds.
    pub fn settle(&self, by: Deadline) -> Result<(), Error> {
        self.inner.settle(by)
    }

    /// How far the optimizer has come with this table.
    pub fn key_state(&self, by: Deadline) -> Result<KeyState, Error> {
        self.inner.read_key_state(by)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sgd(rate: f64) -> Optimizer {
        Optimizer::create("sgd", &[("learning_rate", rate.into())]).expect("known")
    }

    #[test]
    fn the_same_rule_by_every_worker_is_one_generation_and_another_is_a_new_one() {
        let board = Bulletin::in_private_memory();
        let chapters: Vec<u32> = (0..3).map(|_| renew(&board, &sgd(0.5), 1).expect("pinned").0.chapter).collect();
        assert_eq!(chapters, [1, 1, 1]);
        assert_eq!(renew(&board, &sgd(0.25), 1).expect("pinned").0.chapter, 2);
        // A worker's third call begins a third generation, also with the same rule; the others' third calls find it there.
        let again: Vec<u32> = (0..3).map(|_| renew(&board, &sgd(0.25), 3).expect("pinned").0.chapter).collect();
        assert_eq!(again, [3, 3, 3]);
        assert_eq!(board.newest().chapter, 3);
    }

    #[test]
    fn who_finds_nothing_at_the_same_moment_begins_the_same_generation() {
        for _ in 0..200 {
            let board = Bulletin::in_private_memory();
            let chapters: Vec<u32> = std::thread::scope(|scope| {
                let workers: Vec<_> = (0..3).map(|_| scope.spawn(|| renew(&board, &sgd(0.5), 1).expect("pinned").0.chapter)).collect();
                workers.into_iter().map(|worker| worker.join().expect("no panic")).collect()
            });
            assert_eq!(chapters, [1, 1, 1]);
        }
    }
}

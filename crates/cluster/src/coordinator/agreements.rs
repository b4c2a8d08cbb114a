//! The calls that all workers must make alike: collected by number, compared as soon as two are there.

use std::collections::{BTreeMap, BTreeSet};

use syncline_wire::message::{Call, Control};

/// The most calls that may wait for somebody at once. A worker waits for one before it makes the next, unless it gave up.
const MOST_OPEN: usize = 1024;

/// What one worker brought to one call.
#[derive(Debug, Clone)]
pub(super) struct Proposal {
    pub(super) fingerprint: [u8; 16],
    pub(super) call: Call,
    pub(super) payload: Vec<u8>,
}

/// The calls of a job that are not settled.
#[derive(Debug, Default)]
pub(super) struct Agreements {
    open: BTreeMap<u64, BTreeMap<u32, Proposal>>,
    /// All calls up to this one are settled.
    agreed: u64,
    /// Calls behind it that failed: all workers were told, and who comes later knows.
    failed: BTreeSet<u64>,
}

/// What became of a call.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    /// For all members.
    Agreed(Control),
    /// For the workers.
    Disagreed(Control),
}

impl Agreements {
    /// Takes in what `rank` brings to call `number`; false when it makes no sense. A second word to the same call is not heard.
    pub(super) fn propose(&mut self, rank: u32, number: u64, proposal: Proposal) -> bool {
        if number <= self.agreed || self.failed.contains(&number) {
            return true;
        }
        if self.open.len() >= MOST_OPEN && !self.open.contains_key(&number) {
            return false;
        }
        self.open.entry(number).or_default().entry(rank).or_insert(proposal);
        true
    }

    /// Settles what can be settled when only `needed` can still propose.
    pub(super) fn settle(&mut self, needed: &[u32]) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        let numbers: Vec<u64> = self.open.keys().copied().collect();
        for number in numbers {
            let proposals = &self.open[&number];
            let Some((lowest, first)) = proposals.first_key_value() else { continue };
            if let Some((other, differs)) = proposals.iter().find(|(_, proposal)| proposal.fingerprint != first.fingerprint) {
                let (one, other) = ((*lowest, first.call.clone()), (*other, differs.call.clone()));
                verdicts.push(Verdict::Disagreed(Control::Disagreed { number, one, other }));
                self.failed.insert(number);
            } else if needed.iter().all(|rank| proposals.contains_key(rank)) {
                let (operation, payload) = (first.call.operation.clone(), first.payload.clone());
                verdicts.push(Verdict::Agreed(Control::Agreed { number, operation, payload }));
                self.agreed = self.agreed.max(number);
            } else {
                continue;
            }
            self.open.remove(&number);
        }
        let agreed = self.agreed;
        self.failed.retain(|number| *number > agreed);
        verdicts
    }

    /// Who of `needed` has not made call `number`; nobody if it is settled.
    pub(super) fn missing(&self, number: u64, needed: &[u32]) -> Vec<u32> {
        if number <= self.agreed || self.failed.contains(&number) {
            return Vec::new();
        }
        let proposals = self.open.get(&number);
        needed.iter().copied().filter(|rank| proposals.is_none_or(|proposals| !proposals.contains_key(rank))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bring(agreements: &mut Agreements, rank: u32, number: u64, what: u8) {
        let call = Call { operation: format!("call of kind {what}"), site: format!("rank{rank}.py:{number}") };
        assert!(agreements.propose(rank, number, Proposal { fingerprint: [what; 16], call, payload: vec![rank as u8] }));
    }

    fn agreed(number: u64, what: u8, lowest: u8) -> Verdict {
        Verdict::Agreed(Control::Agreed { number, operation: format!("call of kind {what}"), payload: vec![lowest] })
    }

    #[test]
    fn all_equal_agree_with_the_payload_of_the_lowest() {
        let mut agreements = Agreements::default();
        for rank in [2, 1] {
            bring(&mut agreements, rank, 1, 7);
            assert!(agreements.settle(&[0, 1, 2]).is_empty());
        }
        assert_eq!(agreements.missing(1, &[0, 1, 2]), [0]);
        bring(&mut agreements, 0, 1, 7);
        assert_eq!(agreements.settle(&[0, 1, 2]), [agreed(1, 7, 0)]);
        assert!(agreements.settle(&[0, 1, 2]).is_empty(), "told once");
        assert!(agreements.missing(1, &[0, 1, 2]).is_empty());
    }

    #[test]
    fn a_difference_is_told_at_once_and_names_both() {
        let mut agreements = Agreements::default();
        bring(&mut agreements, 1, 1, 7);
        bring(&mut agreements, 2, 1, 8);
        let verdicts = agreements.settle(&[0, 1, 2, 3]);
        let [Verdict::Disagreed(Control::Disagreed { number: 1, one, other })] = &verdicts[..] else { panic!("{verdicts:?}") };
        assert_eq!((one.0, one.1.site.as_str(), other.0, other.1.operation.as_str()), (1, "rank1.py:1", 2, "call of kind 8"));
        bring(&mut agreements, 0, 1, 7); // It heard, or will: nothing more to say.
        assert!(agreements.settle(&[0, 1, 2, 3]).is_empty());
        assert!(agreements.missing(1, &[0, 1, 2, 3]).is_empty());
    }

    #[test]
    fn who_needs_not_come_is_not_waited_for() {
        let mut agreements = Agreements::default();
        bring(&mut agreements, 1, 1, 7);
        assert!(agreements.settle(&[0, 1]).is_empty());
        assert_eq!(agreements.settle(&[1]), [agreed(1, 7, 1)], "rank 0 has left");
    }

    #[test]
    fn a_worker_may_be_ahead_of_another() {
        let mut agreements = Agreements::default();
        bring(&mut agreements, 0, 1, 7);
        bring(&mut agreements, 0, 2, 9);
        bring(&mut agreements, 1, 1, 7);
        assert_eq!(agreements.settle(&[0, 1]), [agreed(1, 7, 0)]);
        bring(&mut agreements, 1, 2, 9);
        assert_eq!(agreements.settle(&[0, 1]), [agreed(2, 9, 0)]);
    }

    #[test]
    fn endless_numbers_are_refused() {
        let mut agreements = Agreements::default();
        let call = Call { operation: String::new(), site: String::new() };
        let proposal = Proposal { fingerprint: [0; 16], call, payload: Vec::new() };
        let taken = (1..10_000).take_while(|number| agreements.propose(0, *number, proposal.clone())).count();
        assert_eq!(taken, MOST_OPEN);
    }
}

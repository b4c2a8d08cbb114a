//! After a worker's death: every share reports, one of them decides for all.

use serde::{Deserialize, Serialize};
use syncline_wire::WireError;
use syncline_wire::codec::{decode_message, encode_message};

use crate::spread::messages::Hold;

/// What one share knows of a dead worker, after its last word was read: it can publish nothing more there by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Which share reports.
    pub(crate) share: u32,
    /// The last add of the worker that counts there.
    pub(crate) published: u64,
    /// Who decides about the add that the share holds, if it holds one.
    pub(crate) held: Option<Hold>,
}

impl Report {
    /// The bytes that travel.
    pub(crate) fn encode(&self) -> Vec<u8> {
        encode_message("report", self, 64).expect("a report is a few numbers")
    }

    /// Reads a report from outside.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Report, WireError> {
        decode_message("report", bytes, 64)
    }
}

/// The reports so far.
#[derive(Debug, Clone)]
pub(crate) struct Inquest {
    reports: Vec<Option<Report>>,
}

impl Inquest {
    /// About a worker of a table with so many shares.
    pub(crate) fn new(shares: usize) -> Inquest {
        Inquest { reports: vec![None; shares] }
    }

    /// Takes a report in; the first of a share stands. Returns whether all have come.
    pub(crate) fn hear(&mut self, report: Report) -> bool {
        if let Some(place) = self.reports.get_mut(report.share as usize) {
            place.get_or_insert(report);
        }
        self.is_complete()
    }

    /// Whether every share has reported.
    pub(crate) fn is_complete(&self) -> bool {
        self.reports.iter().all(Option::is_some)
    }

    /// Whether the add that `share` holds counts. Asked when all have reported.
    pub(crate) fn counts(&self, share: usize) -> bool {
        let held = self.reports.get(share).copied().flatten().and_then(|report| report.held);
        held.is_some_and(|hold| {
            let primary = self.reports.get(hold.primary as usize).copied().flatten();
            primary.is_some_and(|primary| primary.published >= hold.sequence)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(share: u32, published: u64, held: Option<Hold>) -> Report {
        Report { share, published, held }
    }

    #[test]
    fn what_the_primary_published_counts_everywhere() {
        for (published, counts) in [(6, false), (7, true), (8, true)] {
            let hold = Hold { primary: 1, sequence: 7 };
            let mut inquest = Inquest::new(3);
            assert!(!inquest.hear(report(2, 3, Some(hold))));
            assert!(!inquest.hear(report(0, 4, Some(hold))));
            assert!(inquest.hear(report(1, published, None)));
            assert_eq!([0, 1, 2].map(|share| inquest.counts(share)), [counts, false, counts]);
        }
    }

    #[test]
    fn a_primary_that_still_holds_it_has_not_counted_it() {
        let hold = Hold { primary: 0, sequence: 2 };
        let mut inquest = Inquest::new(2);
        inquest.hear(report(0, 1, Some(hold)));
        assert!(inquest.hear(report(1, 1, Some(hold))));
        assert!(!inquest.counts(0) && !inquest.counts(1));
    }

    #[test]
    fn a_second_report_and_one_of_nobody_change_nothing() {
        let mut inquest = Inquest::new(1);
        assert!(!inquest.hear(report(5, 1, None)));
        assert!(inquest.hear(report(0, 1, Some(Hold { primary: 9, sequence: 0 }))));
        inquest.hear(report(0, 2, None));
        assert!(!inquest.counts(0), "its primary does not exist");
    }
}

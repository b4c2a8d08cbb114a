//! The server's side: what one share knows about one remote worker's adds.

use crate::spread::messages::Hold;

/// What to do with a request about an add.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Do it, then say so with the method that the question names.
    Go,
    /// Forget the held add of the same number, say so with [`dropped`](Ward::dropped), then go.
    Instead,
    /// It was done before; answer as then.
    Repeated,
    /// It makes no sense; for people.
    Refuse(String),
}

/// One worker's adds at one share. At most one is held: a worker stages the next when it has committed or dropped the last.
#[derive(Debug, Clone)]
pub(crate) struct Ward {
    published: u64,
    held: Option<(u64, Hold)>,
}

impl Ward {
    /// A worker of which `published` adds count here.
    pub(crate) fn new(published: u64) -> Ward {
        Ward { published, held: None }
    }

    /// May add number `sequence` be staged? Then [`took`](Ward::took) or, for one that counts at once, [`counted`](Ward::counted).
    ///
    /// A number comes a second time while the first is held when its worker gave that one up: nobody sends an add twice, and a commit of
    /// the first would have been read before.
    pub(crate) fn add(&self, sequence: u64) -> Answer {
        match self.held {
            Some((held, _)) if held == sequence => Answer::Instead,
            Some((held, _)) => Answer::Refuse(format!("add {sequence} came while add {held} waits for its commit")),
            None if sequence <= self.published => Answer::Repeated,
            None if sequence == self.published + 1 => Answer::Go,
            None => Answer::Refuse(format!("add {sequence} came after add {}: one between them is missing", self.published)),
        }
    }

    /// Number `sequence` is staged and held.
    pub(crate) fn took(&mut self, sequence: u64, hold: Hold) {
        self.held = Some((sequence, hold));
    }

    /// May number `sequence` be published? Then [`counted`](Ward::counted).
    pub(crate) fn commit(&self, sequence: u64) -> Answer {
        match self.held {
            Some((held, _)) if held == sequence => Answer::Go,
            _ if sequence <= self.published => Answer::Repeated,
            _ => Answer::Refuse(format!("a commit of add {sequence}, which is not here")),
        }
    }

    /// Number `sequence` is published.
    pub(crate) fn counted(&mut self, sequence: u64) {
        self.published = self.published.max(sequence);
        self.held = self.held.filter(|(held, _)| *held > sequence);
    }

    /// May number `sequence` be discarded? Then [`dropped`](Ward::dropped). One that never came is none to refuse: its stage failed.
    pub(crate) fn drop_add(&self, sequence: u64) -> Answer {
        match self.held {
            Some((held, _)) if held == sequence => Answer::Go,
            _ if sequence <= self.published => Answer::Refuse(format!("add {sequence} counts already and cannot be dropped")),
            _ => Answer::Repeated,
        }
    }

    /// The held add is discarded.
    pub(crate) fn dropped(&mut self) {
        self.held = None;
    }

    /// What waits for a verdict: the add's number here, and who decides.
    pub(crate) fn held(&self) -> Option<(u64, Hold)> {
        self.held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLD: Hold = Hold { primary: 0, sequence: 9 };

    #[test]
    fn numbers_follow_each_other_and_repeats_are_dropped() {
        let mut ward = Ward::new(3);
        assert_eq!(ward.add(4), Answer::Go);
        assert_eq!(ward.add(3), Answer::Repeated);
        assert!(matches!(ward.add(5), Answer::Refuse(_)));
        ward.counted(4);
        assert_eq!(ward.add(4), Answer::Repeated);
        assert_eq!(ward.add(5), Answer::Go);
    }

    #[test]
    fn a_held_add_is_committed_or_dropped_once() {
        let mut ward = Ward::new(0);
        ward.took(1, HOLD);
        assert_eq!(ward.held(), Some((1, HOLD)));
        assert!(matches!(ward.add(2), Answer::Refuse(_)));
        assert_eq!(ward.add(1), Answer::Instead, "the first of that number was given up");
        assert!(matches!(ward.commit(2), Answer::Refuse(_)));
        assert_eq!(ward.commit(1), Answer::Go);
        ward.counted(1);
        assert_eq!((ward.commit(1), ward.held()), (Answer::Repeated, None));
        assert!(matches!(ward.drop_add(1), Answer::Refuse(_)));
        ward.took(2, HOLD);
        assert_eq!(ward.drop_add(2), Answer::Go);
        ward.dropped();
        assert_eq!(ward.drop_add(2), Answer::Repeated);
        assert_eq!(ward.add(2), Answer::Go, "the number is free again");
    }
}

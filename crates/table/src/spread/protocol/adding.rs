//! The worker's side of one add over several shares: what to do next, given what was answered.

/// What the worker does next, by part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Make it count there.
    Publish(usize),
    /// Forget it there.
    Discard(usize),
}

/// One add that touches several parts.
#[derive(Debug, Clone)]
pub(crate) struct Adding {
    touched: Vec<usize>,
    primary: usize,
    staged: Vec<usize>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Staging,
    Deciding,
    Counts,
    Dropped,
}

impl Adding {
    /// An add that touches these parts, ascending and not none; `here` is the part in the worker's own memory, if there is one.
    pub(crate) fn new(touched: Vec<usize>, here: Option<usize>) -> Adding {
        let primary = here.filter(|here| touched.contains(here)).unwrap_or(touched[0]);
        Adding { touched, primary, staged: Vec::new(), state: State::Staging }
    }

    /// The part that decides.
    pub(crate) fn primary(&self) -> usize {
        self.primary
    }

    /// `part` has the bytes.
    pub(crate) fn staged(&mut self, part: usize) -> Vec<Step> {
        if self.state != State::Staging || self.staged.contains(&part) || !self.touched.contains(&part) {
            return Vec::new();
        }
        self.staged.push(part);
        if self.staged.len() < self.touched.len() {
            return Vec::new();
        }
        self.state = State::Deciding;
        vec![Step::Publish(self.primary)]
    }

    /// `part` counts it.
    pub(crate) fn published(&mut self, part: usize) -> Vec<Step> {
        if self.state != State::Deciding || part != self.primary {
            return Vec::new();
        }
        self.state = State::Counts;
        self.touched.iter().copied().filter(|other| *other != part).map(Step::Publish).collect()
    }

    /// `part` refuses it, or the worker gives up waiting. Everybody else forgets it, whether its answer has come or not.
    pub(crate) fn refused(&mut self, part: usize) -> Vec<Step> {
        if self.state != State::Staging {
            return Vec::new();
        }
        self.state = State::Dropped;
        self.touched.iter().copied().filter(|other| *other != part).map(Step::Discard).collect()
    }

    /// Whether the primary was told to publish and has not answered: only it knows whether the add counts.
    pub(crate) fn is_open(&self) -> bool {
        self.state == State::Deciding
    }

    /// Whether it counts.
    #[cfg(test)]
    pub(crate) fn counts(&self) -> bool {
        self.state == State::Counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_primary_counts_it_first_and_only_when_all_have_it() {
        let mut adding = Adding::new(vec![0, 2, 3], None);
        assert_eq!(adding.primary(), 0);
        assert_eq!(adding.staged(3), []);
        assert_eq!(adding.staged(3), [], "a repeated answer changes nothing");
        assert_eq!(adding.staged(0), []);
        assert_eq!(adding.staged(2), [Step::Publish(0)]);
        assert!(adding.is_open() && !adding.counts());
        assert_eq!(adding.published(2), [], "the others do not decide");
        assert_eq!(adding.published(0), [Step::Publish(2), Step::Publish(3)]);
        assert!(adding.counts() && !adding.is_open());
    }

    #[test]
    fn the_own_memory_decides_where_it_is_touched() {
        assert_eq!(Adding::new(vec![0, 2], Some(2)).primary(), 2);
        assert_eq!(Adding::new(vec![0, 2], Some(1)).primary(), 0);
    }

    #[test]
    fn a_refusal_is_everybodys_but_only_before_the_decision() {
        let mut adding = Adding::new(vec![0, 1, 2], None);
        assert_eq!(adding.staged(0), []);
        assert_eq!(adding.refused(1), [Step::Discard(0), Step::Discard(2)]);
        assert_eq!(adding.staged(2), [], "too late");
        let mut adding = Adding::new(vec![0, 1], None);
        assert_eq!(adding.staged(0), []);
        assert_eq!(adding.staged(1), [Step::Publish(0)]);
        assert_eq!(adding.refused(1), [], "it may count already");
    }
}

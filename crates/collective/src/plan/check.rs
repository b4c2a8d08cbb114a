//! Runs a plan on symbols: who ends with whose contributions, folded in which way, and whether anybody waits for ever.
//!
//! Nothing is buffered here: a transfer happens when sender and receiver stand in the steps that name it. A plan that gets
//! through needs no buffer in any transport.

use std::collections::BTreeSet;
use std::fmt;
use std::rc::Rc;

use super::{Deed, Load, Plan, Then};

/// What a piece was made of: one contribution, or two folds, left and right.
#[derive(Clone, PartialEq, Eq)]
pub enum Term {
    /// What this position brought.
    One(usize),
    /// left ∘ right.
    Fold(Rc<Term>, Rc<Term>),
}

impl Term {
    fn leaves(&self, into: &mut Vec<usize>) {
        match self {
            Term::One(position) => into.push(*position),
            Term::Fold(left, right) => {
                left.leaves(into);
                right.leaves(into);
            }
        }
    }

    /// Whose contributions are in it, from left to right.
    pub fn order(&self) -> Vec<usize> {
        let mut order = Vec::new();
        self.leaves(&mut order);
        order
    }

    fn is_left_fold(&self) -> bool {
        match self {
            Term::One(_) => true,
            Term::Fold(left, right) => matches!(**right, Term::One(_)) && left.is_left_fold(),
        }
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Term::One(position) => write!(f, "{position}"),
            Term::Fold(left, right) => write!(f, "({left} {right})"),
        }
    }
}

impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// How the contributions are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Association {
    /// ((a0 ∘ a1) ∘ a2) ∘ …
    LeftFold,
    /// In order of position, with other parentheses.
    InOrder,
    /// In another order.
    Shuffled,
}

/// What running a plan showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Each position's pieces at the end.
    pub ends: Vec<Vec<Term>>,
    /// Rounds in which something happened: the steps on the longest path.
    pub rounds: usize,
    /// Pieces sent, by position.
    pub sent: Vec<usize>,
    /// Pieces received, by position.
    pub received: Vec<usize>,
}

/// What is wrong with a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// Nobody can go on.
    #[error("{plan}: deadlock: {waiting:?} (position, step)")]
    Deadlock {
        /// Which plan.
        plan: String,
        /// Who waits in which step.
        waiting: Vec<(usize, usize)>,
    },
    /// Sender and receiver mean different things, or a step contradicts itself.
    #[error("{plan}: position {position}, step {step}: {detail}")]
    Contradiction {
        /// Which plan.
        plan: String,
        /// Who.
        position: usize,
        /// Where.
        step: usize,
        /// What.
        detail: String,
    },
    /// A position ends without a contribution, or with one twice, or with something else than the others.
    #[error("{plan}: position {position} ends with {term} in piece {piece}")]
    Wrong {
        /// Which plan.
        plan: String,
        /// Who.
        position: usize,
        /// Which piece.
        piece: usize,
        /// What it has.
        term: String,
    },
}

/// Runs `plan` with one contribution per position.
pub fn run(plan: &Plan) -> Result<Outcome, Flaw> {
    let begin = (0..plan.ranks).map(|position| vec![Term::One(position); plan.pieces]).collect();
    Run {
        plan,
        values: begin,
        held: vec![Vec::new(); plan.ranks],
        at: vec![0; plan.ranks],
        sent: vec![0; plan.ranks],
        received: vec![0; plan.ranks],
    }
    .through()
}

/// Runs `plan` as an all-reduce: every position must end with each contribution once, all in the same way.
pub fn all_reduce(plan: &Plan) -> Result<(Outcome, Association), Flaw> {
    let outcome = run(plan)?;
    let mut worst = Association::LeftFold;
    for (position, pieces) in outcome.ends.iter().enumerate() {
        for (piece, term) in pieces.iter().enumerate() {
            let order = term.order();
            let everyone = order.iter().copied().collect::<BTreeSet<_>>().len() == plan.ranks && order.len() == plan.ranks;
            if !everyone || *term != outcome.ends[0][piece] {
                return Err(Flaw::Wrong { plan: plan.title.clone(), position, piece, term: term.to_string() });
            }
            let found = match (order.is_sorted(), term.is_left_fold()) {
                (true, true) => Association::LeftFold,
                (true, false) => Association::InOrder,
                (false, _) => Association::Shuffled,
            };
            worst = if (found as u8) > (worst as u8) { found } else { worst };
        }
    }
    Ok((outcome, worst))
}

struct Run<'a> {
    plan: &'a Plan,
    values: Vec<Vec<Term>>,
    /// Contributions kept aside: piece, whose.
    held: Vec<Vec<(usize, usize)>>,
    at: Vec<usize>,
    sent: Vec<usize>,
    received: Vec<usize>,
}

impl Run<'_> {
    fn through(mut self) -> Result<Outcome, Flaw> {
        for position in 0..self.plan.ranks {
            for step in 0..self.plan.steps[position].len() {
                self.consistent(position, step)?;
            }
        }
        // Deeds of the current step that are done, by position.
        let mut done: Vec<Vec<bool>> = (0..self.plan.ranks).map(|position| self.fresh(position)).collect();
        let mut rounds = 0;
        loop {
            let mut moved = Vec::new();
            for (to, finished) in done.iter().enumerate() {
                for (index, deed) in self.current(to).iter().enumerate().filter(|(index, _)| !finished[*index]) {
                    match deed {
                        Deed::Fold(_) => moved.push((to, index, None)),
                        Deed::Receive { from, .. } => {
                            let sends = self.current(*from).iter().enumerate();
                            let mut sends = sends
                                .filter(|(index, deed)| !done[*from][*index] && matches!(deed, Deed::Send { to: peer, .. } if *peer == to));
                            // A link keeps its order: only the first receive of a step that is still open counts.
                            let earlier = |deed: &Deed| matches!(deed, Deed::Receive { from: peer, .. } if peer == from);
                            let first = !self.current(to)[..index].iter().zip(finished).any(|(deed, finished)| !finished && earlier(deed));
                            if let Some((matching, _)) = sends.next().filter(|_| first) {
                                moved.push((to, index, Some((*from, matching))));
                            }
                        }
                        Deed::Send { .. } => {}
                    }
                }
            }
            if moved.is_empty() {
                break;
            }
            let exchanges = moved.iter().any(|(_, _, peer)| peer.is_some());
            for (to, index, peer) in moved {
                match peer {
                    None => self.fold(to, index)?,
                    Some((from, matching)) => {
                        self.hand_over(from, matching, to, index)?;
                        done[from][matching] = true;
                    }
                }
                done[to][index] = true;
            }
            rounds += usize::from(exchanges);
            for (position, finished) in done.iter_mut().enumerate() {
                if !finished.is_empty() && finished.iter().all(|finished| *finished) {
                    self.at[position] += 1;
                    *finished = self.fresh(position);
                }
            }
        }
        let waiting: Vec<(usize, usize)> =
            self.at.iter().copied().enumerate().filter(|(position, step)| *step < self.plan.steps[*position].len()).collect();
        if !waiting.is_empty() {
            return Err(Flaw::Deadlock { plan: self.plan.title.clone(), waiting });
        }
        Ok(Outcome { ends: self.values, rounds, sent: self.sent, received: self.received })
    }

    fn current(&self, position: usize) -> &[Deed] {
        self.plan.steps[position].get(self.at[position]).map_or(&[], Vec::as_slice)
    }

    fn fresh(&self, position: usize) -> Vec<bool> {
        vec![false; self.current(position).len()]
    }

    /// Whether the deeds of a step may happen at once: what one changes no other touches.
    fn consistent(&self, position: usize, step: usize) -> Result<(), Flaw> {
        let deeds = &self.plan.steps[position][step];
        let flaw = |detail: &str| Flaw::Contradiction { plan: self.plan.title.clone(), position, step, detail: detail.into() };
        let mut changed = BTreeSet::new();
        for deed in deeds {
            let (pieces, peer) = match deed {
                Deed::Send { to, load } => (load.pieces(), Some(*to)),
                Deed::Receive { from, load, .. } => (load.pieces(), Some(*from)),
                Deed::Fold(pieces) => (pieces, None),
            };
            if pieces.end > self.plan.pieces || peer.is_some_and(|peer| peer >= self.plan.ranks || peer == position) {
                return Err(flaw("names a piece or a position that is not there"));
            }
            let changes = matches!(deed, Deed::Fold(_) | Deed::Receive { then: Then::Replace | Then::FoldLeft | Then::FoldRight, .. });
            if changes && !pieces.clone().all(|piece| changed.insert(piece)) {
                return Err(flaw("changes a piece twice at once"));
            }
        }
        let reads = |deed: &Deed| match deed {
            Deed::Send { load: Load::Pieces { pieces, .. }, .. } => pieces.clone().any(|piece| changed.contains(&piece)),
            _ => false,
        };
        if deeds.iter().any(reads) { Err(flaw("sends a piece that changes meanwhile")) } else { Ok(()) }
    }

    fn hand_over(&mut self, from: usize, sending: usize, to: usize, receiving: usize) -> Result<(), Flaw> {
        let flaw = |detail: String| Flaw::Contradiction { plan: self.plan.title.clone(), position: to, step: self.at[to], detail };
        let (Deed::Send { load, .. }, Deed::Receive { load: expected, then, .. }) =
            (self.current(from)[sending].clone(), self.current(to)[receiving].clone())
        else {
            return Err(flaw("is no transfer".into()));
        };
        if load != expected {
            return Err(flaw(format!("expects {expected:?} of {from}, which sends {load:?}")));
        }
        match load {
            Load::Pieces { pieces, brings } => {
                for piece in pieces.clone() {
                    let theirs = self.values[from][piece].clone();
                    if theirs.order().len() != brings {
                        return Err(flaw(format!("piece {piece} of {from} is {theirs}, and not {brings} contributions")));
                    }
                    let mine = self.values[to][piece].clone();
                    self.values[to][piece] = match then {
                        Then::Replace => theirs,
                        Then::FoldLeft => Term::Fold(Rc::new(theirs), Rc::new(mine)),
                        Then::FoldRight => Term::Fold(Rc::new(mine), Rc::new(theirs)),
                        Then::Hold => return Err(flaw("holds what is already folded".into())),
                    };
                }
                self.count(from, to, pieces.len());
            }
            Load::Contributions { pieces, first, count } => {
                for piece in pieces.clone() {
                    for whose in (first..first + count).map(|whose| whose % self.plan.ranks) {
                        let own = whose == from && self.values[from][piece] == Term::One(from);
                        if !own && !self.held[from].contains(&(piece, whose)) {
                            return Err(flaw(format!("{from} has no contribution of {whose} to piece {piece}")));
                        }
                        if then != Then::Hold || whose == to || self.held[to].contains(&(piece, whose)) {
                            return Err(flaw(format!("the contribution of {whose} to piece {piece} comes twice")));
                        }
                        self.held[to].push((piece, whose));
                    }
                }
                self.count(from, to, pieces.len() * count);
            }
        }
        Ok(())
    }

    fn count(&mut self, from: usize, to: usize, pieces: usize) {
        self.sent[from] += pieces;
        self.received[to] += pieces;
    }

    fn fold(&mut self, position: usize, index: usize) -> Result<(), Flaw> {
        let Deed::Fold(pieces) = self.current(position)[index].clone() else { return Ok(()) };
        for piece in pieces {
            let mut whose: Vec<usize> = self.held[position].iter().filter(|(of, _)| *of == piece).map(|(_, whose)| *whose).collect();
            whose.push(position);
            whose.sort_unstable();
            let mut terms = whose.into_iter().map(Term::One);
            let first = terms.next().expect("its own at least");
            self.values[position][piece] = terms.fold(first, |left, right| Term::Fold(Rc::new(left), Rc::new(right)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{chain, ring};

    #[test]
    fn a_plan_that_waits_in_a_circle_is_found_out() {
        let mut plan = chain::all_reduce(2, 1);
        plan.steps[0].reverse();
        assert!(matches!(all_reduce(&plan), Err(Flaw::Deadlock { .. })), "{:?}", all_reduce(&plan));
    }

    #[test]
    fn a_contribution_that_is_lost_or_counted_twice_is_found_out() {
        let mut plan = ring::all_reduce(3);
        for steps in &mut plan.steps {
            steps.truncate(1);
        }
        assert!(matches!(all_reduce(&plan), Err(Flaw::Wrong { .. })));
        let mut plan = chain::all_reduce(2, 1);
        if let Deed::Receive { then, .. } = &mut plan.steps[0][1][0] {
            *then = Then::FoldLeft;
        }
        assert!(matches!(all_reduce(&plan), Err(Flaw::Wrong { .. })));
    }
}

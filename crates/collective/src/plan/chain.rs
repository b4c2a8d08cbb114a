//! A pipelined chain: the plan whose bits are those of the left fold.
//!
//! ```text
//!          a0           a0∘a1           a0∘a1∘a2
//!  0 ════════════▶ 1 ════════════▶ 2 ════════════▶ 3       piece by piece; while the prefix of one goes up,
//!    ◀════════════   ◀════════════   ◀════════════         the result of an earlier one comes down
//! ```
//! Cost for S bytes in K pieces: 2(n-1) + K-1 steps of S/K bytes; every link carries S once in each direction, so a rank in the
//! middle sends and receives 2S, one at an end S. With enough pieces the time is that of the slowest link and hardly depends on n.
//! The default for large arrays over links.

use super::{Deed, Load, Plan, Then};

/// An all-reduce in `pieces` pieces.
pub fn all_reduce(ranks: usize, pieces: usize) -> Plan {
    let mut plan = Plan::new(format!("chain of {ranks}"), ranks, pieces);
    let turn = ranks - 1; // the step in which the last position may send its first result
    for position in 0..ranks {
        for now in 0..2 * turn + pieces {
            let mut step = Vec::new();
            if position > 0 {
                let came = now.checked_sub(position - 1).filter(|piece| *piece < pieces);
                step.extend(came.map(|piece| receive(position - 1, piece, position, Then::FoldLeft)));
                let sent = now.checked_sub(2 * turn - position).filter(|piece| *piece < pieces);
                step.extend(sent.map(|piece| send(position - 1, piece, ranks)));
            }
            if position < turn {
                let sent = now.checked_sub(position).filter(|piece| *piece < pieces);
                step.extend(sent.map(|piece| send(position + 1, piece, position + 1)));
                let came = now.checked_sub(2 * turn - position - 1).filter(|piece| *piece < pieces);
                step.extend(came.map(|piece| receive(position + 1, piece, ranks, Then::Replace)));
            }
            if !step.is_empty() {
                plan.steps[position].push(step);
            }
        }
    }
    plan
}

/// A reduction to `root`: prefixes go up the chain, results from its last position to the root.
pub fn reduce(ranks: usize, pieces: usize, root: usize) -> Plan {
    let mut plan = Plan::new(format!("chain of {ranks} to {root}"), ranks, pieces);
    let last = ranks - 1;
    for position in 0..ranks {
        for now in 0..ranks + pieces {
            let mut step = Vec::new();
            if position > 0 {
                let came = now.checked_sub(position - 1).filter(|piece| *piece < pieces);
                step.extend(came.map(|piece| receive(position - 1, piece, position, Then::FoldLeft)));
            }
            if position < last {
                let sent = now.checked_sub(position).filter(|piece| *piece < pieces);
                step.extend(sent.map(|piece| send(position + 1, piece, position + 1)));
            }
            if root != last {
                let done = now.checked_sub(last).filter(|piece| *piece < pieces);
                step.extend(done.filter(|_| position == last).map(|piece| send(root, piece, ranks)));
                step.extend(done.filter(|_| position == root).map(|piece| receive(last, piece, ranks, Then::Replace)));
            }
            if !step.is_empty() {
                plan.steps[position].push(step);
            }
        }
    }
    plan
}

/// A broadcast from position 0 along the chain.
pub fn broadcast(ranks: usize, pieces: usize) -> Plan {
    let mut plan = Plan::new(format!("chain broadcast of {ranks}"), ranks, pieces);
    for position in 0..ranks {
        for now in 0..ranks + pieces {
            let mut step = Vec::new();
            if position > 0 {
                let came = now.checked_sub(position - 1).filter(|piece| *piece < pieces);
                step.extend(came.map(|piece| receive(position - 1, piece, 1, Then::Replace)));
            }
            if position + 1 < ranks {
                step.extend(now.checked_sub(position).filter(|piece| *piece < pieces).map(|piece| send(position + 1, piece, 1)));
            }
            if !step.is_empty() {
                plan.steps[position].push(step);
            }
        }
    }
    plan
}

fn send(to: usize, piece: usize, brings: usize) -> Deed {
    Deed::Send { to, load: Load::Pieces { pieces: piece..piece + 1, brings } }
}

fn receive(from: usize, piece: usize, brings: usize, then: Then) -> Deed {
    Deed::Receive { from, load: Load::Pieces { pieces: piece..piece + 1, brings }, then }
}

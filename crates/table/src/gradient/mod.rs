//! Tables whose adds are gradients: a rule, shared by a family of tables, says what becomes of them.
#![doc = include_str!("README.md")]

mod alone;
mod counts;
mod norms;
mod now;
mod renewing;
mod repeats;
mod resolve;
mod rounds;
mod rule;
mod states;
mod step;
mod sums;

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard};

use syncline_cluster::Error;
use syncline_optimizer::{Key, KeyState};
use syncline_shm::bulletin::Bulletin;
use syncline_tensor::DType;

pub(crate) use norms::pieces;
pub(crate) use now::Habits;
pub(crate) use resolve::Resolved;
pub(crate) use rounds::RoundStep;
pub(crate) use rule::{Rule, Series, Then, board, set_rule, to_body};
pub(crate) use states::notes_lane;
pub use states::{GradientStates, StateLane};
pub(crate) use sums::Room;

use crate::Spec;

/// Lanes of states that a table of floats has room for: those of the most demanding optimizer, and a master copy.
pub(crate) const LANES: usize = 9;
/// Elements of one change: all lanes of a block are in the first-level cache together.
pub(crate) const BLOCK: u64 = 1024;

/// The dtype that states have beside values of `dtype`; none for whole numbers, which know no optimizer.
pub(crate) fn wide(dtype: DType) -> Option<DType> {
    match dtype {
        DType::F64 => Some(DType::F64),
        dtype if dtype.is_float() => Some(DType::F32),
        _ => None,
    }
}

/// What a share of a gradient table has beside its numbers.
pub(crate) struct Gradient {
    board: Bulletin,
    key: Key,
    dtype: DType,
    family: u32,
    /// On how many hosts the table's values live.
    hosts: usize,
    /// The rules that were used last, the newest first.
    known: Mutex<Vec<Arc<Rule>>>,
    /// The state of the key after the last async add that was resolved here, and its generation.
    last: Mutex<(u32, KeyState)>,
    /// The number of the newest rule that adds were found to agree with.
    agreed: AtomicU64,
}

impl Gradient {
    pub(crate) fn new(board: Bulletin, spec: &Spec, hosts: usize) -> Gradient {
        let (key, dtype, family) = (spec.key(), spec.dtype(), spec.family());
        Gradient { board, key, dtype, family, hosts, known: Mutex::default(), last: Mutex::default(), agreed: AtomicU64::new(0) }
    }

    fn known(&self) -> MutexGuard<'_, Vec<Arc<Rule>>> {
        self.known.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The newest rule; that of a board without any does nothing but to assign.
    pub(crate) fn newest(&self) -> Result<Arc<Rule>, Error> {
        let newest = self.board.newest();
        if let Some(rule) = self.known().first()
            && rule.number == newest
        {
            return Ok(Arc::clone(rule));
        }
        self.rule(newest.page)
    }

    /// The rule on this page, or the newest if that was so long ago that it is gone.
    pub(crate) fn rule(&self, page: u64) -> Result<Arc<Rule>, Error> {
        const KEPT: usize = 4;
        let mut known = self.known();
        if let Some(at) = known.iter().position(|rule| rule.number.page == page) {
            return Ok(Arc::clone(&known[at]));
        }
        let rule = Arc::new(Rule::read(&self.board, page, self.dtype, self.family)?);
        known.insert(0, Arc::clone(&rule));
        known.sort_by_key(|rule| std::cmp::Reverse(rule.number));
        known.truncate(KEPT);
        Ok(rule)
    }
}

//! Reductions and broadcasts over links: which plan, and what surrounds it.

use syncline_cluster::Error;
use syncline_tensor::DType;
use syncline_tensor::kernels::{ReduceOp, divide, reduce_many_into};

use super::Mesh;
use super::roll::{Bring, Refusal, Roll};
use super::run::{Numbers, part};
use super::wire::room;
use crate::call::{Call, Failure};
use crate::plan::cost::{INLINE, choose, settled};
use crate::plan::{Plan, PlanName, chain, halving, ring, tree};

/// From here on a broadcast goes along a chain: every link carries the array once, and all of them at the same time.
const CHAIN_FROM: usize = 1 << 20;

impl Mesh {
    /// Combines `array` over all members, in place; returns how many contribute.
    pub(crate) fn all_reduce(&mut self, array: &mut [u8], dtype: DType, op: ReduceOp, call: &Call<'_>) -> Result<u32, Failure> {
        let bring = match self.settled(array.len(), dtype, op) {
            Some(PlanName::Doubling) => Bring::bytes(array),
            _ => Bring::later(array),
        };
        let roll = self.roll(call, bring)?;
        if roll.complete().is_some() {
            self.combine(array, &roll, dtype, op, call)?;
        } else {
            self.by_plan(array, dtype, op, call)?;
        }
        finish(array, dtype, op, roll.contributors);
        Ok(roll.contributors)
    }

    /// Combines one more array in the same call, after a [roll call](Mesh::roll_call).
    pub(crate) fn reduce_more(
        &mut self,
        call: &Call<'_>,
        contributors: u32,
        array: &mut [u8],
        dtype: DType,
        op: ReduceOp,
    ) -> Result<(), Failure> {
        self.by_plan(array, dtype, op, call)?;
        finish(array, dtype, op, contributors);
        Ok(())
    }

    fn by_plan(&mut self, array: &mut [u8], dtype: DType, op: ReduceOp, call: &Call<'_>) -> Result<(), Failure> {
        let name = self.chosen(array.len(), dtype, op, call)?;
        if let Some(plan) = self.plan(name) {
            return self.run(&plan, array, Numbers { dtype, op }, call);
        }
        let lens = vec![array.len() as u64; self.ranks()];
        let all = self.doubled(array, &lens, call)?;
        let sources: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
        Ok(reduce_many_into(op, dtype, array, &sources).map_err(|error| misfit(call, &error))?)
    }

    /// Combines `array` over all members into the array of `root`; the others' stay as they are.
    pub(crate) fn reduce(&mut self, array: &mut [u8], dtype: DType, op: ReduceOp, root: usize, call: &Call<'_>) -> Result<(), Failure> {
        let tree = self.forced_tree();
        let roll = self.roll(call, if tree.is_some() { Bring::later(array) } else { Bring::bytes(array) })?;
        let is_root = self.position() == root;
        if roll.complete().is_some() {
            return if is_root {
                self.combine(array, &roll, dtype, op, call)?;
                finish(array, dtype, op, roll.contributors);
                Ok(())
            } else {
                Ok(())
            };
        }
        let plan = match tree {
            Some(base) => tree::reduce(self.ranks(), base, root),
            None => chain::reduce(self.ranks(), 1, root),
        };
        if is_root {
            self.run(&plan, array, Numbers { dtype, op }, call)?;
            finish(array, dtype, op, roll.contributors);
            return Ok(());
        }
        self.run(&plan, &mut array.to_vec(), Numbers { dtype, op }, call)
    }

    /// Combines `array` over all members and returns this position's part.
    ///
    /// Everybody sends everybody its part, so the bits are those of the left fold, and no rank moves more than it must.
    pub(crate) fn reduce_scatter(&mut self, array: &[u8], dtype: DType, op: ReduceOp, call: &Call<'_>) -> Result<Vec<u8>, Failure> {
        let roll = self.roll(call, Bring::bytes(array))?;
        let (me, ranks) = (self.position(), self.ranks());
        let cut = |position: usize| part(array.len() / dtype.size(), ranks, position, dtype.size());
        let mut result = vec![0; cut(me).len()];
        let mut all: Vec<Vec<u8>> = vec![Vec::new(); ranks];
        let sources: Vec<&[u8]> = match roll.complete() {
            Some(sources) => sources.into_iter().map(|source| source.get(cut(me))).collect::<Option<_>>().ok_or_else(|| garbled(call))?,
            None => {
                self.open((0..ranks).filter(|position| *position != me), call)?;
                for away in 1..ranks {
                    let (to, from) = ((me + away) % ranks, (me + ranks - away) % ranks);
                    all[from] = self.exchange(call, None, Some((to, &[&array[cut(to)]])), from, |incoming, talk| {
                        let mut bytes = room(cut(me).len() as u64)?;
                        incoming.head_of(talk, bytes.len() as u64)?;
                        incoming.fill(talk, &mut bytes)?;
                        Ok(bytes)
                    })?;
                }
                (0..ranks).map(|position| if position == me { &array[cut(me)] } else { all[position].as_slice() }).collect()
            }
        };
        reduce_many_into(op, dtype, &mut result, &sources).map_err(|error| misfit(call, &error))?;
        finish(&mut result, dtype, op, roll.contributors);
        Ok(result)
    }

    /// Makes everybody's `array` that of `root`.
    pub(crate) fn broadcast(&mut self, array: &mut [u8], root: usize, call: &Call<'_>) -> Result<(), Failure> {
        let roll = self.roll(call, self.rooted(array, root))?;
        self.deliver(array, root, &roll, call)
    }

    /// Hands the message of `root` to everybody.
    pub(crate) fn broadcast_message(&mut self, message: Option<&[u8]>, root: usize, call: &Call<'_>) -> Result<Vec<u8>, Failure> {
        let mine = message.unwrap_or_default();
        let mut bring = self.rooted(mine, root);
        if (self.position() == root) != message.is_some() {
            bring.refusal = Some(Refusal::impossible(format!("the message comes from position {root} and nobody else")));
        }
        let roll = self.roll(call, bring)?;
        let mut bytes = match self.position() == root {
            true => mine.to_vec(),
            false => room(roll.entries[root].announced).map_err(|trouble| self.failed(call, trouble))?,
        };
        self.deliver(&mut bytes, root, &roll, call)?;
        Ok(bytes)
    }

    /// What a rank brings to a call in which only the root has something.
    fn rooted<'a>(&self, array: &'a [u8], root: usize) -> Bring<'a> {
        match (self.position() == root, self.forced_tree()) {
            (true, None) => Bring::bytes(array),
            (true, Some(_)) => Bring::later(array),
            (false, _) => Bring::nothing(),
        }
    }

    /// The second half of a broadcast.
    fn deliver(&mut self, array: &mut [u8], root: usize, roll: &Roll, call: &Call<'_>) -> Result<(), Failure> {
        let Some(came) = &roll.entries[root].inline else {
            let plan = match self.forced_tree() {
                Some(base) => tree::broadcast(self.ranks(), base),
                None if array.len() >= CHAIN_FROM => chain::broadcast(self.ranks(), 1),
                None => tree::broadcast(self.ranks(), self.settings.base),
            };
            return self.run(&plan.rotated(root), array, Numbers::BYTES, call);
        };
        if came.len() != array.len() {
            return Err(Failure::Agreed(garbled(call)));
        }
        array.copy_from_slice(came);
        Ok(())
    }

    /// The plan for an all-reduce of so many bytes, if the links have no say in it.
    fn settled(&self, bytes: usize, dtype: DType, op: ReduceOp) -> Option<PlanName> {
        match self.settings.forced {
            None | Some(PlanName::Memory | PlanName::Hosts) => settled(bytes, self.ranks(), op.is_exact(dtype)),
            forced => forced,
        }
    }

    /// The plan for an all-reduce of so many bytes. After a roll call: the links may have to be measured first.
    pub(super) fn chosen(&mut self, bytes: usize, dtype: DType, op: ReduceOp, call: &Call<'_>) -> Result<PlanName, Failure> {
        if let Some(name) = self.settled(bytes, dtype, op) {
            return Ok(name);
        }
        let figures = self.figures(call)?;
        Ok(choose(bytes, self.ranks(), op.is_exact(dtype), self.settings.base, figures))
    }

    /// The plan of this name, of one piece where the runner's segments do the pipelining; none for doubling.
    pub(super) fn plan(&self, name: PlanName) -> Option<Plan> {
        let ranks = self.ranks();
        match name {
            PlanName::Tree { base } => Some(tree::all_reduce(ranks, base.unwrap_or(self.settings.base))),
            PlanName::Ring => Some(ring::all_reduce(ranks)),
            PlanName::Halving => Some(halving::all_reduce(ranks)),
            PlanName::Chain => Some(chain::all_reduce(ranks, 1)),
            PlanName::Doubling | PlanName::Memory | PlanName::Hosts => None,
        }
    }

    fn forced_tree(&self) -> Option<u32> {
        match self.settings.forced {
            Some(PlanName::Tree { base }) => Some(base.unwrap_or(self.settings.base)),
            _ => None,
        }
    }

    /// The fold of contributions that all came with the roll call.
    fn combine(&self, array: &mut [u8], roll: &Roll, dtype: DType, op: ReduceOp, call: &Call<'_>) -> Result<(), Failure> {
        debug_assert!(array.len() <= INLINE);
        let sources = roll.complete().unwrap_or_default();
        // Everybody sees the same entries, so everybody fails alike.
        reduce_many_into(op, dtype, array, &sources).map_err(|error| Failure::Agreed(misfit(call, &error)))
    }
}

/// Makes a mean of a sum.
pub(crate) fn finish(array: &mut [u8], dtype: DType, op: ReduceOp, contributors: u32) {
    if op == ReduceOp::Mean {
        divide(dtype, array, contributors).expect("whole numbers, as they were folded");
    }
}

fn misfit(call: &Call<'_>, error: &dyn std::fmt::Display) -> Error {
    Error::ShapeMismatch { operation: call.operation(), detail: error.to_string() }
}

fn garbled(call: &Call<'_>) -> Error {
    let detail = "what the ranks brought does not fit together\nhint: do all processes run the same version of Syncline?".into();
    Error::System { operation: call.operation(), detail }
}

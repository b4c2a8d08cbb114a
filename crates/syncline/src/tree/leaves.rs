//! Leaves that their owner keeps: a binding walks a structure of its own language and hands over the leaves alone.

use syncline_cluster as cluster;
use syncline_collective::{Collectives, How, Leaf, Pending};
use syncline_tensor::kernels::ReduceOp;
use syncline_wire::{Fingerprint, Value};

use super::{LeafMerge, Tree, nest};
use crate::Error;

impl Tree {
    /// Combines arrays where they lie, all of them in one operation; returns how many nodes had data of their own.
    pub fn all_reduce_leaves(&self, leaves: &mut [Leaf<'_>], op: ReduceOp, contributes: bool, how: How<'_>) -> Result<u32, Error> {
        match self.collectives() {
            None => Ok(u32::from(contributes)),
            Some(collectives) => Ok(collectives.all_reduce_leaves(leaves, op, contributes, how)?),
        }
    }

    /// Combines leaves of any kind by a function: `merge(mine, received)` once per leaf and child.
    ///
    /// `structure` says what the leaves are leaves of; it must be the same on all nodes.
    pub fn fold_leaves(
        &self,
        leaves: Vec<Value<'_>>,
        structure: &str,
        merge: &mut LeafMerge<'_>,
        contributes: bool,
        how: How<'_>,
    ) -> Result<(Vec<Value<'static>>, u32), Error> {
        let all = Value::List(leaves);
        let (folded, contributors) = match self.collectives() {
            None => (all.into_owned(), u32::from(contributes)),
            Some(collectives) => fold(collectives, &all, structure, print_of(structure), merge, contributes, how)?,
        };
        Ok((listed(folded)?, contributors))
    }

    /// Begins a [`fold_leaves`](Tree::fold_leaves) that runs, with its function, while the caller does something else; what
    /// comes of it is read by [`leaves_of`](Tree::leaves_of).
    pub fn fold_leaves_start(
        &self,
        leaves: Vec<Value<'_>>,
        structure: &str,
        mut merge: impl FnMut(Value<'static>, Value<'static>) -> Result<Value<'static>, Error> + Send + 'static,
        how: How<'_>,
    ) -> Result<Pending<Vec<u8>>, Error> {
        let mine = nest::to_message(&Value::List(leaves))?;
        let Some(collectives) = self.collectives() else { return Ok(Pending::over(mine, 1)) };
        let merge = move |mine: Vec<u8>, received: Vec<u8>| by_leaf(&mut merge, &mine, &received);
        Ok(collectives.fold_start(mine, words_of(structure), print_of(structure), true, merge, how))
    }

    /// The leaves in what [`fold_leaves_start`](Tree::fold_leaves_start) gave.
    pub fn leaves_of(message: &[u8]) -> Result<Vec<Value<'static>>, Error> {
        listed(nest::from_message(message)?.into_owned())
    }
}

/// Leaves that are told one by one when two calls differ.
const LEAVES_TOLD: usize = 8;

/// What a reduction by a function is called where calls differ: the leaves, a line each in `structure`, are what may differ.
fn words_of(structure: &str) -> String {
    let mut lines = structure.lines();
    // A leaf that is the whole value has no name before the colon.
    let told: Vec<&str> = lines.by_ref().take(LEAVES_TOLD).map(|leaf| leaf.trim_start_matches(": ")).collect();
    let more = if lines.next().is_some() { ", …" } else { "" };
    format!("by a function of the caller's, of {}{more}", told.join(", "))
}

fn print_of(structure: &str) -> Fingerprint {
    Fingerprint::of("leaves").text("structure", structure).finish()
}

fn listed(folded: Value<'static>) -> Result<Vec<Value<'static>>, Error> {
    match folded {
        Value::List(leaves) => Ok(leaves),
        other => {
            Err(cluster::Error::System { operation: "all_reduce".into(), detail: format!("a {} came back", other.type_name()) }.into())
        }
    }
}

/// Folds a nested value, leaf by leaf, along the tree.
pub(super) fn fold(
    collectives: &Collectives,
    value: &Value<'_>,
    structure: &str,
    fingerprint: Fingerprint,
    merge: &mut LeafMerge<'_>,
    contributes: bool,
    how: How<'_>,
) -> Result<(Value<'static>, u32), Error> {
    let mut fold = |mine: Vec<u8>, received: Vec<u8>| by_leaf(merge, &mine, &received);
    let (message, contributors) =
        collectives.fold(nest::to_message(value)?, &words_of(structure), fingerprint, contributes, &mut fold, how)?;
    Ok((nest::from_message(&message)?.into_owned(), contributors))
}

/// One's own message and a child's as one, merged leaf by leaf.
fn by_leaf(merge: &mut LeafMerge<'_>, mine: &[u8], received: &[u8]) -> Result<Vec<u8>, cluster::Error> {
    let mut mine = nest::from_message(mine)?.into_owned();
    let mut received = nest::from_message(received)?.into_owned();
    let mut others = Vec::new();
    nest::walk(&mut received, &mut |_, leaf| {
        others.push(std::mem::take(leaf));
        Ok(())
    })?;
    let mut others = others.into_iter();
    nest::walk(&mut mine, &mut |_, leaf| {
        let other = others.next().unwrap_or_default();
        *leaf = merge(std::mem::take(leaf), other).map_err(|error| error.into_inner())?;
        Ok(())
    })?;
    nest::to_message(&mine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_with_a_function_show_what_they_differ_in() {
        assert_eq!(words_of(": float64 (3,)"), "by a function of the caller's, of float64 (3,)");
        assert_eq!(words_of("a: float64 (3,)\nb: number"), "by a function of the caller's, of a: float64 (3,), b: number");
        let many: Vec<String> = (0..9).map(|index| format!("{index}: number")).collect();
        assert!(words_of(&many.join("\n")).ends_with(", 7: number, …"));
    }
}

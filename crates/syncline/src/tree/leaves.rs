//! Leaves that their owner keeps: a binding walks a structure of its own language and hands over the leaves alone.

use syncline_cluster as cluster;
use syncline_collective::{Collectives, How, Leaf};
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
            Some(collectives) => {
                let structure = Fingerprint::of("leaves").text("structure", structure).finish();
                fold(collectives, &all, structure, merge, contributes, how)?
            }
        };
        match folded {
            Value::List(leaves) => Ok((leaves, contributors)),
            other => {
                Err(cluster::Error::System { operation: "all_reduce".into(), detail: format!("a {} came back", other.type_name()) }.into())
            }
        }
    }
}

/// Folds a nested value, leaf by leaf, along the tree.
pub(super) fn fold(
    collectives: &Collectives,
    value: &Value<'_>,
    structure: Fingerprint,
    merge: &mut LeafMerge<'_>,
    contributes: bool,
    how: How<'_>,
) -> Result<(Value<'static>, u32), Error> {
    let mut fold = |mine: Vec<u8>, received: Vec<u8>| -> Result<Vec<u8>, cluster::Error> {
        let mut mine = nest::from_message(&mine)?.into_owned();
        let mut received = nest::from_message(&received)?.into_owned();
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
    };
    let words = "a function of the caller's";
    let (message, contributors) = collectives.fold(nest::to_message(value)?, words, structure, contributes, &mut fold, how)?;
    Ok((nest::from_message(&message)?.into_owned(), contributors))
}

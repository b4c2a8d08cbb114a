//! Trees as Python sees them: nodes, numbered from 1, that combine what they have.
//!
//! A lone array that lies as it should is reduced where it is, straight from [`tree`]. Everything else (numbers, dicts,
//! other layouts, functions of the user's) is walked in `python/syncline/_trees.py`, which hands leaves to [`leaves`].

mod found;
mod future;
mod leaves;
mod letters;
mod open;
mod tree;
mod under_way;

pub(crate) use found::{discovered_tree, job_tree, localhost_tree, null_tree, slurm_tree, static_tree};
pub(crate) use future::{Folding, Reduction};
pub(crate) use leaves::{fold_leaves, last_value, reduce_leaves, remember_value, scatter_reduced, start_fold, start_leaves};
pub(crate) use letters::{Receiving, Sending, start_recv, start_send};
pub(crate) use open::{abandon_trees, any_open, close_trees, end_with_process, interpreter_ends};
pub(crate) use tree::Tree;

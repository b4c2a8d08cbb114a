//! What trees do with values of any kind: numbers, texts, arrays, and lists and maps of them.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use syncline::{Error, LeafMerge, Reduce, Value, Zero};

use super::{TREES, position, syncline_tree};
use crate::border::{call_as, guarded};
use crate::failure::{Failure, syncline_status};
use crate::values::{Lent, VALUES, give as give_value, give_if_any, left_at, syncline_value};
use crate::{facts, memory};

/// Makes one leaf of two and leaves it at `result`, which is taken over; NULL keeps `mine`. Both are lent for the time of the
/// call. Not 0 fails the call.
pub type syncline_merge_values = Option<
    unsafe extern "C" fn(
        mine: *const syncline_value,
        received: *const syncline_value,
        user: *mut c_void,
        result: *mut *mut syncline_value,
    ) -> c_int,
>;

/// Makes the zero of a leaf, the `index`-th from 0, and leaves it at `result`, which is taken over; NULL keeps the leaf. Not 0
/// fails the call.
pub type syncline_zero =
    Option<unsafe extern "C" fn(leaf: *const syncline_value, index: usize, user: *mut c_void, result: *mut *mut syncline_value) -> c_int>;

/// Remembers why a function of the caller's failed, and tells the layers below that it did.
fn noted(failed: &std::cell::RefCell<Option<Failure>>, made: Result<Value<'static>, Failure>) -> Result<Value<'static>, Error> {
    made.map_err(|failure| {
        let error = Error::of_function("all_reduce", failure.text());
        *failed.borrow_mut() = Some(failure);
        error
    })
}

/// Combines values leaf by leaf over all nodes, in one operation. A leaf is a number, a text or an array; lists are walked in
/// order, maps by key, and all nodes have the same structure.
///
/// Leaves are combined by `op`, or by `merge` where it is not NULL: then once per leaf and child, and all nodes must pass the
/// same function. With `zero` this node has no more data: each leaf becomes its zero, and the call takes part in those of the
/// others until nobody has data left, and tells of 0 contributors; the value may then be NULL to take that of the last call.
///
/// # Safety
/// `merge` and `zero` can be called with `user`; `out` may be written; `contributors` is NULL or may be.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_tree_all_reduce_value(
    tree: *mut syncline_tree,
    value: *const syncline_value,
    op: i32,
    merge: syncline_merge_values,
    zero: syncline_zero,
    user: *mut c_void,
    out: *mut *mut syncline_value,
    contributors: *mut u32,
) -> syncline_status {
    guarded(|| {
        memory::check_out(out, "out")?;
        let tree = TREES.get(tree)?;
        let value = match value.is_null() && zero.is_some() {
            true => None,
            false => Some(VALUES.get(value)?.value().clone()),
        };
        let failed = std::cell::RefCell::new(None);
        let mut merged = |mine: Value<'static>, received: Value<'static>| {
            let (lent, received) = (Lent::new(mine), Lent::new(received));
            let mut result = null_mut();
            // SAFETY: the caller's promise; both values live until it returns.
            let code = merge.map_or(0, |merge| unsafe { merge(lent.handle(), received.handle(), user, &raw mut result) });
            noted(&failed, left_at(result, "all_reduce", code).and_then(|made| made.map_or_else(|| lent.take(), Ok)))
        };
        let mut zeroed = |leaf: Value<'static>, index: usize| {
            let lent = Lent::new(leaf);
            let mut result = null_mut();
            // SAFETY: the caller's promise; the leaf lives until it returns.
            let code = zero.map_or(0, |zero| unsafe { zero(lent.handle(), index, user, &raw mut result) });
            noted(&failed, left_at(result, "zero", code).and_then(|made| made.map_or_else(|| lent.take(), Ok)))
        };
        let by = match merge {
            Some(_) => Reduce::With(&mut merged as &mut LeafMerge<'_>),
            None => Reduce::By(facts::op(op)?),
        };
        let zeroed = zero.map(|_| &mut zeroed as &mut Zero<'_>);
        let reduced = call_as(tree.timeout(), |how| tree.all_reduce_value(value, by, zeroed, how));
        let (value, had) = match failed.take() {
            Some(failure) => return Err(failure),
            None => reduced?,
        };
        // SAFETY: the caller's promise.
        unsafe {
            memory::give_if(contributors, "contributors", had)?;
            give_value(out, value)
        }
    })
}

/// Gives everybody the value of node `root`; the others may pass NULL.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_tree_broadcast_value(
    tree: *mut syncline_tree,
    value: *const syncline_value,
    root: u32,
    out: *mut *mut syncline_value,
) -> syncline_status {
    guarded(|| {
        memory::check_out(out, "out")?;
        let tree = TREES.get(tree)?;
        position(&tree, root)?;
        let brought = (tree.node() == root).then(|| VALUES.get(value)).transpose()?;
        let sent = brought.as_ref().map_or(&Value::Nil, |piece| piece.value());
        let received = call_as(tree.timeout(), |how| tree.broadcast_value(sent, root, how))?;
        // SAFETY: the caller's promise.
        unsafe { give_value(out, received) }
    })
}

/// Gives everybody the value of node 1, as torch-ipc's scatter does.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_tree_scatter(
    tree: *mut syncline_tree,
    value: *const syncline_value,
    out: *mut *mut syncline_value,
) -> syncline_status {
    // SAFETY: the caller's promise.
    unsafe { syncline_tree_broadcast_value(tree, value, 1, out) }
}

/// Everybody's values at node `root`, a list by node; NULL on the others. They need not be alike.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_tree_gather_value(
    tree: *mut syncline_tree,
    value: *const syncline_value,
    root: u32,
    out: *mut *mut syncline_value,
) -> syncline_status {
    guarded(|| {
        let (tree, value) = (TREES.get(tree)?, VALUES.get(value)?);
        position(&tree, root)?;
        let gather = || Ok(call_as(tree.timeout(), |how| tree.gather_value(value.value(), root, how))?.map(Value::List));
        // SAFETY: the caller's promise.
        unsafe { give_if_any(out, gather) }
    })
}

/// Everybody's values, a list by node. They need not be alike.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_tree_all_gather_value(
    tree: *mut syncline_tree,
    value: *const syncline_value,
    out: *mut *mut syncline_value,
) -> syncline_status {
    guarded(|| {
        memory::check_out(out, "out")?;
        let (tree, value) = (TREES.get(tree)?, VALUES.get(value)?);
        let all = call_as(tree.timeout(), |how| tree.all_gather_value(value.value(), how))?;
        // SAFETY: the caller's promise.
        unsafe { give_value(out, Value::List(all)) }
    })
}

/// Sends item i of a list, one for each node, to node i + 1, and gives the list of what each node sent here.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_tree_all_to_all_value(
    tree: *mut syncline_tree,
    list: *const syncline_value,
    out: *mut *mut syncline_value,
) -> syncline_status {
    guarded(|| {
        memory::check_out(out, "out")?;
        let (tree, list) = (TREES.get(tree)?, VALUES.get(list)?);
        let Value::List(parts) = list.value() else { return Err(Failure::argument("all_to_all takes a list, an item for each node")) };
        let received = call_as(tree.timeout(), |how| tree.all_to_all_value(parts, how))?;
        // SAFETY: the caller's promise.
        unsafe { give_value(out, Value::List(received)) }
    })
}

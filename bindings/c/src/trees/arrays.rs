//! What trees do with arrays of numbers where they lie.

use std::ffi::{c_int, c_void};

use syncline::collective::Leaf;
use syncline::ipc::Shape;
use syncline::{DType, Error, ReduceOp, Tree, Value};

use super::{TREES, on, position, syncline_tree};
use crate::border::{call_as, guarded};
use crate::failure::{Failure, syncline_status};
use crate::{facts, memory};

/// Combines `count` numbers over all nodes, in place and in order of node, and tells how many nodes had data of their own.
///
/// # Safety
/// `data` has `count` numbers of `dtype`, which nobody else uses meanwhile; `contributors` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_tree_all_reduce(
    tree: *mut syncline_tree,
    data: *mut c_void,
    count: usize,
    dtype: i32,
    op: i32,
    contributors: *mut u32,
) -> syncline_status {
    guarded(|| {
        let (tree, dtype, op) = (TREES.get(tree)?, facts::dtype(dtype)?, facts::op(op)?);
        // SAFETY: the caller's promise.
        let data = unsafe { memory::numbers_mut(data, count, dtype, "data") }?;
        let had = reduced(&tree, data, count, dtype, op, true)?;
        // SAFETY: the caller's promise.
        unsafe { memory::give_if(contributors, "contributors", had) }
    })
}

/// One round, as the other languages make it: a structure of one array.
fn reduced(tree: &Tree, data: &mut [u8], count: usize, dtype: DType, op: ReduceOp, contributes: bool) -> Result<u32, Failure> {
    let shape = Shape::new(&[count]).map_err(|error| Failure::argument(error.to_string()))?;
    let mut leaf = [Leaf { name: "", dtype, shape, bytes: data }];
    Ok(call_as(tree.timeout(), |how| tree.all_reduce_leaves(&mut leaf, op, contributes, how))?)
}

/// What a node calls once that has no more data: with zeros it joins the calls of the others until nobody has any left.
/// `data` holds zeros afterwards. Not for minima, maxima and products, of which zero is not the neutral element.
///
/// # Safety
/// `data` has `count` numbers of `dtype`, which nobody else uses meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_tree_all_reduce_rest(
    tree: *mut syncline_tree,
    data: *mut c_void,
    count: usize,
    dtype: i32,
    op: i32,
) -> syncline_status {
    guarded(|| {
        let (tree, dtype, op) = (TREES.get(tree)?, facts::dtype(dtype)?, facts::op(op)?);
        // SAFETY: the caller's promise.
        let data = unsafe { memory::numbers_mut(data, count, dtype, "data") }?;
        loop {
            data.fill(0);
            if reduced(&tree, data, count, dtype, op, false)? == 0 {
                return Ok(());
            }
        }
    })
}

/// What turns `mine` and `received`, of `count` numbers each, into one, in `mine`; not 0 fails the call.
pub type syncline_merge =
    Option<unsafe extern "C" fn(mine: *mut c_void, received: *const c_void, count: usize, user: *mut c_void) -> c_int>;

/// Combines `count` numbers over all nodes by a function, in place; it is called once per child of this node. All nodes must pass
/// the same function.
///
/// # Safety
/// `data` has `count` numbers of `dtype`, which nobody else uses meanwhile; `merge` can be called with `user`;
/// `contributors` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_tree_all_reduce_with(
    tree: *mut syncline_tree,
    data: *mut c_void,
    count: usize,
    dtype: i32,
    merge: syncline_merge,
    user: *mut c_void,
    contributors: *mut u32,
) -> syncline_status {
    guarded(|| {
        let (tree, dtype) = (TREES.get(tree)?, facts::dtype(dtype)?);
        let merge = merge.ok_or_else(|| Failure::argument("merge is NULL"))?;
        // SAFETY: the caller's promise.
        let data = unsafe { memory::numbers_mut(data, count, dtype, "data") }?;
        let mut failed: Option<Failure> = None;
        let mut merged = |mine: Value<'static>, received: Value<'static>| {
            let (Value::Tensor(mine), Value::Tensor(received)) = (mine, received) else {
                return Err(Error::of_function("all_reduce", "what arrived is no array"));
            };
            let (dtype, shape, numbers) = mine.into_parts();
            let mut numbers = numbers.into_owned();
            if numbers.len() != received.data().len() {
                return Err(Error::of_function("all_reduce", "what arrived has another length"));
            }
            // SAFETY: both have `count` numbers, the first may be written; the rest is the caller's promise.
            let outcome = unsafe { merge(numbers.as_mut_ptr().cast(), received.data().as_ptr().cast(), count, user) };
            if outcome != 0 {
                failed = Some(Failure::of_caller("all_reduce", outcome));
                return Err(Error::of_function("all_reduce", format!("the function returned {outcome}")));
            }
            Value::tensor(dtype, shape, numbers).map_err(|error| Error::of_function("all_reduce", error.to_string()))
        };
        let leaf = carried(data, count, dtype)?.into_owned();
        let folded = call_as(tree.timeout(), |how| tree.fold_leaves(vec![leaf], "an array", &mut merged, true, how));
        let (leaves, had) = folded.map_err(|error| failed.unwrap_or_else(|| Failure::from(error)))?;
        match leaves.first() {
            Some(Value::Tensor(result)) if result.data().len() == data.len() => data.copy_from_slice(result.data()),
            _ => return Err(Failure::bug("all_reduce gave back no array of the same length")),
        }
        // SAFETY: the caller's promise.
        unsafe { memory::give_if(contributors, "contributors", had) }
    })
}

/// An array as it travels, which is how the arrays of other languages do.
fn carried(data: &[u8], count: usize, dtype: DType) -> Result<Value<'_>, Failure> {
    let shape = Shape::new(&[count]).map_err(|error| Failure::argument(error.to_string()))?;
    Value::tensor(dtype, shape, data).map_err(|error| Failure::argument(error.to_string()))
}

/// Puts what came from node `from` into `place`: as many numbers of this dtype as it holds, whatever their shape.
fn pour(value: &Value<'_>, from: usize, dtype: DType, place: &mut [u8]) -> Result<(), Failure> {
    let sent = match value {
        Value::Tensor(array) if array.dtype() == dtype && array.data().len() == place.len() => {
            place.copy_from_slice(array.data());
            return Ok(());
        }
        Value::Tensor(array) => format!("{} {}", array.shape().elements(), array.dtype()),
        other => format!("a {}", other.type_name()),
    };
    Err(Failure::shape(format!("node {from} sent {sent}, and this call takes {} {dtype}", place.len() / dtype.size())))
}

/// Puts what came from each node, in order of node, into `out`.
fn pour_all(all: &[Value<'_>], each: usize, dtype: DType, out: &mut [u8]) -> Result<(), Failure> {
    if out.len() != each * all.len() {
        let (room, came) = (out.len() / dtype.size(), each * all.len() / dtype.size());
        return Err(Failure::shape(format!("out has room for {room} numbers, and {came} came from {} nodes", all.len())));
    }
    (1..).zip(all).zip(out.chunks_exact_mut(each.max(1))).try_for_each(|((node, value), place)| pour(value, node, dtype, place))
}

/// Combines `count` numbers over all nodes into those of node `root`; the others' stay as they are.
///
/// # Safety
/// `data` has `count` numbers of `dtype`, which nobody else uses meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_tree_reduce(
    tree: *mut syncline_tree,
    data: *mut c_void,
    count: usize,
    dtype: i32,
    op: i32,
    root: u32,
) -> syncline_status {
    guarded(|| {
        let (tree, dtype, op) = (TREES.get(tree)?, facts::dtype(dtype)?, facts::op(op)?);
        let root = position(&tree, root)?;
        // SAFETY: the caller's promise.
        let data = unsafe { memory::numbers_mut(data, count, dtype, "data") }?;
        on(&tree, |below, how| below.reduce(data, dtype, op, root, how)).map(drop)
    })
}

/// Makes everybody's `count` numbers those of node `root`.
///
/// # Safety
/// `data` has `count` numbers of `dtype`, which nobody else uses meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_tree_broadcast(
    tree: *mut syncline_tree,
    data: *mut c_void,
    count: usize,
    dtype: i32,
    root: u32,
) -> syncline_status {
    guarded(|| {
        let (tree, dtype) = (TREES.get(tree)?, facts::dtype(dtype)?);
        position(&tree, root)?;
        // SAFETY: the caller's promise.
        let data = unsafe { memory::numbers_mut(data, count, dtype, "data") }?;
        let mine = carried(data, count, dtype)?;
        let received = call_as(tree.timeout(), |how| tree.broadcast_value(&mine, root, how))?;
        if tree.node() == root { Ok(()) } else { pour(&received, root as usize, dtype, data) }
    })
}

/// Everybody's `count` numbers at node `root`, one after another in order of node; `room` must be nodes × count there. On the
/// other nodes `out` is left alone and may be NULL.
///
/// # Safety
/// `mine` has `count` numbers of `dtype`; `out` has room for `room` of them on node `root`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_tree_gather(
    tree: *mut syncline_tree,
    mine: *const c_void,
    count: usize,
    dtype: i32,
    root: u32,
    out: *mut c_void,
    room: usize,
) -> syncline_status {
    guarded(|| {
        let (tree, dtype) = (TREES.get(tree)?, facts::dtype(dtype)?);
        position(&tree, root)?;
        let here = root == tree.node();
        // SAFETY: the caller's promise; where the result does not go, nothing is asked of `out`.
        let (mine, out) = unsafe {
            let mine = memory::numbers(mine, count, dtype, "mine")?;
            (mine, memory::numbers_mut(out, if here { room } else { 0 }, dtype, "out")?)
        };
        let (brought, each) = (carried(mine, count, dtype)?, mine.len());
        match call_as(tree.timeout(), |how| tree.gather_value(&brought, root, how))? {
            Some(all) => pour_all(&all, each, dtype, out),
            None => Ok(()),
        }
    })
}

/// Everybody's `count` numbers, one after another in order of node; `room` must be nodes × count.
///
/// # Safety
/// `mine` has `count` numbers of `dtype`, and `out` has room for `room` of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_tree_all_gather(
    tree: *mut syncline_tree,
    mine: *const c_void,
    count: usize,
    dtype: i32,
    out: *mut c_void,
    room: usize,
) -> syncline_status {
    guarded(|| {
        let (tree, dtype) = (TREES.get(tree)?, facts::dtype(dtype)?);
        // SAFETY: the caller's promise.
        let (mine, out) = unsafe { (memory::numbers(mine, count, dtype, "mine")?, memory::numbers_mut(out, room, dtype, "out")?) };
        let brought = carried(mine, count, dtype)?;
        let all = call_as(tree.timeout(), |how| tree.all_gather_value(&brought, how))?;
        pour_all(&all, mine.len(), dtype, out)
    })
}

/// Combines `count` numbers over all nodes and gives this node its equal part of them; the first nodes take the remainder. `part`
/// tells how many there are, which `room` must hold.
///
/// # Safety
/// `data` has `count` numbers of `dtype`, and `out` has room for `room` of them; `part` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_tree_reduce_scatter(
    tree: *mut syncline_tree,
    data: *const c_void,
    count: usize,
    dtype: i32,
    op: i32,
    out: *mut c_void,
    room: usize,
    part: *mut usize,
) -> syncline_status {
    guarded(|| {
        let (tree, dtype, op) = (TREES.get(tree)?, facts::dtype(dtype)?, facts::op(op)?);
        // SAFETY: the caller's promise.
        let (data, out) = unsafe { (memory::numbers(data, count, dtype, "data")?, memory::numbers_mut(out, room, dtype, "out")?) };
        let mine = on(&tree, |below, how| below.reduce_scatter(data, dtype, op, how))?.unwrap_or_else(|| data.to_vec());
        let numbers = mine.len() / dtype.size();
        let place = out
            .get_mut(..mine.len())
            .ok_or_else(|| Failure::shape(format!("this node's part has {numbers} numbers, and out has room for {room}")))?;
        place.copy_from_slice(&mine);
        // SAFETY: the caller's promise.
        unsafe { memory::give_if(part, "part", numbers) }
    })
}

/// Sends the i-th `count` numbers of `data` to node i + 1, and puts what each node sent here into `out`; both have nodes × count.
///
/// # Safety
/// `data` has nodes × `count` numbers of `dtype`, and `out` has room for as many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_tree_all_to_all(
    tree: *mut syncline_tree,
    data: *const c_void,
    out: *mut c_void,
    count: usize,
    dtype: i32,
) -> syncline_status {
    guarded(|| {
        let (tree, dtype) = (TREES.get(tree)?, facts::dtype(dtype)?);
        let all = count.checked_mul(tree.nodes() as usize).ok_or_else(|| Failure::argument("more numbers than memory has"))?;
        // SAFETY: the caller's promise.
        let (data, out) = unsafe { (memory::numbers(data, all, dtype, "data")?, memory::numbers_mut(out, all, dtype, "out")?) };
        let each = count * dtype.size();
        let part = |node: usize| carried(&data[node * each..][..each], count, dtype);
        let parts = (0..tree.nodes() as usize).map(part).collect::<Result<Vec<_>, _>>()?;
        let received = call_as(tree.timeout(), |how| tree.all_to_all_value(&parts, how))?;
        pour_all(&received, each, dtype, out)
    })
}

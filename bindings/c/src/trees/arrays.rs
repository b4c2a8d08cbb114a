//! Trees: nodes, numbered from 1, that combine what they have. All of them make the same calls in the same order.

use std::ffi::{c_char, c_int, c_void};
use std::path::Path;
use std::sync::Arc;

use syncline::collective::{Collectives, How, Leaf};
use syncline::ipc::Shape;
use syncline::{DType, Error, ReduceOp, Tree, TreeOptions, Value};

use crate::border::{call_as, guarded, interrupted};
use crate::failure::{Failure, syncline_status};
use crate::handles::Handles;
use crate::session::{SESSIONS, syncline_session};
use crate::{facts, memory};

/// Nodes that combine what they have.
pub struct syncline_tree {
    _private: [u8; 0],
}

static TREES: Handles<syncline_tree, Tree> = Handles::new("tree", 4);

/// What all trees with a job of their own are made with. All zero is the default.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct syncline_tree_options {
    /// Seconds to wait for somebody who neither comes nor dies; 0 takes SYNCLINE_TIMEOUT, or 30 s.
    timeout: f64,
    /// With how many branches at a node; 0 is 2.
    base: u32,
}

/// # Safety
/// `options` is NULL or can be read.
unsafe fn understood(options: *const syncline_tree_options) -> Result<TreeOptions, Failure> {
    let mut understood = TreeOptions { interrupted: Some(interrupted), ..TreeOptions::default() };
    // SAFETY: the caller's promise.
    if let Some(options) = unsafe { memory::values(options, usize::from(!options.is_null()), "options") }?.first() {
        understood.timeout = memory::patience(options.timeout)?;
        match options.base {
            0 => {}
            1 => return Err(Failure::argument("base 1 is no number of branches; use 2 or more")),
            base => understood.plan.base = base,
        }
    }
    Ok(understood)
}

/// # Safety
/// `out` may be written.
unsafe fn give(out: *mut *mut syncline_tree, make: impl FnOnce() -> Result<Tree, Failure>) -> Result<(), Failure> {
    memory::check_out(out, "out")?;
    let tree = make()?;
    // SAFETY: the caller's promise.
    unsafe { memory::give(out, "out", TREES.put(tree)) }
}

/// The tree of all workers of a session; worker w is node w + 1.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_tree_of(session: *mut syncline_session, out: *mut *mut syncline_tree) -> syncline_status {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { give(out, || Ok(SESSIONS.get(session)?.tree()?)) })
}

/// A tree of one node, which needs nobody.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_tree_null(out: *mut *mut syncline_tree) -> syncline_status {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { give(out, || Ok(Tree::null())) })
}

/// Nodes of one host that know a number in common, `key`; 0 is the process id of their parent.
///
/// # Safety
/// `options` is NULL or can be read; `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_tree_localhost(
    node: u32,
    nodes: u32,
    key: u32,
    options: *const syncline_tree_options,
    out: *mut *mut syncline_tree,
) -> syncline_status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let options = unsafe { understood(options) }?;
        // SAFETY: the caller's promise.
        unsafe { give(out, || Ok(Tree::localhost(node, nodes, Some(key).filter(|key| *key != 0), &options)?)) }
    })
}

/// Nodes that were all told where node 1 listens. The others reach this node at `host` and `port`.
///
/// # Safety
/// `host` and `root_host` are texts; `options` is NULL or can be read; `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_tree_static(
    node: u32,
    nodes: u32,
    host: *const c_char,
    port: u16,
    root_host: *const c_char,
    root_port: u16,
    options: *const syncline_tree_options,
    out: *mut *mut syncline_tree,
) -> syncline_status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let (host, root, options) =
            unsafe { (memory::needed_text(host, "host")?, memory::needed_text(root_host, "root_host")?, understood(options)?) };
        // SAFETY: the caller's promise.
        unsafe { give(out, || Ok(Tree::fixed(node, nodes, (host, port), (root, root_port), &options)?)) }
    })
}

/// The tasks of this Slurm step. They meet through PMI, or through a file in `folder`; NULL is the default folder.
///
/// # Safety
/// `folder` is NULL or a text; `options` is NULL or can be read; `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_tree_slurm(
    folder: *const c_char,
    tasks_per_gpu: u32,
    options: *const syncline_tree_options,
    out: *mut *mut syncline_tree,
) -> syncline_status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let (folder, options) = unsafe { (memory::text(folder, "folder")?, understood(options)?) };
        // SAFETY: the caller's promise.
        unsafe { give(out, || Ok(Tree::slurm(folder.map(Path::new), tasks_per_gpu, &options)?)) }
    })
}

/// This node's number from 1, how many nodes there are, and which GPU of its host is this node's, from 1, 0 where nobody
/// tells.
///
/// # Safety
/// The three are NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_tree_where(tree: *mut syncline_tree, node: *mut u32, nodes: *mut u32, gpu: *mut u32) -> syncline_status {
    guarded(|| {
        let tree = TREES.get(tree)?;
        // SAFETY: the caller's promise.
        unsafe {
            memory::give_if(node, "node", tree.node())?;
            memory::give_if(nodes, "nodes", tree.nodes())?;
            memory::give_if(gpu, "gpu", tree.gpu().unwrap_or(0))
        }
    })
}

/// Runs one call on the operations below the tree; None for a tree of one that has none.
fn on<T>(tree: &Tree, call: impl FnOnce(&Collectives, How<'_>) -> Result<T, syncline::collective::Error>) -> Result<Option<T>, Failure> {
    tree.collectives().map(|below| call_as(tree.timeout(), |how| call(below, how))).transpose().map_err(Failure::from)
}

fn position(tree: &Tree, node: u32) -> Result<usize, Failure> {
    if (1..=tree.nodes()).contains(&node) {
        return Ok(node as usize - 1);
    }
    Err(Failure::argument(format!("there is no node {node}: they are numbered from 1 to {}", tree.nodes())))
}

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
        let mut failed = None;
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
                failed = Some(outcome);
                return Err(Error::of_function("all_reduce", format!("the function returned {outcome}")));
            }
            Value::tensor(dtype, shape, numbers).map_err(|error| Error::of_function("all_reduce", error.to_string()))
        };
        let leaf = array_value(dtype, count, data)?;
        let folded = call_as(tree.timeout(), |how| tree.fold_leaves(vec![leaf], "an array", &mut merged, true, how));
        let (leaves, had) = folded.map_err(|error| match failed {
            Some(outcome) => {
                Failure::new(syncline_status::SYNCLINE_CALLER, format!("all_reduce: the caller's function returned {outcome}"))
            }
            None => Failure::from(error),
        })?;
        match leaves.first() {
            Some(Value::Tensor(result)) if result.data().len() == data.len() => data.copy_from_slice(result.data()),
            _ => return Err(Failure::bug("all_reduce gave back no array of the same length")),
        }
        // SAFETY: the caller's promise.
        unsafe { memory::give_if(contributors, "contributors", had) }
    })
}

fn array_value(dtype: DType, count: usize, data: &[u8]) -> Result<Value<'static>, Failure> {
    let shape = Shape::new(&[count]).map_err(|error| Failure::argument(error.to_string()))?;
    Value::tensor(dtype, shape, data.to_vec()).map_err(|error| Failure::argument(error.to_string()))
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
        let root = position(&tree, root)?;
        // SAFETY: the caller's promise.
        let data = unsafe { memory::numbers_mut(data, count, dtype, "data") }?;
        on(&tree, |below, how| below.broadcast(data, dtype, root, how)).map(drop)
    })
}

/// Puts what came from each node, in order of node, into `out`; all must have sent as much as this node did.
fn laid_out(all: &[Vec<u8>], each: usize, out: &mut [u8]) -> Result<(), Failure> {
    if let Some((index, odd)) = all.iter().enumerate().find(|(_, part)| part.len() != each) {
        return Err(Failure::shape(format!("node {} sent {} bytes, and this node {each}", index + 1, odd.len())));
    }
    if out.len() != each * all.len() {
        return Err(Failure::shape(format!(
            "out has room for {} bytes, and {} came from {} nodes",
            out.len(),
            each * all.len(),
            all.len()
        )));
    }
    out.chunks_exact_mut(each.max(1)).zip(all).for_each(|(place, part)| place.copy_from_slice(part));
    Ok(())
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
        let root = position(&tree, root)?;
        let here = root as u32 + 1 == tree.node();
        // SAFETY: the caller's promise; where the result does not go, nothing is asked of `out`.
        let (mine, out) = unsafe {
            let mine = memory::numbers(mine, count, dtype, "mine")?;
            (mine, memory::numbers_mut(out, if here { room } else { 0 }, dtype, "out")?)
        };
        match on(&tree, |below, how| below.gather(mine, root, how))? {
            None => laid_out(&[mine.to_vec()], mine.len(), out),
            Some(Some(all)) => laid_out(&all, mine.len(), out),
            Some(None) => Ok(()),
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
        let all = on(&tree, |below, how| below.all_gather(mine, how))?.unwrap_or_else(|| vec![mine.to_vec()]);
        laid_out(&all, mine.len(), out)
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
        let parts: Vec<&[u8]> = (0..tree.nodes() as usize).map(|node| &data[node * each..][..each]).collect();
        let received = on(&tree, |below, how| below.all_to_all(&parts, how))?.unwrap_or_else(|| vec![data.to_vec()]);
        laid_out(&received, each, out)
    })
}

/// Returns when every node has called it.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_tree_barrier(tree: *mut syncline_tree) -> syncline_status {
    guarded(|| {
        let tree = TREES.get(tree)?;
        Ok(call_as(tree.timeout(), |how| tree.barrier_at(how))?)
    })
}

/// Leaves the tree's job, if it has one of its own, and frees the tree.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_tree_close(tree: *mut syncline_tree) -> syncline_status {
    guarded(|| {
        let tree: Arc<Tree> = TREES.take(tree)?;
        Ok(tree.close()?)
    })
}

//! Trees: nodes, numbered from 1, that combine what they have. All of them make the same calls in the same order.
//!
//! Arrays travel as other languages' do, so that the ranks of a job may be written in any.

pub mod arrays;

pub mod background;

pub mod nested;

use std::ffi::{c_char, c_int, c_void};
use std::path::Path;
use std::sync::Arc;

use syncline::collective::{Collectives, How};
use syncline::{Tree, TreeOptions};

use crate::border::{call_as, guarded, interrupted};
use crate::failure::{Failure, syncline_status};
use crate::handles::Handles;
use crate::memory;
use crate::session::{SESSIONS, syncline_session};

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

/// The tree of all workers of a session; worker w is node w + 1.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_tree_of(session: *mut syncline_session, out: *mut *mut syncline_tree) -> syncline_status {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { TREES.give(out, || Ok(SESSIONS.get(session)?.tree()?)) })
}

/// A tree of one node, which needs nobody.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_tree_null(out: *mut *mut syncline_tree) -> syncline_status {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { TREES.give(out, || Ok(Tree::null())) })
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
        unsafe { TREES.give(out, || Ok(Tree::localhost(node, nodes, Some(key).filter(|key| *key != 0), &options)?)) }
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
        unsafe { TREES.give(out, || Ok(Tree::fixed(node, nodes, (host, port), (root, root_port), &options)?)) }
    })
}

/// Tells the others where node 1 is; not 0 fails the call.
pub type syncline_publish = Option<unsafe extern "C" fn(host: *const c_char, port: u16, user: *mut c_void) -> c_int>;

/// Writes where node 1 is into `host`, which has room for `room` bytes, and `port`, and returns 1; or 0 if nobody has told yet,
/// and is asked again; less than 0 fails the call.
pub type syncline_query = Option<unsafe extern "C" fn(host: *mut c_char, room: usize, port: *mut u16, user: *mut c_void) -> c_int>;

/// Nodes whose program has a place to leave an address: node 1 takes a port at `host` (`port` 0: a free one) and calls
/// `publish` once, the others call `query` until it answers. Each node needs only its own of the two.
///
/// # Safety
/// `host` is a text; `publish` and `query` can be called with `user`; `options` is NULL or can be read; `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_tree_discovered(
    node: u32,
    nodes: u32,
    host: *const c_char,
    port: u16,
    publish: syncline_publish,
    query: syncline_query,
    user: *mut c_void,
    options: *const syncline_tree_options,
    out: *mut *mut syncline_tree,
) -> syncline_status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let (host, options) = unsafe { (memory::needed_text(host, "host")?, understood(options)?) };
        if nodes > 1 && if node == 1 { publish.is_none() } else { query.is_none() } {
            return Err(Failure::argument(if node == 1 { "publish is NULL on node 1" } else { "query is NULL" }));
        }
        let failed = std::cell::Cell::new(None);
        let publish = |host: &str, port: u16| {
            let Some((publish, host)) = publish.zip(std::ffi::CString::new(host).ok()) else { return Ok(()) };
            // SAFETY: the caller's promise; the text lives until it returns.
            let code = unsafe { publish(host.as_ptr(), port, user) };
            failed.set((code != 0).then(|| Failure::of_caller("publish", code)));
            if code == 0 { Ok(()) } else { Err(format!("publish returned {code}")) }
        };
        let query = || {
            let (mut host, mut port) = ([0 as c_char; 256], 0);
            // SAFETY: the caller's promise; both are here until it returns.
            let code = query.map_or(0, |query| unsafe { query(host.as_mut_ptr(), host.len() - 1, &raw mut port, user) });
            if code < 0 {
                failed.set(Some(Failure::of_caller("query", code)));
                return Some((String::new(), 0)); // an answer, so that nobody asks again
            }
            // SAFETY: the last byte of `host` is zero, since the function was told of one less.
            let host = unsafe { std::ffi::CStr::from_ptr(host.as_ptr()) };
            (code > 0).then(|| (host.to_string_lossy().into_owned(), port))
        };
        let make = || {
            let tree = Tree::discovered(node, nodes, (host, port), publish, query, &options);
            failed.take().map_or_else(|| Ok(tree?), Err)
        };
        // SAFETY: the caller's promise.
        unsafe { TREES.give(out, make) }
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
        unsafe { TREES.give(out, || Ok(Tree::slurm(folder.map(Path::new), tasks_per_gpu, &options)?)) }
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

/// What this node exchanged with another over links, which inside a host nobody does.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct syncline_exchange {
    /// The other node, from 1.
    node: u32,
    /// Bytes sent to it.
    bytes_sent: u64,
    /// Bytes received from it.
    bytes_received: u64,
    /// Messages sent to it.
    calls_sent: u64,
    /// Messages received from it.
    calls_received: u64,
    /// Seconds spent in sending to it.
    seconds_sending: f64,
    /// Seconds spent in receiving from it.
    seconds_receiving: f64,
}

/// What went over links so far, one entry per node that there is a link to, as far as there is `room`; tells how many there are.
///
/// # Safety
/// `out` has room for `room` entries; `count` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_tree_stats(
    tree: *mut syncline_tree,
    out: *mut syncline_exchange,
    room: usize,
    count: *mut usize,
) -> syncline_status {
    guarded(|| {
        let tree = TREES.get(tree)?;
        // SAFETY: the caller's promise.
        let places = unsafe { memory::values_mut(out, room, "out") }?;
        let links = tree.net_stats();
        let ranks = tree.collectives().map(|below| below.group().ranks().to_vec()).unwrap_or_default();
        for (place, link) in places.iter_mut().zip(&links) {
            *place = syncline_exchange {
                node: ranks.iter().position(|rank| *rank == link.peer).map_or(0, |position| position as u32 + 1),
                bytes_sent: link.bytes_sent,
                bytes_received: link.bytes_received,
                calls_sent: link.calls_sent,
                calls_received: link.calls_received,
                seconds_sending: link.sending.as_secs_f64(),
                seconds_receiving: link.receiving.as_secs_f64(),
            };
        }
        // SAFETY: the caller's promise.
        unsafe { memory::give_if(count, "count", links.len()) }
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

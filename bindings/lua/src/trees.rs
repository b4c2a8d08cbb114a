//! Trees, as the Lua side calls them: it walks nested tables, and hands over leaves.

use std::cell::RefCell;
use std::path::PathBuf;

use mlua::{Function, Lua, Table, UserData, UserDataRef, Value as LuaValue};
use syncline::collective::{How, Leaf, PlanSettings};
use syncline::{Error, Tree, TreeOptions, Value};
use syncline_tensor::Shape;

use crate::arguments::{Whole, kind};
use crate::interrupt::{deadline, pressed};
use crate::job;
use crate::numbers::Numbers;
use crate::reply::{Failure, shaped};
use crate::tables::op_of;
use crate::values::{from_lua, opened, presented, to_lua};

pub(crate) struct Kept(Tree);

impl UserData for Kept {}

type Given = UserDataRef<Kept>;

/// A node's number, or how many there are.
type Node = Whole<u32>;
type Port = Whole<u16>;

/// What the constructors take beside their own: branches at a node, and seconds to wait.
fn options(base: Option<Whole<u32>>, timeout: Option<f64>) -> Result<TreeOptions, Failure> {
    let mut plan = PlanSettings::default();
    if let Some(Whole(base)) = base {
        if base < 2 {
            return Err(Failure::argument(format!("base {base} is no number of branches; use 2 or more")));
        }
        plan.base = base;
    }
    Ok(TreeOptions { plan, timeout: timeout.map(job::seconds_from).transpose()?, interrupted: Some(pressed) })
}

pub(crate) fn null(_: &Lua, (): ()) -> Result<Kept, Failure> {
    Ok(Kept(Tree::null()))
}

/// The tree of the job's workers.
pub(crate) fn of_job(_: &Lua, (): ()) -> Result<Kept, Failure> {
    Ok(Kept(job::current("tree")?.tree()?))
}

pub(crate) fn localhost(
    _: &Lua,
    (Whole(node), Whole(nodes), key, base, timeout): (Node, Node, Option<Node>, Option<Node>, Option<f64>),
) -> Result<Kept, Failure> {
    Ok(Kept(Tree::localhost(node, nodes, key.map(|Whole(key)| key), &options(base, timeout)?)?))
}

pub(crate) fn fixed(
    _: &Lua,
    (Whole(node), Whole(nodes), host, Whole(port), root_host, Whole(root_port), timeout): (
        Node,
        Node,
        String,
        Port,
        String,
        Port,
        Option<f64>,
    ),
) -> Result<Kept, Failure> {
    Ok(Kept(Tree::fixed(node, nodes, (&host, port), (&root_host, root_port), &options(None, timeout)?)?))
}

/// `publish(host, port)` and `query()` are functions of Lua's; what they raise is what the caller sees.
pub(crate) fn discovered(
    _: &Lua,
    (Whole(node), Whole(nodes), host, Whole(port), publish, query, base, timeout): (
        Node,
        Node,
        String,
        Port,
        Function,
        Function,
        Option<Node>,
        Option<f64>,
    ),
) -> Result<Kept, Failure> {
    let raised = RefCell::new(None);
    let publish = |host: &str, port: u16| {
        publish.call::<()>((host, port)).map_err(|error| {
            let words = error.to_string();
            raised.replace(Some(error));
            words
        })
    };
    let query = || match query.call::<(Option<String>, Option<Whole<u16>>)>(()) {
        Ok((host, port)) => host.zip(port.map(|Whole(port)| port)),
        Err(error) => {
            raised.replace(Some(error));
            Some((String::new(), 0)) // an answer, so that nobody asks again
        }
    };
    let tree = Tree::discovered(node, nodes, (&host, port), publish, query, &options(base, timeout)?);
    match raised.into_inner() {
        Some(error) => Err(Failure::raised(&error)),
        None => Ok(Kept(tree?)),
    }
}

pub(crate) fn slurm(_: &Lua, (folder, Whole(tasks_per_gpu)): (Option<String>, Whole<u32>)) -> Result<Kept, Failure> {
    let folder = folder.map(PathBuf::from);
    Ok(Kept(Tree::slurm(folder.as_deref(), tasks_per_gpu, &options(None, None)?)?))
}

pub(crate) fn place(_: &Lua, kept: Given) -> Result<(u32, u32, Option<u32>), Failure> {
    Ok((kept.0.node(), kept.0.nodes(), kept.0.gpu()))
}

fn how<'a>(tree: &Tree, site: &'a str) -> How<'a> {
    How { site, by: deadline(tree.timeout()) }
}

/// Combines tensors where they lie by an operation with a name; `names` are their places in the structure.
pub(crate) fn all_reduce(
    lua: &Lua,
    (kept, tensors, names, op, contributes, site): (Given, Vec<LuaValue>, Vec<String>, String, bool, String),
) -> Result<u32, Failure> {
    let op = op_of(&op)?;
    let mut numbers = Vec::with_capacity(tensors.len());
    for (tensor, name) in tensors.iter().zip(&names) {
        let opened = opened(lua, tensor)?;
        numbers.push(opened.ok_or_else(|| Failure::shape(format!("`{name}` is a {}, which has no {op:?}", kind(tensor))))?);
    }
    lend_all(&numbers, Vec::new(), &mut |slices| {
        let mut leaves: Vec<Leaf<'_>> = Vec::with_capacity(slices.len());
        for ((bytes, one), name) in slices.drain(..).zip(&numbers).zip(&names) {
            leaves.push(Leaf { name, dtype: one.dtype, shape: one.shape.clone(), bytes });
        }
        Ok(kept.0.all_reduce_leaves(&mut leaves, op, contributes, how(&kept.0, &site))?)
    })
}

/// What is done with the memory of several tensors at once.
type WithMemory<'f, T> = dyn FnMut(&mut Vec<&mut [u8]>) -> Result<T, Failure> + 'f;

/// Calls `f` with the memory of all `numbers` at once.
fn lend_all<T>(numbers: &[Numbers], mut lent: Vec<&mut [u8]>, f: &mut WithMemory<'_, T>) -> Result<T, Failure> {
    match numbers.split_first() {
        None => f(&mut lent),
        Some((first, rest)) => first.write(|bytes| {
            let mut lent: Vec<&mut [u8]> = std::mem::take(&mut lent);
            lent.push(bytes);
            lend_all(rest, lent, f)
        }),
    }
}

/// Combines leaves of any kind by a function of Lua's: `reduce(mine, received)` once per leaf and child.
pub(crate) fn fold(
    lua: &Lua,
    (kept, leaves, count, structure, reduce, contributes, site): (Given, Table, usize, String, Function, bool, String),
) -> Result<(Table, u32), Failure> {
    let values = (1..=count).map(|index| leaf_from(lua, &leaves.raw_get(index)?)).collect::<Result<Vec<_>, Failure>>()?;
    let mut raised: Option<Failure> = None;
    let mut merge = |mine: Value<'static>, received: Value<'static>| {
        merged(lua, &reduce, mine, received).map_err(|failure| {
            let error = Error::of_function("allReduce", failure.text());
            raised = Some(failure);
            error
        })
    };
    let folded = kept.0.fold_leaves(values, &structure, &mut merge, contributes, how(&kept.0, &site));
    let (folded, contributors) = match (folded, raised) {
        (_, Some(failure)) => return Err(failure),
        (folded, None) => folded?,
    };
    let results = lua.create_table_with_capacity(folded.len(), 0)?;
    for (index, leaf) in folded.into_iter().enumerate() {
        results.raw_set(index + 1, to_lua(lua, leaf)?)?;
    }
    Ok((results, contributors))
}

/// A leaf as it travels: all numbers alike, since a node may have 1 where another has 1.5.
fn leaf_from(lua: &Lua, leaf: &LuaValue) -> Result<Value<'static>, Failure> {
    match leaf {
        LuaValue::Integer(number) => Ok(Value::Float(*number as f64)),
        other => from_lua(lua, other, "allReduce"),
    }
}

/// A nil result keeps mine, which the function may have changed in place.
fn merged(lua: &Lua, reduce: &Function, mine: Value<'static>, received: Value<'static>) -> Result<Value<'static>, Failure> {
    let (mine, received) = (to_lua(lua, mine)?, to_lua(lua, received)?);
    match reduce.call::<LuaValue>((&mine, received))? {
        LuaValue::Nil => leaf_from(lua, &mine),
        result => leaf_from(lua, &result),
    }
}

/// Gives everybody the value of node `root`.
pub(crate) fn broadcast(lua: &Lua, (kept, value, Whole(root), site): (Given, LuaValue, Whole<u32>, String)) -> Result<LuaValue, Failure> {
    let value = if root == kept.0.node() { from_lua(lua, &value, "scatter")? } else { Value::Nil };
    to_lua(lua, kept.0.broadcast_value(&value, root, how(&kept.0, &site))?)
}

/// Everybody's values at node `root`, a table by node; nil elsewhere.
pub(crate) fn gather(lua: &Lua, (kept, value, Whole(root), site): (Given, LuaValue, Whole<u32>, String)) -> Result<LuaValue, Failure> {
    let value = from_lua(lua, &value, "gather")?;
    match kept.0.gather_value(&value, root, how(&kept.0, &site))? {
        Some(all) => to_lua(lua, Value::List(all)),
        None => Ok(LuaValue::Nil),
    }
}

/// Everybody's values, a table by node.
pub(crate) fn all_gather(lua: &Lua, (kept, value, site): (Given, LuaValue, String)) -> Result<LuaValue, Failure> {
    let value = from_lua(lua, &value, "allGather")?;
    to_lua(lua, Value::List(kept.0.all_gather_value(&value, how(&kept.0, &site))?))
}

/// Sends item i of `parts` to node i, and returns what each node sent here.
pub(crate) fn all_to_all(lua: &Lua, (kept, parts, site): (Given, Vec<LuaValue>, String)) -> Result<LuaValue, Failure> {
    let parts = parts.iter().map(|part| from_lua(lua, part, "allToAll")).collect::<Result<Vec<_>, _>>()?;
    to_lua(lua, Value::List(kept.0.all_to_all_value(&parts, how(&kept.0, &site))?))
}

/// Combines a tensor over all nodes and returns this node's equal part of its numbers; the first nodes take the remainder.
pub(crate) fn reduce_scatter(lua: &Lua, (kept, tensor, op, site): (Given, LuaValue, String, String)) -> Result<LuaValue, Failure> {
    let op = op_of(&op)?;
    let numbers = opened(lua, &tensor)?;
    let numbers = numbers.ok_or_else(|| Failure::shape(format!("reduceScatter: a {} is no tensor", kind(&tensor))))?;
    let part = numbers.read(|bytes| match kept.0.collectives() {
        None => Ok(bytes.to_vec()),
        Some(below) => Ok(below.reduce_scatter(bytes, numbers.dtype, op, how(&kept.0, &site)).map_err(Error::from)?),
    })?;
    let shape = shaped(Shape::new(&[part.len() / numbers.dtype.size()]))?;
    presented(lua, Numbers::of_bytes(numbers.dtype, shape, &part)?)
}

pub(crate) fn barrier(_: &Lua, (kept, site): (Given, String)) -> Result<(), Failure> {
    Ok(kept.0.barrier_at(how(&kept.0, &site))?)
}

/// What went over links, by node.
pub(crate) fn net_stats(lua: &Lua, kept: Given) -> Result<Table, Failure> {
    let group = kept.0.collectives().map(|below| below.group().ranks().to_vec()).unwrap_or_default();
    let stats = lua.create_table()?;
    for link in kept.0.net_stats() {
        let node = group.iter().position(|rank| *rank == link.peer).map_or(0, |position| position + 1);
        let both = lua.create_table()?;
        for (way, bytes, calls, time) in [
            ("tx", link.bytes_sent, link.calls_sent, link.sending.as_secs_f64()),
            ("rx", link.bytes_received, link.calls_received, link.receiving.as_secs_f64()),
        ] {
            let facts = lua.create_table()?;
            facts.set("num_bytes", bytes)?;
            facts.set("num_calls", calls)?;
            facts.set("total_seconds", time)?;
            both.set(way, facts)?;
        }
        stats.set(node, both)?;
    }
    Ok(stats)
}

/// Leaves the job, if it is the tree's own.
pub(crate) fn close(_: &Lua, kept: Given) -> Result<(), Failure> {
    Ok(kept.0.close()?)
}

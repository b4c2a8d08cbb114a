//! The collectives of a job and a group: which call's turn it is, and by which way it goes.

mod pending;
#[cfg(test)]
mod suite;
mod turn;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use syncline_cluster::{Deadline, Error, Group, Job, Vigil};
use syncline_tensor::DType;
use syncline_tensor::kernels::ReduceOp;
use syncline_wire::Fingerprint;

use crate::call::{Call, Failure, What, out_of_step};
use crate::hosts::{Hosts, by_host};
use crate::letters::Letters;
use crate::links::{Ledger, Mesh, joined};
use crate::memory::{Memory, Reduction};
use crate::plan::cost::Figures;
use crate::plan::host_tree;
use crate::{How, Leaf, LinkReport, OwnedLeaf, PlanName, PlanSettings, leaves};

use pending::Background;
pub use pending::Pending;
pub(crate) use pending::Promise;
use turn::{Ticket, Turn};

/// What [`Collectives::fold`] merges messages with: one's own and a child's become one.
pub type Merge<'a> = dyn FnMut(Vec<u8>, Vec<u8>) -> Result<Vec<u8>, Error> + 'a;

/// The collective operations of one group. All its members make the same calls in the same order.
///
/// Positions are places in the group, from 0. Clones are handles on the same group; calls of several threads run in
/// the order in which they were issued. A job has one of these for each group.
///
/// Members whose calls differ (in operation, dtype, size, root or order) all get the same `ContractMismatch`, which names two
/// of them with both call sites, before anything was changed, and the next call finds all in step. After any other
/// error an array is a mixture. After a timeout, an interrupt or a death this rank is out of step with the others, and its
/// later calls fail with the same error.
#[derive(Clone)]
pub struct Collectives {
    shared: Arc<Shared>,
}

struct Shared {
    job: Arc<Job>,
    vigil: Vigil,
    group: Group,
    /// Positions by host, as far as that keeps the order: what the tree of a fold is made of. It follows from where the ranks
    /// sit and not from how they reach each other, so that a function's results do not depend on the transport.
    rows: Vec<Vec<usize>>,
    turn: Turn,
    state: Mutex<State>,
    /// What left this rank out of step with the others.
    astray: Mutex<Option<Error>>,
    background: Background,
    letters: Letters,
    /// What went over links: between all, and between the leaders of hosts.
    ledgers: Vec<Arc<Ledger>>,
}

struct State {
    way: Way,
    /// The links, of which none is open before a call needs it.
    mesh: Mesh,
    /// Calls that began.
    calls: u64,
}

/// How the members reach each other.
enum Way {
    /// Nobody else is there.
    Alone,
    /// By memory that they share, in which this rank's place is made with the first call.
    Memory(Option<Box<Memory>>),
    /// Those of a host by memory, and hosts by their leaders.
    Hosts(Box<Hosts<Memory>>),
    /// By links, because they share none or because a plan that needs them was asked for.
    Links,
}

impl Collectives {
    /// The collectives of `group`, a group of `job`. Nothing is exchanged before the first call.
    pub fn new(job: Arc<Job>, group: Group, settings: PlanSettings) -> Collectives {
        let hosts: Vec<Vec<u32>> = job.topology().hosts().iter().map(|host| host.ranks.clone()).collect();
        let neighbourhoods = job.neighbourhoods();
        Collectives::among(job, group, settings, &hosts, &neighbourhoods)
    }

    /// The same where ranks sit on `hosts`, and those of each of `neighbourhoods` share memory.
    fn among(job: Arc<Job>, group: Group, settings: PlanSettings, hosts: &[Vec<u32>], neighbourhoods: &[Vec<u32>]) -> Collectives {
        let together = |ranks: &Vec<u32>| group.ranks().iter().all(|rank| ranks.contains(rank));
        let free = matches!(settings.forced, None | Some(PlanName::Memory | PlanName::Hosts));
        let way = match group.len() {
            1 => Way::Alone,
            _ if free && neighbourhoods.iter().any(together) => Way::Memory(None),
            _ if free && Hosts::<Memory>::suit(&group, neighbourhoods) => {
                Way::Hosts(Box::new(Hosts::new(&job.vigil(), &group, neighbourhoods, &settings)))
            }
            _ => Way::Links,
        };
        let mesh = Mesh::new(job.vigil(), group.clone(), "all", settings);
        let mut ledgers = vec![mesh.ledger()];
        if let Way::Hosts(hosts) = &way {
            ledgers.extend(hosts.ledger());
        }
        let shared = Shared {
            vigil: job.vigil(),
            rows: host_tree::rows(by_host(&group, hosts)),
            letters: Letters::new(job.vigil(), group.clone()),
            job,
            group,
            turn: Turn::default(),
            ledgers,
            state: Mutex::new(State { way, mesh, calls: 0 }),
            astray: Mutex::default(),
            background: Background::default(),
        };
        Collectives { shared: Arc::new(shared) }
    }

    /// Who takes part.
    pub fn group(&self) -> &Group {
        &self.shared.group
    }

    /// Combines `array` over all members, in place and in group order; returns how many contributed.
    ///
    /// Who does not contribute brings zeros of its own making, is not counted and gets the result all the same. A mean is the
    /// sum over the number of contributors, or the sum itself where there are none.
    pub fn all_reduce(&self, array: &mut [u8], dtype: DType, op: ReduceOp, contributes: bool, how: How<'_>) -> Result<u32, Error> {
        let shared = &*self.shared;
        shared.vigil.usable("all_reduce")?;
        whole("all_reduce", array, dtype)?;
        shared.all_reduce(shared.turn.ticket(), array, dtype, op, contributes, how)
    }

    /// [`all_reduce`](Collectives::all_reduce) of several arrays at once: the contract covers all of them.
    pub fn all_reduce_leaves(&self, leaves: &mut [Leaf<'_>], op: ReduceOp, contributes: bool, how: How<'_>) -> Result<u32, Error> {
        self.shared.vigil.usable("all_reduce")?;
        leaves::check(leaves)?;
        self.shared.all_reduce_leaves(self.shared.turn.ticket(), leaves, op, contributes, how)
    }

    /// Combines `array` over all members into the array of `root`; the others' stay as they are.
    pub fn reduce(&self, array: &mut [u8], dtype: DType, op: ReduceOp, root: usize, how: How<'_>) -> Result<(), Error> {
        whole("reduce", array, dtype)?;
        self.has_root("reduce", root)?;
        let keep = self.shared.group.position() == root;
        let what = What::Reduce { dtype, op, count: array.len() / dtype.size(), root };
        self.shared.run(what, true, how, |way, call| match way {
            Reached::Alone => Ok(()),
            Reached::Memory(memory) => memory.reduce(call, array, Reduction { dtype, op }, keep).map(drop),
            Reached::Hosts(hosts, _) => hosts.reduce(array, dtype, op, root, call),
            Reached::Links(mesh) => mesh.reduce(array, dtype, op, root, call),
        })
    }

    /// Makes everybody's `array` that of `root`.
    pub fn broadcast(&self, array: &mut [u8], dtype: DType, root: usize, how: How<'_>) -> Result<(), Error> {
        whole("broadcast", array, dtype)?;
        self.has_root("broadcast", root)?;
        let what = What::Broadcast { dtype, count: array.len() / dtype.size(), root };
        self.shared.run(what, true, how, |way, call| match way {
            Reached::Alone => Ok(()),
            Reached::Memory(memory) => memory.broadcast(call, array, root),
            Reached::Hosts(hosts, _) => hosts.broadcast(array, root, call),
            Reached::Links(mesh) => mesh.broadcast(array, root, call),
        })
    }

    /// Hands `root`'s message to everybody. Only the root brings one, of any length.
    pub fn broadcast_message(&self, message: Option<&[u8]>, root: usize, how: How<'_>) -> Result<Vec<u8>, Error> {
        self.has_root("broadcast", root)?;
        self.root_brings("broadcast", "a message", message.is_some(), root)?;
        self.shared.run(What::BroadcastMessage { root }, true, how, |way, call| match way {
            Reached::Alone => Ok(message.unwrap_or_default().to_vec()),
            Reached::Memory(memory) => memory.broadcast_message(call, message.unwrap_or_default(), root),
            Reached::Hosts(hosts, _) => hosts.broadcast_message(message.unwrap_or_default(), root, call),
            Reached::Links(mesh) => mesh.broadcast_message(message, root, call),
        })
    }

    /// Collects everybody's bytes, of any lengths, at `root`, by position; None elsewhere.
    pub fn gather(&self, mine: &[u8], root: usize, how: How<'_>) -> Result<Option<Vec<Vec<u8>>>, Error> {
        self.has_root("gather", root)?;
        let want = self.shared.group.position() == root;
        self.shared.run(What::Gather { root }, true, how, |way, call| match way {
            Reached::Alone => Ok(Some(vec![mine.to_vec()])),
            Reached::Memory(memory) => memory.gather(call, mine, want),
            Reached::Hosts(hosts, mesh) => hosts.then_links(call, mesh)?.gather(mine, root, call),
            Reached::Links(mesh) => mesh.gather(mine, root, call),
        })
    }

    /// Collects everybody's bytes, of any lengths, by position.
    pub fn all_gather(&self, mine: &[u8], how: How<'_>) -> Result<Vec<Vec<u8>>, Error> {
        self.shared.run(What::AllGather, true, how, |way, call| match way {
            Reached::Alone => Ok(vec![mine.to_vec()]),
            Reached::Memory(memory) => Ok(memory.gather(call, mine, true)?.expect("everybody wants them")),
            Reached::Hosts(hosts, mesh) => hosts.then_links(call, mesh)?.all_gather(mine, call),
            Reached::Links(mesh) => mesh.all_gather(mine, call),
        })
    }

    /// Gives each member its part of what `root` brings: one per position, of any lengths.
    pub fn scatter(&self, parts: Option<&[&[u8]]>, root: usize, how: How<'_>) -> Result<Vec<u8>, Error> {
        self.has_root("scatter", root)?;
        self.root_brings("scatter", "parts", parts.is_some(), root)?;
        let parts = parts.filter(|_| self.shared.group.position() == root);
        parts.map_or(Ok(()), |parts| self.one_for_each("scatter", parts))?;
        self.shared.run(What::Scatter { root }, true, how, |way, call| match way {
            Reached::Alone => Ok(parts.map_or_else(Vec::new, |parts| parts[0].to_vec())),
            Reached::Memory(memory) => memory.scatter(call, parts, root),
            Reached::Hosts(hosts, mesh) => hosts.then_links(call, mesh)?.scatter(parts, root, call),
            Reached::Links(mesh) => mesh.scatter(parts, root, call),
        })
    }

    /// Combines `array` over all members and returns this position's part; the first positions take the remainder.
    pub fn reduce_scatter(&self, array: &[u8], dtype: DType, op: ReduceOp, how: How<'_>) -> Result<Vec<u8>, Error> {
        whole("reduce_scatter", array, dtype)?;
        let what = What::ReduceScatter { dtype, op, count: array.len() / dtype.size() };
        self.shared.run(what, true, how, |way, call| match way {
            Reached::Alone => Ok(array.to_vec()),
            Reached::Memory(memory) => memory.reduce_scatter(call, array, Reduction { dtype, op }),
            Reached::Hosts(hosts, mesh) => hosts.then_links(call, mesh)?.reduce_scatter(array, dtype, op, call),
            Reached::Links(mesh) => mesh.reduce_scatter(array, dtype, op, call),
        })
    }

    /// Sends part p to position p, and returns what each position sent here.
    pub fn all_to_all(&self, parts: &[&[u8]], how: How<'_>) -> Result<Vec<Vec<u8>>, Error> {
        self.one_for_each("all_to_all", parts)?;
        self.shared.run(What::AllToAll, true, how, |way, call| match way {
            Reached::Alone => Ok(vec![parts[0].to_vec()]),
            Reached::Memory(memory) => memory.all_to_all(call, parts),
            Reached::Hosts(hosts, mesh) => hosts.then_links(call, mesh)?.all_to_all(parts, call),
            Reached::Links(mesh) => mesh.all_to_all(parts, call),
        })
    }

    /// Returns when every member has called it.
    pub fn barrier(&self, how: How<'_>) -> Result<(), Error> {
        self.shared.run(What::Barrier, true, how, |way, call| match way {
            Reached::Alone => Ok(()),
            Reached::Memory(memory) => memory.roll_call(call).map(drop),
            Reached::Hosts(hosts, _) => hosts.barrier(call),
            Reached::Links(mesh) => mesh.barrier(call),
        })
    }

    /// Folds messages along a tree: `merge(mine, received)` once per child, children in ascending order; the root's message
    /// goes to all. Returns it with the number of contributors.
    ///
    /// Members of a host merge among themselves, then the first of each host, so a message passes once each way between hosts;
    /// contributions are merged in group order. How they associate follows from the base and from who sits where, and not from the
    /// transport. Where the members of hosts interleave the tree takes no notice of hosts, to keep the order.
    pub fn fold(
        &self,
        mine: Vec<u8>,
        words: &str,
        fingerprint: Fingerprint,
        contributes: bool,
        merge: &mut Merge<'_>,
        how: How<'_>,
    ) -> Result<(Vec<u8>, u32), Error> {
        self.shared.vigil.usable("all_reduce")?;
        self.shared.fold(self.shared.turn.ticket(), mine, What::Fold { words, fingerprint }, contributes, merge, how)
    }

    /// Begins a [`fold`](Collectives::fold) that runs, with its function, while the caller does something else.
    pub fn fold_start(
        &self,
        mine: Vec<u8>,
        words: String,
        fingerprint: Fingerprint,
        contributes: bool,
        mut merge: impl FnMut(Vec<u8>, Vec<u8>) -> Result<Vec<u8>, Error> + Send + 'static,
        how: How<'_>,
    ) -> Pending<Vec<u8>> {
        self.start(mine, Ok(()), how, move |shared, ticket, message, how| {
            let what = What::Fold { words: &words, fingerprint };
            let (folded, contributors) = shared.fold(ticket, std::mem::take(message), what, contributes, &mut merge, how)?;
            *message = folded;
            Ok(contributors)
        })
    }

    /// Begins an [`all_reduce`](Collectives::all_reduce) that runs while the caller does something else.
    ///
    /// Its place among the calls of this rank is that of this one. The deadline counts from here.
    pub fn all_reduce_start<B: AsMut<[u8]> + Send + 'static>(
        &self,
        mut array: B,
        dtype: DType,
        op: ReduceOp,
        contributes: bool,
        how: How<'_>,
    ) -> Pending<B> {
        let checked = whole("all_reduce", array.as_mut(), dtype);
        self.start(array, checked, how, move |shared, ticket, array, how| {
            shared.all_reduce(ticket, array.as_mut(), dtype, op, contributes, how)
        })
    }

    /// Begins an [`all_reduce_leaves`](Collectives::all_reduce_leaves) that runs while the caller does something else.
    pub fn all_reduce_leaves_start<B: AsMut<[u8]> + Send + 'static>(
        &self,
        mut arrays: Vec<OwnedLeaf<B>>,
        op: ReduceOp,
        contributes: bool,
        how: How<'_>,
    ) -> Pending<Vec<OwnedLeaf<B>>> {
        let checked = leaves::check(&leaves::borrowed(&mut arrays));
        self.start(arrays, checked, how, move |shared, ticket, arrays, how| {
            shared.all_reduce_leaves(ticket, &mut leaves::borrowed(arrays), op, contributes, how)
        })
    }

    /// Gives a call its place among the others and lets it run in the background, unless it was refused already.
    fn start<B: Send + 'static>(
        &self,
        mut arrays: B,
        checked: Result<(), Error>,
        how: How<'_>,
        call: impl FnOnce(&Shared, Ticket, &mut B, How<'_>) -> Result<u32, Error> + Send + 'static,
    ) -> Pending<B> {
        let (pending, promise) = Pending::new();
        let shared = Arc::clone(&self.shared);
        let usable = shared.vigil.usable("all_reduce").and(checked);
        let tasks = match usable.and_then(|()| shared.background.tasks()) {
            Ok(tasks) => tasks,
            Err(error) => {
                promise.fulfil(Err(error));
                return pending;
            }
        };
        let (ticket, site) = (shared.turn.ticket(), how.site.to_owned());
        // Interrupts belong to the thread that waits: the user's.
        let by = how.by.instant().map_or(Deadline::never(), Deadline::at);
        let task = move || {
            let result = call(&shared, ticket, &mut arrays, How { site: &site, by });
            drop(shared);
            promise.fulfil(result.map(|contributors| (arrays, contributors)));
        };
        // The thread ends only after the last handle is gone, and this is one.
        let _ = tasks.send(Box::new(task));
        pending
    }

    /// Begins to send `array` to position `to`, outside of the calls that all make; it comes back once the link has all of it.
    ///
    /// Letters of one `tag` from one member to another keep their order. Nobody else takes part.
    pub fn send_start<B: AsMut<[u8]> + Send + 'static>(&self, array: B, to: usize, tag: u64, by: Deadline) -> Pending<B> {
        self.shared.letters.send_start(array, to, tag, by)
    }

    /// Awaits a letter with this `tag` from a position, or from anybody. The number beside its bytes is the sender's position.
    pub fn recv_start(&self, from: Option<usize>, tag: u64, by: Deadline) -> Pending<Vec<u8>> {
        self.shared.letters.recv_start(from, tag, by)
    }

    /// Waits until all calls that were issued before are over.
    pub fn flush(&self, by: Deadline) -> Result<(), Error> {
        self.shared.turn.wait(self.shared.turn.ticket(), "flush", by).map(drop)
    }

    /// What went over links, one report per peer. Inside a host nothing does.
    pub fn stats(&self) -> Vec<LinkReport> {
        joined(self.shared.ledgers.iter().flat_map(|ledger| ledger.reports()))
    }

    /// What the slowest link of the group costs, by which plans are chosen: the same on all members. None before a call over
    /// links had a choice of plans.
    pub fn figures(&self) -> Option<Figures> {
        self.shared.ledgers.iter().find_map(|ledger| ledger.figures())
    }

    fn has_root(&self, operation: &str, root: usize) -> Result<(), Error> {
        let members = self.shared.group.len();
        if root < members {
            return Ok(());
        }
        Err(Error::Configuration { detail: format!("{operation}: position {root} is no root in a group of {members}") })
    }

    fn root_brings(&self, operation: &str, what: &str, brings: bool, root: usize) -> Result<(), Error> {
        if brings || self.shared.group.position() != root {
            return Ok(());
        }
        Err(Error::Configuration {
            detail: format!("{operation}: position {root} is the root and brings no {}", what.trim_start_matches("a ")),
        })
    }

    fn one_for_each(&self, operation: &str, parts: &[&[u8]]) -> Result<(), Error> {
        let members = self.shared.group.len();
        if parts.len() == members {
            return Ok(());
        }
        let detail = format!("{} parts for a group of {members}: there must be one for each", parts.len());
        Err(Error::ShapeMismatch { operation: operation.into(), detail })
    }
}

/// A way that is open.
enum Reached<'a> {
    Alone,
    Memory(&'a mut Memory),
    /// With the links between all.
    Hosts(&'a mut Hosts<Memory>, &'a mut Mesh),
    Links(&'a mut Mesh),
}

/// A way that is open, for those who go over links too.
enum Reachable<'a> {
    Alone,
    Memory(&'a mut Memory),
    Hosts(&'a mut Hosts<Memory>),
    Links,
}

impl Shared {
    /// One call in its turn.
    #[inline]
    fn run<T>(
        &self,
        what: What<'_>,
        contributes: bool,
        how: How<'_>,
        body: impl FnOnce(Reached<'_>, &Call<'_>) -> Result<T, Failure>,
    ) -> Result<T, Error> {
        self.vigil.usable(what.name())?;
        self.run_with(self.turn.ticket(), what, contributes, how, body)
    }

    #[inline]
    fn run_with<T>(
        &self,
        ticket: Ticket,
        what: What<'_>,
        contributes: bool,
        how: How<'_>,
        body: impl FnOnce(Reached<'_>, &Call<'_>) -> Result<T, Failure>,
    ) -> Result<T, Error> {
        self.run_on(ticket, what, contributes, how, |way, mesh, call| match way {
            Reachable::Alone => body(Reached::Alone, call),
            Reachable::Memory(memory) => body(Reached::Memory(memory), call),
            // All have seen that they mean the same call, so all of them leave the hosts' way or none does.
            Reachable::Hosts(hosts) if hosts.would_shuffle(&call.what) => body(Reached::Links(hosts.then_links(call, mesh)?), call),
            Reachable::Hosts(hosts) => body(Reached::Hosts(hosts, mesh), call),
            Reachable::Links => body(Reached::Links(mesh), call),
        })
    }

    #[inline]
    fn run_on<T>(
        &self,
        ticket: Ticket,
        what: What<'_>,
        contributes: bool,
        how: How<'_>,
        body: impl FnOnce(Reachable<'_>, &mut Mesh, &Call<'_>) -> Result<T, Failure>,
    ) -> Result<T, Error> {
        let started = Instant::now();
        let _turn = self.turn.wait(ticket, what.name(), how.by).inspect_err(|error| self.stray(error))?;
        if let Some(first) = &*self.lock_astray() {
            return Err(out_of_step(what.name(), first));
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State { way, mesh, calls } = &mut *state;
        let way = match way {
            Way::Alone => Reachable::Alone,
            Way::Memory(Some(memory)) => Reachable::Memory(memory),
            Way::Memory(place) => Reachable::Memory(place.insert(Box::new(Memory::open(&self.job, &self.group, how.by)?))),
            Way::Hosts(hosts) => {
                hosts.settle(|here| Memory::open(&self.job, here, how.by))?;
                Reachable::Hosts(hosts)
            }
            Way::Links => Reachable::Links,
        };
        let call = Call { number: *calls, what, site: how.site, by: how.by, started, contributes };
        *calls += 1;
        match body(way, mesh, &call) {
            Ok(result) => Ok(result),
            Err(Failure::Agreed(error)) => Err(error),
            Err(Failure::Astray(error)) => {
                self.stray(&error);
                Err(error)
            }
        }
    }

    fn all_reduce(
        &self,
        ticket: Ticket,
        array: &mut [u8],
        dtype: DType,
        op: ReduceOp,
        contributes: bool,
        how: How<'_>,
    ) -> Result<u32, Error> {
        let what = What::AllReduce { dtype, op, count: array.len() / dtype.size() };
        self.run_with(ticket, what, contributes, how, |way, call| match way {
            Reached::Alone => Ok(u32::from(contributes)),
            Reached::Memory(memory) => memory.reduce(call, array, Reduction { dtype, op }, true),
            Reached::Hosts(hosts, _) => hosts.all_reduce(array, dtype, op, call),
            Reached::Links(mesh) => mesh.all_reduce(array, dtype, op, call),
        })
    }

    fn all_reduce_leaves(
        &self,
        ticket: Ticket,
        leaves: &mut [Leaf<'_>],
        op: ReduceOp,
        contributes: bool,
        how: How<'_>,
    ) -> Result<u32, Error> {
        // A lone array without a structure around it is a plain one: a Rust program's slice may meet another language's array.
        if let [Leaf { name: "", dtype, shape, bytes }] = leaves
            && shape.axes() == 1
        {
            return self.all_reduce(ticket, bytes, *dtype, op, contributes, how);
        }
        let structure = leaves::structure(leaves);
        let what = What::AllReduceLeaves { op, leaves: &structure };
        self.run_with(ticket, what, contributes, how, |way, call| match way {
            Reached::Alone => Ok(u32::from(contributes)),
            // A lone array needs nobody's count first, and one meeting is cheaper than two.
            Reached::Memory(memory) if leaves.len() == 1 => {
                memory.reduce(call, leaves[0].bytes, Reduction { dtype: leaves[0].dtype, op }, true)
            }
            Reached::Links(mesh) if leaves.len() == 1 => mesh.all_reduce(leaves[0].bytes, leaves[0].dtype, op, call),
            Reached::Memory(memory) => {
                let contributors = memory.roll_call(call)?;
                leaves::for_each_batch(leaves, |dtype, bytes| memory.reduce_more(call, contributors, bytes, Reduction { dtype, op }))?;
                Ok(contributors)
            }
            Reached::Hosts(hosts, _) => {
                let contributors = hosts.roll_call(call)?;
                leaves::for_each_batch(leaves, |dtype, bytes| hosts.reduce_more(call, contributors, bytes, dtype, op))?;
                Ok(contributors)
            }
            Reached::Links(mesh) => {
                let contributors = mesh.roll_call(call)?;
                leaves::for_each_batch(leaves, |dtype, bytes| mesh.reduce_more(call, contributors, bytes, dtype, op))?;
                Ok(contributors)
            }
        })
    }

    fn fold(
        &self,
        ticket: Ticket,
        mine: Vec<u8>,
        what: What<'_>,
        contributes: bool,
        merge: &mut Merge<'_>,
        how: How<'_>,
    ) -> Result<(Vec<u8>, u32), Error> {
        self.run_on(ticket, what, contributes, how, |way, mesh, call| {
            // Messages go over links also inside a host; that all mean the same call is seen where their other calls are.
            let contributors = match way {
                Reachable::Alone => return Ok((mine, u32::from(contributes))),
                Reachable::Memory(memory) => memory.roll_call(call)?,
                Reachable::Hosts(hosts) => hosts.roll_call(call)?,
                Reachable::Links => mesh.roll_call(call)?,
            };
            Ok((mesh.fold(mine, merge, &self.rows, call)?, contributors))
        })
    }

    /// Remembers the first failure that left this rank out of step.
    #[cold]
    fn stray(&self, error: &Error) {
        self.lock_astray().get_or_insert_with(|| error.clone());
    }

    #[inline]
    fn lock_astray(&self) -> MutexGuard<'_, Option<Error>> {
        self.astray.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether `array` is a whole number of `dtype`.
#[inline]
fn whole(operation: &str, array: &[u8], dtype: DType) -> Result<(), Error> {
    if array.len().is_multiple_of(dtype.size()) {
        return Ok(());
    }
    let detail = format!("{} bytes are no whole number of {dtype}", array.len());
    Err(Error::ShapeMismatch { operation: operation.into(), detail })
}

impl std::fmt::Debug for Collectives {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Collectives({:?} of {:?}", self.shared.group.ranks(), self.shared.job)?;
        if let Some(figures) = self.figures() {
            write!(f, ", {figures}")?;
        }
        f.write_str(")")
    }
}

//! A process's place in its job, as users hold it.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use syncline_cluster::{Deadline, Group, Job, Lane, Role, Topology};
use syncline_collective::{Aggregates, Collectives, PlanSettings};
use syncline_ipc::Family;
use syncline_kvstore::{Kind, Member};
use syncline_table::{SharedArray, Spec, Table, Tables};
use syncline_tensor::DType;
use syncline_tensor::kernels::ReduceOp;
use syncline_transport::{Link, LinkError};

use crate::kvstore::KvStore;
use crate::{Config, Error};

/// The door to everything: who I am, who else is there, and the operations on what we share.
///
/// A session may be used from many threads. Dropping it without [`shutdown`](Session::shutdown) tells the others that
/// this process failed; a process that dies needs not even do that.
#[derive(Debug)]
pub struct Session {
    job: Arc<Job>,
    tables: Tables,
    sync: bool,
    plan: PlanSettings,
    /// By group: the calls of one are counted together, whoever makes them.
    collectives: Mutex<HashMap<Group, Collectives>>,
    aggregates: Aggregates,
    /// Distributed stores, in the order in which all workers make them.
    stores: Mutex<Vec<syncline_kvstore::KvStore>>,
    stores_made: AtomicU32,
    whole_below: u64,
    /// What this process shares with the other ranks of its host, once it was asked for.
    family: OnceLock<Family>,
}

impl Session {
    /// Joins the job that `config` describes and returns when everybody is there.
    ///
    /// # Errors
    /// `Timeout` when somebody does not come, saying who came and how the others were expected to start; `PeerLost`
    /// when somebody dies meanwhile; `Auth` when the token is not the job's; `Configuration` when the settings or the
    /// launcher's variables make no sense.
    pub fn open(config: Config) -> Result<Session, Error> {
        let deadline = Deadline::after(config.settings.timeout);
        Session::open_by(config, deadline)
    }

    /// [`open`](Session::open) with a deadline of the caller's.
    pub fn open_by(config: Config, deadline: Deadline) -> Result<Session, Error> {
        let job = Arc::new(Job::join(&config.launch, &config.settings, deadline)?);
        let tables = Tables::new(Arc::clone(&job));
        Ok(Session {
            tables,
            job,
            sync: config.sync,
            plan: config.plan,
            collectives: Mutex::default(),
            aggregates: Aggregates::default(),
            stores: Mutex::default(),
            stores_made: AtomicU32::new(0),
            whole_below: config.whole_below,
            family: OnceLock::new(),
        })
    }

    /// Coordinates the job that `config` describes without being a rank of it, until everybody has left: what a DMLC
    /// scheduler does.
    pub fn coordinate(config: &Config) -> Result<(), Error> {
        Ok(syncline_cluster::coordinate(&config.launch, &config.settings, Deadline::after(config.settings.timeout))?)
    }

    /// A world of one: this process is worker and server, with no threads, sockets or shared memory.
    pub fn solo() -> Result<Session, Error> {
        Session::open(Config::solo())
    }

    /// This process's number, from 0.
    pub fn rank(&self) -> u32 {
        self.job.rank()
    }

    /// How many processes the job has.
    pub fn size(&self) -> u32 {
        self.job.world()
    }

    /// This process's number among those of its host.
    pub fn local_rank(&self) -> u32 {
        self.topology().local_rank(self.rank())
    }

    /// How many processes of the job share this host.
    pub fn local_size(&self) -> u32 {
        let topology = self.topology();
        topology.hosts()[topology.host_of(self.rank())].ranks.len() as u32
    }

    /// How many processes train.
    pub fn num_workers(&self) -> u32 {
        self.topology().workers().len() as u32
    }

    /// How many processes hold shards.
    pub fn num_servers(&self) -> u32 {
        self.topology().servers().len() as u32
    }

    /// This process's number among the workers, in order of rank; none on a dedicated server.
    pub fn worker_id(&self) -> Option<u32> {
        position(&self.topology().workers(), self.rank())
    }

    /// This process's number among the servers, in order of rank; none on a pure worker.
    pub fn server_id(&self) -> Option<u32> {
        position(&self.topology().servers(), self.rank())
    }

    /// Whether this is worker 0, whose initial values count.
    pub fn is_master_worker(&self) -> bool {
        self.worker_id() == Some(0)
    }

    /// What this process does in the job.
    pub fn role(&self) -> Role {
        self.job.role()
    }

    /// Who sits where.
    pub fn topology(&self) -> &Topology {
        self.job.topology()
    }

    /// How long a call waits for somebody who neither comes nor dies.
    pub fn timeout(&self) -> Duration {
        self.job.timeout()
    }

    /// Whether tables are in sync mode unless they say otherwise.
    pub fn sync(&self) -> bool {
        self.sync
    }

    /// What started this process, in a word.
    pub fn launcher(&self) -> &'static str {
        self.job.launcher().name()
    }

    /// Returns when every rank has called it. Every add issued before it by anyone is applied before anyone leaves it.
    ///
    /// ```
    /// let session = syncline::Session::solo()?;
    /// session.barrier()?; // nobody else to wait for
    /// # Ok::<(), syncline::Error>(())
    /// ```
    pub fn barrier(&self) -> Result<(), Error> {
        self.barrier_by(Deadline::after(self.timeout()))
    }

    /// [`barrier`](Session::barrier) with a deadline of the caller's.
    pub fn barrier_by(&self, deadline: Deadline) -> Result<(), Error> {
        self.flush_stores(deadline)?;
        self.tables.flush(deadline)?;
        self.job.barrier(deadline)?;
        Ok(self.tables.settle_losses(deadline)?)
    }

    /// Makes a table: every worker calls this in the same order with the same `spec`, and worker 0's `initial` counts.
    ///
    /// Typed tables are made through this too.
    #[track_caller]
    pub fn create_table(&self, spec: Spec, initial: Option<&[u8]>) -> Result<Table, Error> {
        let site = std::panic::Location::caller().to_string();
        self.create_table_at(spec, initial, &site, Deadline::after(self.timeout()))
    }

    /// [`create_table`](Session::create_table) for a caller that knows better where the user's call stands.
    pub fn create_table_at(&self, spec: Spec, initial: Option<&[u8]>, site: &str, deadline: Deadline) -> Result<Table, Error> {
        Ok(self.tables.create(spec, initial, site, deadline)?)
    }

    /// The tables below the typed ones, where tables are made by name and rules are set.
    #[doc(hidden)]
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// A key-value store in the manner of MXNet's, by the name of its type; local ones need no session, see [`KvStore::local`](crate::kvstore::KvStore::local).
    ///
    /// Every worker makes the same distributed stores in the same order.
    /// ```
    /// use syncline::kvstore::Tensor;
    ///
    /// let session = syncline::Session::solo()?;
    /// let store = session.kvstore("dist_sync")?;
    /// store.init("w", &Tensor::from_slice(&[2], &[0.0f32; 2])?)?;
    /// store.push("w", &Tensor::from_slice(&[2], &[1.0f32, 2.0])?)?;
    /// assert_eq!(store.pull("w")?.as_slice::<f32>()?, [1.0, 2.0]); // a sum over one worker
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn kvstore(&self, kind: &str) -> Result<KvStore, Error> {
        let site = std::panic::Location::caller().to_string();
        self.kvstore_at(kind, &site, Deadline::after(self.timeout()))
    }

    /// [`kvstore`](Session::kvstore) for a caller that knows better where the user's call stands.
    pub fn kvstore_at(&self, kind: &str, site: &str, deadline: Deadline) -> Result<KvStore, Error> {
        let kind = Kind::from_name(kind)?;
        if !kind.is_distributed() {
            return KvStore::local(kind.name());
        }
        let collectives = self.collectives()?;
        let number = self.stores_made.fetch_add(1, Relaxed) + 1;
        let member = Member { job: Arc::clone(&self.job), tables: self.tables.clone(), collectives, number, whole_below: self.whole_below };
        let store = syncline_kvstore::KvStore::distributed(kind, member, site, deadline)?;
        self.stores.lock().unwrap_or_else(PoisonError::into_inner).push(store.clone());
        Ok(KvStore::over(store, self.timeout()))
    }

    /// Returns when what stores do in the background has ended.
    fn flush_stores(&self, deadline: Deadline) -> Result<(), Error> {
        let stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok(stores.iter().try_for_each(|store| store.flush(deadline))?)
    }

    /// Saves all tables with their updater states below `path`. Every worker calls it.
    ///
    /// A crash while saving leaves the previous checkpoint as it was.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        self.save_by(path, Deadline::after(self.timeout()))
    }

    /// [`save`](Session::save) with a deadline of the caller's.
    pub fn save_by(&self, path: impl AsRef<Path>, deadline: Deadline) -> Result<(), Error> {
        Ok(self.tables.save(path.as_ref(), deadline)?)
    }

    /// Fills the tables, made before in the same manner, from a checkpoint of any number of workers and servers.
    pub fn load(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        self.load_by(path, Deadline::after(self.timeout()))
    }

    /// [`load`](Session::load) with a deadline of the caller's.
    pub fn load_by(&self, path: impl AsRef<Path>, deadline: Deadline) -> Result<(), Error> {
        Ok(self.tables.load(path.as_ref(), deadline)?)
    }

    /// Combines raw bytes of `dtype` over all workers, in place and in order of worker; no server takes part.
    pub fn aggregate_bytes(&self, array: &mut [u8], dtype: DType, op: ReduceOp, deadline: Deadline) -> Result<(), Error> {
        Ok(self.aggregates.run(&self.job, array, dtype, op, deadline)?)
    }

    /// An array of `bytes` zero bytes that tables take as it is, where others are copied before they count.
    ///
    /// An async or bounded add of it, as a whole table, is applied when the call returns.
    /// ```
    /// let session = syncline::Session::solo()?;
    /// let table = session.array::<f32>(4).create()?;
    /// let mut delta = session.empty_shared(16)?;
    /// bytemuck::cast_slice_mut(delta.bytes_mut()).fill(0.5f32);
    /// table.add(bytemuck::cast_slice(delta.bytes()))?;
    /// assert_eq!(table.get()?, [0.5; 4]);
    /// # Ok::<(), syncline::Error>(())
    /// ```
    pub fn empty_shared(&self, bytes: usize) -> Result<SharedArray, Error> {
        Ok(self.tables.empty_shared(bytes)?)
    }

    /// The group of `ranks`, in this order, of which this process must be one. All members build it from the same list.
    pub fn group(&self, ranks: &[u32]) -> Result<Group, Error> {
        Ok(self.job.group(ranks)?)
    }

    /// The family of this host's ranks: channels, queues, mutexes and tables that are made in it are shared by them, and a queue
    /// is found by its name.
    ///
    /// ```
    /// use syncline::Session;
    /// use syncline::ipc::Workqueue;
    ///
    /// let session = Session::solo()?;
    /// let (queue, created) = Workqueue::named(&session.family()?, "work")?;
    /// assert!(created);
    /// # drop(queue);
    /// # Ok::<(), syncline::Error>(())
    /// ```
    pub fn family(&self) -> Result<Family, Error> {
        if let Some(family) = self.family.get() {
            return Ok(family.clone());
        }
        // Two threads that come here at once both join, and one of them leaves again.
        let joined = Family::of_job(&self.job)?;
        Ok(self.family.get_or_init(|| joined).clone())
    }

    /// The collective operations of all workers, on raw bytes. A dedicated server takes no part in them.
    pub fn collectives(&self) -> Result<Collectives, Error> {
        if !self.role().works() {
            return Err(Error::configuration("a dedicated server takes no part in collective operations; its workers do"));
        }
        Ok(self.collectives_of(&self.group(&self.topology().workers())?))
    }

    /// The collective operations of `group`, which count their calls apart; handles on the same group are alike.
    pub fn collectives_of(&self, group: &Group) -> Collectives {
        let mut known = self.collectives.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = || Collectives::new(Arc::clone(&self.job), group.clone(), self.plan.clone());
        known.entry(group.clone()).or_insert_with(fresh).clone()
    }

    /// Returns when every member of `group` has called it; the others take no part.
    pub fn group_barrier(&self, group: &Group) -> Result<(), Error> {
        Ok(self.job.group_barrier(group, Deadline::after(self.timeout()))?)
    }

    /// A link of one's own with `peer`, for measurements and extensions. Both sides must ask for it.
    pub fn link(&self, peer: u32, lane: Lane, deadline: Deadline) -> Result<Link, Error> {
        Ok(self.job.link(peer, lane, deadline)?)
    }

    /// Names the culprit when a frame of an operation of one's own, begun at `started`, failed on a link with `peer`.
    pub fn link_failed(&self, operation: &str, peer: u32, started: Instant, error: &LinkError) -> Error {
        self.job.link_failed(operation, peer, started, error).into()
    }

    /// Leaves the job politely. Calls after it fail with `Closed`; a second shutdown does nothing.
    ///
    /// A process that the others need (rank 0 under launchers other than `syncline run`) stays until they have left.
    pub fn shutdown(&self) -> Result<(), Error> {
        self.shutdown_by(Deadline::never())
    }

    /// [`shutdown`](Session::shutdown) with a deadline of the caller's.
    pub fn shutdown_by(&self, deadline: Deadline) -> Result<(), Error> {
        // Whatever a flush cannot do any more is lost with a lost peer, which the leaving itself will tell of.
        let finished = self.flush_stores(deadline).and(self.tables.finish(deadline).map_err(Error::from));
        let groups: Vec<Collectives> = self.collectives.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        let finished = finished.and(groups.iter().try_for_each(|group| group.flush(deadline)).map_err(Error::from));
        self.job.leave(deadline)?;
        finished
    }

    /// Stays until every worker has left or died: what a dedicated server does.
    pub fn stay_for_workers(&self, deadline: Deadline) -> Result<(), Error> {
        Ok(self.job.stay_for_workers(deadline)?)
    }

    /// Whether every other rank has left or died.
    pub fn others_are_over(&self) -> bool {
        let vigil = self.job.vigil();
        (0..self.size()).all(|rank| rank == self.rank() || vigil.is_over(rank))
    }

    /// Tells the others that this process fails, and why, so that they hear it from itself.
    pub fn abort(&self, reason: &str) {
        self.job.abort(reason);
    }
}

fn position(ranks: &[u32], rank: u32) -> Option<u32> {
    ranks.iter().position(|other| *other == rank).map(|index| index as u32)
}

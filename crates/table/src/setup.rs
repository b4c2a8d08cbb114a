//! How a table comes into being: all workers agree, neighbours map the same memory, worker 0's value goes in.
//!
//! ```text
//!  worker                       coordinator                 dedicated server
//!    agree: table 3 is …  ─────▶ compares  ─────────────────▶ hears of it
//!    first server of each host claims the store, every owner its outboxes; the others wait until they find them
//!    worker 0 writes the initial value
//!    agree: table 3 is ready ──▶ compares
//! ```

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use syncline_cluster::{Deadline, Error, Job, Role};
use syncline_shm::bulletin::Bulletin;
use syncline_shm::outbox::Outbox;
use syncline_shm::store::Store;
use syncline_tensor::DType;
use syncline_wire::Fingerprint;
use syncline_wire::codec::{decode_message, encode_message};

use crate::gradient::board;
use crate::ground::Ground;
use crate::keys::KeyShare;
use crate::named::check_initial;
use crate::partition::{Home, homes, placed};
use crate::share::{LocalShare, Place, Share, bytes_ahead, lanes};
use crate::spread::{Form, Layout, Places, Reach, Service, Spread, Watch};
use crate::table::Inner;
use crate::tables::Shared;
use crate::together::Together;
use crate::way::Way;
use crate::{Consistency, Shape, Spec, Table, Updater};

/// Tables up to this size take all their memory when they are made (about a second per GiB); larger ones, which are
/// often sparse, take it row by row.
const TOUCHED_AHEAD: usize = 1 << 30;
/// The longest specification: a name and a few numbers.
const MOST_SPEC: usize = 16 << 10;

pub(crate) fn create(tables: &Shared, number: u32, spec: Spec, initial: Option<&[u8]>, site: &str, by: Deadline) -> Result<Table, Error> {
    let (job, ground) = (&tables.job, &tables.ground);
    let worker = working(ground)?;
    let name = spec.name.clone().unwrap_or_else(|| format!("table {number}"));
    let payload = encode_message("table", &(number, &spec, ground.gone()), MOST_SPEC)
        .map_err(|error| Error::Configuration { detail: format!("{spec}: {error}\nhint: a shorter name") })?;
    let agreed = job.agree(&format!("table {number}: {spec}"), fingerprint(number, &spec), site, &payload, by)?;
    tables.numbered.store(number + 1, Relaxed); // Its number is used from here on, whatever becomes of it: keys of memory hang on it.
    // Who is gone is what the lowest worker says, and who left before all had come, of which everybody heard before the outcome: everybody
    // must divide the work among the same ranks.
    let (_, _, gone) = decode_message::<(u32, Spec, Vec<u32>)>("table", &agreed.payload, MOST_SPEC)
        .map_err(|error| Error::ContractMismatch { operation: format!("making table `{name}`"), detail: error.to_string() })?;
    let made = Made { number, name, spec, by_name: false, gone: ground.and_left(gone) };
    let together = Together { job, what: format!("making table `{}`", made.name), site, by };
    // A wrong value is this worker's failure in making the table, of which the others hear; they find its memory all the same.
    let sound = check_initial(&made.spec, initial);
    let opened = made.open_with(tables, worker, initial.filter(|_| sound.is_ok()), by).and_then(|opened| sound.map(|()| opened));
    let failed = opened.is_err();
    let agreed = together.agree("ready", &[], opened);
    // A worker that was only interrupted, or waited too long, does not know: the others may have agreed.
    if failed || matches!(agreed, Err(Error::ContractMismatch { .. } | Error::System { .. })) {
        // Nobody uses this memory. It stays claimed, since an agreement fails as soon as two workers differ: a third may still be on its way here,
        // and would wait for memory that nobody shares any more. The number is not used again.
        (0..=ground.workers.len() as u64).for_each(|part| ground.heap.empty([memory_key(number), part]));
    }
    let ((table, settled), _) = agreed?;
    if let Some(share) = settled.needed_by_others(ground) {
        tables.needed.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(share);
    }
    settled.map_ahead();
    Ok(table)
}

/// Under which key the memory of a table is claimed: its store as part 0, then the outboxes.
fn memory_key(number: u32) -> u64 {
    u64::from(number) + 1
}

/// This process's number as a worker.
pub(crate) fn working(ground: &Ground) -> Result<u32, Error> {
    ground.worker().ok_or_else(|| Error::Configuration { detail: "a dedicated server makes no tables; its workers do".into() })
}

fn fingerprint(number: u32, spec: &Spec) -> Fingerprint {
    let shape = match spec.shape {
        Shape::Array { size } => vec![size as usize],
        Shape::Matrix { rows, cols } => vec![rows as usize, cols as usize],
        Shape::Keys => vec![0, 0, 0],
    };
    Fingerprint::of("table").name(&format!("{number} {spec}")).dtype(spec.dtype()).shape(&shape).finish()
}

/// A table that was agreed on.
#[derive(Clone)]
pub(crate) struct Made {
    pub(crate) number: u32,
    pub(crate) name: String,
    pub(crate) spec: Spec,
    /// Worker 0 makes it and waits for nobody's call: one process of each neighbourhood claims all memory there.
    pub(crate) by_name: bool,
    /// Ranks that left or died before: they keep nothing of it, and no clock waits for them.
    pub(crate) gone: Vec<u32>,
}

/// What this process keeps of a table.
pub(crate) struct Settled {
    spec: Spec,
    places: Arc<Places>,
    gone: Vec<u32>,
    layout: Layout,
    reach: Arc<dyn Reach>,
    /// The share that this process has in memory, and its number.
    share: Option<(usize, Arc<dyn Share>)>,
    local: Option<Arc<LocalShare>>,
    keys: Option<Arc<KeyShare>>,
}

impl Made {
    /// This worker's end of the table, with worker 0's initial value in it.
    fn open_with(&self, tables: &Shared, worker: u32, initial: Option<&[u8]>, by: Deadline) -> Result<(Table, Settled), Error> {
        let settled = self.settle_in(&tables.ground, by)?;
        let table = settled.open(self, tables, worker, by)?;
        let workers = &tables.ground.workers;
        let first = workers.iter().position(|rank| !self.gone.contains(rank));
        if let Some(initial) = initial.filter(|_| Some(worker as usize) == first) {
            table.inner.way.set_initial(initial, &self.spec, workers.len() as u32, by)?;
        }
        Ok((table, settled))
    }

    /// Makes or finds what this process keeps of the table, and begins to serve those who reach it over links.
    pub(crate) fn settle_in(&self, ground: &Ground, by: Deadline) -> Result<Settled, Error> {
        let reach: Arc<dyn Reach> = Arc::new(ground.vigil.clone());
        let workers = &ground.workers;
        let servers: Vec<u32> = ground.servers.iter().copied().filter(|rank| !self.gone.contains(rank)).collect();
        if servers.is_empty() {
            return Err(ground.vigil.explain(
                &format!("making table `{}`", self.name),
                &self.gone,
                Instant::now(),
                "nobody is left to keep it",
            ));
        }
        let gone_workers = || (0..).zip(workers).filter(|(_, rank)| self.gone.contains(rank)).map(|(worker, _)| worker);
        let table = fingerprint(self.number, &self.spec);
        let title = format!("table `{}`", self.name);
        let places = |servers: Vec<Vec<u32>>| Arc::new(Places { table, name: title.clone(), servers, workers: workers.clone() });
        let settled = match self.spec.rows_and_cols() {
            Some((rows, _)) => {
                let grain = if self.by_name { self.spec.grain() } else { 1 };
                let homes = homes(rows, grain, &ground.neighbourhoods, |rank| servers.contains(&rank));
                let homes = placed(homes, self.spec.placement, rows);
                let index = homes.iter().position(|home| home.ranks.contains(&ground.me()));
                let local = index.map(|index| map_share(ground, self, &homes[index], by)).transpose()?;
                Settled {
                    spec: self.spec.clone(),
                    gone: self.gone.clone(),
                    layout: Layout::Ranges(homes.iter().map(|home| home.rows.clone()).collect()),
                    places: places(homes.into_iter().map(|home| home.servers).collect()),
                    share: index.zip(local.clone().map(|share| share as Arc<dyn Share>)),
                    local,
                    keys: None,
                    reach,
                }
            }
            None => {
                let index = servers.iter().position(|rank| *rank == ground.me());
                let consistency = if workers.len() == 1 { Consistency::Async } else { self.spec.consistency };
                let make = || Arc::new(KeyShare::new(title.clone(), self.spec.dtype(), consistency, workers.clone(), Arc::clone(&reach)));
                let keys = index.map(|_| make());
                keys.iter().for_each(|share| gone_workers().for_each(|worker| share.finish(worker)));
                Settled {
                    spec: self.spec.clone(),
                    gone: self.gone.clone(),
                    layout: Layout::Hashed(servers.len()),
                    places: places(servers.iter().map(|rank| vec![*rank]).collect()),
                    share: index.zip(keys.clone().map(|share| share as Arc<dyn Share>)),
                    local: None,
                    keys,
                    reach,
                }
            }
        };
        settled.serve_others(ground)?;
        Ok(settled)
    }
}

impl Settled {
    /// Starts a thread for each worker that reaches the share here over a link with this process.
    fn serve_others(&self, ground: &Ground) -> Result<(), Error> {
        let Some((index, share)) = self.share.as_ref().filter(|(index, _)| self.places.servers[*index].contains(&ground.me())) else {
            return Ok(());
        };
        let in_memory = |rank: u32| match &self.local {
            Some(local) => local.neighbours().contains(&rank),
            None => rank == ground.me(),
        };
        for (worker, rank) in (0..).zip(&self.places.workers) {
            if in_memory(*rank) || self.places.server_of(*index, worker) != ground.me() || self.gone.contains(rank) {
                continue;
            }
            let service = Service {
                places: Arc::clone(&self.places),
                index: *index,
                share: Arc::clone(share),
                keys: self.keys.clone(),
                row_bytes: self.spec.row_bytes(),
                consistency: self.spec.consistency,
                worker,
                reach: Arc::clone(&self.reach),
                floats: self.spec.dtype() == DType::F32,
                gate: ground.gates.to(*rank),
            };
            drop(service.start()?); // It ends with the link, which ends with the worker or with this process's seat.
        }
        if self.places.servers.len() > 1 {
            let is_watched = |rank: u32| in_memory(rank) && rank != ground.me() && !self.gone.contains(&rank);
            let neighbours = (0..).zip(&self.places.workers).filter(|(_, rank)| is_watched(**rank));
            let watch = Watch {
                places: Arc::clone(&self.places),
                index: *index,
                share: Arc::clone(share),
                neighbours: neighbours.map(|(worker, _)| worker).collect(),
                me: ground.me(),
                reach: Arc::clone(&self.reach),
            };
            drop(watch.start()?);
        }
        Ok(())
    }

    /// The table as this process's worker holds it.
    pub(crate) fn open(&self, made: &Made, tables: &Shared, worker: u32, by: Deadline) -> Result<Table, Error> {
        let way = self.way(&tables.ground, worker, by)?;
        let (vigil, caretaker) = (tables.ground.vigil.clone(), Arc::clone(&tables.caretaker));
        let board = board_of(&tables.ground, &made.spec, by)?;
        let inner = Inner::new(made.number, made.name.clone(), made.spec.clone(), worker, way, vigil, caretaker, board);
        Ok(Table { inner: Arc::new(inner), priority: None })
    }

    /// Maps what one process of this neighbourhood has reserved by now.
    pub(crate) fn map_ahead(&self) {
        if let Some(share) = &self.local {
            share.map_ahead(TOUCHED_AHEAD);
        }
    }

    /// No clock waits for `worker` here any more.
    pub(crate) fn finish(&self, worker: u32) {
        if let Some((_, share)) = &self.share {
            share.finish(worker);
        }
    }

    /// The share here, if some worker reaches it only through this process.
    pub(crate) fn needed_by_others(&self, ground: &Ground) -> Option<Arc<dyn Share>> {
        let (index, share) = self.share.as_ref()?;
        let serves = self.places.servers[*index].contains(&ground.me());
        let in_memory = |rank: &u32| self.local.as_ref().is_some_and(|local| local.neighbours().contains(rank));
        let elsewhere = !self.places.workers.iter().all(in_memory);
        (serves && elsewhere).then(|| Arc::clone(share))
    }

    /// How a worker of this process reaches the table.
    fn way(&self, ground: &Ground, worker: u32, by: Deadline) -> Result<Way, Error> {
        if let (Some(local), 1) = (&self.local, self.places.servers.len()) {
            return Ok(Way::Here(Arc::clone(local)));
        }
        let mut here: Vec<Option<Arc<dyn Share>>> = vec![None; self.places.servers.len()];
        if let Some((index, share)) = &self.share {
            here[*index] = Some(Arc::clone(share));
        }
        let consistency = if ground.workers.len() == 1 { Consistency::Async } else { self.spec.consistency };
        let form = Form {
            layout: self.layout.clone(),
            row_bytes: self.spec.row_bytes(),
            everywhere: consistency != Consistency::Async || self.spec.updater == Updater::Gradient,
            lanes: lanes(&self.spec, self.places.workers.len() as u32),
        };
        let spread = Arc::new(Spread::open(Arc::clone(&self.places), worker, form, here, Arc::clone(&self.reach), &ground.gates, by)?);
        Ok(match self.spec.shape {
            Shape::Keys => Way::Keys { spread, here: self.keys.clone() },
            _ => Way::Spread(spread),
        })
    }
}

/// Where the rules of a gradient table hang on this host.
fn board_of(ground: &Ground, spec: &Spec, by: Deadline) -> Result<Option<Bulletin>, Error> {
    (spec.updater == Updater::Gradient).then(|| board(&ground.heap, spec.family(), by)).transpose()
}

fn map_share(ground: &Ground, made: &Made, home: &Home, by: Deadline) -> Result<Arc<LocalShare>, Error> {
    let workers = ground.workers.clone();
    // What a rank that is gone would have claimed falls to the first server here.
    let owner =
        |worker: u32, rank: u32| Some(home.owner(worker, rank)).filter(|owner| !made.gone.contains(owner)).unwrap_or(home.servers[0]);
    let owners: Vec<u32> = (0..).zip(&workers).map(|(worker, rank)| owner(worker, *rank)).collect();
    let mut spec = made.spec.clone();
    if workers.len() == 1 {
        spec.consistency = Consistency::Async; // One worker is always in step with itself.
    }
    let place = Place {
        title: format!("table `{}`", made.name),
        spec,
        rows: home.rows.clone(),
        workers,
        hands: home.ranks.clone(),
        owners,
        vigil: ground.vigil.clone(),
        arrays: Arc::clone(&ground.arrays),
        board: board_of(ground, &made.spec, by)?,
    };
    let key = memory_key(made.number);
    let operation = format!("making {}", place.title);
    let refused = |error: syncline_shm::segment::SegmentError| Error::System { operation: operation.clone(), detail: error.to_string() };
    let mut outboxes = Vec::new();
    let layout = place.layout();
    let maker = match made.by_name {
        true => Some(home.maker(ground.workers[0])),
        false => None,
    };
    let claims_store = maker.unwrap_or(home.servers[0]);
    let claims_outbox: Vec<u32> = place.owners.iter().map(|owner| maker.unwrap_or(*owner)).collect();
    // What others wait for comes first, all of it: they look for the rest also when one claim was refused, and hear of that afterwards.
    let claim = |owner: u32, part: u64, bytes: usize| match owner == ground.me() {
        true => ground.heap.claim([key, part], bytes).map(Some).map_err(refused),
        false => Ok(None),
    };
    let store = claim(claims_store, 0, layout.bytes());
    let mine: Vec<_> = (1..).zip(&claims_outbox).map(|(part, owner)| claim(*owner, part, place.outbox_bytes())).collect();
    let (store, mine) = (store?, mine.into_iter().collect::<Result<Vec<_>, _>>()?);
    let made_here = store.is_some();
    let store = match store {
        Some(store) => store,
        None => ground.vigil.claimed_by(&ground.heap, claims_store, [key, 0], layout.bytes(), &operation, by)?,
    };
    for (worker, segment) in (0u64..).zip(mine) {
        let segment = match segment {
            Some(segment) => segment,
            None => {
                let (owner, key) = (claims_outbox[worker as usize], [key, worker + 1]);
                ground.vigil.claimed_by(&ground.heap, owner, key, Outbox::bytes(0), &operation, by)?
            }
        };
        outboxes.push(Arc::new(Outbox::new(segment)));
    }
    let store = Store::new(store, layout);
    if made_here && bytes_ahead(store.layout()) <= TOUCHED_AHEAD {
        // A limit that is reached here is reached now, in words, and not later by a signal.
        store.reserve().map_err(refused)?;
    }
    for ((rank, owner), outbox) in place.workers.iter().zip(&place.owners).zip(&outboxes) {
        if made.gone.contains(rank) && *owner == ground.me() {
            outbox.finish();
        }
    }
    Ok(Arc::new(LocalShare::new(place, store, outboxes)))
}

/// Serves on a dedicated server: hears of every table the workers make and keeps its part of it, until they are gone.
pub(crate) fn serve(job: &Arc<Job>, ground: &Arc<Ground>) {
    debug_assert_eq!(job.role(), Role::Server);
    let (job, ground) = (Arc::clone(job), Arc::clone(ground));
    let kept = Arc::new(Mutex::new(Vec::new()));
    let body = move || {
        while let Ok(agreement) = job.next_agreement(Deadline::never()) {
            let Ok((number, spec, gone)) = decode_message::<(u32, Spec, Vec<u32>)>("table", &agreement.payload, MOST_SPEC) else {
                continue;
            };
            if spec.check().is_err() {
                continue;
            }
            let name = spec.name.clone().unwrap_or_else(|| format!("table {number}"));
            let made = Made { number, name, spec, by_name: false, gone: ground.and_left(gone) };
            let (job, ground, kept) = (Arc::clone(&job), Arc::clone(&ground), Arc::clone(&kept));
            // Beside this one: workers that failed to make a table leave it waiting for their memory, and the next table must not.
            let settle = move || match made.settle_in(&ground, Deadline::after(job.timeout())) {
                Ok(settled) => kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(settled),
                Err(error) => tracing::warn!("rank {} cannot keep table `{}`: {error}", job.rank(), made.name),
            };
            if let Err(error) = std::thread::Builder::new().name("syncline-settle".into()).spawn(settle) {
                tracing::error!("no thread to keep a table with: {error}");
            }
        }
        kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clear();
    };
    if let Err(error) = std::thread::Builder::new().name("syncline-serve".into()).spawn(body) {
        tracing::error!("no thread to serve with: {error}");
    }
}

//! How a table comes into being: all workers agree, neighbours map the same memory, worker 0's value goes in.
//!
//! ```text
//!  worker                       coordinator                 dedicated server
//!    agree: table 3 is …  ─────▶ compares  ─────────────────▶ hears of it
//!    first server of each host claims the store, every owner its outboxes; the others wait until they find them
//!    worker 0 writes the initial value
//!    agree: table 3 is ready ──▶ compares
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use syncline_cluster::{Deadline, Error, Job, Role, Vigil};
use syncline_shm::outbox::Outbox;
use syncline_shm::segment::Segment;
use syncline_shm::store::Store;
use syncline_wire::Fingerprint;
use syncline_wire::codec::{decode_message, encode_message};

use crate::partition::{Home, homes};
use crate::share::{LocalShare, Place, Share};
use crate::table::{Inner, Way};
use crate::tables::Shared;
use crate::{Consistency, Shape, Spec, Table};

/// Tables up to this size take all their memory when they are made (about a second per GiB); larger ones, which are
/// often sparse, take it row by row.
const TOUCHED_AHEAD: usize = 1 << 30;
/// The longest specification: a name and a few numbers.
const MOST_SPEC: usize = 16 << 10;

pub(crate) fn create(tables: &Shared, number: u32, spec: Spec, initial: Option<&[u8]>, site: &str, by: Deadline) -> Result<Table, Error> {
    let job = &tables.job;
    let vigil = job.vigil();
    let workers = job.topology().workers();
    let Some(worker) = workers.iter().position(|rank| *rank == job.rank()) else {
        return Err(Error::Configuration { detail: "a dedicated server makes no tables; its workers do".into() });
    };
    let name = spec.name.clone().unwrap_or_else(|| format!("table {number}"));
    let payload = encode_message("table", &(number, &spec), MOST_SPEC)
        .map_err(|error| Error::Configuration { detail: format!("{spec}: {error}\nhint: a shorter name") })?;
    job.agree(&format!("table {number}: {spec}"), fingerprint(number, &spec), site, &payload, by)?;
    let share = settle_in(job, &vigil, number, &name, &spec, by)?;
    let way = match share {
        Some(share) if share.rows() == (0..spec.rows_and_cols().map_or(0, |(rows, _)| rows)) => Way::Here(share),
        _ => return Err(Error::Configuration { detail: format!("{spec}: tables over several hosts are not here yet") }),
    };
    if worker == 0 {
        let Way::Here(share) = &way;
        if let Some(initial) = initial {
            share.set_initial(initial);
        }
    }
    job.agree(&format!("table {number} is ready"), Fingerprint::of("ready").name(&number.to_string()).finish(), site, &[], by)?;
    let inner = Inner::new(number, name, spec, worker as u32, way, job.timeout(), Arc::clone(&tables.caretaker));
    Ok(Table { inner: Arc::new(inner) })
}

fn fingerprint(number: u32, spec: &Spec) -> Fingerprint {
    let shape = match spec.shape {
        Shape::Array { size } => vec![size as usize],
        Shape::Matrix { rows, cols } => vec![rows as usize, cols as usize],
        Shape::Keys => vec![0, 0, 0],
    };
    Fingerprint::of("table").name(&format!("{number} {spec}")).dtype(spec.dtype()).shape(&shape).finish()
}

/// The share of a table in this neighbourhood, if it has one: made or found.
fn settle_in(job: &Job, vigil: &Vigil, number: u32, name: &str, spec: &Spec, by: Deadline) -> Result<Option<Arc<LocalShare>>, Error> {
    let rows = spec.rows_and_cols().map_or(0, |(rows, _)| rows);
    let topology = job.topology();
    let is_server = |rank: u32| topology.servers().contains(&rank);
    let homes = homes(rows, &job.neighbourhoods(), is_server);
    let Some(home) = homes.iter().find(|home| home.ranks.contains(&job.rank())) else { return Ok(None) };
    map_share(job, vigil, number, name, spec, home, by).map(Some)
}

fn map_share(job: &Job, vigil: &Vigil, number: u32, name: &str, spec: &Spec, home: &Home, by: Deadline) -> Result<Arc<LocalShare>, Error> {
    let workers = job.topology().workers();
    let owners: Vec<u32> = workers.iter().enumerate().map(|(worker, rank)| home.owner(worker as u32, *rank)).collect();
    let mut spec = spec.clone();
    if workers.len() == 1 {
        spec.consistency = Consistency::Async; // One worker is always in step with itself.
    }
    let place = Place {
        title: format!("table `{name}`"),
        spec,
        rows: home.rows.clone(),
        workers,
        hands: home.ranks.clone(),
        owners,
        vigil: vigil.clone(),
    };
    let key = u64::from(number) + 1;
    let refused = |error: syncline_shm::segment::SegmentError| Error::System { operation: format!("making {}", place.title), detail: error.to_string() };
    let mut outboxes = Vec::new();
    let layout = place.layout();
    // What others wait for comes first.
    let store = match home.servers[0] == job.rank() {
        true => Some(job.heap().claim([key, 0], layout.bytes()).map_err(refused)?),
        false => None,
    };
    let mine: Vec<_> = (0u64..)
        .zip(&place.owners)
        .map(|(worker, owner)| match *owner == job.rank() {
            true => job.heap().claim([key, worker + 1], place.outbox_bytes()).map(Some).map_err(refused),
            false => Ok(None),
        })
        .collect::<Result<_, _>>()?;
    let store = match store {
        Some(store) => store,
        None => find(job, vigil, &place, [key, 0], home.servers[0], layout.bytes(), by)?,
    };
    for (worker, segment) in (0u64..).zip(mine) {
        let segment = match segment {
            Some(segment) => segment,
            None => find(job, vigil, &place, [key, worker + 1], place.owners[worker as usize], Outbox::bytes(0), by)?,
        };
        outboxes.push(Arc::new(Outbox::new(segment)));
    }
    let store = Store::new(store, layout);
    if store.layout().bytes() <= TOUCHED_AHEAD {
        // A limit that is reached here is reached now, in words, and not later by a signal.
        store.reserve().map_err(refused)?;
    }
    Ok(Arc::new(LocalShare::new(place, store, outboxes)))
}

/// Waits until `owner` has claimed the memory under `key`.
fn find(job: &Job, vigil: &Vigil, place: &Place, key: [u64; 2], owner: u32, at_least: usize, by: Deadline) -> Result<Arc<Segment>, Error> {
    let started = Instant::now();
    let operation = format!("making {}", place.title);
    loop {
        if let Some(found) = job.heap().find(key) {
            let segment = found.map_err(|error| Error::System { operation: operation.clone(), detail: error.to_string() })?;
            if segment.len() < at_least {
                let detail = format!("rank {owner} made {} bytes of shared memory where {at_least} are needed", segment.len());
                return Err(Error::System { operation, detail });
            }
            return Ok(segment);
        }
        if vigil.is_over(owner) || (vigil.any_down() && !vigil.goes_on()) {
            return Err(vigil.explain(&operation, &[owner], started, "it did not share its memory"));
        }
        if by.interrupted() {
            return Err(Error::Interrupted { operation, waited: started.elapsed() });
        }
        if by.expired() {
            return Err(vigil.late(&operation, &[owner], started, " to share its memory"));
        }
        std::thread::sleep(Duration::from_micros(if started.elapsed() < Duration::from_millis(5) { 50 } else { 1000 }));
    }
}

/// Serves on a dedicated server: hears of every table the workers make and keeps its part of it, until they are gone.
pub(crate) fn serve(job: &Arc<Job>) {
    debug_assert_eq!(job.role(), Role::Server);
    let job = Arc::clone(job);
    let body = move || {
        let mut shares = Vec::new();
        while let Ok(agreement) = job.next_agreement(Deadline::never()) {
            let Ok((number, spec)) = decode_message::<(u32, Spec)>("table", &agreement.payload, MOST_SPEC) else { continue };
            if spec.check().is_err() {
                continue;
            }
            let name = spec.name.clone().unwrap_or_else(|| format!("table {number}"));
            match settle_in(&job, &job.vigil(), number, &name, &spec, Deadline::after(job.timeout())) {
                Ok(share) => shares.extend(share),
                Err(error) => tracing::warn!("rank {} cannot keep {name}: {error}", job.rank()),
            }
        }
    };
    if let Err(error) = std::thread::Builder::new().name("syncline-serve".into()).spawn(body) {
        tracing::error!("no thread to serve with: {error}");
    }
}

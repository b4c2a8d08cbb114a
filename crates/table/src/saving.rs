//! Saves and loads all tables of a job: who writes which rows, and how everybody hears of a failure.
//!
//! ```text
//!  all   flush · agree: save to PATH (the lowest worker brings the number of the generation, and who takes part)
//!  all   apply what is published · write the rows of their neighbourhood · leave a record of the file
//!  all   agree: written
//!  one   commits the manifest from the records
//!  all   agree: saved
//! ```
//! Workers write and read, also for dedicated servers; several hosts need a path they share. Rows are written by
//! workers that have them in memory where there are any. A worker that fails says so in place of its next agreement,
//! and then every worker gets an error that names it; the checkpoint on disk stays as it was.

use std::ops::Range;
use std::path::{Path, PathBuf};

use syncline_cluster::{Deadline, Error, Job};
use syncline_optimizer::Optimizer;
use syncline_wire::codec::{decode_message, encode_message};

use crate::checkpoint::{Checkpoint, Manifest, SavedLane, SavedRule, SavedTable, ShardRecord, ShardWriter, Verify, prepare, records};
use crate::partition::{homes, placed};
use crate::share::{LaneInfo, lanes};
use crate::table::Inner;
use crate::together::Together;
use crate::way::Way;
use crate::{Shape, Table};

/// The longest list of workers.
const MOST_CREW: usize = 16 << 10;
/// Bytes that a load moves at once.
const BUFFER: usize = 4 << 20;

/// Saves `tables` below `path`.
pub(crate) fn save(job: &Job, tables: &[Table], path: &Path, by: Deadline) -> Result<(), Error> {
    let together = Together { job, what: format!("save {}", path.display()), site: "save", by };
    let crew = Crew::of(job)?;
    let flushed = tables.iter().try_for_each(|table| table.inner.flush(by));
    let generation = flushed.and_then(|()| if crew.leads() { prepare(path) } else { Ok(0) });
    let payload = crew.told(generation.as_ref().map_or(0, |generation| *generation));
    let (_, payload) = together.agree("begin", &payload, generation)?;
    let (crew, generation) = Crew::heard(job, &payload)?;
    let described = tables.iter().map(|table| description(&table.inner, crew.workers)).collect::<Result<Vec<SavedTable>, Error>>();
    let written = described.and_then(|saved| match generation {
        0 => Err(Error::System { operation: together.what.clone(), detail: "a worker died just now\nhint: save again".into() }),
        _ => write(job, tables, saved, path, generation, &crew, by),
    });
    let (saved, _) = together.agree("written", &[], written)?;
    let committed = match crew.leads() {
        true => records::collect(path, generation, crew.size()).and_then(|records| {
            Manifest::new(generation, saved, records).commit(path)?;
            records::remove(path, generation, crew.size());
            Ok(())
        }),
        false => Ok(()),
    };
    together.agree("done", &[], committed).map(drop)
}

/// Fills `tables` from the checkpoint at `path`.
pub(crate) fn load(job: &Job, tables: &[Table], path: &Path, set_rule: SetRule<'_>, by: Deadline) -> Result<(), Error> {
    let together = Together { job, what: format!("load {}", path.display()), site: "load", by };
    let crew = Crew::of(job)?;
    let opened = tables.iter().try_for_each(|table| table.inner.flush(by)).and_then(|()| {
        let wanted = tables.iter().map(|table| description(&table.inner, crew.workers)).collect::<Result<Vec<SavedTable>, Error>>()?;
        let checkpoint = Checkpoint::open(path, Verify::Sizes)?;
        checkpoint.verify(crew.me as usize, crew.size() as usize)?;
        let counterparts = checkpoint.counterparts(&wanted)?;
        Ok((checkpoint, counterparts))
    });
    let ((checkpoint, counterparts), payload) = together.agree("begin", &crew.told(0), opened)?;
    let (crew, _) = Crew::heard(job, &payload)?;
    let known = counterparts.clone();
    let settled = tables.iter().try_for_each(|table| table.inner.settle(by));
    together.agree("settled", &[], settled)?;
    let ruled = (|| {
        for (table, saved) in tables.iter().zip(&counterparts).filter(|_| crew.leads()) {
            bring_rule(&table.inner, &checkpoint.tables()[*saved], set_rule)?;
        }
        Ok(())
    })();
    together.agree("rules", &[], ruled)?;
    let filled = (|| {
        for (table, saved) in tables.iter().zip(counterparts) {
            fill(job, &table.inner, &checkpoint, saved, &crew, by)?;
        }
        Ok(())
    })();
    together.agree("filled", &[], filled)?;
    // States have begun where rows were written, so what is known of the key is written last.
    let counted = (|| {
        for (table, saved) in tables.iter().zip(&known).filter(|_| crew.leads()) {
            if let Some(rule) = &checkpoint.tables()[*saved].rule {
                table.inner.write_key_state(&rule.state(), by)?;
            }
        }
        Ok(())
    })();
    together.agree("done", &[], counted).map(drop)
}

/// Sets the optimizer of a saved gradient table where its family has none.
fn bring_rule(table: &Inner, saved: &SavedTable, set_rule: SetRule<'_>) -> Result<(), Error> {
    let missing = table.newest_rule()?.is_some_and(|rule| rule.optimizer.is_none());
    match saved.rule.as_ref().filter(|_| missing).map(SavedRule::optimizer) {
        None => Ok(()),
        Some(Some(optimizer)) => set_rule(table.spec.family(), optimizer),
        Some(None) => Err(Error::Configuration { detail: format!("load: the optimizer of {saved} is none this version knows") }),
    }
}

/// Sets the rule of a family, on every host.
pub(crate) type SetRule<'a> = &'a dyn Fn(u32, Optimizer) -> Result<(), Error>;

/// The workers that do it: all that are not gone.
struct Crew {
    /// Their ranks.
    ranks: Vec<u32>,
    /// This process's place among them.
    me: u32,
    /// How many workers the job began with: tables keep states for each of them.
    workers: u32,
}

impl Crew {
    /// As far as this process knows.
    fn of(job: &Job) -> Result<Crew, Error> {
        let vigil = job.vigil();
        Crew::without(job, |rank| vigil.is_over(rank))
    }

    /// As the lowest of them told it, so that all divide the work alike, and the number that it brought.
    fn heard(job: &Job, payload: &[u8]) -> Result<(Crew, u64), Error> {
        let (number, ranks): (u64, Vec<u32>) = decode_message("crew", payload, MOST_CREW)
            .map_err(|error| Error::ContractMismatch { operation: "checkpoint".into(), detail: error.to_string() })?;
        Ok((Crew::without(job, |rank| !ranks.contains(&rank))?, number))
    }

    fn without(job: &Job, is_gone: impl Fn(u32) -> bool) -> Result<Crew, Error> {
        let all = job.topology().workers();
        let (workers, ranks) = (all.len() as u32, all.into_iter().filter(|rank| !is_gone(*rank)).collect::<Vec<u32>>());
        match ranks.iter().position(|rank| *rank == job.rank()) {
            Some(me) => Ok(Crew { ranks, me: me as u32, workers }),
            None => Err(Error::Configuration { detail: "a dedicated server neither saves nor loads; its workers do".into() }),
        }
    }

    fn told(&self, number: u64) -> Vec<u8> {
        encode_message("crew", &(number, &self.ranks), MOST_CREW).unwrap_or_default() // no job has as many workers
    }

    /// Whether this process does what only one does.
    fn leads(&self) -> bool {
        self.me == 0
    }

    fn size(&self) -> u32 {
        self.ranks.len() as u32
    }
}

fn description(table: &Inner, workers: u32) -> Result<SavedTable, Error> {
    let cols = table.spec.rows_and_cols().map_or(1, |(_, cols)| cols);
    if let Some(rule) = table.newest_rule()? {
        let states = rule.lanes.iter().map(|lane| SavedLane::new(&lane.name, lane.dtype, cols));
        return Ok(SavedTable::new(&table.spec, &table.name, table.number, states));
    }
    let states = table.spec.updater.state_lanes(table.spec.dtype(), workers);
    let states = states.into_iter().map(|lane| SavedLane::new(lane.name, lane.dtype, cols));
    Ok(SavedTable::new(&table.spec, &table.name, table.number, states))
}

/// The rows of a table that one of the crew writes or reads: its part of its own neighbourhood's, and of those without workers.
fn rows_of(job: &Job, table: &Inner, crew: &Crew) -> Vec<Range<u64>> {
    let Some((rows, _)) = table.spec.rows_and_cols() else { return Vec::new() };
    let topology = job.topology();
    let (servers, workers) = (topology.servers(), &crew.ranks);
    let mut mine = Vec::new();
    let homes = homes(rows, 1, &job.neighbourhoods(), |rank| servers.contains(&rank));
    for home in placed(homes, table.spec.placement, rows) {
        let inside: Vec<u32> = (0..).zip(workers).filter(|(_, rank)| home.ranks.contains(rank)).map(|(worker, _)| worker).collect();
        let writers: Vec<u32> = if inside.is_empty() { (0..workers.len() as u32).collect() } else { inside };
        if let Some(at) = writers.iter().position(|writer| *writer == crew.me) {
            let count = home.rows.end - home.rows.start;
            let cut = |at: usize| home.rows.start + (u128::from(count) * at as u128 / writers.len() as u128) as u64;
            mine.push(cut(at)..cut(at + 1));
        }
    }
    mine.retain(|rows| !rows.is_empty());
    mine
}

#[allow(clippy::too_many_arguments, reason = "one step of a save")]
fn write(
    job: &Job,
    tables: &[Table],
    mut saved: Vec<SavedTable>,
    path: &Path,
    generation: u64,
    crew: &Crew,
    by: Deadline,
) -> Result<Vec<SavedTable>, Error> {
    tables.iter().try_for_each(|table| table.inner.settle(by))?;
    let mut shard = ShardWriter::create(path, generation, crew.me, crew.size(), &saved)?;
    for (index, table) in tables.iter().enumerate() {
        match &table.inner.way {
            Way::Keys { .. } if crew.leads() => {
                let pairs = table.inner.export_keys(by)?;
                let count = pairs.iter().map(|(keys, _)| keys.len() as u64).sum();
                let pairs = std::rc::Rc::new(pairs);
                let values = std::rc::Rc::clone(&pairs);
                shard.keys(
                    index,
                    count,
                    move |sink| pairs.iter().flat_map(|(keys, _)| keys).try_for_each(|key| sink.write(&key.to_le_bytes())),
                    move |sink| values.iter().try_for_each(|(_, values)| sink.write(values)),
                )?;
            }
            Way::Keys { .. } => {}
            _ => {
                for lane in 0..saved[index].lanes.len() {
                    for rows in rows_of(job, &table.inner, crew) {
                        shard.rows(index, lane, rows, move |first, room| table.inner.read_lane(lane, first, room, by))?;
                    }
                }
            }
        }
    }
    let record: ShardRecord = shard.finish()?;
    records::leave(path, generation, &record)?;
    for (table, saved) in tables.iter().zip(&mut saved) {
        let rule = table.inner.newest_rule()?;
        if let Some(optimizer) = rule.as_ref().and_then(|rule| rule.optimizer.as_ref()) {
            saved.rule = Some(SavedRule::new(optimizer, table.inner.read_key_state(by)?)?);
        }
    }
    Ok(saved)
}

fn fill(job: &Job, table: &Inner, checkpoint: &Checkpoint, saved: usize, crew: &Crew, by: Deadline) -> Result<(), Error> {
    let workers = crew.workers;
    if table.spec.shape == Shape::Keys {
        if crew.leads() {
            let (mut keys, mut values) = (Vec::new(), Vec::new());
            for block in checkpoint.keys(saved)? {
                let block = block?;
                keys.extend(block.keys);
                values.extend(block.values);
            }
            table.import_keys(&keys, &values, by)?;
        }
        return Ok(());
    }
    let its = &checkpoint.tables()[saved];
    let starts_as_value: Vec<bool> = std::iter::once(false)
        .chain(table.spec.updater.state_lanes(table.spec.dtype(), workers).iter().map(|lane| lane.starts_as_value))
        .collect();
    let mut buffer = Vec::new();
    let lanes = match table.newest_rule()? {
        Some(rule) => {
            let cols = table.spec.rows_and_cols().map_or(1, |(_, cols)| cols) as usize;
            let states =
                rule.lanes.iter().map(|lane| LaneInfo { name: lane.name.clone(), dtype: lane.dtype, row_bytes: cols * lane.dtype.size() });
            lanes(&table.spec, workers).into_iter().take(1).chain(states).collect()
        }
        None => lanes(&table.spec, workers),
    };
    for (lane, info) in lanes.iter().enumerate() {
        // A job with more workers has states that nobody saved: they begin as in a new table.
        let source = its.lane(&info.name).map(|(lane, _)| lane).or(starts_as_value[lane].then_some(0));
        if source.is_none() && table.gradient.is_some() {
            continue; // Of another optimizer: they begin when they are used.
        }
        for rows in rows_of(job, table, crew) {
            let at_once = (BUFFER / info.row_bytes.max(1)).max(1) as u64;
            let mut first = rows.start;
            while first < rows.end && info.row_bytes > 0 {
                let last = (first + at_once).min(rows.end);
                buffer.clear();
                buffer.resize((last - first) as usize * info.row_bytes, 0);
                if let Some(source) = source {
                    checkpoint.read_rows(saved, source, first..last, &mut buffer)?;
                }
                table.write_lane(lane, first, &buffer, by)?;
                first = last;
            }
        }
    }
    Ok(())
}

/// Where a path given relative to this process's folder lies, for errors of others.
pub(crate) fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

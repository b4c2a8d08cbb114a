//! A table with parts elsewhere, as a worker holds it.
//!
//! Operations take turns with the parts; each runs in its caller's thread. What may have to wait for other workers asks in its turn and
//! waits outside of it ([`asking`](super::asking)). An add that nobody waits for is copied into a queue
//! and sent by the *courier*, a thread of the table; whoever comes next (a get, a flush) empties the queue first, so that a
//! worker reads its own writes and nobody waits for the courier to wake up.
//!
//! Cost: an add that is not waited for copies its delta once: into the socket as far as that takes it about as fast as memory
//! would, the rest into the queue, which holds one large delta at a time; adds over several servers, and those that are sealed
//! (which takes longer than a copy), into the queue. A get writes each byte once, from the socket to its place, where rows are neighbours.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use syncline_cluster::{Deadline, Error};

use super::adds::Load;
use super::baton::{Baton, Held, NoTurn};
use super::courier::Queue;
use super::gate::{self, Gates};
use super::layout::Layout;
use super::line::Line;
use super::parts::{At, Member, Pairs, Parts, split};
use super::reach::{Places, Reach};
use super::replies::Replies;
use super::words::Code;
use crate::AddOptions;
use crate::share::{LaneInfo, Share};

/// Adds up to this size go straight into the socket when the way is free.
const SMALL: usize = 64 << 10;
/// Waiting for the network longer than it takes to copy at this rate (bytes per microsecond) saves nothing.
const COPIES: usize = 4000;
/// What one add of rows may bring to a part besides twice all that the part holds: what outboxes have room for, less their slots.
const ROOM_FOR_ROWS: usize = 62 << 20;

/// What a table is, as far as moving its rows goes.
#[derive(Debug, Clone)]
pub(crate) struct Form {
    /// Which part holds what.
    pub(crate) layout: Layout,
    /// Bytes of a row, or of a key's value.
    pub(crate) row_bytes: usize,
    /// Every add is one to every part, if only a tick: clocks and counts of updates are the same everywhere.
    pub(crate) everywhere: bool,
    /// The lanes of every share.
    pub(crate) lanes: Vec<LaneInfo>,
}

/// One table as one worker sees it.
pub(crate) struct Spread {
    table: Arc<Table>,
    courier: Option<JoinHandle<()>>,
}

pub(super) struct Table {
    pub(super) places: Arc<Places>,
    form: Form,
    pub(super) reach: Arc<dyn Reach>,
    pub(super) parts: Baton<Parts>,
    /// Adds that this worker has made, sent or queued: what a get contains that is called now.
    pub(super) issued: Arc<AtomicU64>,
    /// How many answers about changed rows each part has given, in the hands of whoever asks for more.
    changes: Baton<Vec<u64>>,
    /// What comes back from the parts elsewhere.
    replies: Vec<Arc<Replies>>,
    pub(super) queue: Mutex<Queue>,
    pub(super) changed: Condvar,
}

/// How a caller wants something moved.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Manner {
    /// Its turn among the large frames to and from a server; none takes no turns.
    pub(crate) priority: Option<i32>,
    /// What the bytes of a delta mean, or those of a reply shall, if not numbers as they are.
    pub(crate) code: Option<Code>,
}

impl Manner {
    pub(super) fn load(self, delta: &[u8]) -> Load<'_> {
        self.code.map_or(Load::Rows(delta), |code| Load::Words(code, delta))
    }
}

impl Spread {
    /// Meets the servers of all parts that are not `here` (one place per part) and begins. Servers must ask for the other ends.
    pub(crate) fn open(
        places: Arc<Places>,
        worker: u32,
        form: Form,
        here: Vec<Option<Arc<dyn Share>>>,
        reach: Arc<dyn Reach>,
        gates: &Gates,
        by: Deadline,
    ) -> Result<Spread, Error> {
        let mut members = Vec::with_capacity(here.len());
        for (part, share) in here.into_iter().enumerate() {
            let at = match share {
                Some(share) => At::Here(share),
                None => {
                    let server = places.server_of(part, worker);
                    let link = reach.link(server, places.lane(part, worker), by)?;
                    At::There(Box::new(Line::new(link, server, places.table, &places.name, gates.to(server))))
                }
            };
            members.push(Member { at, made: 0, owed: None });
        }
        let replies = members.iter().filter_map(|member| match &member.at {
            At::There(line) => Some(Arc::clone(line.replies())),
            At::Here(_) => None,
        });
        let (replies, changes, issued) = (replies.collect(), Baton::new(vec![0; members.len()]), Arc::new(AtomicU64::new(0)));
        let parts = Parts {
            worker,
            workers: places.workers.clone(),
            name: places.name.clone(),
            layout: form.layout.clone(),
            row_bytes: form.row_bytes,
            ticks: form.everywhere,
            members,
            reach: Arc::clone(&reach),
            failure: None,
            undecided: None,
            finished: false,
            priority: None,
            issued: Arc::clone(&issued),
        };
        let (parts, queue, changed) = (Baton::new(parts), Mutex::default(), Condvar::new());
        let table = Arc::new(Table { places, form, reach, parts, issued, changes, replies, queue, changed });
        let courier = {
            let table = Arc::clone(&table);
            std::thread::Builder::new().name("syncline-courier".into()).spawn(move || table.deliver())
        };
        let courier = courier.map_err(|error| Error::System { operation: "create table".into(), detail: error.to_string() })?;
        Ok(Spread { table, courier: Some(courier) })
    }

    /// Adds `delta`, the whole table or one row per id; see [`Table::add`](crate::Table::add).
    ///
    /// In a code, the delta is the words of the whole table.
    pub(crate) fn add_in(
        &self,
        manner: Manner,
        delta: &[u8],
        ids: Option<&[i64]>,
        options: &AddOptions,
        wait: bool,
        by: Deadline,
    ) -> Result<(), Error> {
        let table = &self.table;
        let plain; // what cannot be cut travels as numbers
        let (delta, manner) = match manner.code {
            Some(code) if !table.takes_words(code, delta)? => {
                let mut numbers = vec![0; table.bytes()];
                code.decode(delta, &mut numbers)?;
                plain = numbers;
                (&plain[..], Manner { code: None, ..manner })
            }
            _ => (delta, manner),
        };
        if manner.code.is_none() {
            table.check_len("add", delta.len(), ids)?;
            table.check_room(ids)?;
        }
        if wait {
            let mut parts = table.turn("add", by)?;
            parts.set_priority(manner.priority);
            parts.add(ids, manner.load(delta), options, by)?;
            table.issued.fetch_add(1, AcqRel);
            let settling = parts.ask_settled(by)?;
            return table.outside(parts, by, || settling.wait(by));
        }
        let touched = split(&table.form.layout, &table.places.name, "add", ids, table.form.everywhere)?.len();
        if touched <= 1
            && let Some(mut parts) = table.parts.try_take()
            && table.queue().adds.is_empty()
        {
            parts.make_good(by)?;
            parts.surface(by)?;
            parts.set_priority(manner.priority);
            if delta.len() <= SMALL && !(delta.len() as u64 > gate::SMALL && parts.would_wait()) {
                parts.add(ids, manner.load(delta), options, by)?;
                table.issued.fetch_add(1, AcqRel);
                return Ok(());
            }
            let patience = Duration::from_micros((delta.len() / COPIES) as u64);
            if manner.code.is_none()
                && delta.len() > SMALL
                && let Some(rest) = parts.add_some(ids, delta, options, patience, by)?
            {
                table.keep_rest(rest, delta); // before anybody else gets the parts
                table.issued.fetch_add(1, AcqRel);
                return Ok(());
            }
        }
        table.enqueue(delta, ids, options, manner, by)
    }

    /// Adds that this worker has made.
    ///
    /// Asked when a get is called. Adds that other threads make while it waits for its turn are theirs: waiting for what they wait for, it might
    /// wait for a worker whose threads all wait for this one.
    pub(crate) fn issued(&self) -> u64 {
        self.table.issued.load(Acquire)
    }

    /// Fetches the whole table or one row per id into `out`, after the first `own_adds` adds of this worker.
    pub(crate) fn get_in(&self, manner: Manner, out: &mut [u8], ids: Option<&[i64]>, own_adds: u64, by: Deadline) -> Result<(), Error> {
        self.table.check_len("get", out.len(), ids)?;
        let mut parts = self.table.turn("get", by)?;
        parts.set_priority(manner.priority);
        let fetch = parts.ask_rows(ids, manner.code, own_adds, by)?;
        self.table.outside(parts, by, || fetch.bring(out, by))
    }

    /// Adds and fetches; the delta goes out from where it is.
    pub(crate) fn add_get_in(
        &self,
        manner: Manner,
        delta: &[u8],
        out: &mut [u8],
        ids: Option<&[i64]>,
        options: &AddOptions,
        by: Deadline,
    ) -> Result<(), Error> {
        self.table.check_len("add_get", delta.len(), ids)?;
        self.table.check_room(ids)?;
        self.table.check_len("add_get", out.len(), ids)?;
        let mut parts = self.table.turn("add_get", by)?;
        parts.set_priority(manner.priority);
        parts.add(ids, Load::Rows(delta), options, by)?;
        self.table.issued.fetch_add(1, AcqRel);
        let fetch = parts.ask_rows(ids, None, u64::MAX, by)?;
        self.table.outside(parts, by, || fetch.bring(out, by))
    }

    /// Fetches into `out`, which holds the whole table, what others changed since this worker's last call; the ids, ascending.
    pub(crate) fn get_changed(&self, out: &mut [u8], by: Deadline) -> Result<Vec<i64>, Error> {
        self.table.check_len("get_changed", out.len(), None)?;
        let own_adds = self.issued();
        // What an answer told is not told again, so one comes after the other.
        let mut received = self.table.changes.take(by).map_err(|why| self.table.no_turn("get_changed", why, by))?;
        let mut parts = self.table.turn("get_changed", by)?;
        let changes = parts.ask_changes(&received, own_adds, by)?;
        let changed = self.table.outside(parts, by, || changes.bring(out, by))?;
        // Only now: who fails on the way has told its caller of no row, of whichever part.
        received.iter_mut().for_each(|received| *received += 1);
        Ok(changed)
    }

    /// Returns when every add of this worker is applied everywhere.
    pub(crate) fn settle(&self, by: Deadline) -> Result<(), Error> {
        let mut parts = self.table.turn("flush", by)?;
        let settling = parts.ask_settled(by)?;
        self.table.outside(parts, by, || settling.wait(by))
    }

    /// Returns when every add of this worker counts, applied or not.
    pub(crate) fn deliver(&self, by: Deadline) -> Result<(), Error> {
        let mut parts = self.table.turn("flush", by)?;
        if !parts.finished {
            parts.hear_adds(by)?;
        }
        parts.surface(by)
    }

    /// Sends what is queued; then nobody's clock waits for this worker any more.
    pub(crate) fn finish(&self, by: Deadline) -> Result<(), Error> {
        let mut parts = self.table.turn("finish", by)?;
        let finished = parts.finish(by);
        parts.surface(by)?;
        finished
    }

    /// How many adds of each worker count.
    pub(crate) fn clocks(&self, by: Deadline) -> Result<Vec<u64>, Error> {
        let workers = self.table.places.workers.len() as u32;
        self.table.turn("clocks", by)?.clocks(workers, by)
    }

    /// Raw copy of a lane from row `first_row` on, as many rows as `out` holds.
    pub(crate) fn read_lane(&self, lane: usize, first_row: u64, out: &mut [u8], by: Deadline) -> Result<(), Error> {
        let lane_bytes = self.table.lane_bytes(lane)?;
        self.table.turn("save", by)?.read_lane(lane, lane_bytes, first_row, out, by)
    }

    /// The reverse of [`read_lane`](Spread::read_lane): no updater, no clock.
    pub(crate) fn write_lane(&self, lane: usize, first_row: u64, bytes: &[u8], by: Deadline) -> Result<(), Error> {
        let lane_bytes = self.table.lane_bytes(lane)?;
        self.table.turn("load", by)?.write_lane(lane, lane_bytes, first_row, bytes, by)
    }

    /// The first row of each part that has any.
    pub(crate) fn first_rows(&self) -> Vec<u64> {
        match &self.table.form.layout {
            Layout::Ranges(ranges) => ranges.iter().filter(|range| !range.is_empty()).map(|range| range.start).collect(),
            Layout::Hashed(_) => Vec::new(),
        }
    }

    /// All pairs of a key-value table, server after server, each by key; `here` gives those of this process.
    pub(crate) fn export(&self, here: impl Fn() -> Pairs, by: Deadline) -> Result<Vec<Pairs>, Error> {
        self.table.turn("save", by)?.export(here, by)
    }

    /// Makes these pairs the whole contents of a key-value table; `here` takes those of this process.
    pub(crate) fn import(&self, keys: &[i64], values: &[u8], here: impl Fn(&[i64], &[u8]), by: Deadline) -> Result<(), Error> {
        self.table.check_len("load", values.len(), Some(keys))?;
        self.table.turn("load", by)?.import(keys, values, here, by)
    }
}

#[cfg(test)]
impl Spread {
    /// For tests that are the courier, or come by before it.
    pub(super) fn table(&self) -> &Table {
        &self.table
    }
}

impl Drop for Spread {
    /// What is queued still goes out and what was sent arrives, unless this process is leaving or nobody takes it.
    fn drop(&mut self) {
        const LOOK: Duration = Duration::from_millis(50);
        const LAST: Duration = Duration::from_secs(1);
        let by = Deadline::after(self.table.reach.timeout());
        let mut queue = self.table.queue();
        queue.closing = true;
        self.table.changed.notify_all();
        while queue.bytes > 0 && !by.expired() && !self.table.reach.is_closing() {
            queue = self.table.changed.wait_timeout(queue, by.slice(LOOK)).unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
        let sent = queue.bytes == 0;
        drop(queue);
        if let Some(courier) = self.courier.take().filter(|_| sent) {
            let _ = courier.join();
        }
        if let Some(mut parts) = self.table.parts.try_take() {
            let _ = parts.make_good(Deadline::after(LAST)); // who hears goodbye forgets what it holds
            if !self.table.reach.is_closing() {
                let _ = parts.hear_adds(by); // a server that cannot answer because the link is gone reads no further
            }
            for member in &mut parts.members {
                if let At::There(line) = &mut member.at {
                    line.goodbye();
                }
            }
            let by = Deadline::after(LAST);
            for member in parts.members.iter().filter(|_| !self.table.reach.is_closing()) {
                if let At::There(line) = &member.at {
                    line.replies().hear_out(by);
                }
            }
        }
    }
}

impl Table {
    /// The parts, after everything queued before is sent and what went wrong with it is told.
    fn turn(&self, operation: &str, by: Deadline) -> Result<Held<'_, Parts>, Error> {
        let mut parts = self.parts.take(by).map_err(|why| self.no_turn(operation, why, by))?;
        self.send_queued(&mut parts, by, false)?;
        if let Some(error) = self.queue().failed.take() {
            return Err(error);
        }
        parts.make_good(by)?;
        parts.surface(by)?;
        Ok(parts)
    }

    /// Waits for what was asked: outside of the turn where that may take as long as other workers like. What went wrong while nobody waited is
    /// told first.
    fn outside<T>(&self, mut parts: Held<'_, Parts>, by: Deadline, wait: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        if !self.form.everywhere {
            let brought = wait();
            parts.surface(by)?;
            return brought;
        }
        drop(parts);
        let brought = wait();
        if self.replies.iter().any(|replies| replies.has_refused())
            && let Ok(mut parts) = self.parts.take(by)
        {
            parts.surface(by)?;
        }
        brought
    }

    pub(super) fn no_turn(&self, operation: &str, why: NoTurn, by: Deadline) -> Error {
        let operation = format!("{operation} of {}", self.places.name);
        match why {
            NoTurn::Interrupted => Error::Interrupted { operation, waited: by.waited() },
            NoTurn::Late => Error::Timeout {
                operation,
                missing: Vec::new(),
                detail: ": another thread of this process is still in an operation of the same table".into(),
                waited: by.waited(),
                hint: "raise SYNCLINE_TIMEOUT if it only needs longer".into(),
            },
        }
    }

    fn check_len(&self, operation: &str, len: usize, ids: Option<&[i64]>) -> Result<(), Error> {
        let rows = match ids {
            Some(ids) => Some(ids.len()),
            None => self.form.layout.rows().map(|rows| rows as usize),
        };
        let wanted = rows.and_then(|rows| rows.checked_mul(self.form.row_bytes));
        if wanted == Some(len) {
            return Ok(());
        }
        let operation = format!("{operation} of {}", self.places.name);
        let detail = match rows {
            Some(rows) => format!("{len} bytes were given for {rows} rows of {} bytes", self.form.row_bytes),
            None => "a key-value table needs a list of keys".into(),
        };
        Err(Error::ShapeMismatch { operation, detail })
    }

    /// Refuses rows that the outbox of a part has no room for: whoever adds them hears it now, and not from its next call.
    fn check_room(&self, ids: Option<&[i64]>) -> Result<(), Error> {
        let (Some(ids), Layout::Ranges(ranges)) = (ids, &self.form.layout) else { return Ok(()) };
        // Where rounds are put together each id stands there with its place.
        let row = self.form.row_bytes + if self.form.everywhere { 16 } else { 8 };
        if ids.len().saturating_mul(row) <= ROOM_FOR_ROWS {
            return Ok(());
        }
        let pieces = split(&self.form.layout, &self.places.name, "add", Some(ids), false)?;
        for piece in &pieces {
            let (rows, held) = (piece.places.len(), ranges[piece.part].end - ranges[piece.part].start);
            let most = 2 * held as usize * (self.form.row_bytes + 8) + ROOM_FOR_ROWS;
            if rows * row > most {
                return Err(Error::ShapeMismatch {
                    operation: format!("add of {}", self.places.name),
                    detail: format!(
                        "{rows} rows in one add are more than fit at once: {} bytes with their ids, of which the servers of these rows take {most}\n\
                         hint: add them in several calls, or add up rows with the same id first",
                        rows * row
                    ),
                });
            }
        }
        Ok(())
    }

    /// Bytes of the whole table.
    fn bytes(&self) -> usize {
        self.form.layout.rows().unwrap_or(0) as usize * self.form.row_bytes
    }

    /// Whether the words of the whole table, which these must be, can travel as they are.
    fn takes_words(&self, code: Code, words: &[u8]) -> Result<bool, Error> {
        let numbers = self.bytes() / 4;
        if words.len() != code.quantizer().encoded_len(numbers) {
            let operation = format!("add of {}", self.places.name);
            let (name, wanted) = (code.quantizer().name(), code.quantizer().encoded_len(numbers));
            return Err(Error::ShapeMismatch {
                operation,
                detail: format!("{numbers} numbers are {wanted} bytes of {name}, not {}", words.len()),
            });
        }
        Ok(self.form.layout.can_be_cut(code, self.form.row_bytes / 4))
    }

    fn lane_bytes(&self, lane: usize) -> Result<usize, Error> {
        let known = self.form.lanes.get(lane).map(|lane| lane.row_bytes);
        known.ok_or_else(|| Error::UnknownKey {
            operation: format!("copy of {}", self.places.name),
            detail: format!("lane {lane} does not exist: the table has {}", self.form.lanes.len()),
        })
    }
}

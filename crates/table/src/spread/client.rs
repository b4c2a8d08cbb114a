//! A table with parts elsewhere, as a worker holds it.
//!
//! Operations take turns with the parts; each runs in its caller's thread. An add that nobody waits for is copied into a queue
//! and sent by the *courier*, a thread of the table; whoever comes next (a get, a flush) empties the queue first, so that a
//! worker reads its own writes and nobody waits for the courier to wake up.
//!
//! Cost: an add that is not waited for copies its delta once: into the socket as far as that takes it about as fast as memory
//! would, the rest into the queue, which holds one large delta at a time; adds over several servers, and those that are sealed
//! (which takes longer than a copy), into the queue. A get writes each byte once, from the socket to its place, where rows are neighbours.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use syncline_cluster::{Deadline, Error};

use super::baton::{Baton, Held, NoTurn};
use super::gate::{self, Gates};
use super::layout::Layout;
use super::line::Line;
use super::parts::{At, Load, Member, Pairs, Parts, Rest, split};
use super::reach::{Places, Reach};
use super::words::Code;
use crate::AddOptions;
use crate::share::{LaneInfo, Share};

/// Adds up to this size go straight into the socket when the way is free.
const SMALL: usize = 64 << 10;
/// Waiting for the network longer than it takes to copy at this rate (bytes per microsecond) saves nothing.
const COPIES: usize = 4000;
/// What the queue holds besides one large delta.
const QUEUED: usize = 4 << 20;

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

struct Table {
    places: Arc<Places>,
    form: Form,
    reach: Arc<dyn Reach>,
    parts: Baton<Parts>,
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    adds: VecDeque<QueuedAdd>,
    /// Bytes that wait or are being sent.
    bytes: usize,
    /// A buffer to be used again: fresh pages are slow.
    spare: Vec<u8>,
    /// Why a queued add failed; the next call hears of it, and what was queued behind it is dropped.
    failed: Option<Error>,
    closing: bool,
}

/// How a caller wants something moved.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Manner {
    /// Its turn among the large frames to and from a server; none takes no turns.
    pub(crate) priority: Option<i32>,
    /// What the bytes of a delta mean, or those of a reply shall, if not numbers as they are.
    pub(crate) code: Option<Code>,
}

struct QueuedAdd {
    what: What,
    delta: Vec<u8>,
}

/// What the bytes in the queue are.
enum What {
    /// A delta.
    Add { ids: Option<Vec<i64>>, options: AddOptions, code: Option<Code>, priority: Option<i32> },
    /// The end of one that is under way to this part: nothing may overtake it.
    Rest { part: usize },
}

impl Manner {
    fn load(self, delta: &[u8]) -> Load<'_> {
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
            members.push(Member { at, made: 0, received: 0 });
        }
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
            broken: None,
            finished: false,
            priority: None,
        };
        let table = Arc::new(Table { places, form, reach, parts: Baton::new(parts), queue: Mutex::default(), changed: Condvar::new() });
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
        }
        if wait {
            let mut parts = table.turn("add", by)?;
            parts.set_priority(manner.priority);
            parts.add(ids, manner.load(delta), options, by)?;
            let settled = parts.settle(by);
            parts.surface(by)?;
            return settled;
        }
        let touched = split(&table.form.layout, &table.places.name, "add", ids, table.form.everywhere)?.len();
        if touched <= 1
            && let Some(mut parts) = table.parts.try_take()
            && table.queue().adds.is_empty()
        {
            parts.surface(by)?;
            parts.set_priority(manner.priority);
            if delta.len() <= SMALL && !(delta.len() as u64 > gate::SMALL && parts.would_wait()) {
                return parts.add(ids, manner.load(delta), options, by);
            }
            let patience = Duration::from_micros((delta.len() / COPIES) as u64);
            if manner.code.is_none()
                && delta.len() > SMALL
                && let Some(rest) = parts.add_some(ids, delta, options, patience, by)?
            {
                table.keep_rest(rest, delta); // before anybody else gets the parts
                return Ok(());
            }
        }
        table.enqueue(delta, ids, options, manner, by)
    }

    /// Fetches the whole table or one row per id into `out`.
    pub(crate) fn get_in(&self, manner: Manner, out: &mut [u8], ids: Option<&[i64]>, by: Deadline) -> Result<(), Error> {
        self.table.check_len("get", out.len(), ids)?;
        let mut parts = self.table.turn("get", by)?;
        parts.set_priority(manner.priority);
        let got = match manner.code {
            Some(code) => parts.get_words(code, out, by),
            None => parts.get(ids, out, by),
        };
        parts.surface(by)?;
        got
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
        self.table.check_len("add_get", out.len(), ids)?;
        let mut parts = self.table.turn("add_get", by)?;
        parts.set_priority(manner.priority);
        parts.add(ids, Load::Rows(delta), options, by)?;
        let got = parts.get(ids, out, by);
        parts.surface(by)?;
        got
    }

    /// Fetches into `out`, which holds the whole table, what others changed since this worker's last call; the ids, ascending.
    pub(crate) fn get_changed(&self, out: &mut [u8], by: Deadline) -> Result<Vec<i64>, Error> {
        self.table.check_len("get_changed", out.len(), None)?;
        let mut parts = self.table.turn("get_changed", by)?;
        let got = parts.get_changed(out, by);
        parts.surface(by)?;
        got
    }

    /// Returns when every add of this worker is applied everywhere.
    pub(crate) fn settle(&self, by: Deadline) -> Result<(), Error> {
        let mut parts = self.table.turn("flush", by)?;
        let settled = parts.settle(by);
        parts.surface(by)?;
        settled
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

impl Drop for Spread {
    /// What is queued still goes out, unless this process is leaving or nobody takes it.
    fn drop(&mut self) {
        const LOOK: Duration = Duration::from_millis(50);
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
            for member in &mut parts.members {
                if let At::There(line) = &mut member.at {
                    line.goodbye();
                }
            }
        }
    }
}

impl Table {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) // nobody panics while holding it
    }

    /// The parts, after everything queued before is sent and what went wrong with it is told.
    fn turn(&self, operation: &str, by: Deadline) -> Result<Held<'_, Parts>, Error> {
        let mut parts = self.parts.take(by).map_err(|why| self.no_turn(operation, why, by))?;
        parts.forsake();
        self.send_queued(&mut parts, by);
        if let Some(error) = self.queue().failed.take() {
            return Err(error);
        }
        parts.surface(by)?;
        match &parts.broken {
            Some(error) => Err(error.clone()),
            None => Ok(parts),
        }
    }

    fn no_turn(&self, operation: &str, why: NoTurn, by: Deadline) -> Error {
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

    /// Copies an add into the queue when there is room.
    fn enqueue(&self, delta: &[u8], ids: Option<&[i64]>, options: &AddOptions, manner: Manner, by: Deadline) -> Result<(), Error> {
        const NAP: Duration = Duration::from_millis(200);
        let mut queue = self.queue();
        if let Some(error) = queue.failed.take() {
            return Err(error);
        }
        while queue.bytes > 0 && queue.bytes + delta.len() > QUEUED {
            if by.interrupted() {
                return Err(self.no_turn("add", NoTurn::Interrupted, by));
            }
            if by.expired() {
                return Err(self.no_turn("add", NoTurn::Late, by));
            }
            queue = self.changed.wait_timeout(queue, by.slice(NAP)).unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
        queue.bytes += delta.len();
        let mut copy = std::mem::take(&mut queue.spare);
        drop(queue); // copying takes a while; this thread's next add cannot overtake it, and those of others have no order
        copy.clear();
        copy.extend_from_slice(delta);
        let what = What::Add { ids: ids.map(<[i64]>::to_vec), options: *options, code: manner.code, priority: manner.priority };
        self.queue().adds.push_back(QueuedAdd { what, delta: copy });
        self.changed.notify_all();
        Ok(())
    }

    /// Copies what the network has not taken to the front of the queue.
    fn keep_rest(&self, rest: Rest, delta: &[u8]) {
        let bytes = &delta[rest.bytes];
        if bytes.is_empty() {
            return;
        }
        let mut queue = self.queue();
        queue.bytes += bytes.len();
        let mut copy = std::mem::take(&mut queue.spare);
        drop(queue);
        copy.clear();
        copy.extend_from_slice(bytes);
        self.queue().adds.push_front(QueuedAdd { what: What::Rest { part: rest.part }, delta: copy });
        self.changed.notify_all();
    }

    /// Sends what is queued, in order.
    fn send_queued(&self, parts: &mut Parts, by: Deadline) {
        loop {
            let mut queue = self.queue();
            let Some(add) = queue.adds.pop_front() else { return };
            let hopeful = queue.failed.is_none();
            drop(queue);
            let sent = match &add.what {
                What::Rest { part } => parts.add_rest(*part, &add.delta, by),
                What::Add { ids, options, code, priority } if hopeful => {
                    parts.set_priority(*priority);
                    let manner = Manner { code: *code, priority: *priority };
                    parts.add(ids.as_deref(), manner.load(&add.delta), options, by)
                }
                What::Add { .. } => Ok(()),
            };
            let mut queue = self.queue();
            if let Err(error) = sent {
                queue.failed = Some(error);
            }
            queue.bytes -= add.delta.len();
            if add.delta.capacity() > queue.spare.capacity() {
                queue.spare = add.delta;
            }
            drop(queue);
            self.changed.notify_all();
        }
    }

    /// The courier's life: sends what nobody else has sent yet.
    fn deliver(&self) {
        loop {
            let mut queue = self.queue();
            while queue.adds.is_empty() && !queue.closing {
                queue = self.changed.wait(queue).unwrap_or_else(|poisoned| poisoned.into_inner());
            }
            if queue.adds.is_empty() {
                return;
            }
            drop(queue);
            if let Ok(mut parts) = self.parts.take(Deadline::never()) {
                self.send_queued(&mut parts, Deadline::after(self.reach.timeout()));
            }
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

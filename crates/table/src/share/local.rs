//! A share that this process has mapped: its parts, and the calls on it.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use syncline_cluster::{Deadline, Error};
use syncline_shm::bell::Bell;
use syncline_shm::outbox::{Full, Outbox, Post, fill_from};
use syncline_shm::store::{Hand, Store, block_elements};
use syncline_tensor::DType;
use syncline_tensor::kernels::copy_past_cache;

use super::changed::Answer;
use super::emit::{IntoArray, IntoSink};
use super::order::in_order;
use super::replica::Replica;
use super::tally::Tally;
use super::turns::Turns;
use super::{Emit, LaneInfo, Place, Selection, Share, bytes_ahead};
use crate::gradient::{self, Gradient};
use crate::locking::lock_by;
use crate::updater::apply_in_place;
use crate::{AddOptions, Consistency, Spec, Updater};

/// Bytes of values that one change touches: old, delta, new and result stay in the first-level cache together.
pub(super) const BLOCK: usize = 8 << 10;
/// Bytes of values that an add may change without a detour through an outbox: they fit the scratch of a hand, and together with it a core's own cache.
const DIRECT: usize = 64 << 10;
/// An outbox may always hold this much before it has to run empty.
pub(crate) const LEAST_IN_FLIGHT: usize = 1 << 20;
/// Adds up to this size are applied at once: the table is in the cache, and nobody gains by waiting.
const APPLY_AT_ONCE: usize = 256 << 10;
/// From this size of all workers' arrays together, deltas are staged past the cache: each worker has three arrays in use (delta,
/// outbox, result), and what does not fit into a cache only pushes out the table.
const STAGED_PAST_CACHE: usize = 32 << 20;
/// From this size on, a result goes past the cache into the caller's array: a core's own cache does not hold it for whoever reads it
/// next, and the lines that it overwrites need not be fetched. Measured in `kernels/both.rs`.
const GOT_PAST_CACHE: usize = 4 << 20;

/// A share in shared memory.
pub(crate) struct LocalShare {
    pub(crate) place: Place,
    pub(crate) dtype: DType,
    pub(crate) cols: u64,
    pub(crate) store: Store,
    pub(crate) outboxes: Vec<Arc<Outbox>>,
    pub(crate) hand: Mutex<Hand>,
    /// The owner's ends of the outboxes that this process owns.
    pub(super) posts: Vec<Option<Mutex<Post>>>,
    /// Elements of one change.
    pub(crate) block: u64,
    /// Elements of an add that is one change.
    pub(super) direct: u64,
    /// The same where only values change: a gradient table has fewer elements in a change of all its states.
    pub(crate) block_of_values: u64,
    /// This process is the only one that has the share: nobody can inherit, so nothing needs a record.
    pub(crate) alone: bool,
    /// Whole deltas of all workers together are more than a cache holds.
    stages_past_cache: bool,
    pub(super) turns: Turns,
    /// The last state as this worker knows it, where that saves a way.
    pub(super) replica: Option<Replica>,
    /// What this worker has added and not brought to the table, where that saves ways.
    pub(crate) tally: Option<Tally>,
    /// Where the neighbours sleep.
    bells: Vec<syncline_shm::Shared<Bell>>,
    /// Deaths that were looked after.
    pub(crate) deaths_seen: std::sync::atomic::AtomicU32,
    /// Held by the thread that does for a dead worker what it left.
    pub(super) rescuing: Mutex<()>,
    /// What a gradient table has beside its numbers.
    pub(crate) gradient: Option<Gradient>,
    /// Each worker's last answer about changed rows.
    pub(crate) changes_seen: Mutex<Vec<Answer>>,
}

impl LocalShare {
    /// Assembles the share from its mapped parts.
    pub(crate) fn new(place: Place, store: Store, outboxes: Vec<Arc<Outbox>>) -> LocalShare {
        let me = place.vigil.me();
        let hand = place.hands.iter().position(|rank| *rank == me).expect("this process is in its neighbourhood") as u32;
        let bytes = store.layout().elements as usize * place.spec.dtype().size();
        let (replica, tally) = (Replica::for_share(&place, bytes), Tally::for_share(&place, bytes));
        let post = |outbox: &Arc<Outbox>| {
            let mut post = outbox.post();
            if replica.is_some() {
                post.set_slots(bytes);
            }
            if tally.is_some() {
                post.set_sides(bytes);
            }
            Mutex::new(post)
        };
        let posts = place.owners.iter().zip(&outboxes).map(|(owner, outbox)| (*owner == me).then(|| post(outbox))).collect();
        let widest: Vec<usize> = store.layout().lanes.iter().copied().take(1).chain([8, 8]).collect();
        let dtype = place.spec.dtype();
        let workers = place.workers.len();
        let gradient = place.board.clone().filter(|_| place.spec.updater == Updater::Gradient);
        let gradient = gradient.map(|board| Gradient::new(board, &place.spec, 1));
        let block = ((BLOCK / dtype.size()) as u64).min(block_elements(&widest));
        LocalShare {
            dtype,
            cols: place.spec.rows_and_cols().expect("a table with rows").1,
            hand: Mutex::new(store.hand(hand)),
            posts,
            block: if gradient.is_some() { gradient::BLOCK } else { block },
            direct: match &gradient {
                Some(_) => gradient::BLOCK,
                None if place.spec.updater.is_stateless() => (DIRECT / dtype.size()) as u64,
                None => block,
            },
            block_of_values: block,
            gradient,
            alone: place.hands.len() == 1 && place.workers.len() == 1,
            stages_past_cache: bytes * workers >= STAGED_PAST_CACHE,
            turns: Turns::new(),
            replica,
            tally,
            bells: place.hands.iter().filter_map(|rank| place.vigil.bell(*rank)).collect(),
            store,
            outboxes,
            deaths_seen: std::sync::atomic::AtomicU32::new(0),
            rescuing: Mutex::new(()),
            changes_seen: Mutex::new(vec![Answer::default(); workers]),
            place,
        }
    }

    /// This process's hand, which another thread may have out while it waits for a stripe.
    #[inline]
    pub(crate) fn hand(&self, by: Deadline) -> Result<MutexGuard<'_, Hand>, Error> {
        // A panic while the hand is out leaves its stripe held, which the next take reports; the hand itself is sound.
        lock_by(&self.hand, || self.operation("waiting for another thread"), "is changing the table", by)
    }

    /// Bytes of all rows here.
    pub(crate) fn bytes(&self) -> usize {
        self.store.layout().elements as usize * self.dtype.size()
    }

    /// Copies a delta to where it is staged.
    pub(crate) fn copy_delta(&self, room: &mut [u8], delta: &[u8]) {
        if self.stages_past_cache && delta.len() == self.bytes() {
            copy_past_cache(room, delta);
        } else if self.place.spec.consistency == Consistency::Sync {
            fill_from(delta, room);
        } else {
            room.copy_from_slice(delta);
        }
    }

    /// The name of an operation on this table, for errors.
    pub(crate) fn operation(&self, what: &str) -> String {
        format!("{}: {what}", self.place.title)
    }

    /// Checks that every id is a row that lives here.
    pub(crate) fn check_rows(&self, what: &str, rows: &[i64]) -> Result<(), Error> {
        let here = &self.place.rows;
        // One pass without branches first: bad ids are rare.
        let bad = rows.iter().fold(false, |bad, id| bad | ((*id as u64) < here.start || *id as u64 >= here.end));
        if !bad {
            return Ok(());
        }
        let (at, id) = rows.iter().enumerate().find(|(_, id)| !here.contains(&(**id as u64))).expect("one is bad");
        let all = self.place.spec.rows_and_cols().map_or(0, |(rows, _)| rows);
        Err(Error::UnknownKey {
            operation: self.operation(what),
            detail: format!("row id {id} (number {at} of {}) is no row of this table, which has rows 0 to {}", rows.len(), all as i64 - 1),
        })
    }

    /// Whether ids stand in order in the outboxes: where rows of several workers, or repeated ones, are put together.
    pub(crate) fn sorts_rows(&self) -> bool {
        self.place.spec.consistency == Consistency::Sync || self.gradient.is_some()
    }

    /// Whether each add is an update of its own, which is counted.
    pub(crate) fn counts_adds(&self) -> bool {
        self.place.spec.consistency != Consistency::Sync
    }

    /// How many adds of a worker are applied.
    pub(crate) fn applied(&self, worker: u32) -> u64 {
        match self.place.spec.consistency {
            // Once rounds are counted, the adds in them are what was published, for those who came to an end earlier.
            Consistency::Sync => self.store.header().rounds().get(),
            _ => self.outboxes[worker as usize].applied(),
        }
    }

    /// Looks after the dead, or says who is gone.
    pub(crate) fn enter(&self, what: &str, by: Deadline) -> Result<(), Error> {
        self.place.vigil.usable(&self.place.title)?;
        let deaths = self.place.vigil.deaths();
        if deaths != self.deaths_seen.load(std::sync::atomic::Ordering::Acquire) {
            self.after_deaths(what, deaths, by)?;
        }
        Ok(())
    }

    /// Stages one add of this process's worker (or of one it serves), waiting for room if need be.
    pub(crate) fn stage_add(
        &self,
        worker: u32,
        sequence: u64,
        rows: Selection<'_>,
        options: &AddOptions,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<(), Error>,
        by: Deadline,
    ) -> Result<(), Error> {
        self.enter("add", by)?;
        if let Selection::Rows(ids) = rows {
            self.check_rows("add", ids)?;
        }
        let sorts = self.sorts_rows();
        let (ids, delta) = match rows {
            Selection::All => (None, self.bytes()),
            Selection::Rows(ids) => (Some(ids.len() * if sorts { 2 } else { 1 }), ids.len() * self.cols as usize * self.dtype.size()),
        };
        let mut post = self.post(worker, by)?;
        if self.alone && post.outbox().published() + 1 < sequence {
            post.pass(sequence - 1); // What a world of one added in place, the outbox has not heard of.
        }
        loop {
            match post.room(sequence, self.applied(worker), ids, delta, LEAST_IN_FLIGHT) {
                Ok(room) => {
                    let end = room.end;
                    match rows {
                        Selection::Rows(ids) if sorts => in_order(ids, &self.place.rows, room.ids),
                        Selection::Rows(ids) => room.ids.copy_from_slice(ids),
                        Selection::All => {}
                    }
                    fill(room.delta)?;
                    if let (Some(replica), Selection::All) = (&self.replica, rows)
                        && self.place.workers[worker as usize] == self.place.vigil.me()
                    {
                        replica.keep(sequence, room.delta);
                    }
                    post.stage(sequence, self.stamped(options)?.to_bits(), end);
                    return Ok(());
                }
                Err(Full::Never { room }) => {
                    return Err(Error::ShapeMismatch {
                        operation: self.operation("add"),
                        detail: format!(
                            "{} rows in one add are more than fit at once ({room} bytes)\nhint: add them in several calls",
                            match rows {
                                Selection::Rows(ids) => ids.len(),
                                Selection::All => 0,
                            }
                        ),
                    });
                }
                Err(Full::Wait) => self.settle_adds(worker, sequence - 1, by)?,
            }
        }
    }

    /// Makes a staged add count, and applies it if that is better done now.
    pub(crate) fn publish_add(&self, worker: u32, sequence: u64, by: Deadline) -> Result<(), Error> {
        let mut post = self.post(worker, by)?;
        if !post.publish(sequence) {
            return Ok(()); // a number that counts already
        }
        if self.replica.is_some() {
            post.prefetch_slot(sequence + 1);
        }
        drop(post);
        match self.place.spec.consistency {
            Consistency::Sync => {
                // Only the last add of a round lets anyone go. Of several at once the fence in `publish` picks one: each
                // stores its own count before it reads the others'.
                if self.outboxes.iter().all(|outbox| outbox.published() >= sequence || outbox.is_finished()) {
                    self.ring_neighbours();
                }
                Ok(())
            }
            Consistency::Bounded(_) => {
                self.apply_published(worker, None, by)?;
                self.ring_neighbours();
                Ok(())
            }
            Consistency::Async => {
                let entry = self.outboxes[worker as usize].entry(sequence);
                if entry.is_some_and(|entry| entry.delta.len() <= APPLY_AT_ONCE) {
                    self.apply_published(worker, None, by)?;
                }
                Ok(())
            }
        }
    }

    /// Whether adds of this worker wait to be applied by it.
    #[inline]
    pub(crate) fn has_unapplied(&self, worker: u32) -> bool {
        let outbox = &self.outboxes[worker as usize];
        self.place.spec.consistency != Consistency::Sync && outbox.published() > outbox.applied()
    }

    /// Returns when adds up to `sequence` are applied.
    pub(crate) fn settle_adds(&self, worker: u32, sequence: u64, by: Deadline) -> Result<(), Error> {
        match self.place.spec.consistency {
            Consistency::Sync => self.finish_rounds(worker, sequence, "add", None, by),
            _ => self.apply_published(worker, None, by).map(drop),
        }
    }

    /// Fetches everything into `emit`, or brings the share up to date for reading rows when there is none.
    pub(crate) fn catch_up(&self, worker: u32, own_adds: u64, mut emit: Option<&mut dyn Emit>, by: Deadline) -> Result<(), Error> {
        let passed = match self.place.spec.consistency {
            Consistency::Sync => {
                let behind = self.store.header().rounds().get() < own_adds;
                if behind {
                    self.finish_rounds(worker, own_adds, "get", emit.as_mut().map(|emit| &mut **emit as &mut dyn Emit), by)?;
                }
                behind
            }
            Consistency::Bounded(bound) => {
                // As a rule an add is applied when it is made; one that met its deadline there is not.
                if self.has_unapplied(worker) {
                    self.apply_published(worker, None, by)?;
                }
                self.wait_for_others(worker, own_adds.saturating_sub(u64::from(bound)), by)?;
                false
            }
            Consistency::Async => {
                self.has_unapplied(worker) && self.apply_published(worker, emit.as_mut().map(|emit| &mut **emit as &mut dyn Emit), by)?
            }
        };
        match emit {
            Some(emit) if !passed => self.read_all(worker, emit, by),
            _ => Ok(()),
        }
    }

    /// Fetches into the caller's array.
    pub(crate) fn get(&self, worker: u32, own_adds: u64, rows: Selection<'_>, out: &mut [u8], by: Deadline) -> Result<(), Error> {
        self.enter("get", by)?;
        match rows {
            Selection::All if self.get_by_replica(worker, own_adds, out, by)? || self.get_beside_tally(worker, out, by)? => Ok(()),
            Selection::All => {
                let element = self.dtype.size();
                self.catch_up(worker, own_adds, Some(&mut IntoArray { past_cache: out.len() >= GOT_PAST_CACHE, out, element }), by)
            }
            Selection::Rows(ids) => {
                self.check_rows("get", ids)?;
                let _up_to_date = self.catch_up_for_rows(worker, own_adds, by)?;
                self.read_rows(worker, ids, out, by)
            }
        }
    }

    /// Adds straight into the values where nobody could inherit or read half of it: a world of one.
    pub(crate) fn add_alone(&self, rows: Selection<'_>, options: &AddOptions, delta: &[u8], by: Deadline) -> Result<bool, Error> {
        let _ = options;
        let updater = self.place.spec.updater;
        if !self.alone || !updater.is_stateless() || self.store.header().epoch().get() != 0 {
            return Ok(false);
        }
        self.enter("add", by)?;
        let size = self.dtype.size();
        let mut hand = self.hand(by)?;
        let mut one = |elements: Range<u64>, delta: &[u8]| -> Result<(), Error> {
            let (mut at, mut done) = (elements.start, 0);
            while at < elements.end {
                let index = self.store.stripe_of(at);
                let end = self.store.elements_of(index).end.min(elements.end);
                let bytes = (end - at) as usize * size;
                let mut hold = self.take(&mut hand, index, by)?;
                apply_in_place(updater, self.dtype, hold.contents_mut(0, at..end), &delta[done..done + bytes]);
                (at, done) = (end, done + bytes);
            }
            Ok(())
        };
        match rows {
            Selection::All => one(0..self.store.layout().elements, delta)?,
            Selection::Rows(ids) => {
                const AHEAD: usize = 8;
                self.check_rows("add", ids)?;
                let row_bytes = self.cols as usize * size;
                let elements = |id: i64| {
                    let first = (id as u64 - self.place.rows.start) * self.cols;
                    first..first + self.cols
                };
                for (index, id) in ids.iter().enumerate() {
                    if let Some(ahead) = ids.get(index + AHEAD) {
                        self.store.prefetch(0, elements(*ahead), true);
                    }
                    one(elements(*id), &delta[index * row_bytes..][..row_bytes])?;
                }
            }
        }
        Ok(true)
    }

    /// Stores the initial value as it is, in the values and in the states that begin with them.
    pub(crate) fn set_initial(&self, values: &[u8]) {
        let elements = 0..self.store.layout().elements;
        self.store.write_unguarded(0, elements.clone(), values);
        for (index, _) in self.place.state_lanes().iter().enumerate().filter(|(_, lane)| lane.starts_as_value) {
            self.store.write_unguarded(index + 1, elements.clone(), values);
        }
    }

    /// Maps a share that is not larger than this and whose memory is reserved, so that no later access stops for a page.
    pub(crate) fn map_ahead(&self, most: usize) {
        if bytes_ahead(self.store.layout()) <= most {
            self.store.populate();
        }
    }

    /// Ranks that have the share in memory.
    pub(crate) fn neighbours(&self) -> &[u32] {
        &self.place.hands
    }

    /// How many adds of each worker count here.
    pub(crate) fn clocks(&self) -> Vec<u64> {
        self.outboxes.iter().map(|outbox| outbox.published()).collect()
    }

    /// The owner's end of a worker's outbox, which another thread may have in hand while it waits for room.
    pub(crate) fn post(&self, worker: u32, by: Deadline) -> Result<MutexGuard<'_, Post>, Error> {
        let post = self.posts[worker as usize]
            .as_ref()
            .ok_or_else(|| Error::Configuration { detail: format!("{}: worker {worker} does not write here", self.place.title) })?;
        lock_by(post, || self.operation("waiting for another thread"), "is in the middle of an add", by)
    }

    /// Wakes neighbours that sleep until a clock moves.
    pub(crate) fn ring_neighbours(&self) {
        // Every word that lets somebody go is stored by `publish`, which fences.
        self.bells.iter().for_each(|bell| bell.ring_if_waiting_for_published());
    }
}

impl Share for LocalShare {
    fn rows(&self) -> Range<u64> {
        self.place.rows.clone()
    }

    fn stage(
        &self,
        worker: u32,
        sequence: u64,
        rows: Selection<'_>,
        options: &AddOptions,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<(), Error>,
        by: Deadline,
    ) -> Result<(), Error> {
        self.stage_add(worker, sequence, rows, options, fill, by)
    }

    fn publish(&self, worker: u32, sequence: u64) -> Result<(), Error> {
        self.publish_add(worker, sequence, Deadline::after(self.place.vigil.timeout()))
    }

    fn discard(&self, worker: u32, sequence: u64) {
        if let Ok(mut post) = self.post(worker, Deadline::after(self.place.vigil.timeout())) {
            post.discard(sequence);
        }
    }

    fn published(&self, worker: u32) -> u64 {
        self.outboxes[worker as usize].published()
    }

    fn settle(&self, worker: u32, sequence: u64, by: Deadline) -> Result<(), Error> {
        self.enter("add", by)?;
        self.settle_adds(worker, sequence, by)
    }

    fn read(
        &self,
        worker: u32,
        own_adds: u64,
        rows: Selection<'_>,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), Error>,
        by: Deadline,
    ) -> Result<(), Error> {
        self.enter("get", by)?;
        match rows {
            Selection::All => {
                let mut emit = IntoSink::new(self.dtype.size(), sink);
                if self.place.spec.consistency == Consistency::Async {
                    // In two passes: who takes the numbers may be slow, and with the hand taken all others would wait for that.
                    self.catch_up(worker, own_adds, None, by)?;
                    self.read_all(worker, &mut emit, by)?;
                } else {
                    self.catch_up(worker, own_adds, Some(&mut emit), by)?;
                }
                emit.flush()
            }
            Selection::Rows(ids) => {
                const PIECE: usize = 1 << 20;
                self.check_rows("get", ids)?;
                self.catch_up(worker, own_adds, None, by)?;
                let row_bytes = (self.cols as usize * self.dtype.size()).max(1);
                let mut piece = Vec::new();
                for ids in ids.chunks((PIECE / row_bytes).max(1)) {
                    piece.resize(ids.len() * self.cols as usize * self.dtype.size(), 0);
                    self.read_rows(worker, ids, &mut piece, by)?;
                    sink(&piece)?;
                }
                Ok(())
            }
        }
    }

    fn read_changed(&self, worker: u32, own_adds: u64, received: Option<u64>, by: Deadline) -> Result<(Vec<i64>, Vec<u8>), Error> {
        self.changed_rows(worker, own_adds, received, by)
    }

    fn finish(&self, worker: u32) {
        // Nobody will come for what is published and left, such as the last add of a dead worker, here or from elsewhere.
        match self.apply_left(worker, Deadline::after(self.place.vigil.timeout())) {
            Ok(true) => {
                self.outboxes[worker as usize].finish();
                self.ring_neighbours();
            }
            // Nobody looks into an outbox that is closed. This one stays open, for its own process or for who finds that dead.
            Ok(false) => {}
            Err(error) => tracing::warn!("{}: the last add of worker {worker} is not applied: {error}", self.place.title),
        }
    }

    fn unfinished(&self) -> Vec<u32> {
        (0..).zip(&self.outboxes).filter(|(_, outbox)| !outbox.is_finished()).map(|(worker, _)| worker).collect()
    }

    fn lanes(&self) -> Vec<LaneInfo> {
        lanes(&self.place.spec, self.place.workers.len() as u32)
    }

    fn read_lane(&self, lane: usize, first_row: u64, out: &mut [u8], by: Deadline) -> Result<(), Error> {
        if lane > 0 && self.gradient.is_some() {
            return self.read_state_lane(lane, first_row, out, by);
        }
        let width = self.store.layout().lanes[lane];
        let first = (first_row - self.place.rows.start) * self.cols;
        self.read_elements(lane, first..first + (out.len() / width) as u64, out, by)
    }

    fn write_lane(&self, lane: usize, first_row: u64, bytes: &[u8], by: Deadline) -> Result<(), Error> {
        if lane > 0 && self.gradient.is_some() {
            return self.write_state_lane(lane, first_row, bytes, by);
        }
        let width = self.store.layout().lanes[lane];
        let first = (first_row - self.place.rows.start) * self.cols;
        self.write_elements(lane, first..first + (bytes.len() / width) as u64, bytes, by)
    }
}

/// The lanes of a table, values first.
pub(crate) fn lanes(spec: &Spec, workers: u32) -> Vec<LaneInfo> {
    let cols = spec.rows_and_cols().map_or(1, |(_, cols)| cols) as usize;
    let values = LaneInfo { name: "value".into(), dtype: spec.dtype(), row_bytes: cols * spec.dtype().size() };
    let states = spec.updater.state_lanes(spec.dtype(), workers).into_iter();
    let states = states.map(|lane| LaneInfo { row_bytes: cols * lane.dtype.size(), name: lane.name, dtype: lane.dtype });
    std::iter::once(values).chain(states).chain(gradient::notes_lane(spec)).collect()
}

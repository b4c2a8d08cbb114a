//! A share that could not be simpler: one lock, one vector. What everything else is compared with or built upon in tests.

use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use syncline_cluster::{Deadline, Error, Who};
use syncline_tensor::DType;
use syncline_tensor::kernels::{ReduceOp, reduce_into};

use crate::keys::Rounds;
use crate::share::{LaneInfo, Selection, Share};
use crate::{AddOptions, Consistency};

/// One add: which rows (none is all) and their bytes.
type Add = (Option<Vec<i64>>, Vec<u8>);

pub(super) struct Naive {
    rows: Range<u64>,
    row_bytes: usize,
    dtype: DType,
    state: Mutex<State>,
    changed: Condvar,
    /// What a test makes of it.
    pub(super) moods: Moods,
}

/// Ways in which a share in trouble behaves, to be switched on and off.
#[derive(Default)]
pub(super) struct Moods {
    /// What is staged waits until this is over.
    pub(super) stages_wait: AtomicBool,
    /// Nothing is staged.
    pub(super) stages_fail: AtomicBool,
    /// What is published counts at once, but the call waits until this is over.
    pub(super) publishes_wait: AtomicBool,
    /// What is published counts, but cannot be applied at once.
    pub(super) applying_fails: AtomicBool,
}

impl Moods {
    fn wait_while(mood: &AtomicBool) {
        while mood.load(SeqCst) {
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }
}

struct State {
    rounds: Rounds<Add>,
    values: Vec<u8>,
    /// By worker and row: whether the worker has not seen the row's last change.
    news: Vec<Vec<bool>>,
    /// By worker: which answer about them was the last, and what it told.
    told: Vec<(u64, Vec<bool>)>,
}

impl Naive {
    pub(super) fn new(rows: Range<u64>, cols: usize, dtype: DType, consistency: Consistency, workers: usize) -> Naive {
        let (count, row_bytes) = ((rows.end - rows.start) as usize, cols * dtype.size());
        let (news, told) = (vec![vec![true; count]; workers], vec![(0, Vec::new()); workers]);
        let state = State { rounds: Rounds::new(consistency, workers), values: vec![0; count * row_bytes], news, told };
        Naive { rows, row_bytes, dtype, state: Mutex::new(state), changed: Condvar::new(), moods: Moods::default() }
    }

    /// All values, whatever the clocks say.
    pub(super) fn values(&self) -> Vec<u8> {
        self.state.lock().expect("no panic").values.clone()
    }

    /// What a get returns, if it need not wait.
    pub(super) fn try_read(&self, own_adds: u64, rows: Selection<'_>) -> Option<Vec<u8>> {
        let state = self.state.lock().expect("no panic");
        state.rounds.missing_for_get(own_adds).is_empty().then(|| match rows {
            Selection::All => state.values.clone(),
            Selection::Rows(ids) => ids.iter().flat_map(|id| state.values[self.at(*id)].to_vec()).collect(),
        })
    }

    fn at(&self, id: i64) -> Range<usize> {
        let start = (id as u64 - self.rows.start) as usize * self.row_bytes;
        start..start + self.row_bytes
    }

    fn apply(&self, state: &mut State, ready: Vec<(u32, Add)>) {
        for (worker, (ids, delta)) in ready {
            let ids = ids.unwrap_or_else(|| (self.rows.start as i64..self.rows.end as i64).collect());
            for (id, row) in ids.iter().zip(delta.chunks_exact(self.row_bytes)) {
                reduce_into(ReduceOp::Sum, self.dtype, &mut state.values[self.at(*id)], row).expect("same lengths");
                for (other, news) in state.news.iter_mut().enumerate() {
                    news[(*id as u64 - self.rows.start) as usize] |= other != worker as usize;
                }
            }
        }
    }

    fn wait<T>(&self, by: Deadline, mut look: impl FnMut(&mut State) -> Result<T, Vec<u32>>) -> Result<T, Error> {
        let mut state = self.state.lock().expect("no panic");
        loop {
            let missing = match look(&mut state) {
                Ok(found) => return Ok(found),
                Err(missing) => missing,
            };
            if by.interrupted() {
                return Err(Error::Interrupted { operation: "wait".into(), waited: by.waited() });
            }
            if by.expired() {
                let missing = missing.iter().map(|worker| Who { rank: *worker, host: "test".into(), pid: 1 }).collect();
                return Err(Error::Timeout {
                    operation: "wait".into(),
                    missing,
                    detail: String::new(),
                    waited: by.waited(),
                    hint: "none".into(),
                });
            }
            state = self.changed.wait_timeout(state, by.slice(Duration::from_millis(50))).expect("no panic").0;
        }
    }
}

fn or_missing(missing: Vec<u32>) -> Result<(), Vec<u32>> {
    if missing.is_empty() { Ok(()) } else { Err(missing) }
}

impl Share for Naive {
    fn rows(&self) -> Range<u64> {
        self.rows.clone()
    }

    fn stage(
        &self,
        worker: u32,
        sequence: u64,
        rows: Selection<'_>,
        _options: &AddOptions,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<(), Error>,
        _by: Deadline,
    ) -> Result<(), Error> {
        let (ids, count) = match rows {
            Selection::All => (None, (self.rows.end - self.rows.start) as usize),
            Selection::Rows(ids) => (Some(ids.to_vec()), ids.len()),
        };
        if let Some(bad) = ids.iter().flatten().find(|id| **id < 0 || !self.rows.contains(&(**id as u64))) {
            return Err(Error::UnknownKey { operation: "add".into(), detail: format!("row {bad} is not here") });
        }
        Moods::wait_while(&self.moods.stages_wait);
        if self.moods.stages_fail.load(SeqCst) {
            return Err(Error::System { operation: "add".into(), detail: "there is no room".into() });
        }
        let mut delta = vec![0; count * self.row_bytes];
        for piece in delta.chunks_mut(1000) {
            fill(piece)?;
        }
        let staged = self.state.lock().expect("no panic").rounds.stage(worker, sequence, (ids, delta));
        staged.map_err(|detail| Error::ContractMismatch { operation: "add".into(), detail })
    }

    fn publish(&self, worker: u32, sequence: u64) -> Result<(), Error> {
        let mut state = self.state.lock().expect("no panic");
        let ready = state.rounds.publish(worker, sequence);
        self.apply(&mut state, ready);
        drop(state);
        self.changed.notify_all();
        Moods::wait_while(&self.moods.publishes_wait);
        if self.moods.applying_fails.load(SeqCst) {
            return Err(Error::System { operation: "add".into(), detail: "a stripe is not let go".into() });
        }
        Ok(())
    }

    fn discard(&self, worker: u32, sequence: u64) {
        self.state.lock().expect("no panic").rounds.discard(worker, sequence);
    }

    fn published(&self, worker: u32) -> u64 {
        self.state.lock().expect("no panic").rounds.published(worker)
    }

    fn settle(&self, worker: u32, sequence: u64, by: Deadline) -> Result<(), Error> {
        self.wait(by, |state| or_missing(state.rounds.missing_for_settle(worker, sequence)))
    }

    fn read(
        &self,
        _worker: u32,
        own_adds: u64,
        rows: Selection<'_>,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), Error>,
        by: Deadline,
    ) -> Result<(), Error> {
        let bytes = self.wait(by, |state| {
            or_missing(state.rounds.missing_for_get(own_adds))?;
            Ok(match rows {
                Selection::All => state.values.clone(),
                Selection::Rows(ids) => ids.iter().flat_map(|id| state.values[self.at(*id)].to_vec()).collect(),
            })
        })?;
        bytes.chunks(777).try_for_each(sink)
    }

    fn read_changed(&self, worker: u32, own_adds: u64, received: Option<u64>, by: Deadline) -> Result<(Vec<i64>, Vec<u8>), Error> {
        self.wait(by, |state| {
            or_missing(state.rounds.missing_for_get(own_adds))?;
            let mut news = std::mem::replace(&mut state.news[worker as usize], vec![false; (self.rows.end - self.rows.start) as usize]);
            let (number, told) = &mut state.told[worker as usize];
            if received.is_some_and(|received| received < *number) {
                news.iter_mut().zip(&*told).for_each(|(new, told)| *new |= told);
            }
            (*number, *told) = (received.unwrap_or(*number) + 1, news.clone());
            let ids: Vec<i64> = (self.rows.start as i64..).zip(news).filter(|(_, is_new)| *is_new).map(|(id, _)| id).collect();
            let rows = ids.iter().flat_map(|id| state.values[self.at(*id)].to_vec()).collect();
            Ok((ids, rows))
        })
    }

    fn finish(&self, worker: u32) {
        let mut state = self.state.lock().expect("no panic");
        let ready = state.rounds.finish(worker);
        self.apply(&mut state, ready);
        self.changed.notify_all();
    }

    fn unfinished(&self) -> Vec<u32> {
        self.state.lock().expect("no panic").rounds.unfinished()
    }

    fn lanes(&self) -> Vec<LaneInfo> {
        vec![LaneInfo { name: "value".into(), dtype: self.dtype, row_bytes: self.row_bytes }]
    }

    fn read_lane(&self, _lane: usize, first_row: u64, out: &mut [u8], _by: Deadline) -> Result<(), Error> {
        let start = self.at(first_row as i64).start;
        out.copy_from_slice(&self.state.lock().expect("no panic").values[start..start + out.len()]);
        Ok(())
    }

    fn write_lane(&self, _lane: usize, first_row: u64, bytes: &[u8], _by: Deadline) -> Result<(), Error> {
        let start = self.at(first_row as i64).start;
        self.state.lock().expect("no panic").values[start..start + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
}

//! One table as a worker holds it.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard};

use syncline_cluster::{Deadline, Error, Vigil};
use syncline_shm::bulletin::Bulletin;
use syncline_tensor::DType;
use syncline_tensor::kernels::quantize::Quantizer;

use crate::caretaker::Caretaker;
use crate::fetching::Fetching;
use crate::gradient::{Gradient, Habits};
use crate::locking::lock_by;
use crate::share::{LocalShare, Selection, Share};
use crate::spread::{Code, Manner, Spread};
use crate::way::Way;
use crate::{AddOptions, Consistency, Pending, Shape, Spec};

/// A handle on a table. Clones are handles on the same table; any number of threads may use them.
#[derive(Clone)]
pub struct Table {
    pub(crate) inner: Arc<Inner>,
    /// The turn of what goes over links; none takes no turns.
    pub(crate) priority: Option<i32>,
}

/// What one thread at a time has in hand: whoever adds.
#[derive(Default)]
struct Adds {
    made: u64,
    /// Of a gradient table.
    habits: Habits,
}

pub(crate) struct Inner {
    pub(crate) number: u32,
    pub(crate) name: String,
    pub(crate) spec: Spec,
    /// This process's worker number.
    pub(crate) worker: u32,
    pub(crate) way: Way,
    pub(crate) vigil: Vigil,
    /// Adds this worker has made.
    adds: Mutex<Adds>,
    caretaker: Arc<Caretaker>,
    noted: AtomicBool,
    /// Gets in the background, which in sync mode must have read before the next add counts.
    fetching: Arc<Fetching>,
    /// What a gradient table goes by.
    pub(crate) gradient: Option<Gradient>,
}

impl Inner {
    #[allow(clippy::too_many_arguments, reason = "a table is made in one place")]
    pub(crate) fn new(
        number: u32,
        name: String,
        spec: Spec,
        worker: u32,
        way: Way,
        vigil: Vigil,
        caretaker: Arc<Caretaker>,
        board: Option<Bulletin>,
    ) -> Inner {
        let hosts = match &way {
            Way::Here(_) => 1,
            Way::Spread(spread) | Way::Keys { spread, .. } => spread.first_rows().len(),
        };
        let gradient = board.map(|board| Gradient::new(board, &spec, hosts));
        Inner {
            fetching: Fetching::new(spec.consistency != Consistency::Async),
            number,
            name,
            spec,
            worker,
            way,
            vigil,
            adds: Mutex::default(),
            caretaker,
            noted: AtomicBool::new(false),
            gradient,
        }
    }

    /// This worker's count of adds, which also orders them: one thread at a time, and it may hold them while its add waits for others.
    #[inline(always)] // Every call on a table begins with it.
    fn adds_by(&self, what: &str, by: Deadline) -> Result<MutexGuard<'_, Adds>, Error> {
        lock_by(&self.adds, || self.operation(what), "is in the middle of an add", by)
    }

    /// How many adds of this worker a get contains that is called now.
    #[inline(always)]
    pub(crate) fn own_adds(&self, what: &str, by: Deadline) -> Result<u64, Error> {
        match &self.way {
            Way::Here(_) => Ok(self.adds_by(what, by)?.made),
            Way::Spread(spread) | Way::Keys { spread, .. } => Ok(spread.issued()),
        }
    }

    fn operation(&self, what: &str) -> String {
        format!("table `{}`: {what}", self.name)
    }

    pub(crate) fn forget_noted(&self) {
        self.noted.store(false, Release);
    }

    /// Whether this call is the one that notes the table.
    pub(crate) fn note_again(&self) -> bool {
        !self.noted.swap(true, AcqRel)
    }

    #[cfg(all(test, debug_assertions))]
    pub(crate) fn is_noted(&self) -> bool {
        self.noted.load(Acquire)
    }

    /// Has the caretaker look after adds that count and are not applied.
    #[inline]
    fn note_left(&self, this: &Arc<Inner>, share: &LocalShare) {
        if share.has_unapplied(self.worker) && !self.noted.load(Relaxed) && self.note_again() {
            self.caretaker.note(this);
        }
    }

    /// Rows the call is about, checked against the bytes given.
    fn selection<'a>(&self, what: &str, bytes: usize, rows: Option<&'a [i64]>) -> Result<Selection<'a>, Error> {
        self.vigil.usable(&self.name)?;
        let Some((all, cols)) = self.spec.rows_and_cols() else {
            return Err(Error::Configuration { detail: format!("{}: a key-value table takes keys", self.operation(what)) });
        };
        let size = self.spec.dtype().size();
        let expected = rows.map_or(all, |rows| rows.len() as u64) * cols;
        if bytes as u64 != expected * size as u64 {
            let given = bytes / size;
            let detail = match (rows, self.spec.shape) {
                (Some(rows), _) => format!("{given} elements given for {} rows of {cols}, {expected} needed", rows.len()),
                (None, Shape::Matrix { rows, cols }) => format!("{given} elements given, the table has {rows} x {cols} = {expected}"),
                (None, _) => format!("{given} elements given, the table has {expected}"),
            };
            return Err(Error::ShapeMismatch { operation: self.operation(what), detail });
        }
        if rows.is_some() && !matches!(self.spec.shape, Shape::Matrix { .. }) {
            return Err(Error::Configuration { detail: format!("{}: an array has no rows; use a matrix table", self.operation(what)) });
        }
        if let Some(ids) = rows {
            check_ids(&self.operation(what), ids, all)?;
        }
        Ok(rows.map_or(Selection::All, Selection::Rows))
    }

    /// Refuses what every add would be refused for now.
    pub(crate) fn accepts_adds(&self) -> Result<(), Error> {
        self.vigil.usable(&self.name)?;
        let Some(gradient) = &self.gradient else { return Ok(()) };
        gradient.check(self.spec.consistency == Consistency::Sync)
    }

    /// The options an add goes with, checked. Gradients carry a stamp instead, which a round over several hosts must find the same everywhere.
    fn options(&self, options: &AddOptions) -> Result<AddOptions, Error> {
        options.check(self.spec.updater)?;
        let Some(gradient) = &self.gradient else { return Ok(*options) };
        let sync = self.spec.consistency == Consistency::Sync;
        gradient.check(sync).map_err(|error| match error {
            Error::Configuration { detail } => Error::Configuration { detail: format!("{}: {detail}", self.operation("add")) },
            error => error,
        })?;
        match &self.way {
            Way::Spread(_) if sync => Ok(gradient.stamp(None)?.to_options()),
            _ => Ok(AddOptions::default()),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "those of `Table::add`, its handle and its turn")]
    fn add(
        &self,
        this: &Arc<Inner>,
        delta: &[u8],
        ids: Option<&[i64]>,
        options: &AddOptions,
        priority: Option<i32>,
        wait: bool,
        by: Deadline,
    ) -> Result<(), Error> {
        let rows = self.selection("add", delta.len(), ids)?;
        let options = &self.options(options)?;
        if self.spec.consistency == Consistency::Sync {
            self.wait_for_background(by)?;
        }
        match &self.way {
            Way::Here(share) => {
                let mut adds = self.adds_by("add", by)?;
                let sequence = adds.made + 1;
                if let Some(lent) = share.lendable(rows, delta) {
                    share.publish_lent(self.worker, sequence, options, lent, by)?;
                    adds.made = sequence;
                    drop(adds);
                    let applied = share.applied_by(self.worker, sequence, delta, || share.settle_adds(self.worker, sequence, by));
                    self.note_left(this, share);
                    return applied;
                }
                let done = match &self.gradient {
                    Some(_) => share.step_now(&mut adds.habits, (self.worker, sequence), rows, delta, by)?,
                    None => {
                        share.add_alone(rows, options, delta, by)?
                            || share.add_to_tally((self.worker, sequence), rows, delta, None, by)?
                            || share.add_directly(self.worker, sequence, rows, options, delta, by)?
                    }
                };
                let mut applied = Ok(());
                if !done {
                    let mut fill = |room: &mut [u8]| {
                        share.copy_delta(room, delta);
                        Ok(())
                    };
                    share.stage_add(self.worker, sequence, rows, options, &mut fill, by)?;
                    applied = share.publish_add(self.worker, sequence, by);
                    if applied.is_err() && share.published(self.worker) < sequence {
                        return applied; // Another thread kept it from counting: its number is the next one's.
                    }
                }
                adds.made = sequence; // It counts from here on, also when it could not be applied at once.
                drop(adds);
                if wait && applied.is_ok() {
                    applied = share.settle_adds(self.worker, sequence, by);
                }
                self.note_left(this, share);
                applied
            }
            Way::Spread(spread) | Way::Keys { spread, .. } => spread.add_in(Manner { priority, code: None }, delta, ids, options, wait, by),
        }
    }

    fn get(&self, out: &mut [u8], ids: Option<&[i64]>, own_adds: u64, priority: Option<i32>, by: Deadline) -> Result<(), Error> {
        let rows = self.selection("get", out.len(), ids)?;
        match &self.way {
            Way::Here(share) => share.get(self.worker, own_adds, rows, out, by),
            Way::Spread(spread) | Way::Keys { spread, .. } => spread.get_in(Manner { priority, code: None }, out, ids, own_adds, by),
        }
    }

    /// What numbers in few bits must be for this table.
    fn check_code(&self, what: &str, code: Code) -> Result<(), Error> {
        let refused = |detail: String| Err(Error::Configuration { detail: format!("{}: {detail}", self.operation(what)) });
        self.vigil.usable(&self.name)?;
        if self.spec.rows_and_cols().is_none() || self.spec.dtype() != DType::F32 {
            return refused(format!("numbers in few bits are for arrays and matrices of float32, not for {}", self.spec));
        }
        code.check().or_else(refused)
    }

    #[expect(clippy::too_many_arguments, reason = "those of `Table::add_quantized`, its handle and its turn")]
    fn add_words(
        &self,
        this: &Arc<Inner>,
        code: Code,
        words: &[u8],
        options: &AddOptions,
        manner: Manner,
        wait: bool,
        by: Deadline,
    ) -> Result<(), Error> {
        self.check_code("add", code)?;
        let options = &self.options(options)?;
        let (numbers, name) = (self.spec.bytes() / 4, code.quantizer().name());
        let wanted = code.quantizer().encoded_len(numbers);
        if words.len() != wanted {
            let detail = format!("{numbers} numbers are {wanted} bytes of {name}, not {}", words.len());
            return Err(Error::ShapeMismatch { operation: self.operation("add"), detail });
        }
        if self.spec.consistency == Consistency::Sync {
            self.wait_for_background(by)?;
        }
        let share = match &self.way {
            Way::Here(share) => share,
            Way::Spread(spread) | Way::Keys { spread, .. } => return spread.add_in(manner, words, None, options, wait, by),
        };
        let mut adds = self.adds_by("add", by)?;
        let sequence = adds.made + 1;
        share.stage_add(self.worker, sequence, Selection::All, options, &mut |room| code.decode(words, room), by)?;
        let mut applied = share.publish_add(self.worker, sequence, by);
        if applied.is_err() && share.published(self.worker) < sequence {
            return applied;
        }
        adds.made = sequence; // It counts from here on, also when it could not be applied at once.
        drop(adds);
        if wait && applied.is_ok() {
            applied = share.settle_adds(self.worker, sequence, by);
        }
        self.note_left(this, share);
        applied
    }

    /// The way to a key-value table, after a look at the sizes.
    fn keys(&self, what: &str, keys: &[i64], bytes: usize) -> Result<&Spread, Error> {
        let Way::Keys { spread, .. } = &self.way else {
            let detail = format!("{}: this table has rows, not keys", self.operation(what));
            return Err(Error::Configuration { detail });
        };
        let size = self.spec.dtype().size();
        if bytes != keys.len() * size {
            let detail = format!("{} values given for {} keys", bytes / size, keys.len());
            return Err(Error::ShapeMismatch { operation: self.operation(what), detail });
        }
        self.vigil.usable(&self.name)?;
        Ok(spread)
    }

    fn wait_for_background(&self, by: Deadline) -> Result<(), Error> {
        self.fetching.wait_until_done(by, &|| self.operation("add after a get in the background"))
    }
}

/// Refuses ids that are no rows of the table before anything is sent or changed.
fn check_ids(operation: &str, ids: &[i64], rows: u64) -> Result<(), Error> {
    let bad = ids.iter().fold(false, |bad, id| bad | (*id as u64 >= rows));
    if !bad {
        return Ok(());
    }
    let (at, id) = ids.iter().enumerate().find(|(_, id)| **id as u64 >= rows).expect("one is bad");
    let range = if rows == 0 { "no rows".to_owned() } else { format!("rows 0 to {}", rows - 1) };
    Err(Error::UnknownKey {
        operation: operation.into(),
        detail: format!("row id {id} (number {at} of {}) does not exist, the table has {range}; nothing was changed", ids.len()),
    })
}

impl Table {
    /// What was agreed on.
    pub fn spec(&self) -> &Spec {
        &self.inner.spec
    }

    /// The number every worker knows the table by, in order of creation.
    pub fn id(&self) -> u32 {
        self.inner.number
    }

    /// The table's name, given or made up.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Adds `delta`, raw bytes of the table's dtype: the whole table, or one row per id of `rows` in their order.
    ///
    /// Returns when the delta is taken over (the caller may change it again), or with `wait` when it is applied.
    pub fn add(&self, delta: &[u8], rows: Option<&[i64]>, options: &AddOptions, wait: bool, by: Deadline) -> Result<(), Error> {
        self.inner.add(&self.inner, delta, rows, options, self.priority, wait, by)
    }

    /// The same table with turns: of the large frames (from 16 KB on) that wait for the way to one server, those of handles with a higher
    /// priority go first, equal ones in the order they came. So do the server's replies. Calls on one table keep their order.
    ///
    /// A server that takes nothing for half a second holds up nobody else; then what waits goes beside it. Handles without a
    /// priority, as tables come, take no turns.
    pub fn prioritised(&self, priority: i32) -> Table {
        Table { inner: Arc::clone(&self.inner), priority: Some(priority) }
    }

    /// Adds a delta of the whole table that comes in few bits: `words` is what `quantizer` made of it. Tables of float32 only.
    ///
    /// Over a link the words travel, and the server decodes them straight to where the delta is applied from; in shared memory they
    /// are decoded there at once. Bits do not depend on where the table lives.
    pub fn add_quantized(&self, quantizer: &Quantizer, words: &[u8], options: &AddOptions, wait: bool, by: Deadline) -> Result<(), Error> {
        let code = Code::from(*quantizer);
        self.inner.add_words(&self.inner, code, words, options, Manner { priority: self.priority, code: Some(code) }, wait, by)
    }

    /// Fetches the whole table of float32 into `out`, rounded to what `quantizer` (f16, bf16 or int8) can say, in so few bits over links.
    pub fn get_quantized(&self, quantizer: &Quantizer, out: &mut [u8], by: Deadline) -> Result<(), Error> {
        let (inner, code) = (&self.inner, Code::from(*quantizer));
        inner.check_code("get", code)?;
        if !code.suits_values() {
            let detail = format!("{}: values come as fp16, bf16 or int8; {} is for gradients", inner.operation("get"), quantizer.name());
            return Err(Error::Configuration { detail });
        }
        inner.selection("get", out.len(), None)?;
        match &inner.way {
            Way::Here(_) => {
                self.get(out, None, by)?;
                code.round(out)
            }
            Way::Spread(spread) | Way::Keys { spread, .. } => {
                spread.get_in(Manner { priority: self.priority, code: Some(code) }, out, None, spread.issued(), by)
            }
        }
    }

    /// Fetches the whole table, or one row per id of `rows` in their order, into `out`.
    pub fn get(&self, out: &mut [u8], rows: Option<&[i64]>, by: Deadline) -> Result<(), Error> {
        let own_adds = self.inner.own_adds("get", by)?;
        self.inner.get(out, rows, own_adds, self.priority, by)
    }

    /// Adds and fetches in one pass.
    pub fn add_get(&self, delta: &[u8], out: &mut [u8], rows: Option<&[i64]>, options: &AddOptions, by: Deadline) -> Result<(), Error> {
        let inner = &self.inner;
        inner.selection("get", out.len(), rows)?;
        if let Way::Spread(spread) = &inner.way {
            inner.selection("add", delta.len(), rows)?;
            let options = &inner.options(options)?;
            if inner.spec.consistency == Consistency::Sync {
                inner.wait_for_background(by)?;
            }
            return spread.add_get_in(Manner { priority: self.priority, code: None }, delta, out, rows, options, by);
        }
        if let Way::Here(share) = &inner.way
            && inner.spec.consistency == Consistency::Async
            && let Some(lent) = share.lendable(inner.selection("add", delta.len(), rows)?, delta)
        {
            let options = &inner.options(options)?;
            let mut adds = inner.adds_by("add_get", by)?;
            let sequence = adds.made + 1;
            share.publish_lent(inner.worker, sequence, options, lent, by)?;
            adds.made = sequence;
            drop(adds);
            let got = share.applied_by(inner.worker, sequence, delta, || share.get(inner.worker, sequence, Selection::All, out, by));
            inner.note_left(inner, share);
            return got;
        }
        self.add(delta, rows, options, false, by)?;
        self.get(out, rows, by)
    }

    /// Begins to fetch; the result waits in what is returned. It contains this worker's adds up to now.
    pub fn get_async(&self, rows: Option<Vec<i64>>) -> Result<Pending, Error> {
        let inner = Arc::clone(&self.inner);
        let cols = inner.spec.row_bytes();
        let bytes = rows.as_ref().map_or(inner.spec.bytes(), |rows| rows.len() * cols);
        inner.selection("get", bytes, rows.as_deref())?;
        let own_adds = inner.own_adds("get", Deadline::after(inner.vigil.timeout()))?;
        let priority = self.priority;
        self.inner.fetching.begin(move || {
            let mut out = vec![0; bytes];
            let by = Deadline::after(inner.vigil.timeout());
            inner.get(&mut out, rows.as_deref(), own_adds, priority, by).map(|()| out)
        })
    }

    /// Writes into `out`, which holds the whole table, the rows that others changed since this worker's last call, and
    /// returns their ids in order. The first call fetches every row.
    pub fn get_changed(&self, out: &mut [u8], by: Deadline) -> Result<Vec<i64>, Error> {
        self.inner.selection("get_changed", out.len(), None)?;
        if !matches!(self.inner.spec.shape, Shape::Matrix { .. }) {
            return Err(Error::Configuration {
                detail: format!("{}: only a matrix knows its changed rows", self.inner.operation("get_changed")),
            });
        }
        let (ids, rows) = match &self.inner.way {
            Way::Here(share) => share.read_changed(self.inner.worker, self.inner.own_adds("get_changed", by)?, None, by)?,
            Way::Spread(spread) | Way::Keys { spread, .. } => return spread.get_changed(out, by),
        };
        let width = self.inner.spec.row_bytes();
        for (index, id) in ids.iter().enumerate() {
            out[*id as usize * width..][..width].copy_from_slice(&rows[index * width..][..width]);
        }
        Ok(ids)
    }

    /// Adds one value per key of a key-value table; a key that stands twice is added to twice.
    pub fn add_keys(&self, keys: &[i64], values: &[u8], wait: bool, by: Deadline) -> Result<(), Error> {
        let spread = self.inner.keys("add", keys, values.len())?;
        if self.inner.spec.consistency == Consistency::Sync {
            self.inner.wait_for_background(by)?;
        }
        spread.add_in(Manner { priority: self.priority, code: None }, values, Some(keys), &AddOptions::default(), wait, by)
    }

    /// Fetches one value per key into `out`; keys never added to read as zero.
    pub fn get_keys(&self, keys: &[i64], out: &mut [u8], by: Deadline) -> Result<(), Error> {
        let spread = self.inner.keys("get", keys, out.len())?;
        spread.get_in(Manner { priority: self.priority, code: None }, out, Some(keys), spread.issued(), by)
    }

    /// How many adds each worker has made, as far as this process knows. Empty where servers elsewhere had to be asked and could
    /// not be: [`clocks_by`](Table::clocks_by) says why.
    pub fn clocks(&self) -> Vec<u64> {
        self.clocks_by(Deadline::after(self.inner.vigil.timeout())).unwrap_or_default()
    }

    /// How many adds each worker has made, as far as this process and the servers that it asks know.
    pub fn clocks_by(&self, by: Deadline) -> Result<Vec<u64>, Error> {
        let mut clocks = match &self.inner.way {
            Way::Here(share) => share.clocks(),
            Way::Spread(spread) | Way::Keys { spread, .. } => return spread.clocks(by),
        };
        let mine = &mut clocks[self.inner.worker as usize];
        *mine = (*mine).max(self.inner.adds_by("clocks", by)?.made);
        Ok(clocks)
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Table({}: {})", self.inner.number, self.inner.spec)
    }
}

#[cfg(test)]
mod tests {
    use syncline_cluster::{ErrorKind, Job};

    use std::time::Duration;

    use super::*;
    use crate::Tables;

    #[test]
    fn who_waits_until_all_adds_are_applied_waits_no_longer_than_it_wants_for_another_threads_add() {
        let job = Arc::new(Job::alone(Duration::from_secs(5)).expect("a world of one"));
        let tables = Tables::new(job);
        let table = tables.create(Spec::array(4), None, "here", Deadline::never()).expect("made");
        let adding = table.inner.adds_by("add", Deadline::never()).expect("free");
        let late = table.inner.settle(Deadline::after(Duration::from_millis(5))).expect_err("another thread adds");
        assert_eq!(late.kind(), ErrorKind::Timeout, "{late}");
        drop(adding);
        table.inner.settle(Deadline::never()).expect("nothing is left to do");
    }
}

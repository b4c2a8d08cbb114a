//! Tables made by name: in any order, at any time, by worker 0 for all.
//!
//! ```text
//!  worker 0                     coordinator             who serves (a thread of its own)      worker 2, when it likes
//!    Make: table w is …  ──────▶ passes on ────────────▶ claims memory, begins to serve
//!    ◀─────────────────────────────────────────────────── Answer
//!    writes its value
//!    Ready ─────────────────────▶ passes on ──────────────────────────────────────────────▶ finds it, compares, opens it
//! ```
//! Worker 0 waits for those who serve, whose threads answer whatever their users do, and for nobody's call; the others wait
//! for worker 0 only. On one host nobody is asked: worker 0 claims all memory itself, and one notice tells that it is there.
//!
//! Worker 0 gives the numbers, from a range that tables made in order never reach. The rules of gradient tables go the same way
//! where there are several hosts: all members hear them in one order, so all hosts number them alike.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use syncline_cluster::{Deadline, Error, Notice, Vigil};
use syncline_optimizer::Optimizer;
use syncline_wire::codec::{decode_message, encode_message};

use crate::gradient::{self, Series, Then};
use crate::ground::Ground;
use crate::setup::{Made, Settled, working};
use crate::share::Share;
use crate::spread::{Baton, NoTurn};
use crate::tables::Shared;
use crate::{Spec, Table};

/// Numbers from here on belong to tables made by name.
const FIRST: u32 = 1 << 31;
/// What fits into a notice beside its own few bytes.
const MOST: usize = Vigil::MOST_IN_NOTICE - 64;
/// The longest sleep without a look at the deadline and at who is gone.
const LOOK: Duration = Duration::from_millis(100);

/// What goes to all members.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Word {
    /// Worker 0 makes these; whoever serves settles in and answers. They may be `ready` already.
    Make { tables: Vec<Entry>, ready: bool },
    /// These have worker 0's value.
    Ready { tables: Vec<u32> },
    /// These will not be.
    Unmake { tables: Vec<u32>, why: String },
    /// This worker uses none of them any more, nor any that comes.
    Finished { worker: u32 },
    /// What gradients do to the tables of a family from now on; everybody pins it up and answers.
    Rule { family: u32, body: Vec<u8>, states: Then },
}

/// One table of a notice.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Entry {
    number: u32,
    spec: Spec,
    site: String,
}

impl Word {
    pub(crate) fn encode(&self) -> Result<Vec<u8>, Error> {
        let encoded = encode_message("word about tables", self, Vigil::MOST_IN_NOTICE);
        encoded.map_err(|error| Error::Configuration { detail: format!("{error}\nhint: shorter names") })
    }

    /// Reads what another member says; a table in it is one that can exist.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Word> {
        let word: Word = decode_message("word about tables", bytes, Vigil::MOST_IN_NOTICE).ok()?;
        let sound = |entry: &Entry| entry.number >= FIRST && entry.spec.name.is_some() && entry.spec.check().is_ok();
        match &word {
            Word::Make { tables, .. } if !tables.iter().all(sound) => None,
            _ => Some(word),
        }
    }
}

/// The tables made by name, as this process knows them.
pub(crate) struct Named {
    ground: Arc<Ground>,
    state: Mutex<State>,
    news: Condvar,
    /// Held while this process settles in: its listener and its user may both want to.
    settling: Baton<()>,
}

#[derive(Default)]
struct State {
    tables: BTreeMap<u32, Known>,
    numbers: HashMap<String, u32>,
    /// Names that this worker uses, and where it said so.
    mine: HashMap<String, String>,
    opened: Vec<Table>,
    /// How many numbers worker 0 has given.
    given: u32,
    /// Workers that use no table any more.
    finished: BTreeSet<u32>,
    /// By family.
    rules: BTreeMap<u32, Series>,
    listens: bool,
    /// How many notices were read and taken to heart.
    heard: u64,
}

/// One of them.
struct Known {
    made: Made,
    /// Where worker 0 named it.
    site: String,
    ready: bool,
    /// Why it will not be.
    failed: Option<String>,
    settled: Option<Arc<Settled>>,
}

/// What a caller wants: a table with a name, and its first value.
pub(crate) type Wanted<'a> = (Spec, Option<&'a [u8]>);

/// Makes or finds tables for this process's worker. All of them are there, or none.
pub(crate) fn create(tables: &Shared, wanted: &[Wanted<'_>], site: &str, by: Deadline) -> Result<Vec<Table>, Error> {
    let named = &tables.named;
    let worker = working(&tables.ground)?;
    for (spec, initial) in wanted {
        spec.check()?;
        check_name(spec)?;
        check_initial(spec, *initial)?;
    }
    named.listen();
    named.take_names(wanted, site)?;
    let made = match worker {
        0 => named.make(tables, wanted, site, by),
        _ => wanted.iter().map(|(spec, _)| named.find(tables, worker, spec, site, by)).collect(),
    };
    let mut state = named.state();
    match &made {
        Ok(made) => state.opened.extend(made.iter().cloned()),
        Err(_) => wanted.iter().for_each(|(spec, _)| _ = state.mine.remove(name_of(spec))),
    }
    made
}

impl Named {
    /// None yet. Where memory does not reach everybody, this process begins to listen to the others.
    pub(crate) fn new(ground: &Arc<Ground>) -> Arc<Named> {
        let named = Named { ground: Arc::clone(ground), state: Mutex::default(), news: Condvar::new(), settling: Baton::new(()) };
        let named = Arc::new(named);
        if ground.has_links() {
            named.listen();
        }
        named
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tables that this worker has opened.
    pub(crate) fn opened(&self) -> Vec<Table> {
        self.state().opened.clone()
    }

    /// Shares that workers elsewhere reach through this process.
    pub(crate) fn needed(&self) -> Vec<Arc<dyn Share>> {
        let state = self.state();
        let settled = state.tables.values().filter_map(|known| known.settled.as_ref());
        settled.filter_map(|settled| settled.needed_by_others(&self.ground)).collect()
    }

    /// Tells the others that this worker uses no table any more, also of those that it has never opened.
    pub(crate) fn finish(&self, by: Deadline) -> Result<(), Error> {
        let Some(worker) = self.ground.worker() else { return Ok(()) };
        let mut state = self.state();
        if state.tables.is_empty() || !state.finished.insert(worker) {
            return Ok(());
        }
        drop(state);
        self.ground.vigil.post("shutdown", &Word::Finished { worker }.encode()?, &[], by)
    }

    /// Brings a rule to every host; returns when all have it.
    pub(crate) fn set_rule(&self, family: u32, rule: Option<&Optimizer>, states: Then, by: Deadline) -> Result<(), Error> {
        let word = Word::Rule { family, body: gradient::to_body(rule)?, states };
        let encoded = encode_message("rule", &word, Vigil::MOST_IN_NOTICE);
        let encoded = encoded.map_err(|error| Error::Configuration { detail: format!("set_rule: {error}") })?;
        let everybody: Vec<u32> = (0..self.ground.vigil.topology().world()).collect();
        self.ground.vigil.post_to_living("set_rule", &encoded, &everybody, by)
    }

    /// Starts the thread that hears of tables, once.
    fn listen(self: &Arc<Self>) {
        let mut state = self.state();
        if self.ground.vigil.topology().world() == 1 || std::mem::replace(&mut state.listens, true) {
            return;
        }
        drop(state);
        let named = Arc::clone(self);
        let body = move || {
            while let Ok(notice) = named.ground.vigil.next_notice() {
                named.hear(&notice);
                named.state().heard += 1;
                named.news.notify_all();
            }
        };
        if let Err(error) = std::thread::Builder::new().name("syncline-named".into()).spawn(body) {
            tracing::error!("no thread to hear of tables with: {error}");
        }
    }

    /// Writes down that this worker uses these names.
    fn take_names(&self, wanted: &[Wanted<'_>], site: &str) -> Result<(), Error> {
        let mut state = self.state();
        for (at, (spec, _)) in wanted.iter().enumerate() {
            let name = name_of(spec);
            let before = state.mine.get(name).map(String::as_str);
            let before = before.or_else(|| wanted[..at].iter().any(|(other, _)| name_of(other) == name).then_some("this very call"));
            if let Some(before) = before {
                let place = if before.is_empty() { String::new() } else { format!(" at {before}") };
                let detail = format!("table `{name}` was named by this worker before{place}; nothing was changed");
                return Err(Error::Configuration { detail });
            }
        }
        wanted.iter().for_each(|(spec, _)| _ = state.mine.insert(name_of(spec).to_owned(), site.to_owned()));
        Ok(())
    }

    /// Worker 0 makes them, as many per notice as fit.
    fn make(&self, tables: &Shared, wanted: &[Wanted<'_>], site: &str, by: Deadline) -> Result<Vec<Table>, Error> {
        let mut made = Vec::with_capacity(wanted.len());
        let mut rest = wanted;
        while !rest.is_empty() {
            let (some, more) = self.number(rest, site)?;
            let some = match self.make_some(tables, &rest[..more], &some, by) {
                Ok(some) => some,
                Err(error) => {
                    self.unmake(&some, &error, by);
                    return Err(error);
                }
            };
            made.extend(some);
            rest = &rest[more..];
        }
        Ok(made)
    }

    /// Gives numbers to as many tables as fit into one notice, at least to one, and knows them.
    fn number(&self, wanted: &[Wanted<'_>], site: &str) -> Result<(Vec<Entry>, usize), Error> {
        let mut state = self.state();
        let (mut entries, mut bytes) = (Vec::new(), 0);
        for (spec, _) in wanted {
            let entry = Entry { number: FIRST + state.given, spec: spec.clone(), site: syncline_wire::message::clip_text(site) };
            let len = encode_message("table", &entry, MOST).map_or(MOST + 1, |encoded| encoded.len());
            if len > MOST {
                return Err(Error::Configuration { detail: format!("{spec}: its name and place take {len} bytes\nhint: a shorter name") });
            }
            if bytes + len > MOST {
                break;
            }
            bytes += len;
            state.given += 1;
            state.know(&entry, false);
            entries.push(entry);
        }
        let count = entries.len();
        Ok((entries, count))
    }

    fn make_some(&self, tables: &Shared, wanted: &[Wanted<'_>], entries: &[Entry], by: Deadline) -> Result<Vec<Table>, Error> {
        let (ground, operation) = (&self.ground, format!("creating {}", title(&entries[0].spec)));
        let elsewhere = ground.has_links();
        if elsewhere {
            // Those who serve come first; while they settle in, so does this process.
            let asked: Vec<u32> = ground.servers.iter().copied().filter(|rank| *rank != ground.me()).collect();
            let word = Word::Make { tables: entries.to_vec(), ready: false }.encode()?;
            std::thread::scope(|scope| {
                let here = scope.spawn(|| entries.iter().try_for_each(|entry| self.settle(entry.number, by).map(drop)));
                ground.vigil.post(&operation, &word, &asked, by)?;
                here.join().unwrap_or_else(|_| Err(Error::System { operation: operation.clone(), detail: "a thread failed".into() }))
            })?;
        }
        let mut made = Vec::with_capacity(entries.len());
        for (entry, (spec, initial)) in entries.iter().zip(wanted) {
            let (known, settled) = self.settle(entry.number, by)?;
            let table = settled.open(&known, tables, 0, by)?;
            if let Some(initial) = initial {
                table.inner.way.set_initial(initial, spec, ground.workers.len() as u32, by)?;
            }
            settled.map_ahead();
            made.push(table);
        }
        let word = match elsewhere {
            true => Word::Ready { tables: entries.iter().map(|entry| entry.number).collect() },
            false => Word::Make { tables: entries.to_vec(), ready: true },
        };
        ground.vigil.post(&operation, &word.encode()?, &[], by)?;
        Ok(made)
    }

    /// Tells the others that these will not be, and forgets them.
    fn unmake(&self, entries: &[Entry], error: &Error, by: Deadline) {
        let tables: Vec<u32> = entries.iter().map(|entry| entry.number).collect();
        let why = syncline_wire::message::clip_text(error.to_string());
        self.state().forget(&tables, &why);
        let word = Word::Unmake { tables, why };
        if let Ok(word) = word.encode() {
            let _ = self.ground.vigil.post("creating a table", &word, &[], by.extended(Duration::from_secs(1)));
        }
    }

    /// Another worker finds what worker 0 made.
    fn find(&self, tables: &Shared, worker: u32, spec: &Spec, site: &str, by: Deadline) -> Result<Table, Error> {
        let number = self.wait_for_worker_0(spec, by)?;
        let (made, first_site) = {
            let state = self.state();
            let known = &state.tables[&number];
            (known.made.clone(), known.site.clone())
        };
        // Where it lives is worker 0's to say: what it knew of the optimizer, the others may not have heard of yet.
        if made.spec != spec.clone().placed(made.spec.placement) {
            let at = |site: &str| if site.is_empty() { String::new() } else { format!(" at {site}") };
            let (first, me) = (self.ground.workers[0], self.ground.me());
            let detail = format!(
                "rank {first} called {}{}, rank {me} called {spec}{}\nhint: every worker names a table with the same shape, type and options",
                made.spec,
                at(&first_site),
                at(site)
            );
            return Err(Error::ContractMismatch { operation: format!("creating {}", title(spec)), detail });
        }
        let (made, settled) = self.settle(number, by)?;
        let table = settled.open(&made, tables, worker, by)?;
        settled.map_ahead();
        Ok(table)
    }

    fn wait_for_worker_0(&self, spec: &Spec, by: Deadline) -> Result<u32, Error> {
        let (vigil, first, started) = (&self.ground.vigil, self.ground.workers[0], Instant::now());
        let operation = format!("creating {}", title(spec));
        let mut state = self.state();
        loop {
            let known = state.numbers.get(name_of(spec)).and_then(|number| Some((*number, state.tables.get(number)?)));
            match known {
                Some((_, Known { failed: Some(why), .. })) => {
                    return Err(Error::System { operation, detail: format!("rank {first} could not make it: {why}") });
                }
                Some((number, Known { ready: true, .. })) => return Ok(number),
                _ => {}
            }
            let over = vigil.is_over(first) || vigil.orphaned_or_leaving() || (vigil.any_down() && !vigil.goes_on());
            // Its last words may still wait to be read.
            if over && state.heard >= vigil.notices_arrived() {
                drop(state);
                return Err(vigil.explain(&operation, &[first], started, "it did not make the table"));
            }
            if by.interrupted() {
                return Err(Error::Interrupted { operation, waited: started.elapsed() });
            }
            if by.expired() {
                drop(state);
                return Err(vigil.late(&operation, &[first], started, " to make the table of this name"));
            }
            state = self.news.wait_timeout(state, by.slice(LOOK)).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// What is known of a table, and what this process keeps of it by now.
    fn settled(&self, number: u32) -> Result<(Made, Option<Arc<Settled>>), Error> {
        let state = self.state();
        let known = state.tables.get(&number).ok_or_else(|| Error::Closed { operation: "creating a table".into() })?;
        Ok((known.made.clone(), known.settled.clone()))
    }

    /// What this process keeps of a table, made or found now if need be.
    fn settle(&self, number: u32, by: Deadline) -> Result<(Made, Arc<Settled>), Error> {
        // The listener may be at it, with a deadline of its own.
        let _turn = match self.settled(number)? {
            (made, Some(settled)) => return Ok((made, settled)),
            (made, None) => self.settling.take(by).map_err(|why| no_turn(&made, why, by))?,
        };
        let made = match self.settled(number)? {
            (made, Some(settled)) => return Ok((made, settled)),
            (made, None) => made,
        };
        let settled = Arc::new(made.settle_in(&self.ground, by)?);
        let mut state = self.state();
        state.finished.iter().for_each(|worker| settled.finish(*worker));
        if let Some(known) = state.tables.get_mut(&number) {
            known.settled = Some(Arc::clone(&settled));
        }
        Ok((made, settled))
    }

    /// Takes note of what a member says.
    fn hear(&self, notice: &Notice) {
        let Some(word) = Word::decode(&notice.payload) else {
            tracing::warn!("rank {} says something about tables that makes no sense", notice.from);
            return;
        };
        let (me, workers) = (self.ground.me(), &self.ground.workers);
        match word {
            Word::Finished { worker } if workers.get(worker as usize) == Some(&notice.from) => {
                let mut state = self.state();
                state.finished.insert(worker);
                state.tables.values().filter_map(|known| known.settled.as_ref()).for_each(|settled| settled.finish(worker));
            }
            Word::Rule { family, body, states } => {
                let by = Deadline::after(self.ground.vigil.timeout());
                let pinned = gradient::board(&self.ground.heap, family, by);
                let pinned = pinned.and_then(|board| self.state().rules.entry(family).or_default().add(&board, body, states));
                self.ground.vigil.answer(notice, pinned.map_err(|error| error.to_string()));
            }
            _ if notice.from == me || workers.first() != Some(&notice.from) => {}
            Word::Make { tables, ready } => {
                let mut state = self.state();
                tables.iter().for_each(|entry| state.know(entry, ready));
                drop(state);
                if !ready && self.ground.servers.contains(&me) {
                    let by = Deadline::after(self.ground.vigil.timeout());
                    let settled = tables.iter().try_for_each(|entry| self.settle(entry.number, by).map(drop));
                    self.ground.vigil.answer(notice, settled.map_err(|error| error.to_string()));
                }
            }
            Word::Ready { tables } => {
                let mut state = self.state();
                for number in tables {
                    if let Some(known) = state.tables.get_mut(&number) {
                        known.ready = true;
                    }
                }
            }
            Word::Unmake { tables, why } => self.state().forget(&tables, &why),
            Word::Finished { .. } => {}
        }
    }
}

impl State {
    fn know(&mut self, entry: &Entry, ready: bool) {
        let name = name_of(&entry.spec).to_owned();
        self.numbers.insert(name.clone(), entry.number);
        let made = Made { number: entry.number, name, spec: entry.spec.clone(), by_name: true, gone: Vec::new() };
        self.tables.insert(entry.number, Known { made, site: entry.site.clone(), ready, failed: None, settled: None });
    }

    /// What is left of a table that will not be is why.
    fn forget(&mut self, tables: &[u32], why: &str) {
        for number in tables {
            if let Some(known) = self.tables.get_mut(number) {
                (known.failed, known.settled) = (Some(why.to_owned()), None);
            }
        }
    }
}

fn no_turn(made: &Made, why: NoTurn, by: Deadline) -> Error {
    let operation = format!("creating {}", title(&made.spec));
    match why {
        NoTurn::Interrupted => Error::Interrupted { operation, waited: by.waited() },
        NoTurn::Late => Error::Timeout {
            operation,
            missing: Vec::new(),
            detail: ": another thread of this process is still making one".into(),
            waited: by.waited(),
            hint: "raise SYNCLINE_TIMEOUT if it only needs longer".into(),
        },
    }
}

fn name_of(spec: &Spec) -> &str {
    spec.name.as_deref().unwrap_or_default()
}

fn title(spec: &Spec) -> String {
    format!("table `{}`", name_of(spec))
}

fn check_name(spec: &Spec) -> Result<(), Error> {
    if spec.name.as_deref().is_some_and(|name| !name.is_empty()) {
        return Ok(());
    }
    Err(Error::Configuration { detail: format!("{spec}: a table that is made by name needs one") })
}

/// Refuses an initial value of another size than the table's.
pub(crate) fn check_initial(spec: &Spec, initial: Option<&[u8]>) -> Result<(), Error> {
    let Some(initial) = initial.filter(|initial| initial.len() != spec.bytes()) else { return Ok(()) };
    let size = spec.dtype().size();
    let detail = format!("the initial value has {} elements, the table {}", initial.len() / size, spec.bytes() / size);
    Err(Error::ShapeMismatch { operation: format!("creating an {spec}"), detail })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use syncline_cluster::{ErrorKind, Job};

    use super::*;
    use crate::Tables;

    #[test]
    fn who_makes_a_table_waits_no_longer_than_it_wants_for_a_thread_that_settles_in() {
        let job = Arc::new(Job::alone(Duration::from_secs(5)).expect("a world of one"));
        let tables = Tables::new(job);
        let make = |name: &str, by: Deadline| tables.create_named(Spec::array(4).named(name), None, "here", by);
        let settling = tables.shared.named.settling.try_take().expect("free");
        let late = make("late", Deadline::after(Duration::from_millis(5))).expect_err("the listener is at it");
        assert_eq!(late.kind(), ErrorKind::Timeout, "{late}");
        let called_off = make("tired", Deadline::never().with_interrupt(|| true)).expect_err("nor so");
        assert_eq!(called_off.kind(), ErrorKind::Interrupted, "{called_off}");
        drop(settling);
        make("now", Deadline::after(Duration::from_secs(20))).expect("it is free again");
    }
}

//! All tables of one job, as this process sees them.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use syncline_cluster::{Deadline, Error, Job, Role};
use syncline_optimizer::Optimizer;

use crate::caretaker::Caretaker;
use crate::gradient;
use crate::ground::Ground;
use crate::named::{self, Named};
use crate::share::Share;
use crate::{SharedArray, Spec, Table, saving, setup};

/// The tables of a job. Making, saving and loading them is collective over its workers.
#[derive(Clone)]
pub struct Tables {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) job: Arc<Job>,
    pub(crate) ground: Arc<Ground>,
    pub(crate) made: Mutex<Vec<Table>>,
    /// Numbers that tables have had, also those that could not be made.
    pub(crate) numbered: AtomicU32,
    pub(crate) caretaker: Arc<Caretaker>,
    /// Shares that workers elsewhere reach through this process: it stays until they are done with them.
    pub(crate) needed: Mutex<Vec<Arc<dyn Share>>>,
    pub(crate) named: Arc<Named>,
}

impl Tables {
    /// The tables of `job`: none yet. On a dedicated server this starts to serve.
    pub fn new(job: Arc<Job>) -> Tables {
        let ground = Arc::new(Ground::of(&job));
        if job.role() == Role::Server {
            setup::serve(&job, &ground);
        }
        let named = Named::new(&ground);
        let shared = Shared {
            job,
            ground,
            made: Mutex::default(),
            numbered: AtomicU32::new(0),
            caretaker: Arc::default(),
            needed: Mutex::default(),
            named,
        };
        Tables { shared: Arc::new(shared) }
    }

    /// Makes a table. Every worker calls it in the same order with the same `spec`; worker 0's `initial` counts.
    ///
    /// `site` says where the caller stands (file and line), for the error that names two calls that differ.
    /// Returns when the initial value is in place everywhere.
    pub fn create(&self, spec: Spec, initial: Option<&[u8]>, site: &str, by: Deadline) -> Result<Table, Error> {
        spec.check()?;
        let mut made = self.shared.made.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let table = setup::create(&self.shared, self.shared.numbered.load(Relaxed), spec, initial, site, by)?;
        made.push(table.clone());
        Ok(table)
    }

    /// Makes a table by its name: each worker when and in which order it likes, once. Worker 0's `initial` counts.
    ///
    /// Worker 0 waits for nobody's call; another worker waits until worker 0 has made the table, and gets an error that shows both calls if it
    /// wants a different one. Only that worker is told: for the others the table is as worker 0 made it. A name that this worker has used
    /// before is an error that changes nothing. [`save`](Tables::save) leaves these tables to whoever named them.
    pub fn create_named(&self, spec: Spec, initial: Option<&[u8]>, site: &str, by: Deadline) -> Result<Table, Error> {
        let mut made = named::create(&self.shared, &[(spec, initial)], site, by)?;
        Ok(made.pop().expect("as many as were asked for"))
    }

    /// The same for many tables at once, with one message for about a hundred of them. After an error none of them is this worker's.
    pub fn create_named_many(&self, wanted: &[(Spec, Option<&[u8]>)], site: &str, by: Deadline) -> Result<Vec<Table>, Error> {
        named::create(&self.shared, wanted, site, by)
    }

    /// All tables of this worker.
    fn all(&self) -> Vec<Table> {
        let made = self.shared.made.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        made.into_iter().chain(self.shared.named.opened()).collect()
    }

    /// Sets what gradients do to the tables of a family: to those that exist and to those to come. One worker's call is enough, at any time, and the
    /// newest counts: for async adds at once, for a round when its lowest worker added after it.
    ///
    /// Without an optimizer the sum of a sync round becomes the value, and async adds are refused. States begin anew unless `keep_states`, and
    /// the optimizer keeps the same ones as that before: so a learning rate is changed. Returns when every host has the rule.
    pub fn set_rule(&self, family: u32, rule: Option<Optimizer>, keep_states: bool, by: Deadline) -> Result<(), Error> {
        let ground = &self.shared.ground;
        ground.vigil.usable("set_rule")?;
        if ground.has_links() {
            let states = if keep_states { gradient::Then::GoOn } else { gradient::Then::BeginAnew };
            return self.shared.named.set_rule(family, rule.as_ref(), states, by);
        }
        let board = gradient::board(&ground.heap, family, by)?;
        gradient::set_rule(&board, rule.as_ref(), keep_states).map(drop)
    }

    /// Returns when every add this process issued is applied, as far as that depends on this process.
    pub fn flush(&self, by: Deadline) -> Result<(), Error> {
        self.all().iter().try_for_each(|table| table.inner.flush(by))
    }

    /// Returns, after a barrier that did without a dead worker, when what that one left is decided everywhere.
    pub fn settle_losses(&self, by: Deadline) -> Result<(), Error> {
        let vigil = self.shared.job.vigil();
        if !(vigil.goes_on() && vigil.any_down()) {
            return Ok(());
        }
        self.all().iter().try_for_each(|table| table.inner.settle_losses(by))?;
        self.flush(by)
    }

    /// Flushes and says that this worker is done: nobody's clock waits for it any more.
    pub fn finish(&self, by: Deadline) -> Result<(), Error> {
        let flushed = self.flush(by);
        let mut finished: Vec<_> = self.all().iter().map(|table| table.inner.finish(by)).collect();
        finished.push(self.shared.named.finish(by));
        self.shared.caretaker.stop();
        finished.into_iter().collect::<Result<(), Error>>().and(flushed)?;
        self.stay_while_needed(by)
    }

    /// Returns when no worker needs this process to reach a table any more.
    fn stay_while_needed(&self, by: Deadline) -> Result<(), Error> {
        let needed = std::mem::take(&mut *self.shared.needed.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        let (vigil, workers) = (self.shared.job.vigil(), self.shared.job.topology().workers());
        let started = Instant::now();
        let ranks = |share: &Arc<dyn Share>| share.unfinished().into_iter().map(|worker| workers[worker as usize]).collect::<Vec<_>>();
        let waiting = || {
            let named = self.shared.named.needed(); // worker 0 may still make some
            needed.iter().chain(&named).flat_map(ranks).filter(|rank| !vigil.is_over(*rank)).collect::<Vec<u32>>()
        };
        loop {
            let missing = waiting();
            if missing.is_empty() || vigil.orphaned_or_leaving() {
                return Ok(());
            }
            if by.interrupted() {
                return Err(Error::Interrupted { operation: "shutdown".into(), waited: started.elapsed() });
            }
            if by.expired() {
                return Err(vigil.late("shutdown", &missing, started, " to finish with the tables kept here"));
            }
            // The others train: how long that takes is theirs to say, and a millisecond more does not matter.
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Writes all tables with their updater states below `path`. Every worker calls it, between the same adds.
    pub fn save(&self, path: &Path, by: Deadline) -> Result<(), Error> {
        let made = self.shared.made.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        saving::save(&self.shared.job, &made, &saving::absolute(path), by)
    }

    /// Fills all tables from what [`save`](Tables::save) wrote, by any number of servers and workers. Gradient tables get their states
    /// back where their optimizer keeps the same ones; a family without an optimizer gets the saved one.
    pub fn load(&self, path: &Path, by: Deadline) -> Result<(), Error> {
        let made = self.shared.made.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        let set_rule = |family, optimizer| self.set_rule(family, Some(optimizer), false, by);
        saving::load(&self.shared.job, &made, &saving::absolute(path), &set_rule, by)
    }

    /// An array of `bytes` zero bytes that tables of this host take as it is: an add of it, or of a part, to a whole table
    /// is applied from where it stands. Any process may make any number of them, at any time.
    pub fn empty_shared(&self, bytes: usize) -> Result<SharedArray, Error> {
        self.shared.job.vigil().usable("empty_shared")?;
        self.shared.ground.arrays.make(bytes)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.caretaker.stop();
    }
}

impl std::fmt::Debug for Tables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tables({} of {:?})", self.shared.made.lock().map_or(0, |made| made.len()), self.shared.job)
    }
}

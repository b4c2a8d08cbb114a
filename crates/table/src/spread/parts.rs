//! All parts of one table as one worker reaches them, and what is done to them one operation at a time.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::AcqRel;

use syncline_cluster::{Deadline, Error};

use super::asking::{Asked, hear_all};
use super::debts::Undecided;
use super::layout::{Layout, Piece};
use super::line::Line;
use super::messages::Request;
use super::moving::{data, words};
use super::reach::Reach;
use crate::share::Share;

/// Ids or keys, and the bytes of their rows or values.
pub(crate) type Pairs = (Vec<i64>, Vec<u8>);

/// Where a part lives.
pub(crate) enum At {
    /// In memory that this process has mapped.
    Here(Arc<dyn Share>),
    /// Behind a link.
    There(Box<Line>),
}

/// One part, and how many adds this worker has made there.
pub(crate) struct Member {
    pub(crate) at: At,
    pub(crate) made: u64,
    /// The word about an add that it holds, if it could not be told.
    pub(crate) owed: Option<Request>,
}

/// The parts of one table, in the hands of one thread.
pub(crate) struct Parts {
    pub(crate) worker: u32,
    /// Ranks of all workers, by worker id.
    pub(crate) workers: Vec<u32>,
    pub(crate) name: String,
    pub(crate) layout: Layout,
    pub(crate) row_bytes: usize,
    pub(crate) ticks: bool,
    pub(crate) members: Vec<Member>,
    pub(crate) reach: Arc<dyn Reach>,
    /// What went wrong while nobody waited; the next call hears of it.
    pub(crate) failure: Option<Error>,
    /// An add of which only its primary knows whether it counts: nothing else is done before it has said so.
    pub(crate) undecided: Option<Undecided>,
    /// This worker said that it is done. Its servers may leave now.
    pub(crate) finished: bool,
    /// The turn of what is fetched, among all that servers send to this worker.
    pub(crate) priority: Option<i32>,
    /// Adds that this worker has made, as its gets count them.
    pub(crate) issued: Arc<AtomicU64>,
}

impl Parts {
    /// The pieces of a request, or the error that names the bad id.
    pub(crate) fn pieces<'a>(&self, operation: &str, ids: Option<&'a [i64]>, everywhere: bool) -> Result<Vec<Piece<'a>>, Error> {
        split(&self.layout, &self.name, operation, ids, everywhere)
    }

    /// Whether a large frame would have to wait for its turn somewhere.
    pub(crate) fn would_wait(&self) -> bool {
        self.members.iter().any(|member| matches!(&member.at, At::There(line) if line.would_wait()))
    }

    /// From now on large frames of this table take turns with those of others; `None`: they do not.
    pub(crate) fn set_priority(&mut self, priority: Option<i32>) {
        self.priority = priority;
        for member in &mut self.members {
            if let At::There(line) = &mut member.at {
                line.set_priority(priority);
            }
        }
    }

    /// Nobody's clock waits for this worker any more. A second time does nothing.
    pub(crate) fn finish(&mut self, by: Deadline) -> Result<(), Error> {
        if std::mem::replace(&mut self.finished, true) {
            return Ok(());
        }
        let asked = self.ask_all(|_| Request::Finish, by)?;
        hear_all(&asked, "finish", &*self.reach, by, |share, _| {
            share.finish(self.worker);
            Ok(())
        })
    }

    /// How many adds of each worker count.
    pub(crate) fn clocks(&mut self, workers: u32, by: Deadline) -> Result<Vec<u64>, Error> {
        let asked = self.ask_all(|_| Request::Clocks, by)?;
        // Where every add ticks everywhere the part that is furthest behind tells; elsewhere the busiest one.
        let (first, combine): (u64, fn(u64, u64) -> u64) = if self.ticks { (u64::MAX, u64::min) } else { (0, u64::max) };
        let mut clocks = vec![first; workers as usize];
        for asked in &asked {
            let counted: Vec<u64> = match asked {
                Asked::Here(share, _) => (0..workers).map(|worker| share.published(worker)).collect(),
                Asked::There(question) => {
                    let mut arrival = question.reply("clocks", &*self.reach, by)?;
                    let mut bytes = vec![0; data(&arrival, "clocks", 8)? * 8];
                    arrival.read("clocks", &mut bytes, &*self.reach, by)?;
                    words(&bytes).map(|word| word as u64).collect()
                }
            };
            clocks.iter_mut().zip(counted).for_each(|(clock, counted)| *clock = combine(*clock, counted));
        }
        Ok(clocks)
    }

    /// What went wrong while nobody waited, once. Numbers of adds that were refused are free again.
    pub(crate) fn surface(&mut self, by: Deadline) -> Result<(), Error> {
        for member in &mut self.members {
            if let At::There(line) = &member.at
                && line.replies().has_refused()
            {
                // What came behind it is refused too, for want of it. Who is called off here leaves the refusal to the next call.
                line.replies().hear_all_but(1, "add", &*self.reach, by)?;
                let Some((add, error)) = line.replies().take_refused() else { continue };
                let made = add.map_or(member.made, |add| member.made.min(add - 1));
                self.issued.fetch_sub(member.made - made, AcqRel);
                member.made = made;
                self.failure.get_or_insert(error);
            }
        }
        match self.failure.take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Returns when no add is under way.
    pub(crate) fn hear_adds(&mut self, by: Deadline) -> Result<(), Error> {
        for member in &mut self.members {
            if let At::There(line) = &member.at {
                line.replies().hear_adds(&*self.reach, by)?;
            }
        }
        Ok(())
    }
}

/// The pieces of a request, or the error that names the bad id.
pub(crate) fn split<'a>(
    layout: &Layout,
    name: &str,
    operation: &str,
    ids: Option<&'a [i64]>,
    everywhere: bool,
) -> Result<Vec<Piece<'a>>, Error> {
    layout.split(ids, everywhere).map_err(|bad| Error::UnknownKey {
        operation: format!("{operation} of {name}"),
        detail: format!("row {} does not exist: the table has {} rows", bad.id, bad.rows),
    })
}

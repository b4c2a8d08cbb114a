//! Questions from one owner to any number of workers, and their answers.

use std::sync::Arc;

use syncline_shm::estate::{Held, KIND_WORKQUEUE};
use syncline_shm::queue::{Pushed, Queue, QueueError};
use syncline_shm::wait::WaitError;
use syncline_wire::{HandleKind, Value};

use crate::channel::push_values;
use crate::handle::{handle, held_by};
use crate::item::{self, Item, Taken};
use crate::passing::{self, DECIDING, TRYING};
use crate::{Deadline, Error, Family, Whom, thread};

/// Which end of a workqueue a handle is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Writes questions and reads answers.
    Owner,
    /// Reads questions and writes answers.
    Worker,
}

/// A workqueue, as one handle to it.
///
/// The thread that made it is its owner and all others are its workers, unless a handle says otherwise
/// ([`as_owner`](Workqueue::as_owner), [`as_worker`](Workqueue::as_worker)). A question is leased to the worker that reads it (see [`Item`]).
///
/// ```
/// use syncline_ipc::{Deadline, Family, Value, Workqueue};
///
/// let family = Family::alone()?;
/// let queue = Workqueue::new(&family)?;
/// let soon = Deadline::after(std::time::Duration::from_secs(5));
/// queue.write_all(&[Value::Int(6), Value::Int(7)], soon)?;
/// queue.close()?;
/// let worker = queue.as_worker(); // in another thread or process
/// while let Some(question) = worker.read(soon)?.item() {
///     let Value::Int(number) = *question.value() else { panic!("a number") };
///     question.answer(&Value::Int(number * number), soon)?;
/// }
/// let answers: Vec<_> = std::iter::from_fn(|| queue.read(soon).ok()?.item()).map(|answer| answer.value().clone()).collect();
/// assert_eq!(answers, [Value::Int(36), Value::Int(49)]);
/// # Ok::<(), syncline_ipc::Error>(())
/// ```
#[derive(Clone)]
pub struct Workqueue {
    family: Family,
    held: Arc<Held>,
    questions: Arc<Queue>,
    answers: Arc<Queue>,
    side: Option<Side>,
}

impl Workqueue {
    /// A workqueue without a name: it is shared by its handle.
    pub fn new(family: &Family) -> Result<Workqueue, Error> {
        Self::make(family, None).map(|(queue, _)| queue)
    }

    /// The workqueue of that name in the family; true if this call made it.
    pub fn named(family: &Family, name: &str) -> Result<(Workqueue, bool), Error> {
        Self::make(family, Some(name))
    }

    fn make(family: &Family, name: Option<&str>) -> Result<(Workqueue, bool), Error> {
        const OPERATION: &str = "workqueue";
        family.check(OPERATION)?;
        let made = family.estate().make_workqueue(name, thread::me());
        let (held, made) = made.map_err(|error| Error::of_estate(OPERATION, error))?;
        Ok((Self::over(family, held), made))
    }

    /// The workqueue that a handle leads to.
    pub fn open(family: &Family, handle: &Value<'_>) -> Result<Workqueue, Error> {
        let held = held_by(family, handle, HandleKind::Workqueue, KIND_WORKQUEUE, "workqueue")?;
        Ok(Self::over(family, held))
    }

    fn over(family: &Family, held: Arc<Held>) -> Workqueue {
        let questions = Arc::new(held.queue(0, 2));
        let answers = Arc::new(held.queue(1, 2).answering(Arc::clone(&questions)));
        Workqueue { family: family.clone(), questions, answers, held, side: None }
    }

    /// A handle, to be sent through other objects.
    pub fn handle(&self) -> Value<'static> {
        handle(&self.family, &self.held, HandleKind::Workqueue)
    }

    /// The same queue as its owner sees it, whichever thread calls.
    pub fn as_owner(&self) -> Workqueue {
        Workqueue { side: Some(Side::Owner), ..self.clone() }
    }

    /// The same queue as a worker sees it, whichever thread calls.
    pub fn as_worker(&self) -> Workqueue {
        Workqueue { side: Some(Side::Worker), ..self.clone() }
    }

    /// Which end this is for the calling thread.
    pub fn side(&self) -> Side {
        self.side.unwrap_or_else(|| {
            let mine = self.held.maker() == (self.family.me(), thread::me());
            if mine { Side::Owner } else { Side::Worker }
        })
    }

    /// Writes a question (owner) or an answer (worker).
    pub fn write(&self, value: &Value<'_>, by: Deadline) -> Result<(), Error> {
        self.write_all(std::slice::from_ref(value), by)
    }

    /// Writes each value as an item of its own, together: as many readers are woken.
    pub fn write_all(&self, values: &[Value<'_>], by: Deadline) -> Result<(), Error> {
        const OPERATION: &str = "workqueue write";
        self.family.check(OPERATION)?;
        let queue = if self.side() == Side::Owner { &self.questions } else { &self.answers };
        let what = match push_values(&self.family, queue, values, 0, by, OPERATION)? {
            Pushed::Some(written) if written < values.len() => {
                format!("the workqueue was closed when {written} of {} items were written", values.len())
            }
            Pushed::Some(_) => return Ok(()),
            Pushed::Closed => "the workqueue was closed".to_owned(),
        };
        Err(Error::Closed { operation: OPERATION, what })
    }

    /// Takes the oldest answer (owner) or question (worker); waits for one until the queue is closed and everything in it is finished.
    pub fn read(&self, by: Deadline) -> Result<Taken, Error> {
        const OPERATION: &str = "workqueue read";
        loop {
            match passing::persist(by, || self.try_read_by(by))? {
                Taken::Nothing => {}
                taken => return Ok(taken),
            }
            let estate = self.family.estate();
            let (side, owner) = (self.side(), self.held.maker().0);
            let look = || {
                estate.look_around();
                // A worker waits for its owner; an owner waits for workers that may still come.
                side == Side::Owner || !estate.is_dead(owner)
            };
            let queue = if side == Side::Owner { &self.answers } else { &self.questions };
            let what = if side == Side::Owner { "an answer" } else { "a question" };
            match queue.wait_until(&|| self.may_read(), estate.hand_by(by), &look) {
                Ok(()) => {}
                Err(QueueError::Wait(WaitError::Gone)) => {
                    let whom = Whom { name: "the owner of the workqueue".to_owned(), host: None, pid: Some(self.held.maker_pid()) };
                    let how = "its process has ended, and no question is left".to_owned();
                    return Err(Error::PeerLost { operation: OPERATION, whom: Box::new(whom), how, others: String::new() });
                }
                Err(error) => return Err(Error::of_queue(OPERATION, error, what, by.waited())),
            }
        }
    }

    /// Whether a read might bring something other than nothing.
    fn may_read(&self) -> bool {
        match self.side() {
            Side::Owner => self.answers.may_have_items() || (self.questions.is_closed() && self.questions.unfinished() == 0),
            Side::Worker => item::may_take(&self.family, &self.held, &self.questions),
        }
    }

    /// Takes the oldest answer (owner) or question (worker) if there is one.
    pub fn try_read(&self) -> Result<Taken, Error> {
        passing::patiently(TRYING, |by| self.try_read_by(by))
    }

    /// The same; `by` says how long another reader's microseconds may last where it does not go on ([`Deadline::brief`]).
    pub fn try_read_by(&self, by: Deadline) -> Result<Taken, Error> {
        const OPERATION: &str = "workqueue read";
        self.family.check(OPERATION)?;
        if self.side() == Side::Worker {
            return Item::take(&self.family, &self.held, &self.questions, Some(&self.answers), by, OPERATION);
        }
        let estate = self.family.estate();
        // Before the look at the answers: an answer is published before its question is finished.
        let over = self.questions.is_closed() && self.questions.unfinished() == 0;
        passing::with_record(|record| {
            let popped = self.answers.pop(record, &|record| passing::claim(estate, record), estate.hand_by(by));
            match popped.map_err(|error| Error::of_latch(OPERATION, error, &self.family, &self.answers, by.waited()))? {
                true => Ok(Taken::Item(Item::owned(passing::received(&self.family, record, false, OPERATION)?))),
                false if over => Ok(Taken::Over),
                false => Ok(Taken::Nothing),
            }
        })
    }

    /// Waits until every question that was written before is finished, those in progress too.
    pub fn drain(&self, by: Deadline) -> Result<(), Error> {
        const OPERATION: &str = "workqueue drain";
        self.family.check(OPERATION)?;
        if self.side() != Side::Owner {
            let detail = "workqueue drain is only available on the owner thread".to_owned();
            return Err(Error::Configuration { operation: OPERATION, detail });
        }
        let estate = self.family.estate();
        let look = || {
            estate.look_around();
            true
        };
        let drained = self.questions.wait_until_finished(estate.hand_by(by), &look);
        drained.map_err(|error| {
            let left = format!("{} questions to be finished", self.questions.unfinished());
            Error::of_queue(OPERATION, error, &left, by.waited())
        })
    }

    /// Takes no more questions, and wakes everybody who waits. What is in it can still be read and answered.
    pub fn close(&self) -> Result<(), Error> {
        const OPERATION: &str = "workqueue close";
        self.family.check(OPERATION)?;
        passing::patiently(DECIDING, |by| {
            let closed = self.questions.close(self.family.estate().hand_by(by));
            closed.map_err(|error| Error::of_latch(OPERATION, error, &self.family, &self.questions, by.waited()))
        })?;
        self.answers.wake_readers();
        Ok(())
    }

    /// Whether it was closed.
    pub fn closed(&self) -> bool {
        self.questions.is_closed()
    }

    /// Questions that no worker has taken.
    pub fn num_questions(&self) -> usize {
        self.questions.len()
    }

    /// Questions that are not finished, taken or not.
    pub fn unfinished(&self) -> usize {
        self.questions.unfinished()
    }

    /// Answers that the owner has not taken.
    pub fn num_answers(&self) -> usize {
        self.answers.len()
    }

    /// The family it belongs to.
    pub fn family(&self) -> &Family {
        &self.family
    }
}

impl std::fmt::Debug for Workqueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Workqueue({:x}, {} questions, {} answers)", self.held.number(), self.num_questions(), self.num_answers())
    }
}

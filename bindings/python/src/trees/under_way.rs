//! An operation of the engine's that runs while Python does something else; any thread may wait for it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use syncline::collective::Pending;
use syncline::{Deadline, Error};

use crate::errors;
use crate::parental::Parental;

/// An operation and what becomes of it.
pub(super) struct UnderWay<B> {
    state: Mutex<State<B>>,
}

enum State<B> {
    Running(Parental<Pending<B>>),
    /// One thread waits for it.
    Awaited,
    /// What it gave, until somebody takes it, and the number that goes with it.
    Over(Result<(Option<B>, u32), Error>),
}

impl<B: Send> UnderWay<B> {
    pub(super) fn new(pending: Pending<B>) -> UnderWay<B> {
        UnderWay { state: Mutex::new(State::Running(Parental::new(pending))) }
    }

    /// One that was over when it began.
    pub(super) fn over(given: Option<B>, number: u32) -> UnderWay<B> {
        UnderWay { state: Mutex::new(State::Over(Ok((given, number)))) }
    }

    /// Whether `wait` would return at once.
    pub(super) fn done(&self) -> bool {
        match &*self.state() {
            State::Running(pending) => pending.done(),
            State::Awaited => false,
            State::Over(_) => true,
        }
    }

    /// Whether somebody has waited to its end.
    pub(super) fn is_over(&self) -> bool {
        matches!(&*self.state(), State::Over(_))
    }

    /// What it gave, once.
    pub(super) fn take(&self) -> Option<B> {
        match &mut *self.state() {
            State::Over(Ok((given, _))) => given.take(),
            _ => None,
        }
    }

    /// Waits for its end, without the interpreter, and returns the number that goes with it.
    pub(super) fn wait(&self, py: Python<'_>, by: Deadline) -> PyResult<u32> {
        loop {
            let taken = match &mut *self.state() {
                State::Over(Ok((_, number))) => return Ok(*number),
                State::Over(Err(error)) => return Err(errors::exception(py, error)),
                State::Awaited => None,
                state @ State::Running(_) => Some(std::mem::replace(state, State::Awaited)),
            };
            let Some(State::Running(pending)) = taken else {
                if by.expired() {
                    let text = "wait: the operation is still under way, and another thread waits for it too\nhint: wait again, or longer";
                    return Err(errors::of_class(py, "Timeout", text));
                }
                py.detach(|| std::thread::sleep(Duration::from_millis(1))); // another thread waits, and will tell
                py.check_signals()?;
                continue;
            };
            let outcome = match py.detach(|| pending.wait(by)) {
                Ok(given) => Ok(given),
                Err(error) if !pending.done() => {
                    *self.state() = State::Running(pending);
                    return Err(errors::exception(py, &error.into()));
                }
                // Its own failure, unless it ended right after this wait gave up: then the result is there.
                Err(error) => pending.wait(Deadline::after(Duration::ZERO)).map_err(|_| error),
            };
            *self.state() = State::Over(outcome.map(|(given, number)| (Some(given), number)).map_err(Error::from));
        }
    }

    fn state(&self) -> MutexGuard<'_, State<B>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

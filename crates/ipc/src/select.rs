//! Reading from whichever of several channels has something first.

use syncline_shm::bell::Bell;
use syncline_shm::wait::wait_on_any;

use crate::passing::persist;
use crate::{Channel, Deadline, Error, Read, Status};

/// What [`select`] found.
#[derive(Clone, Debug, PartialEq)]
pub struct Selected {
    /// Which channel, as the caller counted them; none when all of them are drained.
    pub index: Option<usize>,
    /// What was read from it.
    pub read: Read,
}

/// Takes an item from the first of the channels that has one; of several, the one that comes first in the list after the
/// one that was served last by this thread, so that a busy channel cannot starve the others. Waits while any is open.
pub fn select(channels: &[&Channel], by: Deadline) -> Result<Selected, Error> {
    const OPERATION: &str = "select";
    thread_local! {
        static TURN: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    }
    loop {
        let first = TURN.get();
        let mut open = Vec::new();
        for step in 0..channels.len() {
            let index = first.wrapping_add(step) % channels.len();
            let (status, item) = persist(by, || channels[index].try_read_by(by, |value| value.into_owned()))?;
            if item.is_some() {
                TURN.set(index + 1);
                return Ok(Selected { index: Some(index), read: Read { status, item } });
            }
            if status != Status::Drained {
                open.push(channels[index]);
            }
        }
        if open.is_empty() {
            return Ok(Selected { index: None, read: Read { status: Status::Drained, item: None } });
        }
        let bells: Vec<&Bell> = open.iter().map(|channel| channel.bell()).collect();
        // A channel that moves meanwhile has another bell from then on: whoever listens to the old one begins again.
        let ready = || open.iter().zip(&bells).any(|(channel, bell)| channel.may_read() || !std::ptr::eq(channel.bell(), *bell));
        let look = || {
            open.iter().for_each(|channel| channel.family().estate().look_around());
            true
        };
        wait_on_any(&ready, &bells, by, &look).map_err(|error| {
            let waited_for = format!("an item in any of {} channels", open.len());
            Error::of_queue(OPERATION, error.into(), &waited_for, by.waited())
        })?;
    }
}

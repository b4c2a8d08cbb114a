//! How a channel gets from its process's memory into the family's.

use std::borrow::Cow;

use syncline_shm::queue::{Parcel, Pushed, QueueError, Record};
use syncline_wire::Value;

use super::shared::Shared;
use super::{ANOTHER, Channel, waited};
use crate::passing::{DECIDING, Outgoing};
use crate::{Deadline, Error};

impl Channel {
    /// Moves the channel to where other processes find it, if it is not there yet. A failure leaves it where it is, as it is.
    pub(super) fn move_to_family(&self, operation: &'static str) -> Result<(), Error> {
        let Some(local) = self.local() else { return Ok(()) };
        self.family().check(operation)?;
        let by = Deadline::after(DECIDING);
        let moved = local.move_out(|values, closed| self.shared.take_over(values, closed, by, operation), by);
        moved.map_err(|error| waited(operation, error, ANOTHER, by))?
    }
}

impl Shared {
    /// Writes all items of a channel that nobody else knows here yet: all of them or none.
    fn take_over(&self, values: &[Cow<'_, Value<'_>>], closed: bool, by: Deadline, operation: &'static str) -> Result<(), Error> {
        let outgoing = values.iter().map(|value| Outgoing::new(&self.family, value, None, operation)).collect::<Result<Vec<_>, _>>();
        let mut outgoing: Vec<Outgoing<'_>> = outgoing?;
        let failed = match self.write_in_order(&outgoing, by) {
            Ok(count) if count == values.len() => match closed.then(|| self.close(operation)) {
                None | Some(Ok(())) => {
                    outgoing.iter_mut().for_each(Outgoing::sent);
                    return Ok(());
                }
                Some(Err(error)) => error,
            },
            // Why no more were written, if it is not for want of room, is told by the next attempt.
            Ok(count) => match self.write_in_order(&outgoing[count..], by) {
                Err(error) => Error::of_push(operation, error, &self.family, &self.queue, by),
                Ok(_) => {
                    let all = values.len();
                    let detail =
                        format!("only {count} of the {all} items in the channel find room in the family's memory; read some first");
                    Error::System { operation, detail }
                }
            },
            Err(error) => Error::of_push(operation, error, &self.family, &self.queue, by),
        };
        // Blocks and names are still those of `outgoing`, and go with it; only the records have to be taken out.
        let mut record = Record::default();
        while let Ok(true) = self.queue.pop(&mut record, &|_| (), self.family.estate().hand_by(by)) {}
        Err(failed)
    }

    /// How many of the items were written before something stood in the way.
    fn write_in_order(&self, outgoing: &[Outgoing<'_>], by: Deadline) -> Result<usize, QueueError> {
        let pieces: Vec<Vec<&[u8]>> = outgoing.iter().map(Outgoing::pieces).collect();
        let parcels: Vec<Parcel<'_>> = outgoing.iter().zip(&pieces).map(|(one, pieces)| one.parcel(pieces)).collect();
        match self.queue.push(&parcels, self.family.estate().hand_by(by))? {
            Pushed::Some(count) => Ok(count),
            Pushed::Closed => Ok(0),
        }
    }
}

//! Sends one message to many connections at once, so that a slow reader delays nobody but itself.
//!
//! Each round gives every connection what it takes without waiting, then sleeps until one of them has room. Cost for n
//! connections: a write each and, as long as some are full, a poll over those and a write for each that woke it.

use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use syncline_transport::{Deadline, Sending};
use syncline_wire::EncodedValue;

use super::outflow::{Outflow, message};
use super::{Fault, Pipe, Taken};
use std::sync::atomic::Ordering::Release;

/// How often to look again at a connection that another thread is sending on.
const BUSY: Duration = Duration::from_millis(2);

/// One connection's share of the work.
struct Errand<'p> {
    pipe: &'p Pipe,
    taken: Option<Taken<'p, Outflow>>,
    sending: Sending,
    /// Worth a try: not waiting for room.
    ready: bool,
    outcome: Option<Result<(), Fault>>,
}

/// Sends `value` to all `pipes` and returns what became of each, in their order.
pub(crate) fn deliver(pipes: &[&Pipe], value: &EncodedValue<'_>, by: Deadline) -> Vec<Result<(), Fault>> {
    let Some(meter) = pipes.first().map(|pipe| &pipe.meter) else { return Vec::new() };
    let mut errands: Vec<Errand<'_>> = pipes.iter().map(|pipe| Errand::new(pipe)).collect();
    meter.tx.call(|| {
        loop {
            for errand in errands.iter_mut().filter(|errand| errand.ready && errand.outcome.is_none()) {
                errand.attempt(value);
            }
            if errands.iter().all(|errand| errand.outcome.is_some()) {
                break;
            }
            let fault: fn() -> Fault = if by.interrupted() {
                || Fault::Interrupted
            } else if by.expired() {
                || Fault::Late { gone: 0, whole: 0 }
            } else {
                meter.tx.system(|| await_room(&mut errands, by));
                continue;
            };
            errands.iter_mut().filter(|errand| errand.outcome.is_none()).for_each(|errand| errand.give_up(value, fault()));
        }
    });
    errands.into_iter().map(|errand| errand.outcome.unwrap_or(Err(Fault::Late { gone: 0, whole: 0 }))).collect()
}

impl<'p> Errand<'p> {
    fn new(pipe: &'p Pipe) -> Errand<'p> {
        let outcome = pipe.usable().err().map(Err);
        Errand { pipe, taken: None, sending: Sending::new(), ready: true, outcome }
    }

    fn attempt(&mut self, value: &EncodedValue<'_>) {
        let pipe = self.pipe;
        if self.taken.is_none() {
            self.taken = pipe.outflow.try_take();
        }
        let Some(outflow) = &mut self.taken else { return };
        let frame = message(value.meta(), value.payload());
        let pushed = pipe.meter.tx.system(|| outflow.push(&frame, &mut self.sending));
        if !outflow.owes() {
            pipe.owes.store(false, Release);
        }
        self.ready = false;
        self.outcome = match pushed {
            Ok(false) => None,
            Ok(true) => {
                pipe.meter.tx.message(self.sending.whole(), 1 + value.payload().len() as u64);
                Some(Ok(()))
            }
            Err(error) => Some(Err(error.into())),
        };
        if self.outcome.is_some() {
            self.taken = None;
        }
    }

    /// Leaves the rest of a message that has begun to whoever uses the connection next.
    fn give_up(&mut self, value: &EncodedValue<'_>, why: Fault) {
        let begun = self.sending.has_begun();
        let (gone, whole) = (self.sending.gone(), self.sending.whole());
        if let (true, Some(mut outflow)) = (begun, self.taken.take()) {
            outflow.keep(&message(value.meta(), value.payload()), std::mem::take(&mut self.sending));
            self.pipe.owes.store(true, Release);
        }
        self.taken = None;
        self.outcome = Some(Err(match why {
            Fault::Late { .. } if begun => Fault::Late { gone, whole },
            other => other,
        }));
    }
}

/// Sleeps until one of them may go on.
fn await_room(errands: &mut [Errand<'_>], by: Deadline) {
    const LONGEST: Duration = Duration::from_secs(3600);
    let (mut full, mut longest) = (Vec::new(), LONGEST);
    let mut descriptors = Vec::new();
    for (index, errand) in errands.iter().enumerate().filter(|(_, errand)| errand.outcome.is_none()) {
        match errand.taken.as_ref().and_then(|outflow| outflow.half.pollable()) {
            Some(descriptor) => {
                full.push(index);
                descriptors.push(PollFd::from_borrowed_fd(descriptor, PollFlags::OUT));
            }
            None => longest = BUSY,
        }
    }
    let slice = by.slice(longest);
    let timeout = Timespec { tv_sec: slice.as_secs() as i64, tv_nsec: i64::from(slice.subsec_nanos()) };
    let _ = poll(&mut descriptors, Some(&timeout)); // a signal ends the slice early
    let woken: Vec<bool> = descriptors.iter().map(|descriptor| !descriptor.revents().is_empty()).collect();
    drop(descriptors);
    for (index, woken) in full.into_iter().zip(woken) {
        errands[index].ready = woken;
    }
    for errand in errands.iter_mut().filter(|errand| errand.taken.is_none()) {
        errand.ready = true;
    }
}

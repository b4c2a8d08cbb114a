//! The receiving half of a duplex.

use super::layout::{Departed, Preface};
use super::{DuplexError, LONGEST_HEAD, Limits, Side, Waker};
use crate::arena::{Arrival, Held, Reader};
use crate::corrupt::Corrupt;
use crate::ring::Consumer;
use crate::wait::Deadline;

/// Receives messages from the other side's [`Outlet`](super::Outlet), in order.
pub struct Inlet {
    side: Side,
    ring: Consumer,
    arena: Reader,
    body: Body,
    broken: bool,
}

/// The body of the message whose head was received last.
#[derive(Clone, Copy)]
enum Body {
    /// Fetched, skipped or empty.
    Done,
    /// Still in the ring's front record, from `from` on.
    InRecord { from: usize, len: usize },
    /// Comes through slots.
    InSlots { len: u64 },
}

impl Inlet {
    pub(super) fn new(side: Side, ring: Consumer, arena: Reader) -> Self {
        Inlet { side, ring, arena, body: Body::Done, broken: false }
    }

    /// A handle that wakes or ends the waits of this side.
    pub fn waker(&self) -> Waker {
        self.side.waker()
    }

    /// Whether an earlier call gave up in the middle of a message; every call fails from then on.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Whether a message is there to be received now.
    pub fn is_ready(&mut self) -> bool {
        // Garbage is something to receive too: the receiving call reports it.
        matches!(self.body, Body::Done) && !matches!(self.ring.front(), Ok(None))
    }

    /// Waits for the next message, moves its head into `into` (replacing what it held) and
    /// returns the length of its body, which is then fetched, held or skipped.
    ///
    /// A body of the message before that was left behind is skipped. The length is what the
    /// other side says: check it before you allocate.
    pub fn recv_head(&mut self, into: &mut Vec<u8>, deadline: Deadline, still_there: &dyn Fn() -> bool) -> Result<u64, DuplexError> {
        self.skip_body(deadline, still_there)?;
        let limits = Limits { deadline, still_there };
        let record = self.wait_for_record(limits)?;
        self.take_head(record, into, limits)
    }

    /// As [`Inlet::recv_head`], but `None` at once when no message is there.
    ///
    /// A long head or a body left behind is still waited for, as it is on its way.
    pub fn try_recv_head(
        &mut self,
        into: &mut Vec<u8>,
        deadline: Deadline,
        still_there: &dyn Fn() -> bool,
    ) -> Result<Option<u64>, DuplexError> {
        self.skip_body(deadline, still_there)?;
        let limits = Limits { deadline, still_there };
        match self.front()? {
            Some(record) => self.take_head(record, into, limits).map(Some),
            None => Ok(None),
        }
    }

    fn take_head(&mut self, record: usize, into: &mut Vec<u8>, limits: Limits<'_>) -> Result<u64, DuplexError> {
        let preface = self.read_preface(record).inspect_err(|_| self.broken = true)?;
        let head_len = preface.head_len as usize;
        into.clear();
        let head_in_slots = preface.through_slots & Preface::HEAD != 0;
        if !head_in_slots {
            self.ring.append_front(Preface::LEN, head_len, into);
        }
        if preface.through_slots & Preface::BODY == 0 && preface.body_len > 0 {
            // The record stays in the ring until its body has been fetched.
            self.body = Body::InRecord { from: Preface::LEN + head_len, len: preface.body_len as usize };
        } else {
            self.pop_record();
            if preface.body_len > 0 {
                self.body = Body::InSlots { len: preface.body_len };
            }
        }
        if head_in_slots {
            self.in_the_middle(|inlet| {
                inlet.recv_through_slots(head_len as u64, limits, |arrival, len| {
                    arrival.append_to(len, into);
                })
            })?;
        }
        Ok(preface.body_len)
    }

    /// Fetches the body into `into`, which has exactly its length, with one copy.
    ///
    /// A buffer of another length is refused and changes nothing.
    pub fn recv_body(&mut self, into: &mut [u8], deadline: Deadline, still_there: &dyn Fn() -> bool) -> Result<(), DuplexError> {
        self.check_usable()?;
        let body = self.body_len();
        if body != into.len() as u64 {
            return Err(DuplexError::WrongLength { body, buffer: into.len() });
        }
        let limits = Limits { deadline, still_there };
        match std::mem::replace(&mut self.body, Body::Done) {
            Body::Done => Ok(()),
            Body::InRecord { from, .. } => {
                self.ring.copy_front(from, into);
                self.pop_record();
                Ok(())
            }
            Body::InSlots { len } => {
                let mut rest = into;
                self.in_the_middle(|inlet| {
                    inlet.recv_through_slots(len, limits, |arrival, len| {
                        let (now, later) = std::mem::take(&mut rest).split_at_mut(len);
                        arrival.copy_to(now);
                        rest = later;
                    })
                })
            }
        }
    }

    /// Lets the body pass without copying it.
    pub fn skip_body(&mut self, deadline: Deadline, still_there: &dyn Fn() -> bool) -> Result<(), DuplexError> {
        self.check_usable()?;
        let limits = Limits { deadline, still_there };
        match std::mem::replace(&mut self.body, Body::Done) {
            Body::Done => Ok(()),
            Body::InRecord { .. } => {
                self.pop_record();
                Ok(())
            }
            Body::InSlots { len } => self.in_the_middle(|inlet| {
                let mut left = len;
                while left > 0 {
                    left -= inlet.accept_slot(left, limits)?.len() as u64;
                }
                Ok(())
            }),
        }
    }

    /// Keeps the body where it is, to be read in place later; dropping the guard frees its slot.
    ///
    /// `None`, and nothing happens, when the body is not in exactly one slot (it is small, empty
    /// or larger than a slot): fetch it then. While all slots are held the other side cannot
    /// send large bodies.
    pub fn hold_body(&mut self, deadline: Deadline, still_there: &dyn Fn() -> bool) -> Result<Option<Held>, DuplexError> {
        self.check_usable()?;
        let limits = Limits { deadline, still_there };
        let Body::InSlots { len } = self.body else {
            return Ok(None);
        };
        if len > self.arena.slot_size() as u64 {
            return Ok(None);
        }
        self.body = Body::Done;
        self.in_the_middle(|inlet| {
            let mut arrival = inlet.accept_slot(len, limits)?;
            if arrival.len() as u64 != len {
                // A sender of ours never splits what fits one slot.
                let len = Corrupt::check("slot length", arrival.len() as u64, len, len)?;
                unreachable!("{len} was just found to differ");
            }
            inlet.wait(limits, || match arrival.is_filled() {
                Ok(false) => None,
                Ok(true) => Some(Ok(())),
                Err(error) => Some(Err(error)),
            })??;
            Ok(Some(arrival.hold()))
        })
    }

    /// Takes over the slots of `left` bytes one by one, calling `take` for each run that arrived.
    fn recv_through_slots(
        &mut self,
        mut left: u64,
        limits: Limits<'_>,
        mut take: impl FnMut(&mut Arrival, usize),
    ) -> Result<(), DuplexError> {
        while left > 0 {
            let mut arrival = self.accept_slot(left, limits)?;
            while arrival.taken() < arrival.len() {
                let there = self.wait(limits, || match arrival.poll() {
                    Ok(0) => None,
                    other => Some(other),
                })??;
                take(&mut arrival, there);
            }
            left -= arrival.len() as u64;
        }
        Ok(())
    }

    /// Waits for the record that announces the next slot, which holds at most `left` bytes.
    fn accept_slot(&mut self, left: u64, limits: Limits<'_>) -> Result<Arrival, DuplexError> {
        let record = self.wait_for_record(limits)?;
        Corrupt::check("slot record length", record as u64, 8, 8)?;
        let mut words = [0; 8];
        self.ring.copy_front(0, &mut words);
        self.pop_record();
        let slot = u32::from_ne_bytes(words[..4].try_into().expect("4 bytes"));
        let len = u32::from_ne_bytes(words[4..].try_into().expect("4 bytes"));
        Corrupt::check("slot length", len.into(), 1, left)?;
        Ok(self.arena.accept(slot, len)?)
    }

    fn wait_for_record(&mut self, limits: Limits<'_>) -> Result<usize, DuplexError> {
        let ring = &mut self.ring;
        let found = self.side.wait(Departed::Outlet, limits, || ring.front().transpose())?;
        found.map_err(|error| {
            self.broken = true;
            error.into()
        })
    }

    fn front(&mut self) -> Result<Option<usize>, DuplexError> {
        self.ring.front().map_err(|error| {
            self.broken = true;
            error.into()
        })
    }

    fn wait<T>(&self, limits: Limits<'_>, poll: impl FnMut() -> Option<T>) -> Result<T, DuplexError> {
        Ok(self.side.wait(Departed::Outlet, limits, poll)?)
    }

    /// The preface of the front record, found consistent with the record's length.
    fn read_preface(&self, record: usize) -> Result<Preface, Corrupt> {
        Corrupt::check("message record length", record as u64, Preface::LEN as u64, u64::MAX)?;
        let mut bytes = [0; Preface::LEN];
        self.ring.copy_front(0, &mut bytes);
        let preface = Preface::from_bytes(bytes);
        let most_body = if preface.through_slots == Preface::HEAD { 0 } else { i64::MAX };
        Corrupt::check("message form", preface.through_slots.into(), 0, 3)?;
        Corrupt::check("head length", preface.head_len.into(), 0, LONGEST_HEAD as u64)?;
        Corrupt::check("body length", preface.body_len, 0, most_body as u64)?;
        let inline = match preface.through_slots {
            0 => u64::from(preface.head_len) + preface.body_len,
            Preface::BODY => u64::from(preface.head_len),
            // Slots are announced behind this record, so a body in it would be in their way.
            _ => 0,
        };
        let found = (record - Preface::LEN) as u64;
        Corrupt::check("message record length", found, inline, inline)?;
        Ok(preface)
    }

    fn pop_record(&mut self) {
        if self.ring.pop_front_and_look() {
            self.side.peer_bell.ring_if_waiting_for_published();
        }
    }

    fn body_len(&self) -> u64 {
        match self.body {
            Body::Done => 0,
            Body::InRecord { len, .. } => len as u64,
            Body::InSlots { len } => len,
        }
    }

    fn check_usable(&self) -> Result<(), DuplexError> {
        if self.broken {
            return Err(DuplexError::Broken);
        }
        Ok(())
    }

    /// Runs a part of the protocol that cannot be taken up again once it failed.
    fn in_the_middle<T>(&mut self, part: impl FnOnce(&mut Self) -> Result<T, DuplexError>) -> Result<T, DuplexError> {
        self.broken = true;
        let done = part(self)?;
        self.broken = false;
        Ok(done)
    }
}

impl Drop for Inlet {
    fn drop(&mut self) {
        self.side.depart(Departed::Inlet);
    }
}

//! The sending half of a duplex.

use super::layout::{Departed, Preface};
use super::{DuplexError, INLINE_BODY, INLINE_HEAD, LONGEST_HEAD, Limits, Side, Waker};
use crate::arena::{ClaimError, PIECE, Writer};
use crate::ring::{Producer, PushError};
use crate::wait::Deadline;

/// Sends messages to the other side's [`Inlet`](super::Inlet), in order.
pub struct Outlet {
    side: Side,
    ring: Producer,
    arena: Writer,
    inline_head: usize,
    inline_body: usize,
    broken: bool,
}

impl Outlet {
    pub(super) fn new(side: Side, ring: Producer, arena: Writer) -> Self {
        // Whatever the size of the ring, several records fit, so that both sides can overlap.
        let quarter = ring.longest() / 4;
        Outlet {
            side,
            inline_head: INLINE_HEAD.min(quarter),
            inline_body: INLINE_BODY.min(quarter),
            ring,
            arena,
            broken: false,
        }
    }

    /// A handle that wakes or ends the waits of this side.
    pub fn waker(&self) -> Waker {
        self.side.waker()
    }

    /// Whether an earlier call gave up in the middle of a message; every call fails from then on.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Sends one message: the parts of `head`, gathered, and the parts of `body`, gathered.
    ///
    /// Returns once everything is in shared memory; the other side may not have read it yet.
    /// When it fails before the message has begun, nothing was sent and the link goes on; when it
    /// fails in the middle of a large body, the link is broken ([`Outlet::is_broken`]).
    pub fn send(
        &mut self,
        head: &[&[u8]],
        body: &[&[u8]],
        deadline: Deadline,
        still_there: &dyn Fn() -> bool,
    ) -> Result<(), DuplexError> {
        if self.broken {
            return Err(DuplexError::Broken);
        }
        if self.side.is_over(Departed::Inlet) {
            return Err(DuplexError::Gone);
        }
        let limits = Limits {
            deadline,
            still_there,
        };
        let head_len: usize = head.iter().map(|part| part.len()).sum();
        let body_len: u64 = body.iter().map(|part| part.len() as u64).sum();
        if head_len > LONGEST_HEAD {
            return Err(DuplexError::HeadTooLong { len: head_len });
        }
        let head_inline = head_len <= self.inline_head;
        // Slots are announced behind the record, so a body may only stay in it with its head.
        let body_inline = body_len == 0 || head_inline && body_len <= self.inline_body as u64;
        let preface = Preface {
            head_len: head_len as u32,
            through_slots: if head_inline { 0 } else { Preface::HEAD }
                | if body_inline { 0 } else { Preface::BODY },
            body_len,
        };
        if preface.through_slots != 0 {
            self.arena.ensure_memory()?;
        }

        let in_record = |inline: bool, len: usize| if inline { len } else { 0 };
        let len = Preface::LEN
            + in_record(head_inline, head_len)
            + in_record(body_inline, body_len as usize);
        self.wait_for_room(len, limits)?;
        let mut record = self.ring.begin(len).expect("room was just found");
        record.put(&preface.to_bytes());
        for (inline, parts) in [(head_inline, head), (body_inline, body)] {
            if inline {
                parts.iter().for_each(|part| record.put(part));
            }
        }
        record.publish();
        self.side.peer_bell.ring_if_waiting_for_published();

        if preface.through_slots != 0 {
            self.broken = true; // until it has been sent to the end
            if !head_inline {
                self.send_through_slots(head, head_len as u64, limits)?;
            }
            if !body_inline {
                self.send_through_slots(body, body_len, limits)?;
            }
            self.broken = false;
        }
        Ok(())
    }

    /// Announces slots and fills them, in pieces that the reader may copy at once.
    fn send_through_slots(
        &mut self,
        parts: &[&[u8]],
        mut left: u64,
        limits: Limits<'_>,
    ) -> Result<(), DuplexError> {
        let mut parts = Parts::new(parts);
        while left > 0 {
            let len = left.min(self.arena.slot_size() as u64) as usize;
            let mut filling = {
                let arena = &mut self.arena;
                self.side
                    .wait(Departed::Inlet, limits, || arena.try_claim().transpose())?
                    .map_err(|error| match error {
                        ClaimError::Corrupt(error) => DuplexError::Corrupt(error),
                        ClaimError::Memory(error) => DuplexError::Memory(error),
                    })?
            };
            self.wait_for_room(8, limits)?;
            self.ring
                .try_push(&[&filling.slot().to_ne_bytes(), &(len as u32).to_ne_bytes()])
                .expect("room was just found");
            while filling.written() < len {
                let piece_end = len.min(filling.written() + PIECE);
                while filling.written() < piece_end {
                    let bytes = parts.next(piece_end - filling.written());
                    self.arena.put(&mut filling, bytes);
                }
                self.arena.show(&filling);
                self.side.peer_bell.ring_if_waiting();
            }
            left -= len as u64;
        }
        Ok(())
    }

    #[inline]
    fn wait_for_room(&mut self, len: usize, limits: Limits<'_>) -> Result<(), DuplexError> {
        let ring = &mut self.ring;
        let found = self
            .side
            .wait(Departed::Inlet, limits, || match ring.room(len) {
                Err(PushError::Full) => None,
                other => Some(other),
            })?;
        match found {
            Ok(()) => Ok(()),
            Err(PushError::Corrupt(error)) => Err(error.into()),
            Err(error) => unreachable!("records are cut to fit: {error}"),
        }
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        self.side.depart(Departed::Outlet);
    }
}

/// A walk over several slices as if they were one.
struct Parts<'a> {
    current: &'a [u8],
    rest: std::slice::Iter<'a, &'a [u8]>,
}

impl<'a> Parts<'a> {
    fn new(parts: &'a [&'a [u8]]) -> Self {
        Parts {
            current: &[],
            rest: parts.iter(),
        }
    }

    /// The next run of at most `most` bytes; there must be some left.
    fn next(&mut self, most: usize) -> &'a [u8] {
        while self.current.is_empty() {
            self.current = self.rest.next().expect("as many bytes as were counted");
        }
        let (run, rest) = self.current.split_at(most.min(self.current.len()));
        self.current = rest;
        run
    }
}

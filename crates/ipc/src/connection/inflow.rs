//! The receiving half of a connection: one message at a time, kept while it is incomplete.
//!
//! Whatever has arrived of a message stays here when a deadline ends the wait for the rest of it, when it is asked
//! for without waiting, and when it does not fit where it should go. So no call harms the one after it.

use std::time::Duration;

use syncline_tensor::{DType, Shape, TensorView, TensorViewMut};
use syncline_transport::{Deadline, Head, RecvHalf};
use syncline_wire::value::lone_tensor;
use syncline_wire::{HEADER_LEN, Kind, Limits, Value};

use super::Fault;

pub(crate) struct Inflow {
    pub(crate) half: Box<dyn RecvHalf>,
    /// What the message that is arriving is; its payload follows in `body`.
    head: Option<Head>,
    body: Vec<u8>,
    filled: usize,
    /// The peer said that it will send no more.
    left: bool,
    /// Nothing more is here until the descriptor says so.
    pub(crate) drained: bool,
}

/// As much of a message is believed in one piece; from there on memory grows with what arrives.
const AT_ONCE: u64 = 16 << 20;

impl Inflow {
    pub(crate) fn new(half: Box<dyn RecvHalf>) -> Inflow {
        Inflow { half, head: None, body: Vec::new(), filled: 0, left: false, drained: false }
    }

    /// The next message, whole.
    pub(crate) fn next(&mut self, by: Deadline) -> Result<(Value<'static>, u64), Fault> {
        self.await_head(by)?;
        self.await_body(by)?;
        let Some(head) = self.head.take() else { return Err(Fault::Late { gone: 0, whole: 0 }) };
        let payload = std::mem::take(&mut self.body);
        self.filled = 0;
        let bytes = (HEADER_LEN + head.meta.len() + payload.len()) as u64;
        let value = if let Some((dtype, shape)) = lone_tensor(&head.meta)? {
            Value::tensor(dtype, shape, payload)? // its numbers are the payload, which needs no copy
        } else {
            Value::decode(&head.meta, &payload, &Limits::default())?.into_owned()
        };
        Ok((value, bytes))
    }

    /// The next message if all of it is here.
    pub(crate) fn next_if_here(&mut self) -> Result<Option<(Value<'static>, u64)>, Fault> {
        match self.next(Deadline::after(Duration::ZERO)) {
            Ok(message) => Ok(Some(message)),
            Err(Fault::Late { .. }) => {
                self.drained = true;
                Ok(None)
            }
            Err(fault) => Err(fault),
        }
    }

    /// The next message, which must be a tensor like `target`, into it. Returns the bytes that it took.
    pub(crate) fn next_into(&mut self, target: &mut TensorViewMut<'_>, by: Deadline) -> Result<u64, Fault> {
        self.await_head(by)?;
        let meta = self.head.as_ref().map_or(&[][..], |head| &head.meta);
        let wanted = (target.dtype(), target.shape().clone());
        let sent = match lone_tensor(meta)? {
            Some(sent) if sent == wanted => sent,
            Some((dtype, shape)) => return Err(Fault::Mismatch { sent: spelled(dtype, &shape), wanted: spelled(wanted.0, &wanted.1) }),
            None => return Err(Fault::Mismatch { sent: "a message that is no tensor".into(), wanted: spelled(wanted.0, &wanted.1) }),
        };
        let bytes = (HEADER_LEN + meta.len() + sent.1.byte_len(sent.0)) as u64;
        if (self.half.body_left() + self.filled as u64) != sent.1.byte_len(sent.0) as u64 {
            return Err(Fault::Unreadable("its payload is not as long as its tensor".into()));
        }
        match target.contiguous_bytes() {
            Some(memory) => self.await_body_in(memory, by)?,
            None => {
                self.await_body(by)?;
                let arrived = TensorView::contiguous(&self.body, sent.0, sent.1);
                arrived.and_then(|arrived| target.copy_from(&arrived)).map_err(|error| Fault::Unreadable(error.to_string()))?;
            }
        }
        (self.head, self.body, self.filled) = (None, Vec::new(), 0);
        Ok(bytes)
    }

    /// Whether the peer is there, or has at least left the beginning of a message.
    pub(crate) fn is_alive(&mut self) -> bool {
        matches!(self.await_head(Deadline::after(Duration::ZERO)), Ok(()) | Err(Fault::Late { .. }))
    }

    fn await_head(&mut self, by: Deadline) -> Result<(), Fault> {
        if self.left {
            return Err(Fault::Left);
        }
        if self.head.is_none() {
            let head = self.half.head(by)?;
            match head.header.kind {
                Kind::VALUE => self.head = Some(head),
                Kind::GOODBYE => {
                    self.left = true;
                    return Err(Fault::Left);
                }
                other => return Err(Fault::Unreadable(format!("a frame of {other} has no business here"))),
            }
        }
        Ok(())
    }

    fn await_body(&mut self, by: Deadline) -> Result<(), Fault> {
        loop {
            let left = self.half.body_left();
            if left == 0 {
                self.body.truncate(self.filled);
                return Ok(());
            }
            if self.filled == self.body.len() {
                let step = left.min(AT_ONCE.max(self.filled as u64)) as usize; // doubles, so that few bytes move twice
                self.body.reserve_exact(step);
                self.body.resize(self.filled + step, 0);
            }
            self.filled += self.half.body_chunk(&mut self.body[self.filled..], by)?;
        }
    }

    /// The body straight into the caller's memory. If the wait ends early, what came is kept here.
    fn await_body_in(&mut self, memory: &mut [u8], by: Deadline) -> Result<(), Fault> {
        memory[..self.filled].copy_from_slice(&self.body[..self.filled]);
        while self.half.body_left() > 0 {
            match self.half.body_chunk(&mut memory[self.filled..], by) {
                Ok(read) => self.filled += read,
                Err(error) => {
                    self.body = memory[..self.filled].to_vec();
                    return Err(error.into());
                }
            }
        }
        Ok(())
    }

    /// Takes and forgets what is here: closing a socket with unread bytes would reset it, and what this side sent last
    /// could be lost with that.
    pub(crate) fn discard(&mut self) {
        let now = Deadline::after(Duration::ZERO);
        let mut bin = vec![0; 64 << 10];
        for _ in 0..4096 {
            let read = if self.half.body_left() > 0 { self.half.body_chunk(&mut bin, now).is_ok() } else { self.half.head(now).is_ok() };
            if !read {
                return;
            }
        }
    }
}

fn spelled(dtype: DType, shape: &Shape) -> String {
    let dims: Vec<String> = shape.dims().iter().map(usize::to_string).collect();
    format!("a tensor of {dtype} ({})", dims.join(", "))
}

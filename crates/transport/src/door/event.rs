//! What a door tells its owner, and how often it is worth telling.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use crate::Connection;
use crate::noise::Refusal;

/// What happened at a door.
#[derive(Debug)]
#[non_exhaustive]
pub enum DoorEvent {
    /// A member came in.
    Visitor {
        /// The first thing it said.
        hello: Vec<u8>,
        /// The descriptor that it brought.
        fd: Option<OwnedFd>,
        /// Everything after the hello.
        connection: Connection,
    },
    /// Somebody was sent away.
    Refused {
        /// The address it came from, without its port: what is counted together.
        from: String,
        /// Why.
        why: Refusal,
        /// How many were sent away from there so far, this one included.
        count: u64,
    },
}

impl DoorEvent {
    /// Whether a log should mention it: the first refusal of each source and every hundredth after it.
    pub fn is_worth_a_line(&self) -> bool {
        match self {
            DoorEvent::Visitor { .. } => true,
            DoorEvent::Refused { count, .. } => *count == 1 || count.is_multiple_of(100),
        }
    }
}

/// Counts refusals by where they came from, without remembering more than a few hundred places.
#[derive(Default)]
pub(super) struct Refused {
    by_source: HashMap<String, u64>,
}

impl Refused {
    const SOURCES: usize = 256;

    pub(super) fn note(&mut self, from: String, why: Refusal) -> DoorEvent {
        if self.by_source.len() >= Refused::SOURCES && !self.by_source.contains_key(&from) {
            self.by_source.clear(); // a flood from everywhere: begin to count anew
        }
        let count = self.by_source.entry(from.clone()).or_default();
        *count += 1;
        DoorEvent::Refused {
            from,
            why,
            count: *count,
        }
    }
}

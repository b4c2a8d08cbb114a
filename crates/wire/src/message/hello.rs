//! The first words on a new connection: who calls, and what the connection is for.

use serde::{Deserialize, Serialize};

use crate::codec::{decode_message, encode_message};
use crate::error::Result;

/// Sent once by the side that connects, before anything else.
///
/// It has no strings and no lists: [`Hello::MAX_LEN`] bytes at most, so that a listener reads it into a fixed buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// What the connection is for.
    pub purpose: Purpose,
    /// The caller's rank, once it has one.
    pub rank: Option<u32>,
    /// The life of the job it belongs to.
    pub epoch: u32,
    /// Which process it is; see [`MemberInfo::instance`](super::MemberInfo::instance).
    pub instance: [u8; 16],
}

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Purpose {
    /// To talk to the coordinator.
    Control,
    /// To fetch the descriptor of the host's board.
    Board,
    /// To carry the frames of one lane.
    Lane(u32),
}

impl Hello {
    /// The most bytes a greeting takes: 1 + 5 of purpose, 1 + 5 of rank, 5 of epoch, 16 of instance, rounded up.
    pub const MAX_LEN: usize = 40;

    /// The bytes that travel.
    pub fn encode(&self) -> Result<Vec<u8>> {
        encode_message("hello", self, Hello::MAX_LEN)
    }

    /// Reads a greeting from outside.
    pub fn decode(bytes: &[u8]) -> Result<Hello> {
        decode_message("hello", bytes, Hello::MAX_LEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_greeting_fits_its_cap() {
        let longest = Hello { purpose: Purpose::Lane(u32::MAX), rank: Some(u32::MAX), epoch: u32::MAX, instance: [0xff; 16] };
        let bytes = longest.encode().unwrap();
        assert_eq!(bytes.len(), 33);
        assert_eq!(Hello::decode(&bytes), Ok(longest));
    }
}

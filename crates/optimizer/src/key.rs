//! Which parameter: a number or a name, never both.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The key of a parameter, as its user gave it. The number 3 and the name "3" are different keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Key {
    /// A number.
    Int(i64),
    /// A name.
    Name(String),
}

impl Key {
    /// 64 bits that depend on the key and on nothing else, on any machine (FNV-1a): they tell streams of noise apart.
    pub(crate) fn stable_hash(&self) -> u64 {
        let hash = |kind: u8, bytes: &[u8]| {
            let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            bytes.iter().fold(step(0xcbf2_9ce4_8422_2325, &kind), step)
        };
        match self {
            Key::Int(number) => hash(0, &number.to_le_bytes()),
            Key::Name(name) => hash(1, name.as_bytes()),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Int(number) => number.fmt(f),
            Key::Name(name) => name.fmt(f),
        }
    }
}

impl From<i64> for Key {
    fn from(number: i64) -> Key {
        Key::Int(number)
    }
}

impl From<&str> for Key {
    fn from(name: &str) -> Key {
        Key::Name(name.to_owned())
    }
}

//! The one place where serde messages become bytes and bytes become serde messages.
//!
//! The bytes are postcard's: field after field without names or versions of their own, which is why the
//! frame header carries [`VERSION`](crate::VERSION). Decoding a hostile message costs no more memory than a small
//! multiple of the message itself: postcard takes strings out of the bytes that are there, and serde believes
//! the announced length of a list only up to 1 MiB of memory, then grows it by what actually arrives.

use serde::{Serialize, de::DeserializeOwned};

use crate::error::{Result, WireError};

/// The bytes of `message`, at most `max` of them. `name` is for the error.
pub fn encode_message<T: Serialize>(name: &'static str, message: &T, max: usize) -> Result<Vec<u8>> {
    let bytes = postcard::to_allocvec(message).map_err(|cause| WireError::Message { message: name, cause })?;
    check_len(name, bytes.len(), max)?;
    Ok(bytes)
}

/// The message that `bytes` are, all of them and no more than `max`. `name` is for the error.
pub fn decode_message<T: DeserializeOwned>(name: &'static str, bytes: &[u8], max: usize) -> Result<T> {
    check_len(name, bytes.len(), max)?;
    let (message, rest) = postcard::take_from_bytes(bytes).map_err(|cause| WireError::Message { message: name, cause })?;
    if !rest.is_empty() {
        let at = (bytes.len() - rest.len()) as u64;
        return Err(WireError::Trailing { part: name, at, extra: rest.len() as u64 });
    }
    Ok(message)
}

fn check_len(part: &'static str, len: usize, max: usize) -> Result<()> {
    if len > max {
        return Err(WireError::TooLarge { part, len: len as u64, max: max as u64 });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_comes_back_as_it_went() {
        let bytes = encode_message("pair", &(7u32, "seven"), 64).unwrap();
        assert_eq!(decode_message::<(u32, String)>("pair", &bytes, 64).unwrap(), (7, "seven".to_string()));
    }

    #[test]
    fn bytes_after_the_message_are_an_error_not_a_courtesy() {
        let mut bytes = encode_message("pair", &(7u32, "seven"), 64).unwrap();
        bytes.push(0);
        assert_eq!(decode_message::<(u32, String)>("pair", &bytes, 64), Err(WireError::Trailing { part: "pair", at: 7, extra: 1 }));
    }

    #[test]
    fn both_sides_hold_to_the_cap() {
        let too_large = WireError::TooLarge { part: "text", len: 6, max: 5 };
        assert_eq!(encode_message("text", &"12345", 5), Err(too_large.clone()));
        let bytes = encode_message("text", &"12345", 6).unwrap();
        assert_eq!(decode_message::<String>("text", &bytes, 5), Err(too_large));
    }

    #[test]
    fn an_announced_length_without_bytes_behind_it_is_refused_without_allocating_it() {
        // A varint of 2^40 or so, then nothing.
        let bytes = [0xff, 0xff, 0xff, 0xff, 0xff, 0x1f];
        assert!(matches!(decode_message::<Vec<u64>>("list", &bytes, 64), Err(WireError::Message { .. })));
        assert!(matches!(decode_message::<String>("text", &bytes, 64), Err(WireError::Message { .. })));
    }
}

//! What must hold for any bytes whatever: one function per parser, for `fuzz/` and for `tests/fuzz_smoke.rs`.
//!
//! Each takes bytes as a stranger might send them and panics only if this crate breaks a promise: that
//! refusing is all that happens to bad bytes, and that what is accepted reads the same when it is
//! written again. Each returns whether it accepted the bytes, so that a test can tell that good ones
//! do come through.

use crate::message::{Control, Hello};
use crate::value::{MEMORY_PER_BYTE, lone_tensor};
use crate::{FrameHeader, HEADER_LEN, Limits, MAGIC, VERSION, Value, WireError};

/// A header as it came, and the same with magic, version and checksum put right, so that the checks
/// behind them see arbitrary fields too.
pub fn frame_header(data: &[u8]) -> bool {
    let Some((bytes, meta)) = data.split_first_chunk::<HEADER_LEN>() else {
        return false;
    };
    let limits = Limits::default();
    let as_it_came = FrameHeader::decode(bytes, &limits);
    if let Ok(header) = &as_it_came {
        assert_eq!(header.encode(), *bytes);
    }

    let mut sealed = *bytes;
    sealed[0..4].copy_from_slice(&MAGIC.to_le_bytes());
    sealed[4..6].copy_from_slice(&VERSION.to_le_bytes());
    let crc = crc32fast::hash(&sealed[..60]);
    sealed[60..].copy_from_slice(&crc.to_le_bytes());
    match FrameHeader::decode(&sealed, &limits) {
        Ok(header) => {
            assert!(header.meta_len <= limits.max_meta);
            assert!(header.payload_len <= limits.max_payload);
            assert!(header.frame_len().is_some());
            assert_eq!(header.encode(), sealed);
            let _ = header.check_meta(meta);
        }
        Err(WireError::ReservedFlags { .. } | WireError::TooLarge { .. }) => {}
        Err(other) => panic!("a sealed header was refused for {other}"),
    }
    as_it_came.is_ok()
}

/// A control message.
pub fn control_message(data: &[u8]) -> bool {
    let limits = Limits::default();
    let Ok(message) = Control::decode(data, &limits) else {
        return false;
    };
    let again = message.encode(&limits).expect("what was accepted can be sent");
    assert!(again.len() <= data.len(), "our own spelling is the shortest");
    assert_eq!(Control::decode(&again, &limits), Ok(message));
    true
}

/// A greeting.
pub fn hello(data: &[u8]) -> bool {
    let Ok(hello) = Hello::decode(data) else {
        return false;
    };
    let again = hello.encode().expect("what was accepted can be sent");
    assert_eq!(Hello::decode(&again), Ok(hello));
    true
}

/// A value: the first two bytes say how much of the rest is meta, what remains is payload.
pub fn value(data: &[u8]) -> bool {
    let Some((split, rest)) = data.split_first_chunk::<2>() else {
        return false;
    };
    let meta_len = usize::from(u16::from_le_bytes(*split)).min(rest.len());
    let (meta, payload) = rest.split_at(meta_len);
    let limits = Limits::default();
    let announced = lone_tensor(meta);
    let Ok(value) = Value::decode(meta, payload, &limits) else {
        return false;
    };
    match (&value, announced) {
        (Value::Tensor(tensor), Ok(Some((dtype, shape)))) => {
            assert_eq!((tensor.dtype(), tensor.shape(), payload.len()), (dtype, &shape, shape.byte_len(dtype)));
        }
        (value, announced) => assert!(!matches!(value, Value::Tensor(_)) && announced == Ok(None), "{announced:?}"),
    }
    let memory = value.memory();
    assert!(memory <= MEMORY_PER_BYTE * rest.len(), "{memory} bytes of memory for {}", rest.len());
    let again = value.encode(&limits).expect("what was accepted can be sent");
    assert!(again.meta() == meta, "a value has one spelling");
    assert!(again.payload_to_vec() == payload, "a value has one payload");
    true
}

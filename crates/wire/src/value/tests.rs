//! What the value codec promises, case by case; the properties over all values are in `tests/properties.rs`.

use super::layout::{LIST, MAP, NIL, STR, TENSOR, WIDE_INT, word};
use super::*;
use crate::Limits;

fn meta_of(words: &[[u8; 8]]) -> Vec<u8> {
    words.concat()
}

fn decode<'a>(meta: &'a [u8], payload: &'a [u8]) -> Result<Value<'a>> {
    Value::decode(meta, payload, &Limits::default())
}

fn f32_tensor(dims: &[usize], data: &[u8]) -> Value<'static> {
    Value::tensor(DType::F32, Shape::new(dims).unwrap(), data.to_vec()).unwrap()
}

#[track_caller]
fn round_trip(value: &Value<'_>) {
    let encoded = value.encode(&Limits::default()).unwrap();
    let payload = encoded.payload_to_vec();
    assert_eq!(payload.len() as u64, encoded.payload_len());
    assert_eq!(decode(encoded.meta(), &payload).unwrap(), *value);
}

#[test]
fn a_value_is_four_words_so_that_long_lists_stay_small() {
    assert_eq!(size_of::<Value<'_>>(), 32);
}

#[test]
fn integers_at_every_edge_come_back() {
    let edge = 1i64 << 55;
    for number in [0, 1, -1, edge - 1, edge, -edge, -edge - 1, i64::MIN, i64::MAX] {
        round_trip(&Value::Int(number));
    }
    assert_eq!(Value::Int(edge - 1).encode(&Limits::default()).unwrap().meta().len(), 8);
    assert_eq!(Value::Int(edge).encode(&Limits::default()).unwrap().meta().len(), 16);
}

#[test]
fn floats_keep_their_bits() {
    for bits in [0, 1 << 63, 0x7ff0_0000_0000_0000, 0x7ff8_dead_beef_0001, f64::MIN_POSITIVE.to_bits()] {
        let sent = Value::Float(f64::from_bits(bits));
        let encoded = sent.encode(&Limits::default()).unwrap();
        match decode(encoded.meta(), &[]).unwrap() {
            Value::Float(number) => assert_eq!(number.to_bits(), bits),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn strings_and_bytes_of_any_length_come_back_from_where_they_belong() {
    for len in [0, 1, 7, 8, 9, RAW_FROM - 1, RAW_FROM, RAW_FROM + 1, 100_000] {
        let (text, bytes) = (Value::from("x".repeat(len)), Value::from(vec![7u8; len]));
        let in_payload = if len < RAW_FROM { 0 } else { len as u64 };
        assert_eq!(text.encode(&Limits::default()).unwrap().payload_len(), in_payload);
        assert_eq!(bytes.encode(&Limits::default()).unwrap().payload_len(), in_payload);
        round_trip(&Value::List(vec![text, bytes]));
    }
}

#[test]
fn tensor_bytes_are_borrowed_on_the_way_out_and_on_the_way_in() {
    let numbers = [1u8; 24];
    let sent = Value::tensor(DType::F32, Shape::new(&[2, 3]).unwrap(), &numbers[..]).unwrap();
    let encoded = sent.encode(&Limits::default()).unwrap();
    assert_eq!(encoded.payload()[0].as_ptr(), numbers.as_ptr());

    let payload = encoded.payload_to_vec();
    let Value::Tensor(received) = decode(encoded.meta(), &payload).unwrap() else { panic!("not a tensor") };
    assert_eq!(received.data().as_ptr(), payload.as_ptr());
    assert_eq!(received.into_parts().1.dims(), [2, 3]);
}

#[test]
fn every_tensor_begins_at_a_multiple_of_64() {
    let value = Value::List(vec![
        f32_tensor(&[1], &[1; 4]),
        f32_tensor(&[0, 5], &[]),
        f32_tensor(&[], &[2; 4]),
        f32_tensor(&[16], &[3; 64]),
        f32_tensor(&[1], &[4; 4]),
    ]);
    let encoded = value.encode(&Limits::default()).unwrap();
    let payload = encoded.payload_to_vec();
    assert_eq!((payload[0], payload[64], payload[128], payload[192]), (1, 2, 3, 4));
    assert_eq!(payload.len(), 196, "nothing is filled up behind the last item");
    round_trip(&value);
}

#[test]
fn a_tensor_needs_exactly_its_bytes() {
    let shape = Shape::new(&[2, 3]).unwrap();
    assert_eq!(
        Value::tensor(DType::F32, shape, vec![0; 23]),
        Err(WireError::PartLength { part: "data of a tensor", announced: 24, given: 23 })
    );
    let many_axes = Shape::new(&[1; MAX_AXES + 1]).unwrap();
    assert_eq!(
        Value::tensor(DType::U8, many_axes, vec![0]),
        Err(WireError::TooLarge { part: "list of a tensor's axes", len: 65, max: 64 })
    );
}

#[test]
fn nesting_ends_at_the_cap_on_both_sides() {
    let nested = |depth| (0..depth).fold(Value::Nil, |inner, _| Value::List(vec![inner]));
    round_trip(&nested(MAX_DEPTH));
    let too_deep = Err(WireError::TooDeep { max: MAX_DEPTH });
    assert_eq!(nested(MAX_DEPTH + 1).encode(&Limits::default()).map(drop), too_deep);

    let mut meta = word(LIST, 1).repeat(MAX_DEPTH + 1);
    meta.extend(word(NIL, 0));
    assert_eq!(decode(&meta, &[]).map(drop), too_deep);
}

#[test]
fn a_nil_key_is_refused_on_both_sides() {
    let map = Value::Map(vec![(Value::Nil, Value::Int(1))]);
    let refused = WireError::Malformed { part: "value", at: 8, cause: "a map has a nil key" };
    assert_eq!(map.encode(&Limits::default()), Err(refused.clone()));
    let meta = meta_of(&[word(MAP, 1), word(NIL, 0), word(NIL, 0)]);
    assert_eq!(decode(&meta, &[]), Err(refused));
}

#[test]
fn maps_keep_their_order_and_take_any_key_but_nil() {
    round_trip(&Value::Map(vec![
        (Value::from("z"), Value::Nil),
        (Value::from(1), Value::Map(vec![])),
        (Value::from(false), Value::List(vec![])),
        (Value::List(vec![Value::from(1.5)]), f32_tensor(&[2], &[1; 8])),
    ]));
}

#[test]
fn a_count_without_bytes_behind_it_is_refused_before_memory_is_reserved() {
    assert_eq!(
        decode(&word(LIST, (1 << 56) - 1), &[]),
        Err(WireError::Truncated { part: "value", at: 8, needed: ((1 << 56) - 1) * 8, available: 0 })
    );
    assert!(matches!(decode(&word(MAP, (1 << 56) - 1), &[]), Err(WireError::Truncated { .. })));
}

#[test]
fn nested_lists_cannot_each_reserve_the_same_bytes() {
    // The outer list promises all nine words behind it; the inner one claims eight of them again.
    let mut meta = meta_of(&[word(LIST, 9), word(LIST, 8)]);
    meta.extend(word(NIL, 0).repeat(8));
    assert_eq!(decode(&meta, &[]), Err(WireError::Truncated { part: "value", at: 16, needed: 64, available: 0 }));
}

#[test]
fn other_spellings_of_a_value_are_refused() {
    let short_as_wide = meta_of(&[word(WIDE_INT, 0), 5i64.to_le_bytes()]);
    let dirty_gap = meta_of(&[word(STR, 1), *b"a\0\0\0\0\0\0b"]);
    let long_inline = [&word(STR, 1024)[..], &[b'a'; 1024]].concat();
    for meta in [&word(NIL, 1)[..], &word(2, 2), &short_as_wide, &dirty_gap, &long_inline, &word(8, 5), &[0; 8], &[13; 8]] {
        assert!(matches!(decode(meta, &[b'a'; 5]), Err(WireError::Malformed { .. })), "{meta:?}");
    }
}

#[test]
fn bytes_missing_or_left_over_are_refused_in_both_parts() {
    let tensor = f32_tensor(&[2], &[1; 8]);
    let encoded = tensor.encode(&Limits::default()).unwrap();
    let (meta, payload) = (encoded.meta(), encoded.payload_to_vec());
    assert!(matches!(decode(&meta[..8], &payload), Err(WireError::Truncated { part: "value", at: 8, .. })));
    assert!(matches!(decode(meta, &payload[..7]), Err(WireError::Truncated { .. })));
    assert!(matches!(decode(&[meta, &[0]].concat(), &payload), Err(WireError::Trailing { extra: 1, .. })));
    assert!(matches!(decode(meta, &[&payload[..], &[0]].concat()), Err(WireError::Trailing { extra: 1, .. })));
    assert!(matches!(decode(&[], &[]), Err(WireError::Truncated { .. })));
}

#[test]
fn impossible_tensors_are_refused() {
    let of = |argument, dims: &[u64]| {
        let mut meta = word(TENSOR, argument).to_vec();
        dims.iter().for_each(|extent| meta.extend(extent.to_le_bytes()));
        meta
    };
    for (meta, cause) in [
        (of(0xff, &[]), "there is no such dtype"),
        (of(65 << 8, &[]), "a tensor has too many axes"),
        (of(1 << 8, &[u64::MAX]), "a tensor is larger than memory"),
        (of(2 << 8, &[1 << 40, 1 << 40]), "a tensor is larger than memory"),
    ] {
        assert_eq!(decode(&meta, &[]), Err(WireError::Malformed { part: "value", at: 0, cause }));
    }
}

#[test]
fn text_must_be_utf8() {
    let meta = meta_of(&[word(STR, 2), *b"\xff\xfe\0\0\0\0\0\0"]);
    assert_eq!(decode(&meta, &[]), Err(WireError::Malformed { part: "value", at: 0, cause: "a string is not UTF-8" }));
}

#[test]
fn limits_hold_on_both_sides() {
    let limits = Limits { max_meta: 16, max_payload: 8 };
    let (list, tensor) = (Value::List(vec![Value::Nil; 2]), f32_tensor(&[3], &[0; 12]));
    assert_eq!(list.encode(&limits), Err(WireError::TooLarge { part: "meta", len: 24, max: 16 }));
    assert_eq!(tensor.encode(&limits), Err(WireError::TooLarge { part: "payload", len: 12, max: 8 }));
    assert_eq!(Value::decode(&[0; 17], &[], &limits), Err(WireError::TooLarge { part: "meta", len: 17, max: 16 }));
    assert_eq!(Value::decode(&[0; 16], &[0; 9], &limits), Err(WireError::TooLarge { part: "payload", len: 9, max: 8 }));
}

#[test]
fn the_pieces_of_a_plain_value_are_its_encoding() {
    let texts = [0, 1, 7, 8, 9, 64, 1023].map(|len| "t".repeat(len));
    let mut values = vec![Value::Nil, Value::Bool(true), Value::Bool(false), Value::Float(-0.5)];
    values.extend([0, 1, -1, i64::MAX, i64::MIN, 1 << 55, -(1 << 55), (1 << 55) - 1].map(Value::Int));
    for text in &texts {
        values.extend([Value::from(text.as_str()), Value::from(text.as_bytes()), Value::Opaque(text.as_bytes().into())]);
    }
    for value in &values {
        let plain = value.plain_meta().expect("a value without parts");
        let encoded = value.encode_local(Vec::new(), &Limits::default()).unwrap();
        assert_eq!(plain.pieces().concat(), encoded.meta(), "{value:?}");
        assert_eq!(plain.len(), encoded.meta().len());
        let (whole, quick) = (Value::decode_local(encoded.meta(), &[], &Limits::default()).unwrap(), Value::decode_plain(encoded.meta()));
        assert!(quick.is_none_or(|quick| quick == whole), "{value:?}");
        // What is no encoding is left to the decoder that says why.
        let longer = [encoded.meta(), &[0; 8]].concat();
        let mut spoilt = encoded.meta().to_vec();
        *spoilt.last_mut().unwrap() ^= 0x80;
        for wrong in [&longer[..], &encoded.meta()[..encoded.meta().len() - 1], &spoilt, &[]] {
            let quick = Value::decode_plain(wrong);
            assert!(quick.is_none() || quick == Value::decode_local(wrong, &[], &Limits::default()).ok(), "{value:?}, {wrong:?}");
        }
    }
    assert!(Value::from("t".repeat(1024)).plain_meta().is_none() && Value::List(Vec::new()).plain_meta().is_none());
}

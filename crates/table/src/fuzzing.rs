//! What must hold for any bytes whatever: one function per parser, for `fuzz/` and for the tests.
//!
//! Each returns whether it accepted the bytes, so that a test can tell that good ones do come through.

use crate::named::Word;
use crate::spread::Code;
use crate::spread::messages::{Bounds, Reply, Request, Rows};
use crate::spread::protocol::Report;

/// A request: the first 8 bytes say how long its payload claims to be, bit 0 of the ninth whether ids are keys.
pub fn table_request(data: &[u8]) -> bool {
    let Some((length, rest)) = data.split_first_chunk::<8>() else { return false };
    let Some((flags, meta)) = rest.split_first() else { return false };
    let (payload, row_bytes) = (u64::from_le_bytes(*length), u64::from(flags >> 1));
    let bounds = Bounds { row_bytes, rows: (flags & 1 == 0).then_some(1000), floats: flags & 2 != 0 };
    let Ok(request) = Request::decode(meta, payload, &bounds) else { return false };
    if let Request::Add { rows: Rows::Listed(count), .. } | Request::Import { pairs: count } = &request {
        assert_eq!(count.checked_mul(8 + row_bytes), Some(payload), "ids and rows fill the payload");
    }
    let again = request.encode();
    assert!(again.len() <= meta.len(), "our own spelling is the shortest");
    let decoded = Request::decode(&again, payload, &bounds).expect("what was accepted can be sent");
    assert_eq!(decoded.encode(), again, "and reads the same");
    true
}

/// Words that claim to be numbers in few bits: the first byte says which code, the second how many numbers there are, and whether they lie oddly.
pub fn table_words(data: &[u8]) -> bool {
    let [which, count, words @ ..] = data else { return false };
    let codes =
        [Code::TwoBit { threshold: 0.5 }, Code::OneBit { threshold: 0.0 }, Code::F16, Code::BF16, Code::Int8, Code::TopK { ratio: 0.25 }];
    let (code, numbers, odd) = (codes[usize::from(*which) % codes.len()], usize::from(count >> 1), usize::from(count & 1));
    let mut room = vec![0; numbers * 4 + odd];
    if code.decode(words, &mut room[odd..]).is_err() {
        return false;
    }
    assert!(code.takes(words.len() as u64, numbers as u64), "no other length is accepted");
    true
}

/// What a member says to all about tables.
pub fn table_word(data: &[u8]) -> bool {
    Word::decode(data).is_some_and(|word| {
        assert_eq!(word.encode().ok().and_then(|again| Word::decode(&again)), Some(word), "what was accepted reads the same");
        true
    })
}

/// A reply, or a report of a share about a dead worker.
pub fn table_reply(data: &[u8]) -> bool {
    let report = Report::decode(data).map(|report| assert_eq!(Report::decode(&report.encode()), Ok(report))).is_ok();
    let Ok(reply) = Reply::decode(data) else { return report };
    if let Reply::Refused(refusal) = reply.clone() {
        assert!(!refusal.into_error(0).to_string().is_empty() || data.len() < 64);
    }
    assert_eq!(Reply::decode(&reply.encode()), Ok(reply));
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::AddOptions;

    #[test]
    fn good_bytes_come_through() {
        let add = Request::Add { sequence: 1, rows: Rows::Listed(2), options: AddOptions::default(), hold: None, patience: 5 };
        let data = [&24u64.to_le_bytes()[..], &[8], &add.encode()].concat();
        assert!(table_request(&data));
        let code = Code::Int8;
        let words = Request::AddWords { sequence: 1, code, options: AddOptions::default(), hold: None, patience: 5 };
        let bytes = code.quantizer().encoded_len(2000) as u64;
        assert!(table_request(&[&bytes.to_le_bytes()[..], &[16 | 2], &words.encode()].concat()), "a thousand rows of two floats");
        assert!(table_words(&[0, 32, 0xff, 0xff, 0xff, 0xff]) && !table_words(&[0, 32, 0xff]));
        assert!(table_word(&Word::Finished { worker: 2 }.encode().expect("a few bytes")));
        assert!(table_reply(&Reply::Data { rows: 3 }.encode()));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(data in proptest::collection::vec(any::<u8>(), 0..64), small in proptest::collection::vec(0u8..14, 0..24)) {
            for bytes in [&data, &small] {
                table_request(bytes);
                table_reply(bytes);
                table_words(bytes);
                table_word(bytes);
            }
        }
    }
}

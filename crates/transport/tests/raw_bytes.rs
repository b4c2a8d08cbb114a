//! What a stream link makes of bytes that no Syncline sent.

use std::io::Write;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use syncline_transport::{Deadline, Link, LinkError, unix};
use syncline_wire::{FrameHeader, Kind, WireError};

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

fn at_once() -> Deadline {
    Deadline::after(Duration::ZERO)
}

/// A link and the raw other end of its socket.
fn raw() -> (UnixStream, Link) {
    let (raw, end) = UnixStream::pair().unwrap();
    (raw, unix::link(OwnedFd::from(end), "a raw socket", 1, 0).unwrap())
}

fn frame(meta: &[u8], payload: &[u8]) -> Vec<u8> {
    let header = FrameHeader { epoch: 1, payload_len: payload.len() as u64, ..FrameHeader::new(Kind::DATA) };
    [&header.with_meta(meta).unwrap().encode(), meta, payload].concat()
}

#[test]
fn a_frame_may_arrive_byte_by_byte_between_timeouts() {
    let (mut raw, mut link) = raw();
    let bytes = frame(b"meta", b"payload");
    for (at, byte) in bytes.iter().enumerate().take(64 + 4) {
        assert!(matches!(link.head(at_once()).unwrap_err(), LinkError::Timeout { half_written: false, .. }), "byte {at}");
        raw.write_all(&[*byte]).unwrap();
    }
    assert_eq!(link.head(soon()).unwrap().meta, b"meta");
    let mut body = [0; 7];
    for at in 0..7 {
        assert!(link.receiver().body_chunk(&mut body[at..], at_once()).unwrap_err().is_transient());
        raw.write_all(&bytes[68 + at..69 + at]).unwrap();
        assert_eq!(link.receiver().body_chunk(&mut body[at..], soon()).unwrap(), 1);
    }
    assert_eq!(&body, b"payload");
}

#[test]
fn many_small_frames_in_one_packet_are_all_there() {
    let (mut raw, mut link) = raw();
    let bytes: Vec<u8> = (0..500).flat_map(|index| frame(&[index as u8], &vec![index as u8; index])).collect();
    let writer = std::thread::spawn(move || {
        raw.write_all(&bytes).unwrap();
        raw
    });
    for index in 0..500 {
        let (head, body) = link.frame(soon()).unwrap();
        assert_eq!((head.meta, body), (vec![index as u8], vec![index as u8; index]));
    }
    drop(writer.join().unwrap());
}

#[test]
fn the_end_in_the_middle_of_a_frame_is_not_the_end_between_two() {
    let whole = frame(b"meta", b"payload");
    for cut in [0, 1, 63, 64, 66, 68, 70, whole.len()] {
        let (mut raw, mut link) = raw();
        raw.write_all(&whole[..cut]).unwrap();
        raw.shutdown(Shutdown::Write).unwrap();
        let mut outcome = link.frame(soon());
        if cut == whole.len() {
            assert!(outcome.is_ok());
            outcome = link.frame(soon());
        }
        let Err(LinkError::PeerGone { detail }) = outcome else { panic!("cut at {cut}: {outcome:?}") };
        assert_eq!(detail.contains("middle"), (1..whole.len()).contains(&cut), "cut at {cut}: {detail}");
    }
}

#[test]
fn a_damaged_header_breaks_the_link_for_good() {
    let (mut raw, mut link) = raw();
    let mut bytes = frame(b"", b"");
    bytes[20] ^= 1;
    raw.write_all(&bytes).unwrap();
    let error = link.head(soon()).unwrap_err();
    assert!(matches!(error, LinkError::Corrupt(WireError::HeaderChecksum { .. })), "{error:?}");
    raw.write_all(&frame(b"", b"")).unwrap();
    let error = link.head(soon()).unwrap_err();
    assert!(matches!(error, LinkError::Broken { .. }), "nobody knows where the next frame begins: {error:?}");
}

#[test]
fn a_damaged_meta_is_refused() {
    let (mut raw, mut link) = raw();
    let mut bytes = frame(b"meta", b"");
    bytes[65] ^= 1;
    raw.write_all(&bytes).unwrap();
    let error = link.head(soon()).unwrap_err();
    assert!(matches!(error, LinkError::Corrupt(WireError::MetaChecksum { .. })), "{error:?}");
}

#[test]
fn a_large_body_that_stops_half_way_is_never_taken_for_a_shorter_one() {
    let (mut raw, mut link) = raw();
    let header = FrameHeader { epoch: 1, payload_len: 40 << 20, ..FrameHeader::new(Kind::DATA) };
    raw.write_all(&header.encode()).unwrap();
    link.head(soon()).unwrap();
    assert!(link.body(at_once()).unwrap_err().is_transient(), "nothing was read, nothing is lost");
    let writer = std::thread::spawn(move || {
        let _ = raw.write_all(&vec![1; 20 << 20]); // ends early if the reader gives up first
        raw
    });
    let error = link.body(Deadline::after(Duration::from_millis(300))).unwrap_err();
    assert!(matches!(error, LinkError::Timeout { .. }), "{error:?}");
    let again = link.body(at_once()).unwrap_err();
    assert!(matches!(again, LinkError::Broken { .. }), "{again:?}");
    drop(link);
    drop(writer.join().unwrap());
}

#[test]
fn lengths_over_the_limit_are_refused_before_they_matter() {
    let over = [
        FrameHeader { meta_len: (16 << 20) + 1, ..FrameHeader::new(Kind::DATA) },
        FrameHeader { payload_len: (1 << 40) + 1, ..FrameHeader::new(Kind::DATA) },
    ];
    for header in over {
        let (mut raw, mut link) = raw();
        raw.write_all(&header.encode()).unwrap();
        let error = link.head(soon()).unwrap_err();
        assert!(matches!(error, LinkError::Corrupt(WireError::TooLarge { .. })), "{error:?}");
    }
}

#[test]
fn random_bytes_end_in_an_error_and_never_in_a_wait() {
    let mut random = Random(0x5eed);
    let began = Instant::now();
    for round in 0..400 {
        let (mut raw, mut link) = raw();
        let mut bytes: Vec<u8> = (0..1 + random.next() % 3000).map(|_| random.next() as u8).collect();
        if round % 2 == 0 {
            // Good frames with one damaged bit somewhere.
            bytes = (0..5).flat_map(|index| frame(&[index; 9], &[index; 40])).collect();
            let bit = random.next() as usize % (bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        raw.write_all(&bytes).unwrap();
        drop(raw);
        let error = loop {
            match link.frame(soon()) {
                Ok(_) | Err(LinkError::StaleEpoch { .. }) => {}
                Err(error) => break error,
            }
        };
        assert!(matches!(error, LinkError::Corrupt(_) | LinkError::PeerGone { .. }), "round {round}: {error:?}");
    }
    assert!(began.elapsed() < Duration::from_secs(10));
}

/// A small generator, so that a failure repeats itself.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

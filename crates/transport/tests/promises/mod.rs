//! The promises of a link, each a function of "how to make a pair".

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use syncline_transport::{Deadline, LinkError, OutFrame, Sending, TransportKind};
use syncline_wire::{Fingerprint, Flags, Kind};

use crate::meeting::{MakePair, soon};

const EPOCH: [u32; 2] = [4, 4];

/// More than any transport holds on its way.
const LARGE: usize = 64 << 20;

/// Bytes that differ from place to place and from seed to seed.
fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(31) ^ (at >> 8) ^ seed) as u8).collect()
}

fn data<'a>(meta: &'a [u8], payload: &'a [&'a [u8]]) -> OutFrame<'a> {
    OutFrame { meta, payload, ..OutFrame::new(Kind::DATA) }
}

fn is_gone(error: &LinkError) -> bool {
    matches!(error, LinkError::PeerGone { .. })
}

pub(crate) fn frames_arrive_whole_and_in_order(pair: MakePair) {
    let (mut zero, mut one) = pair(EPOCH);
    let lengths = [0, 1, 63, 64, 65, 4096, 16 << 10, (16 << 10) + 1, 65519, 65520, (64 << 10) + 3, (1 << 20) + 7, 5 << 20, 2, 0];
    let metas = [0, 1, 40, 5000, 70_000, 300_000, 0];
    let sender = thread::spawn(move || {
        for (sequence, len) in lengths.iter().enumerate() {
            let body = pattern(*len, sequence);
            let meta = pattern(metas[sequence % metas.len()], sequence + 1);
            let third = body.len() / 3;
            let pieces = [&body[..third], &[], &body[third..third * 2], &body[third * 2..]];
            zero.send(&OutFrame { sequence: sequence as u64, ..data(&meta, &pieces) }, soon()).unwrap();
        }
        zero
    });
    for (sequence, len) in lengths.iter().enumerate() {
        let (head, body) = one.frame(soon()).unwrap();
        assert_eq!(head.header.sequence, sequence as u64);
        assert!(head.meta == pattern(metas[sequence % metas.len()], sequence + 1), "meta of frame {sequence}");
        assert!(body == pattern(*len, sequence), "body of frame {sequence}");
    }
    drop(sender.join().unwrap());
}

pub(crate) fn what_is_offered_and_not_taken_may_follow_later(pair: MakePair) {
    let (mut zero, mut one) = pair(EPOCH);
    let body = pattern(LARGE, 2);
    zero.sender().begin(&data(b"meta", &[]), LARGE as u64, soon()).unwrap();
    // Nobody reads, so not all of it can go, and no more patience than this is spent.
    let taken = zero.sender().offer(&body, Duration::from_millis(1)).unwrap();
    assert!(taken < LARGE && (taken > 0) == zero.sender().takes_offers(), "{taken} bytes were taken");
    let more = zero.sender().offer(&pattern(LARGE + 1, 2)[taken..], Duration::ZERO).unwrap_err();
    assert!(matches!(more, LinkError::WrongLength { .. }), "{more:?}");
    thread::scope(|scope| {
        scope.spawn(|| {
            zero.sender().piece(&body[taken..], soon()).unwrap();
            zero.send(&data(b"next", &[]), soon()).unwrap();
        });
        let (head, got) = one.frame(soon()).unwrap();
        assert!(head.meta == b"meta" && got == body);
        assert_eq!(one.frame(soon()).unwrap().0.meta, b"next");
    });
}

pub(crate) fn a_payload_may_be_made_while_it_is_sent(pair: MakePair) {
    let (mut zero, mut one) = pair(EPOCH);
    let body = pattern((3 << 20) + 5, 1);
    let sent = body.clone();
    let sender = thread::spawn(move || {
        let (first, rest) = sent.split_at(1000);
        zero.sender().begin(&data(b"meta", &[first]), sent.len() as u64, soon()).unwrap();
        for piece in rest.chunks(100_000) {
            zero.sender().piece(piece, soon()).unwrap();
        }
        let more = zero.sender().piece(b"x", soon()).unwrap_err();
        assert!(matches!(more, LinkError::WrongLength { expected: 0, got: 1 }), "{more:?}");
        zero.sender().begin(&data(b"", &[b"whole"]), 5, soon()).unwrap();
        zero.send(&data(b"next", &[]), soon()).unwrap();
        zero.sender().begin(&data(b"half", &[]), 10, soon()).unwrap();
        let error = zero.send(&data(b"too early", &[]), soon()).unwrap_err();
        assert!(matches!(error, LinkError::Broken { .. }), "{error:?}");
        zero
    });
    let (head, got) = one.frame(soon()).unwrap();
    assert!(head.meta == b"meta" && got == body);
    assert_eq!(one.frame(soon()).unwrap().1, b"whole");
    assert_eq!(one.frame(soon()).unwrap().0.meta, b"next");
    let error = one.frame(soon()).unwrap_err();
    assert!(is_gone(&error), "{error:?}");
    drop(sender.join().unwrap());
}

pub(crate) fn a_frame_may_go_bit_by_bit_while_its_sender_does_other_things(pair: MakePair) {
    let (mut zero, mut one) = pair(EPOCH);
    let sender = zero.sender();
    let streams = sender.pollable().is_some();
    let body = pattern(if streams { 30 << 20 } else { 4096 }, 3);
    let pieces = [&body[..1000], &[], &body[1000..]];
    let frame = data(b"meta", &pieces);
    let mut sending = Sending::new();
    let mut stalled = 0;
    while !sender.advance(&frame, &mut sending).unwrap() {
        stalled += 1;
        if stalled == 1000 {
            break; // nobody reads, so nothing more will ever go
        }
    }
    assert_eq!((stalled == 1000, sending.has_begun()), (streams, true));
    let reader = thread::spawn(move || (one.frame(soon()).unwrap(), one.frame(soon()).unwrap(), one));
    let until = Instant::now() + Duration::from_secs(20);
    while streams && !sender.advance(&frame, &mut sending).unwrap() {
        assert!(Instant::now() < until, "{sending:?}");
        thread::yield_now();
    }
    assert_eq!(sending.gone(), sending.whole());
    let mut next = Sending::new();
    while !sender.advance(&data(b"next", &[]), &mut next).unwrap() {}
    let ((head, got), (second, _), one) = reader.join().unwrap();
    assert!(head.meta == b"meta" && got == body && second.meta == b"next");

    if streams {
        let mut half = Sending::new();
        while !half.has_begun() || half.gone() == half.whole() {
            half = Sending::new();
            assert!(!sender.advance(&frame, &mut half).unwrap() || half.gone() == half.whole());
        }
        let error = sender.send(&data(b"too early", &[]), soon()).unwrap_err();
        assert!(matches!(error, LinkError::Broken { .. }), "{error:?}");
    }
    drop(one);
    let error = (0..100_000).find_map(|_| sender.advance(&data(b"gone", &[]), &mut Sending::new()).err()).expect("it is noticed");
    assert!(is_gone(&error) || streams, "{error:?}");
}

pub(crate) fn each_frame_carries_epoch_rank_and_operation(pair: MakePair) {
    let (mut zero, mut one) = pair(EPOCH);
    let fingerprint = Fingerprint::of("all_reduce").name("grad").finish();
    one.send(&OutFrame { sequence: u64::MAX, fingerprint, ..OutFrame::new(Kind::BARRIER) }, soon()).unwrap();
    let header = zero.head(soon()).unwrap().header;
    assert_eq!((header.epoch, header.source, header.kind), (4, 1, Kind::BARRIER));
    assert_eq!((header.sequence, header.fingerprint), (u64::MAX, fingerprint));
    assert_eq!((header.meta_len, header.payload_len), (0, 0));
    assert_eq!(zero.body(soon()).unwrap(), b"");
}

pub(crate) fn both_directions_work_at_once(pair: MakePair) {
    let (zero, one) = pair(EPOCH);
    let bodies: Vec<Vec<u8>> = (0..2).map(|rank| pattern(1 << 20, rank)).collect();
    thread::scope(|scope| {
        for (rank, link) in [zero, one].into_iter().enumerate() {
            let (mut sender, mut receiver) = link.split();
            let bodies = &bodies;
            scope.spawn(move || {
                for sequence in 0..16 {
                    let body = [&bodies[rank][..]];
                    let frame = OutFrame { sequence, ..data(b"m", &body) };
                    sender.send(&frame, soon()).unwrap();
                }
                sender // the receiving thread of the peer may still be at work
            });
            scope.spawn(move || {
                let mut buffer = vec![0; 1 << 20];
                for sequence in 0..16 {
                    assert_eq!(receiver.head(soon()).unwrap().header.sequence, sequence);
                    receiver.body_into(&mut buffer, soon()).unwrap();
                    assert!(buffer == bodies[1 - rank]);
                }
            });
        }
    });
}

pub(crate) fn an_empty_wait_ends_at_its_deadline_and_harms_nothing(pair: MakePair) {
    let (mut zero, mut one) = pair(EPOCH);
    for patience in [0, 30] {
        let began = Instant::now();
        let error = one.head(Deadline::after(Duration::from_millis(patience))).unwrap_err();
        assert!(matches!(error, LinkError::Timeout { half_written: false, .. }), "{error}");
        assert!(error.is_transient());
        assert!(began.elapsed() >= Duration::from_millis(patience));
        assert!(began.elapsed() < Duration::from_secs(5));
    }
    zero.send(&data(b"", &[b"late"]), soon()).unwrap();
    assert_eq!(one.frame(soon()).unwrap().1, b"late");
}

pub(crate) fn a_head_and_a_body_can_be_read_with_any_patience(pair: MakePair) {
    let (mut zero, mut one) = pair(EPOCH);
    let (meta, body) = (pattern(100_000, 1), pattern(3 << 20, 2));
    let (sent_meta, sent_body) = (meta.clone(), body.clone());
    let sender = thread::spawn(move || {
        zero.send(&data(&sent_meta, &[&sent_body]), soon()).unwrap();
        zero
    });
    let hurry = || Deadline::after(Duration::ZERO);
    let head = loop {
        match one.head(hurry()) {
            Ok(head) => break head,
            // A head that is too long for its ring is read in one go or not at all.
            Err(error) if one.info().transport == TransportKind::Shm => {
                assert!(matches!(error, LinkError::Timeout { .. } | LinkError::Broken { .. }), "{error}");
                return;
            }
            Err(error) => assert!(error.is_transient(), "{error}"),
        }
    };
    assert!(head.meta == meta);
    let (mut got, mut buffer) = (Vec::new(), vec![0; 10_000]);
    while one.receiver().body_left() > 0 {
        match one.receiver().body_chunk(&mut buffer, hurry()) {
            Ok(read) => got.extend_from_slice(&buffer[..read]),
            Err(error) => assert!(error.is_transient(), "{error}"),
        }
    }
    assert!(got == body);
    assert_eq!(one.receiver().body_chunk(&mut buffer, hurry()).unwrap(), 0, "the end of a body is not a wait");
    drop(sender.join().unwrap());
}

pub(crate) fn a_reader_that_does_not_read_breaks_the_frame_and_both_sides_know(pair: MakePair) {
    let (mut zero, mut one) = pair(EPOCH);
    let body = vec![7; LARGE];
    let error = zero.send(&data(b"", &[&body]), Deadline::after(Duration::from_millis(50))).unwrap_err();
    assert!(matches!(error, LinkError::Timeout { half_written: true, waited } if waited > Duration::ZERO), "{error:?}");
    let again = zero.send(&data(b"", &[]), soon()).unwrap_err();
    assert!(matches!(again, LinkError::Broken { .. }), "{again:?}");

    let began = Instant::now();
    assert_eq!(one.head(soon()).unwrap().header.payload_len, LARGE as u64);
    let error = one.body_into(&mut vec![0; LARGE], soon()).unwrap_err();
    assert!(is_gone(&error), "{error:?}");
    assert!(began.elapsed() < Duration::from_secs(5), "the reader is told, not left waiting");

    one.send(&data(b"", &[b"the other way"]), soon()).unwrap();
    assert_eq!(zero.frame(soon()).unwrap().1, b"the other way", "each direction fails by itself");
}

pub(crate) fn a_peer_that_leaves_is_noticed_by_both_halves(pair: MakePair) {
    let (zero, one) = pair(EPOCH);
    let (mut sender, mut receiver) = one.split();
    let (waiting, waits) = mpsc::channel();
    let reader = thread::spawn(move || {
        waiting.send(()).unwrap();
        receiver.head(soon()).unwrap_err()
    });
    waits.recv().unwrap();
    let began = Instant::now();
    drop(zero);
    let error = reader.join().unwrap();
    assert!(is_gone(&error), "{error:?}");
    let body = vec![0; 1 << 20];
    let error = loop {
        match sender.send(&data(b"", &[&body]), soon()) {
            Ok(()) => {} // still fitted into a buffer
            Err(error) => break error,
        }
    };
    assert!(is_gone(&error), "{error:?}");
    assert!(began.elapsed() < Duration::from_secs(1));
    assert!(is_gone(&sender.send(&data(b"", &[]), soon()).unwrap_err()), "and stays so");
}

pub(crate) fn a_peer_that_leaves_in_the_middle_of_a_frame_is_noticed(pair: MakePair) {
    // The receiver leaves.
    let (mut zero, mut one) = pair(EPOCH);
    let sender = thread::spawn(move || zero.send(&data(b"", &[&vec![1; LARGE]]), soon()).unwrap_err());
    one.head(soon()).unwrap();
    drop(one);
    let error = sender.join().unwrap();
    assert!(is_gone(&error), "{error:?}");

    // The sender leaves.
    let (mut zero, mut one) = pair(EPOCH);
    let error = zero.send(&data(b"", &[&vec![1; LARGE]]), Deadline::after(Duration::ZERO)).unwrap_err();
    assert!(matches!(error, LinkError::Timeout { half_written: true, .. }), "{error:?}");
    drop(zero);
    one.head(soon()).unwrap();
    let error = one.body(soon()).unwrap_err();
    assert!(is_gone(&error), "{error:?}");
    assert!(!one.head(soon()).unwrap_err().is_transient(), "the link is over");
}

pub(crate) fn what_was_sent_before_leaving_still_arrives(pair: MakePair) {
    let (mut zero, mut one) = pair(EPOCH);
    for sequence in 0..3 {
        zero.send(&OutFrame { sequence, ..data(b"bye", &[&[sequence as u8; 1000]]) }, soon()).unwrap();
    }
    drop(zero);
    for sequence in 0..3 {
        let (head, body) = one.frame(soon()).unwrap();
        assert_eq!((head.header.sequence, body), (sequence, vec![sequence as u8; 1000]));
    }
    assert!(is_gone(&one.head(soon()).unwrap_err()));
}

pub(crate) fn severing_wakes_both_halves_at_once(pair: MakePair) {
    let (zero, _one) = pair(EPOCH);
    let severer = zero.severer();
    let (mut sender, mut receiver) = zero.split();
    let (waiting, waits) = mpsc::channel();
    let also = waiting.clone();
    let reader = thread::spawn(move || {
        waiting.send(()).unwrap();
        let woken = receiver.head(soon()).unwrap_err();
        (woken, receiver.head(soon()).unwrap_err())
    });
    let writer = thread::spawn(move || {
        let body = vec![1; LARGE];
        also.send(()).unwrap();
        let woken = sender.send(&data(b"", &[&body]), soon()).unwrap_err();
        (woken, sender.send(&data(b"", &[]), soon()).unwrap_err())
    });
    waits.recv().unwrap();
    waits.recv().unwrap();
    thread::sleep(Duration::from_millis(20)); // either order is right; this makes both threads wait most of the time
    let began = Instant::now();
    severer.sever();
    severer.sever();
    for thread in [reader, writer] {
        let (woken, again) = thread.join().unwrap();
        assert!(matches!(woken, LinkError::Severed), "{woken:?}");
        assert!(matches!(again, LinkError::Severed), "{again:?}");
    }
    assert!(began.elapsed() < Duration::from_secs(1));
}

pub(crate) fn severing_tells_the_peer(pair: MakePair) {
    let (zero, mut one) = pair(EPOCH);
    let severer = zero.severer();
    severer.sever();
    let error = one.head(soon()).unwrap_err();
    assert!(is_gone(&error), "{error:?}");
    drop(zero);
}

pub(crate) fn a_frame_of_another_epoch_is_refused_and_skipped(pair: MakePair) {
    let (mut zero, mut one) = pair([3, 4]);
    zero.send(&data(b"old", &[b"news"]), soon()).unwrap();
    let error = one.head(soon()).unwrap_err();
    assert!(matches!(error, LinkError::StaleEpoch { theirs: 3, ours: 4 }), "{error:?}");
    assert!(error.is_transient());
    zero.send(&data(b"older", &[]), soon()).unwrap();
    assert!(matches!(one.head(soon()).unwrap_err(), LinkError::StaleEpoch { .. }), "the body before was skipped");
}

pub(crate) fn a_buffer_of_the_wrong_length_is_refused_and_changes_nothing(pair: MakePair) {
    for len in [10, 100_000] {
        let (mut zero, mut one) = pair(EPOCH);
        let body = pattern(len, 3);
        let sent = body.clone();
        let sender = thread::spawn(move || {
            zero.send(&data(b"", &[&sent]), soon()).unwrap();
            zero
        });
        one.head(soon()).unwrap();
        for wrong in [0, len - 1, len + 1] {
            let error = one.body_into(&mut vec![0; wrong], soon()).unwrap_err();
            let (expected, got) = (len as u64, wrong as u64);
            assert!(matches!(error, LinkError::WrongLength { expected: e, got: g } if (e, g) == (expected, got)), "{error:?}");
        }
        let mut buffer = vec![0; len];
        one.body_into(&mut buffer, soon()).unwrap();
        assert!(buffer == body);
        drop(sender.join().unwrap());
    }
}

pub(crate) fn a_body_left_behind_is_skipped(pair: MakePair) {
    let (mut zero, mut one) = pair(EPOCH);
    let sender = thread::spawn(move || {
        for len in [10, 100_000, 3 << 20] {
            zero.send(&data(b"skipped", &[&vec![1; len]]), soon()).unwrap();
        }
        zero.send(&data(b"wanted", &[b"x"]), soon()).unwrap();
        zero
    });
    one.head(soon()).unwrap();
    one.head(soon()).unwrap();
    one.receiver().body_chunk(&mut [0; 10], soon()).unwrap();
    one.head(soon()).unwrap();
    one.receiver().skip_body(soon()).unwrap();
    assert_eq!(one.receiver().body_left(), 0);
    assert_eq!(one.head(soon()).unwrap().meta, b"wanted");
    drop(sender.join().unwrap());
}

pub(crate) fn an_interrupt_ends_a_wait(pair: MakePair) {
    static INTERRUPTED: AtomicBool = AtomicBool::new(false);
    let (_zero, mut one) = pair(EPOCH);
    let interruptible = || soon().with_interrupt(|| INTERRUPTED.load(Ordering::Relaxed));
    let began = Instant::now();
    let waiting = thread::spawn(move || {
        let woken = one.head(interruptible()).unwrap_err();
        let large = vec![0; LARGE];
        (woken, one.send(&data(b"", &[&large]), interruptible()).unwrap_err())
    });
    thread::sleep(Duration::from_millis(20)); // either order is right
    INTERRUPTED.store(true, Ordering::Relaxed);
    let (receiving, sending) = waiting.join().unwrap();
    assert!(matches!(receiving, LinkError::Interrupted), "{receiving:?}");
    assert!(matches!(sending, LinkError::Interrupted), "{sending:?}");
    assert!(began.elapsed() < Duration::from_secs(2));
}

pub(crate) fn what_no_receiver_would_take_is_not_sent(pair: MakePair) {
    let (mut zero, mut one) = pair(EPOCH);
    let refused = [OutFrame { flags: Flags(1 << 31), ..OutFrame::new(Kind::DATA) }, data(&vec![0; (16 << 20) + 1], &[])]
        .map(|frame| zero.send(&frame, soon()).unwrap_err());
    assert!(refused.iter().all(|error| matches!(error, LinkError::Corrupt(_))), "{refused:?}");
    zero.send(&data(b"fine", &[]), soon()).unwrap();
    assert_eq!(one.head(soon()).unwrap().meta, b"fine");
}

pub(crate) fn everything_is_counted(pair: MakePair) {
    let (mut zero, mut one) = pair(EPOCH);
    let (sent, received) = (zero.stats(), one.stats());
    zero.send(&data(b"12", &[b"345"]), soon()).unwrap();
    zero.send(&data(b"", &[]), soon()).unwrap();
    one.head(soon()).unwrap();
    one.head(soon()).unwrap();
    let (sent, received) = (sent.snapshot(), received.snapshot());
    assert_eq!((sent.frames_sent, sent.bytes_sent), (2, 64 + 5 + 64));
    assert_eq!((received.frames_received, received.bytes_received), (2, 64 + 5 + 64));
    assert_eq!((received.frames_sent, sent.frames_received), (0, 0));
    one.head(Deadline::after(Duration::ZERO)).unwrap_err();
    assert!(one.stats().snapshot().parks >= 1, "a wait in vain is a wait");
}

pub(crate) fn more_than_two_gigabytes_fit_in_a_frame(pair: MakePair) {
    let (mut zero, mut one) = pair(EPOCH);
    let piece = pattern(64 << 20, 5);
    let pieces = vec![&piece[..]; 33];
    let total = (33u64 << 26) + 5;
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut payload = pieces.clone();
            payload.push(b"tail!");
            zero.send(&data(b"", &payload), Deadline::after(Duration::from_secs(120))).unwrap();
        });
        let patient = Deadline::after(Duration::from_secs(120));
        assert_eq!(one.head(patient).unwrap().header.payload_len, total);
        assert!(total > 1 << 31);
        let (mut at, mut buffer) = (0u64, vec![0; 1 << 20]);
        while one.receiver().body_left() > 0 {
            let read = one.receiver().body_chunk(&mut buffer, patient).unwrap();
            let from = (at % piece.len() as u64) as usize;
            let until = (from + read).min(piece.len());
            if at < 33 << 26 {
                assert!(buffer[..until - from] == piece[from..until], "bytes from {at} on");
            }
            at += read as u64;
        }
        assert_eq!(at, total);
    });
}

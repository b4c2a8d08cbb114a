//! The promises of a duplex, between threads: order, sizes, and how it ends.

use std::time::{Duration, Instant};

use syncline_shm::duplex::{Duplex, DuplexError, Geometry, Inlet, LONGEST_HEAD, Outlet};
use syncline_shm::wait::{Deadline, Patience};

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

fn at_once() -> Deadline {
    Deadline::after(Duration::ZERO)
}

fn yes() -> bool {
    true
}

/// From side A to side B; the halves that lead back are kept, so that nobody seems to leave.
struct OneWay {
    out: Outlet,
    into: Inlet,
    _back: (Inlet, Outlet),
}

fn one_way(geometry: Geometry, patience: Patience) -> OneWay {
    let (here, fd) = Duplex::create_with(geometry).unwrap();
    let there = Duplex::open(fd).unwrap().with_patience(patience);
    let (out, back_in) = here.with_patience(patience).split();
    let (back_out, into) = there.split();
    OneWay {
        out,
        into,
        _back: (back_in, back_out),
    }
}

const TINY: Geometry = Geometry {
    ring: 4096,
    slots: 2,
    slot_size: 4096,
};

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 31 + seed * 7) as u8).collect()
}

#[test]
fn messages_of_every_size_arrive_whole_and_in_order() {
    let sizes = [
        0, 1, 7, 8, 63, 1000, 1023, 1024, 4096, 4097, 8192, 50_000, 300_000,
    ];
    for (geometry, patience) in [
        (TINY, Patience::none()),
        (TINY, Patience::new(4, 2)),
        (Geometry::default(), Patience::new(2, 2)),
    ] {
        let OneWay {
            mut out,
            mut into,
            _back,
        } = one_way(geometry, patience);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for (n, size) in sizes.iter().cycle().take(200).enumerate() {
                    let body = pattern(*size, n);
                    let (left, right) = body.split_at(size / 3);
                    let head = (n as u32).to_le_bytes();
                    out.send(
                        &[&head[..1], &[], &head[1..]],
                        &[left, &[], right],
                        soon(),
                        &yes,
                    )
                    .unwrap();
                }
            });
            let mut head = Vec::new();
            for (n, size) in sizes.iter().cycle().take(200).enumerate() {
                let len = into.recv_head(&mut head, soon(), &yes).unwrap();
                assert_eq!(
                    (head.as_slice(), len),
                    (&(n as u32).to_le_bytes()[..], *size as u64)
                );
                match n % 5 {
                    0 => into.skip_body(soon(), &yes).unwrap(),
                    1 => {} // left behind: the next head skips it
                    2 => {
                        if let Some(held) = into.hold_body(soon(), &yes).unwrap() {
                            let mut body = vec![0; held.len()];
                            held.copy_to(0, &mut body);
                            assert_eq!(body, pattern(*size, n));
                        }
                    }
                    _ => {
                        let mut body = vec![0; *size];
                        into.recv_body(&mut body, soon(), &yes).unwrap();
                        assert!(body == pattern(*size, n), "message {n} of {size} bytes");
                    }
                }
            }
        });
    }
}

#[test]
fn a_head_larger_than_the_ring_takes_the_way_of_bodies() {
    let OneWay {
        mut out,
        mut into,
        _back,
    } = one_way(TINY, Patience::none());
    let (long, body) = (pattern(20_000, 1), pattern(100, 2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            out.send(&[&long], &[&body], soon(), &yes).unwrap();
            out.send(&[&long], &[], soon(), &yes).unwrap();
            out.send(&[b"short"], &[], soon(), &yes).unwrap();
        });
        let mut head = Vec::new();
        let mut got = vec![0; 100];
        assert_eq!(into.recv_head(&mut head, soon(), &yes).unwrap(), 100);
        assert!(head == long);
        into.recv_body(&mut got, soon(), &yes).unwrap();
        assert_eq!(got, body);
        assert_eq!(into.recv_head(&mut head, soon(), &yes).unwrap(), 0);
        assert!(head == long);
        assert_eq!(into.recv_head(&mut head, soon(), &yes).unwrap(), 0);
        assert_eq!(head, b"short");
    });
    let too_long = vec![0; LONGEST_HEAD + 1];
    let error = out.send(&[&too_long], &[], soon(), &yes).unwrap_err();
    assert!(matches!(error, DuplexError::HeadTooLong { .. }), "{error}");
}

#[test]
fn a_body_of_more_than_two_gigabytes_passes() {
    let OneWay {
        mut out,
        mut into,
        _back,
    } = one_way(Geometry::default(), Patience::new(2, 2));
    let megabyte = vec![1; 1 << 20];
    let parts = vec![megabyte.as_slice(); 2049];
    std::thread::scope(|scope| {
        scope.spawn(|| out.send(&[b"big"], &parts, soon(), &yes).unwrap());
        let mut head = Vec::new();
        let len = into.recv_head(&mut head, soon(), &yes).unwrap();
        assert_eq!(len, 2049 << 20);
        into.skip_body(soon(), &yes).unwrap();
    });
    out.send(&[b"next"], &[], soon(), &yes).unwrap();
    let mut head = Vec::new();
    assert_eq!(into.recv_head(&mut head, soon(), &yes).unwrap(), 0);
    assert_eq!(head, b"next");
}

#[test]
fn a_wait_that_times_out_before_a_message_leaves_the_link_usable() {
    let OneWay {
        mut out,
        mut into,
        _back,
    } = one_way(TINY, Patience::none());
    let mut head = Vec::new();
    let error = into.recv_head(&mut head, at_once(), &yes).unwrap_err();
    assert!(matches!(error, DuplexError::Timeout), "{error}");
    // Fill the ring until no further message begins.
    let mut sent = 0;
    let error = loop {
        match out.send(&[b"x"], &[&[0; 100]], at_once(), &yes) {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, DuplexError::Timeout), "{error}");
    assert!(!out.is_broken());
    for _ in 0..sent {
        into.recv_head(&mut head, soon(), &yes).unwrap();
    }
    into.skip_body(soon(), &yes).unwrap();
    out.send(&[b"again"], &[], soon(), &yes).unwrap();
    into.recv_head(&mut head, soon(), &yes).unwrap();
    assert_eq!(head, b"again");
}

#[test]
fn a_wait_that_times_out_inside_a_message_breaks_the_link() {
    let OneWay {
        mut out,
        mut into,
        _back,
    } = one_way(TINY, Patience::none());
    let body = vec![0; 5 * 4096]; // two slots fit, nobody reads
    let error = out.send(&[b"x"], &[&body], at_once(), &yes).unwrap_err();
    assert!(matches!(error, DuplexError::Timeout), "{error}");
    let error = out.send(&[b"y"], &[], soon(), &yes).unwrap_err();
    assert!(matches!(error, DuplexError::Broken), "{error}");

    let mut head = Vec::new();
    let mut into_buffer = vec![0; body.len()];
    into.recv_head(&mut head, soon(), &yes).unwrap();
    let error = into.recv_body(&mut [0; 3], soon(), &yes).unwrap_err();
    assert_eq!(error.to_string(), "the body has 20480 bytes, the buffer 3");
    let error = into
        .recv_body(&mut into_buffer, at_once(), &yes)
        .unwrap_err();
    assert!(matches!(error, DuplexError::Timeout), "{error}");
    assert!(into.is_broken());
}

#[test]
fn dropping_a_half_is_noticed_after_its_last_message() {
    let OneWay {
        mut out,
        mut into,
        _back: (back_in, mut back_out),
    } = one_way(TINY, Patience::none());
    out.send(&[b"last"], &[], soon(), &yes).unwrap();
    drop(out);
    let mut head = Vec::new();
    into.recv_head(&mut head, Deadline::never(), &yes).unwrap();
    let error = into
        .recv_head(&mut head, Deadline::never(), &yes)
        .unwrap_err();
    assert!(matches!(error, DuplexError::Gone), "{error}");
    back_out.send(&[b"unread"], &[], soon(), &yes).unwrap();
    drop(back_in);
    let error = back_out.send(&[b"x"], &[], soon(), &yes).unwrap_err();
    assert!(matches!(error, DuplexError::Gone), "{error}");
}

#[test]
fn severing_ends_a_sleeping_wait_at_once() {
    let OneWay {
        mut out,
        mut into,
        _back,
    } = one_way(TINY, Patience::none());
    out.send(&[b"kept"], &[], soon(), &yes).unwrap();
    let waker = into.waker();
    let mut head = Vec::new();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            into.recv_head(&mut head, Deadline::never(), &yes).unwrap();
            let error = into
                .recv_head(&mut head, Deadline::never(), &yes)
                .unwrap_err();
            (error, Instant::now())
        });
        let severed = Instant::now();
        waker.sever();
        let (error, ended) = waiting.join().unwrap();
        assert!(matches!(error, DuplexError::Gone), "{error}");
        assert!(ended.saturating_duration_since(severed) < Duration::from_secs(1));
    });
    assert_eq!(head, b"kept");
}

#[test]
fn an_interrupt_is_asked_and_obeyed() {
    let OneWay {
        mut into,
        out: _out,
        _back,
    } = one_way(TINY, Patience::none());
    let mut head = Vec::new();
    let deadline = Deadline::never().with_interrupt(yes);
    let error = into.recv_head(&mut head, deadline, &yes).unwrap_err();
    assert!(matches!(error, DuplexError::Interrupted), "{error}");
}

#[test]
fn held_slots_stay_as_they_were_while_others_pass() {
    let OneWay {
        mut out,
        mut into,
        _back,
    } = one_way(Geometry { slots: 3, ..TINY }, Patience::none());
    let mut head = Vec::new();
    out.send(&[b"0"], &[&pattern(4000, 0)], soon(), &yes)
        .unwrap();
    into.recv_head(&mut head, soon(), &yes).unwrap();
    let kept = into.hold_body(soon(), &yes).unwrap().unwrap();
    for n in 1..20 {
        out.send(&[b"n"], &[&pattern(4000, n)], soon(), &yes)
            .unwrap();
        into.recv_head(&mut head, soon(), &yes).unwrap();
        let mut body = vec![0; 4000];
        into.recv_body(&mut body, soon(), &yes).unwrap();
        assert!(body == pattern(4000, n));
    }
    let mut body = vec![0; 4000];
    kept.copy_to(0, &mut body);
    assert!(body == pattern(4000, 0));
}

//! What a door promises to members, and what it does with everybody else.

#[allow(dead_code, reason = "each test binary uses a part of it")]
mod meeting;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use meeting::{caller, door, fresh_name, key, soon, visitor};
use syncline_transport::{
    Address, Deadline, DialConfig, DialError, DialFailure, Door, DoorConfig, DoorEvent, JobKey, Refusal, dial, dial_any, dial_until,
};

/// Steps `door` in a thread while `story` runs, and returns what happened at it.
fn while_open<T: Send>(door: &mut Door, story: impl FnOnce(Address) -> T + Send) -> (T, Vec<DoorEvent>) {
    let address = door.addresses().remove(0);
    let (waker, over) = (door.waker(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let over = &over;
        let telling = scope.spawn(move || {
            let told = story(address);
            over.store(true, Ordering::Release);
            waker.wake();
            told
        });
        let mut events = Vec::new();
        while !over.load(Ordering::Acquire) {
            events.extend(door.step(soon()));
        }
        events.extend(door.step(Deadline::after(Duration::ZERO)));
        (telling.join().unwrap(), events)
    })
}

fn refusals(events: &[DoorEvent]) -> Vec<Refusal> {
    let refusal = |event: &'_ DoorEvent| match event {
        DoorEvent::Refused { why, .. } => Some(why.clone()),
        _ => None,
    };
    events.iter().filter_map(refusal).collect()
}

fn visitors(events: &[DoorEvent]) -> usize {
    events.iter().filter(|event| matches!(event, DoorEvent::Visitor { .. })).count()
}

/// The failure at the only address that was tried.
fn failure(error: DialError) -> DialFailure {
    match error {
        DialError::Unreached { mut tried, .. } if tried.len() == 1 => tried.remove(0).failure,
        other => panic!("{other}"),
    }
}

fn tcp(address: &Address) -> TcpStream {
    let Address::Tcp(address) = address else { panic!("{address} is not TCP") };
    TcpStream::connect(address).unwrap()
}

/// What comes back until the door hangs up.
fn answer(stream: &mut TcpStream) -> Vec<u8> {
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer); // a reset is an answer too
    answer
}

#[test]
fn a_member_comes_in_with_its_hello_and_its_descriptor() {
    let mut door = door(true, true);
    let name = door.unix_name().unwrap().to_owned();
    let (read, write) = rustix::pipe::pipe().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let connection = dial(&Address::Unix(name), &caller(true), b"rank 3", Some(write.as_fd()), soon()).unwrap();
            assert!(!connection.encrypted(), "nobody can listen inside a host");
            assert_eq!(connection.peer_pid(), Some(std::process::id()));
        });
        let DoorEvent::Visitor { hello, fd, connection } = visitor(&mut door) else { unreachable!() };
        assert_eq!(hello, b"rank 3");
        assert_eq!(connection.peer_pid(), Some(std::process::id()));
        rustix::io::write(fd.expect("the descriptor came along"), b"!").unwrap();
    });
    let mut byte = [0; 2];
    assert_eq!(rustix::io::read(&read, &mut byte), Ok(1), "it is the pipe that was sent");
}

#[test]
fn traffic_between_hosts_is_sealed_unless_both_sides_say_otherwise() {
    for (door_wants, caller_wants) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut door = door(false, door_wants);
        let config = caller(caller_wants);
        let (connection, events) = while_open(&mut door, |address| dial(&address, &config, b"", None, soon()).unwrap());
        assert_eq!(connection.encrypted(), door_wants || caller_wants);
        let [DoorEvent::Visitor { connection: other, .. }] = &events[..] else { panic!("{events:?}") };
        assert_eq!(other.encrypted(), connection.encrypted());
    }
}

#[test]
fn the_longest_hello_fits_and_a_longer_one_is_refused_here() {
    let mut door = door(false, true);
    let longest = vec![5; syncline_transport::MAX_HELLO];
    let (_, events) = while_open(&mut door, |address| dial(&address, &caller(true), &longest, None, soon()).unwrap());
    assert!(matches!(&events[..], [DoorEvent::Visitor { hello, .. }] if *hello == longest));
    let refused = dial(&door.addresses()[0], &caller(true), &[longest, vec![0]].concat(), None, soon());
    assert!(matches!(refused, Err(DialError::HelloTooLong { len: 4097 })));
}

#[test]
fn a_wrong_token_is_told_so_and_costs_the_door_nothing() {
    let mut door = door(false, true);
    let stranger = DialConfig { key: JobKey::from_token("another job"), ..caller(true) };
    let (error, events) = while_open(&mut door, |address| dial_until(&address, &stranger, b"", None, soon()).unwrap_err());
    assert!(error.is_about_the_token());
    assert!(error.to_string().contains("token"), "{error}");
    assert_eq!(failure(error), DialFailure::TokenRefused);
    assert_eq!(refusals(&events), [Refusal::Token]);
}

#[test]
fn another_version_is_told_which_one_is_spoken_here() {
    let mut door = door(false, true);
    let mut greeting = *b"SLNDOOR\n\x07\0\0\0\0\0\0\0................................................";
    greeting[10] = 1;
    let (told, events) = while_open(&mut door, |address| {
        let mut stream = tcp(&address);
        stream.write_all(&greeting).unwrap();
        answer(&mut stream)
    });
    assert_eq!(refusals(&events), [Refusal::Version { theirs: 7, ours: 1 }]);
    assert_eq!(&told, b"SLNDOOR\n\x01\0\x01\0\0\0\0\0", "its own version and status 1");

    // The same seen from the other side: a listener of the future.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::Tcp(listener.local_addr().unwrap());
    let future = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut [0; 64]).unwrap();
        stream.write_all(b"SLNDOOR\n\x09\0\x01\0\0\0\0\0").unwrap();
    });
    let error = dial_until(&address, &caller(true), b"", None, soon()).unwrap_err();
    assert_eq!(failure(error), DialFailure::Version { theirs: 9, ours: 1 });
    future.join().unwrap();
}

#[test]
fn garbage_truncation_and_huge_lengths_are_sent_away_while_members_come_in() {
    let mut door = door(false, true);
    let ((), events) = while_open(&mut door, |address| {
        let mut seed = 0x9e37_79b9_7f4a_7c15u64;
        for round in 0..60 {
            let mut stream = tcp(&address);
            let mut bytes = vec![0; 1 + (round * 37) % 5000];
            for byte in &mut bytes {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                *byte = seed as u8;
            }
            match round % 4 {
                0 => bytes[0] = b'G',                                                   // another protocol
                1 => bytes.splice(..0, *b"SLNDOOR\n\x01\0\0\0\0\0\0\0").for_each(drop), // a greeting of noise
                2 => bytes.splice(..0, *b"SLNDOOR\n\x01\0\xff\xff\xff\xff\xff\xff").for_each(drop),
                _ => bytes = b"SLNDOOR\n\x01".to_vec(), // the beginning of one
            }
            let _ = stream.write_all(&bytes); // the door may hang up at once
            drop(stream);
            if round % 10 == 0 {
                dial(&address, &caller(true), b"", None, soon()).unwrap();
            }
        }
    });
    assert_eq!(visitors(&events), 6);
    assert_eq!(refusals(&events).len(), 60 - door.undecided());
    let worth_a_line = events.iter().filter(|event| event.is_worth_a_line()).count();
    assert_eq!(worth_a_line, 6 + 1, "sixty refusals of one source are one line");
}

#[test]
fn two_hundred_who_never_finish_keep_nobody_out_and_cost_little() {
    let mut door = door(false, true);
    let (crowd, mut events) = while_open(&mut door, |address| {
        let crowd: Vec<TcpStream> = (0..200)
            .map(|index| {
                let mut stream = tcp(&address);
                stream.write_all(&b"SLNDOOR\n\x01"[..index % 10]).unwrap();
                stream
            })
            .collect();
        let began = Instant::now();
        dial(&address, &caller(true), b"a member", None, soon()).unwrap();
        assert!(began.elapsed() < Duration::from_secs(2));
        crowd
    });
    assert_eq!(visitors(&events), 1);
    assert!(refusals(&events).iter().all(|why| *why == Refusal::Evicted), "{events:?}");
    assert!(door.undecided() <= 128);
    // Those who stayed are sent away when their time is over, and only then.
    let began = Instant::now();
    while door.undecided() > 0 {
        events.extend(door.step(soon()));
        assert!(began.elapsed() < Duration::from_secs(10));
    }
    assert_eq!(refusals(&events).len(), 200);
    assert!(matches!(refusals(&events).last(), Some(Refusal::TooSlow { .. })));
    drop(crowd);
}

#[test]
fn the_right_member_is_found_among_dead_wrong_and_silent_addresses() {
    let mut right = door(false, true);
    let mut wrong =
        Door::open(DoorConfig { key: key(), identity: [1; 16], unix: None, tcp: vec!["127.0.0.1:0".parse().unwrap()], encrypt_tcp: true })
            .unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap(); // accepts in the kernel, never answers
    let dead = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut addresses =
        vec![Address::Tcp(silent.local_addr().unwrap()), Address::Tcp(dead), Address::Unix(fresh_name()), wrong.addresses().remove(0)];
    let (_, wrong_events) = while_open(&mut wrong, |_| {
        let error = dial_any(&addresses, &caller(true), b"", None, Deadline::after(Duration::from_millis(300))).unwrap_err();
        let DialError::Unreached { tried, .. } = &error else { panic!("{error}") };
        let failures: Vec<_> = tried.iter().map(|tried| tried.failure.clone()).collect();
        use DialFailure::{OtherMember, Refused, Unanswered};
        assert_eq!(failures, [Unanswered, Refused, Refused, OtherMember { found: [1; 16] }]);
        for address in &addresses {
            assert!(error.to_string().contains(&address.to_string()), "{error} does not name {address}");
        }
    });
    assert_eq!(wrong_events.len(), 0, "a caller that looked for somebody else is no event: {wrong_events:?}");

    addresses.push(right.addresses().remove(0));
    let (connection, events) = while_open(&mut right, |_| dial_any(&addresses, &caller(true), b"", None, soon()).unwrap());
    assert_eq!(connection.peer(), addresses[4].to_string());
    assert_eq!(visitors(&events), 1);
}

#[test]
fn a_caller_may_come_before_the_door_is_there() {
    let name = fresh_name();
    let address = Address::Unix(name.clone());
    assert_eq!(failure(dial(&address, &caller(false), b"", None, soon()).unwrap_err()), DialFailure::Refused);
    std::thread::scope(|scope| {
        let early = scope.spawn(|| dial_until(&address, &caller(false), b"early", None, soon()).unwrap());
        std::thread::sleep(Duration::from_millis(30)); // either order is right
        let config = DoorConfig { key: key(), identity: [9; 16], unix: Some(name), tcp: vec![], encrypt_tcp: true };
        let mut door = Door::open(config).unwrap();
        visitor(&mut door);
        early.join().unwrap();
    });
}

#[test]
fn dialing_ends_at_its_deadline_and_at_an_interrupt() {
    let nowhere = Address::Unix(fresh_name());
    let began = Instant::now();
    let error = dial_until(&nowhere, &caller(false), b"", None, Deadline::after(Duration::from_millis(50))).unwrap_err();
    assert!(error.to_string().contains("nobody listens there"), "{error}");
    let error = dial_until(&nowhere, &caller(false), b"", None, soon().with_interrupt(|| true)).unwrap_err();
    assert!(matches!(error, DialError::Interrupted));
    assert!(began.elapsed() < Duration::from_secs(2));
    let empty = dial_any(&[], &caller(false), b"", None, soon()).unwrap_err();
    assert!(empty.to_string().contains("no address to try"), "{empty}");
}

#[test]
fn an_impostor_is_not_believed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::Tcp(listener.local_addr().unwrap());
    let impostor = std::thread::spawn(move || {
        for reply in [&b"HTTP/1.1 400 Bad Request\r\n"[..], &[b"SLNDOOR\n\x01\0\0\0\0\0\0\0".as_slice(), &[1; 66]].concat()] {
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut [0; 64]).unwrap();
            stream.write_all(reply).unwrap();
        }
    });
    let error = dial_until(&address, &caller(true), b"", None, soon()).unwrap_err();
    assert_eq!(failure(error), DialFailure::NotSyncline);
    let error = dial_until(&address, &caller(true), b"", None, soon()).unwrap_err();
    assert!(error.is_about_the_token());
    assert_eq!(failure(error), DialFailure::Impostor);
    impostor.join().unwrap();
}

#[test]
fn a_taken_address_is_named() {
    let first = door(true, true);
    let unix = first.unix_name().map(str::to_owned);
    let config = DoorConfig { key: key(), identity: [0; 16], unix, tcp: vec![], encrypt_tcp: true };
    let error = Door::open(config).unwrap_err().to_string();
    assert!(error.contains(first.unix_name().unwrap()) && error.contains("somebody else"), "{error}");
}

#[test]
fn a_watched_door_becomes_readable_and_steps_without_waiting() {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut door = door(true, true);
    let address = door.addresses().remove(0);
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    assert_eq!(poll(&mut [PollFd::new(&door, PollFlags::IN)], Some(&at_once)), Ok(0));
    let caller = std::thread::spawn(move || dial(&address, &caller(false), b"", None, soon()).unwrap());
    let mut events = Vec::new();
    while events.is_empty() {
        let ready = poll(&mut [PollFd::new(&door, PollFlags::IN)], Some(&Timespec { tv_sec: 20, tv_nsec: 0 }));
        assert_eq!(ready, Ok(1));
        events = door.step(Deadline::after(Duration::ZERO));
    }
    assert_eq!(visitors(&events), 1);
    caller.join().unwrap();
    door.waker().wake();
    assert!(door.step(soon()).is_empty(), "a waker ends a step");
}

#[test]
fn a_door_on_all_interfaces_hears_both_families() {
    let everywhere = (std::net::Ipv6Addr::UNSPECIFIED, 0).into();
    let mut door = Door::open(DoorConfig { key: key(), identity: [7; 16], unix: None, tcp: vec![everywhere], encrypt_tcp: true }).unwrap();
    let port = door.tcp_addresses()[0].port();
    let (reached, events) = while_open(&mut door, |_| {
        let near = Address::Tcp(([127, 0, 0, 1], port).into());
        let anyone = DialConfig { expect_identity: None, ..caller(true) };
        dial(&near, &anyone, b"over IPv4", None, soon()).map(drop)
    });
    reached.unwrap();
    let from = events.iter().find_map(|event| match event {
        DoorEvent::Visitor { connection, .. } => Some(connection.peer().to_owned()),
        _ => None,
    });
    let from = from.expect("a visitor");
    assert!(from.starts_with("tcp://127.0.0.1:"), "{from} is not how people write an IPv4 address");
}

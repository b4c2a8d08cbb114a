//! A job that goes on while strangers attack every socket it listens on.
//!
//! The ranks listen on TCP and on abstract Unix names, as the system's own tables tell. Whatever comes there, from noise
//! to a careful imitation, must cost them nothing but a refusal in the log: the sums stay right, members still get through,
//! and memory does not grow. A member that misbehaves after it proved the token breaks its own link and no other.

mod field;

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use field::LIMIT;
use field::program::{Program, command, fact, rank_words};
use field::rank::OPEN_LANES;
use syncline_transport::{Address, Connection, Deadline, DialConfig, DialError, DialFailure, JobKey, Link, OutFrame, dial};
use syncline_wire::message::{Hello, Purpose};
use syncline_wire::{FrameHeader, Kind};

const TOKEN: &str = "only the members know this";
/// What a rank may grow by while it is attacked: noise of the allocator, not a function of the attack.
const GROWTH: u64 = 4 << 20;
/// More than the waiting room of a door holds.
const HALF_OPEN: usize = 150;

#[test]
fn as_a_rank() {
    field::rank::play_if_asked();
}

#[test]
fn a_job_under_attack_finishes_with_the_right_sums() {
    allow_many_descriptors();
    let mut job = Job::start("on");
    let doors = job.listeners();
    let (tcp, unix): (Vec<_>, Vec<_>) = doors.iter().partition(|door| matches!(door, Address::Tcp(_)));
    assert_eq!((tcp.len(), unix.len()), (4, 4), "three ranks and a coordinator listen, each on both: {doors:?}");
    assert!(
        tcp.iter().all(|door| matches!(door, Address::Tcp(at) if at.ip().is_loopback())),
        "a job of one host listens on loopback only: {doors:?}"
    );

    // The first wave brings every buffer to its size; the second must find memory as it was.
    attack(&doors);
    let before = job.resident();
    let crowd: Vec<Stream> = doors.iter().flat_map(|door| (0..HALF_OPEN).map(move |at| half_open(door, at))).collect();
    attack(&doors);
    let after = job.resident();
    crowd.into_iter().for_each(Stream::expect_end); // whoever begins and never goes on is sent away all the same
    for (rank, (before, after)) in before.iter().zip(&after).enumerate() {
        assert!(*after < before + GROWTH, "rank {rank} grew from {} to {} KiB", before >> 10, after >> 10);
    }

    job.finish();
    let log: String = job.ranks.iter().map(Program::log).collect();
    for rank in 0..3 {
        assert!(
            log.contains(&format!("rank {rank} refused 127.0.0.1: ")) && log.contains(&format!("rank {rank} refused user ")),
            "rank {rank} does not say whom it refused:\n{log}"
        );
    }
    assert!(
        log.contains("WARN: refused 127.0.0.1: ") && log.contains("WARN: refused user "),
        "the coordinator does not say whom it refused:\n{log}"
    );
    assert!(log.lines().count() < 500, "a flood of refusals became a flood of lines: {}", log.lines().count());
}

/// Strangers come faster than a door can keep them; members must still get through the crowd, however slow the machine.
#[test]
fn members_get_in_through_a_flood_of_strangers() {
    allow_many_descriptors();
    let mut job = Job::start("on");
    let doors = job.listeners();
    let through = |job: &Job| job.ranks[1].said("through").len();
    let before = through(&job);
    let enough = AtomicBool::new(false);
    thread::scope(|scope| {
        for door in &doors {
            let enough = &enough;
            scope.spawn(move || {
                let mut crowd = VecDeque::new();
                while !enough.load(Ordering::Relaxed) {
                    let mut stream = Stream::connect(door);
                    stream.say(b"SLND");
                    crowd.push_back(stream);
                    if crowd.len() > HALF_OPEN {
                        crowd.pop_front();
                    }
                }
            });
        }
        // Two reports are at least five new links that all came about in the crowd.
        let start = Instant::now();
        while through(&job) < before + 2 && start.elapsed() < LIMIT {
            thread::park_timeout(Duration::from_millis(5));
        }
        enough.store(true, Ordering::Relaxed);
    });
    assert!(through(&job) >= before + 2, "hardly a new link came about{}", job.ranks[1].transcript());
    job.finish();
}

#[test]
fn a_member_that_sends_garbage_breaks_its_own_link_only() {
    for encrypt in ["on", "off"] {
        let mut job = Job::start(encrypt);
        let door = job.door_of_rank_0();
        let mut lanes = OPEN_LANES;
        let mut next = || lanes.next().expect("enough lanes");

        // Bytes that are no frame, in the middle of a stream that began well. Somebody on the way may do this too.
        let lane = next();
        let (way, _link) = job.speak_once(&door, encrypt == "on", lane);
        way.inject(&random_bytes(200_000, 7)); // longer than any sealed record, so that none stays incomplete
        job.expect_broken(lane, 1);

        // A frame of another life of the job.
        let lane = next();
        let mut link = call(&door, encrypt == "on", lane).into_stream_link(9, 2);
        let _ = link.send(&OutFrame { payload: &[b"late"], ..OutFrame::new(Kind::DATA) }, soon());
        job.expect_broken(lane, 0);

        // A frame that announces half a terabyte and ends after its first bytes. (Where traffic is sealed, noise again.)
        let lane = next();
        let (way, _link) = job.speak_once(&door, encrypt == "on", lane);
        let header = FrameHeader { source: 2, payload_len: 1 << 39, ..FrameHeader::new(Kind::DATA) };
        way.inject(&header.encode());
        way.inject(b"and so on");
        way.close();
        job.expect_broken(lane, 1);

        // What is not a member's first word at all, from somebody who does hold the token.
        let config = DialConfig { key: JobKey::from_token(TOKEN), expect_identity: None, encrypt: true };
        for hello in [&b""[..], b"\xff\xff\xff\xff", &[0x80; 4000]] {
            drop(dial(&door, &config, hello, None, soon()));
        }
        job.finish();
        let log = job.ranks[0].log();
        assert!(log.contains("its first word cannot be read"), "{log}");
    }
}

#[test]
fn members_without_manners_do_not_stop_the_coordinator() {
    let mut job = Job::start("on");
    let config = DialConfig { key: JobKey::from_token(TOKEN), expect_identity: None, encrypt: true };
    let hello = Hello { purpose: Purpose::Control, rank: Some(1), epoch: 0, instance: [9; 16] }.encode().expect("a small hello");
    let coordinator = Address::Tcp(job.rendezvous);
    let big = vec![0xa5; 1 << 20];
    for round in 0..20 {
        let mut link = dial(&coordinator, &config, &hello, None, soon()).expect("a holder of the token is let in").into_stream_link(0, 1);
        let kind = if round % 2 == 0 { Kind::CONTROL } else { Kind::DATA };
        let _ = link.send(
            &OutFrame { meta: &random_bytes(200, round), payload: &[&big], ..OutFrame::new(kind) },
            Deadline::after(Duration::from_secs(2)),
        );
        let answered = link.head(Deadline::after(Duration::from_secs(5)));
        assert!(
            answered.is_ok() || !matches!(answered, Err(syncline_transport::LinkError::Timeout { .. })),
            "the coordinator keeps a talker of nonsense: {answered:?}"
        );
    }
    job.finish();
}

/// Three ranks of one host that pass a sum around over TCP.
struct Job {
    ranks: Vec<Program>,
    rendezvous: SocketAddr,
}

impl Job {
    /// Starts it and waits until the traffic runs.
    fn start(encrypt: &str) -> Job {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|socket| socket.local_addr()).expect("a free port");
        let rendezvous = format!("tcp://{free}");
        let mut ranks: Vec<Program> = (0..3)
            .map(|rank| {
                let rank = rank.to_string();
                let env = [
                    ("SYNCLINE_RANK", rank.as_str()),
                    ("SYNCLINE_WORLD_SIZE", "3"),
                    ("SYNCLINE_RENDEZVOUS", &rendezvous),
                    ("SYNCLINE_TOKEN", TOKEN),
                    ("SYNCLINE_TRANSPORT", "tcp"),
                    ("SYNCLINE_ENCRYPT", encrypt),
                ];
                Program::start(format!("rank {rank}"), command(&rank_words(), "traffic", &env))
            })
            .collect();
        ranks.iter_mut().for_each(|rank| drop(rank.wait_for("in", LIMIT)));
        Job { ranks, rendezvous: free }
    }

    /// Everything the ranks listen on, as the kernel tells.
    fn listeners(&self) -> Vec<Address> {
        self.ranks.iter().flat_map(|rank| listeners_of(rank.pid())).collect()
    }

    fn door_of_rank_0(&self) -> Address {
        let mut doors = listeners_of(self.ranks[0].pid()).into_iter();
        doors.find(|door| matches!(door, Address::Tcp(at) if *at != self.rendezvous)).expect("rank 0 has a door besides the coordinator's")
    }

    fn resident(&self) -> Vec<u64> {
        self.ranks.iter().map(|rank| resident_bytes(rank.pid())).collect()
    }

    /// A link to rank 0 through which one frame went, so that nothing of it is on its way any more.
    fn speak_once(&self, door: &Address, encrypt: bool, lane: u32) -> (Way, Link) {
        let (way, connection) = Way::to(door, encrypt, lane);
        let mut link = connection.into_stream_link(0, 2);
        link.send(&OutFrame { payload: &[b"sound"], ..OutFrame::new(Kind::DATA) }, soon()).expect("a sound frame goes through");
        self.hear_of(lane, "sound");
        (way, link)
    }

    /// Rank 0 must report that the link on `lane` broke after so many sound frames.
    fn expect_broken(&self, lane: u32, frames: usize) {
        let text = self.hear_of(lane, "heard");
        assert!(text.contains(&format!("frames={frames} error=")), "{text}");
    }

    /// What rank 0 says about a lane.
    fn hear_of(&self, lane: u32, word: &str) -> String {
        let rank = &self.ranks[0];
        let start = Instant::now();
        loop {
            if let Some(line) = rank.said(word).into_iter().find(|line| fact(&line.text, "lane") == lane.to_string()) {
                return line.text;
            }
            assert!(start.elapsed() < LIMIT, "nothing {word} of lane {lane}{}", rank.transcript());
            thread::park_timeout(Duration::from_millis(2));
        }
    }

    /// Ends the traffic; every rank must have found it right to the end.
    fn finish(&mut self) {
        self.ranks[0].close_stdin();
        for rank in &mut self.ranks {
            rank.succeed(LIMIT);
            let done = rank.wait_for("done", LIMIT).text;
            assert_eq!(fact(&done, "wrong"), "0", "{done}");
        }
    }
}

/// All attacks on all doors, several at a time.
fn attack(doors: &[Address]) {
    thread::scope(|scope| {
        for (index, door) in doors.iter().enumerate() {
            scope.spawn(move || {
                for seed in 0..40 {
                    throw(door, &random_bytes(1 + (seed as usize * 97) % 3000, seed * 31 + index as u64));
                }
                for shape in imitations() {
                    throw(door, &shape);
                }
                for _ in 0..10 {
                    wrong_token(door);
                }
            });
        }
    });
}

/// What looks almost right.
fn imitations() -> Vec<Vec<u8>> {
    let preamble = |version: u16, flags: u16| [&b"SLNDOOR\n"[..], &version.to_le_bytes(), &flags.to_le_bytes(), &[0; 4]].concat();
    let greeting = |version: u16, flags: u16| [preamble(version, flags), random_bytes(48, 3)].concat();
    let mut shapes: Vec<Vec<u8>> = (0..64).map(|len| greeting(1, 1)[..len].to_vec()).collect(); // cut anywhere
    shapes.extend([0, 2, 77, u16::MAX].map(|version| greeting(version, 0)));
    shapes.push(greeting(1, u16::MAX));
    // A frame's header with the largest lengths, without any greeting and behind a false one.
    let mut header = vec![0xff; 64];
    header[..6].copy_from_slice(b"SLNF\x01\x00");
    shapes.push(header.clone());
    shapes.push([greeting(1, 1), header].concat());
    shapes.push([greeting(1, 1), vec![0xff; 70_000]].concat());
    shapes.push(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec());
    shapes
}

/// Connects, says `bytes`, and waits until the door has had enough of it.
fn throw(door: &Address, bytes: &[u8]) {
    let mut stream = Stream::connect(door);
    if stream.say(bytes) {
        stream.hang_up();
        stream.expect_end();
    }
}

/// A genuine dial with another key.
fn wrong_token(door: &Address) {
    let config = DialConfig { key: JobKey::from_token("a guess"), expect_identity: None, encrypt: true };
    let hello = Hello { purpose: Purpose::Control, rank: Some(0), epoch: 0, instance: [1; 16] }.encode().expect("a small hello");
    match dial(door, &config, &hello, None, soon()) {
        Err(DialError::Unreached { tried, .. }) => assert_eq!(tried[0].failure, DialFailure::TokenRefused, "{door}"),
        other => panic!("{door} let a stranger in, or did not say why not: {other:?}"),
    }
}

/// A visitor that begins to talk and never goes on; each stops somewhere else.
fn half_open(door: &Address, at: usize) -> Stream {
    let mut stream = Stream::connect(door);
    stream.say(&imitations()[at % 64]);
    stream
}

/// A socket of either kind.
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    fn connect(door: &Address) -> Stream {
        let stream = match door {
            Address::Tcp(at) => TcpStream::connect(at).map(Stream::Tcp),
            Address::Unix(name) => UnixAddr::from_abstract_name(name).and_then(|at| UnixStream::connect_addr(&at)).map(Stream::Unix),
        };
        stream.unwrap_or_else(|error| panic!("{door} does not listen any more: {error}"))
    }

    /// Whether the other side still listened.
    fn say(&mut self, bytes: &[u8]) -> bool {
        match self {
            Stream::Tcp(stream) => stream.write_all(bytes).is_ok(),
            Stream::Unix(stream) => stream.write_all(bytes).is_ok(),
        }
    }

    fn hang_up(&self) {
        let _ = match self {
            Stream::Tcp(stream) => stream.shutdown(std::net::Shutdown::Write),
            Stream::Unix(stream) => stream.shutdown(std::net::Shutdown::Write),
        };
    }

    /// Waits until the door has closed the connection too.
    fn expect_end(self) {
        let mut rest = Vec::new();
        let limit = Some(Duration::from_secs(10));
        let ended = match self {
            Stream::Tcp(mut stream) => stream.set_read_timeout(limit).and_then(|()| stream.read_to_end(&mut rest)),
            Stream::Unix(mut stream) => stream.set_read_timeout(limit).and_then(|()| stream.read_to_end(&mut rest)),
        };
        let kept_waiting = ended.err().is_some_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));
        assert!(!kept_waiting, "a door keeps a visitor that has nothing more to say");
        assert!(rest.len() < 1024, "a door had {} bytes to say to a stranger", rest.len());
    }
}

/// A holder of the token calls rank 0 in the name of rank 2.
fn call(door: &Address, encrypt: bool, lane: u32) -> Connection {
    let config = DialConfig { key: JobKey::from_token(TOKEN), expect_identity: None, encrypt };
    let hello = Hello { purpose: Purpose::Lane(lane), rank: Some(2), epoch: 0, instance: [2; 16] };
    dial(door, &config, &hello.encode().expect("a small hello"), None, soon()).expect("a holder of the token is let in")
}

/// The way between a caller and a door, on which somebody may add bytes of his own.
struct Way {
    to_door: TcpStream,
}

impl Way {
    /// Calls rank 0 as [`call`] does; the handshake and all that follows pass unchanged.
    fn to(door: &Address, encrypt: bool, lane: u32) -> (Way, Connection) {
        let Address::Tcp(door) = door else { panic!("{door} is not on the network") };
        let near = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let at = Address::Tcp(near.local_addr().expect("bound"));
        let calling = thread::spawn(move || call(&at, encrypt, lane));
        let (caller, _) = near.accept().expect("a caller");
        let to_door = TcpStream::connect(door).expect("the door listens");
        let again = |stream: &TcpStream| stream.try_clone().expect("a descriptor");
        for (mut from, mut to) in [(again(&caller), again(&to_door)), (again(&to_door), caller)] {
            thread::spawn(move || std::io::copy(&mut from, &mut to));
        }
        (Way { to_door }, calling.join().expect("no panic"))
    }

    /// The other end may hang up in the middle of it.
    fn inject(&self, bytes: &[u8]) {
        let _ = (&self.to_door).write_all(bytes);
    }

    fn close(self) {
        let _ = self.to_door.shutdown(std::net::Shutdown::Both);
    }
}

/// The crowd needs more than the usual thousand.
fn allow_many_descriptors() {
    let limits = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limits.maximum, ..limits };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised).expect("up to the hard limit it may be raised");
}

/// Bytes that look random and come back with the same seed.
fn random_bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

fn resident_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the rank runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line about memory");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

/// The sockets that a process listens on: its descriptors against the kernel's tables.
fn listeners_of(pid: u32) -> Vec<Address> {
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("the rank runs").flatten();
    let inodes: Vec<String> = descriptors
        .filter_map(|entry| {
            let target = std::fs::read_link(entry.path()).ok()?.to_string_lossy().into_owned();
            Some(target.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
        })
        .collect();
    let mine = |inode: &str| inodes.iter().any(|other| other == inode);
    let table = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/net/{name}")).unwrap_or_default();
    let mut found = Vec::new();
    for line in (table("tcp") + &table("tcp6")).lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.len() > 9 && words[3] == "0A" && mine(words[9]) {
            found.push(Address::Tcp(kernel_address(words[1])));
        }
    }
    for line in table("unix").lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        // Flags 00010000 mark a listening socket; abstract names are shown with an @.
        if words.len() > 7 && words[3] == "00010000" && mine(words[6]) {
            found.push(Address::Unix(words[7].trim_start_matches('@').to_owned()));
        }
    }
    found
}

/// `0100007F:1F90`, groups of four bytes in the machine's order.
fn kernel_address(text: &str) -> SocketAddr {
    let (ip, port) = text.split_once(':').expect("an address and a port");
    let port = u16::from_str_radix(port, 16).expect("a port");
    let words = ip.as_bytes().chunks(8).map(|eight| u32::from_str_radix(std::str::from_utf8(eight).expect("hex"), 16).expect("hex"));
    let bytes: Vec<u8> = words.flat_map(u32::to_ne_bytes).collect();
    match <[u8; 16]>::try_from(&bytes[..]) {
        Ok(sixteen) => SocketAddr::new(Ipv6Addr::from(sixteen).into(), port),
        Err(_) => SocketAddr::new(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into(), port),
    }
}

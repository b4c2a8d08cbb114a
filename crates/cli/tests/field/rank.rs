//! What a rank of these tests does: opens a session, plays its part, and says in marked lines what it saw.
//!
//! | part | what it does | what it says |
//! |---|---|---|
//! | exchange | frames with every other rank, barriers, shutdown | `joined`, `done` |
//! | linger | barriers until something goes wrong | `joined`, `in`, `lost` |
//! | traffic | frames around the ring and barriers until stdin of rank 0 ends | `joined`, `in`, `done`; of lanes left open: `sound`, `heard` |
//!
//! Whoever does not get in says `refused`.

use std::fmt;
use std::io::Read;
use std::process::exit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use syncline::{Config, Deadline, Error, Lane, Session};
use syncline_transport::{Link, OutFrame};
use syncline_wire::Kind;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// The environment variable that names the part; without it `as_a_rank` is a test of nothing.
pub(crate) const PLAY: &str = "FIELD_PLAY";
/// In front of everything a rank says; the test harness writes to the same stdout.
pub(crate) const MARK: &str = "@field ";
/// Lanes on which rank 0 listens for whoever calls itself rank 2, while the traffic goes on.
pub(crate) const OPEN_LANES: std::ops::Range<u32> = 40..44;

const BARRIERS: usize = 20;
const PAYLOAD: usize = 300_000; // more than a socket buffer or a ring takes at once

/// The body of each test binary's `as_a_rank`.
pub(crate) fn play_if_asked() {
    let Ok(part) = std::env::var(PLAY) else { return };
    let _ = tracing::subscriber::set_global_default(Log);
    let (session, meeting) = match join() {
        Ok(joined) => joined,
        Err(error) => {
            say(format_args!("refused {}", named(&error)));
            exit(2);
        }
    };
    let outcome = match part.as_str() {
        "exchange" => exchange(&session, &meeting),
        "linger" => linger(&session),
        "traffic" => traffic(&session),
        other => panic!("there is no part {other:?}"),
    };
    if let Err(error) = outcome {
        say(format_args!("lost me={} {}", session.rank(), named(&error)));
        exit(3);
    }
    exit(0); // The harness has nothing to add.
}

fn join() -> Result<(Session, String), Error> {
    let started = Instant::now();
    let config = Config::from_env()?;
    let meeting = config.launch().meeting.to_string();
    let session = Session::open(config)?;
    let hosts = session.topology().hosts().iter().map(|host| {
        let ranks: Vec<String> = host.ranks.iter().map(u32::to_string).collect();
        format!("{}:{}", host.name, ranks.join(","))
    });
    say(format_args!(
        "joined rank={} size={} local={}/{} hosts={} launcher={} meeting={meeting} after={}",
        session.rank(),
        session.size(),
        session.local_rank(),
        session.local_size(),
        hosts.collect::<Vec<_>>().join("|"),
        session.launcher(),
        started.elapsed().as_millis()
    ));
    Ok((session, meeting))
}

/// A frame each way with every other rank, then barriers.
fn exchange(session: &Session, meeting: &str) -> Result<(), Error> {
    let me = session.rank();
    let mut carriers = Vec::new();
    for peer in (0..session.size()).filter(|peer| *peer != me) {
        let started = Instant::now();
        let mut link = session.link(peer, Lane::BENCH, soon())?;
        let info = link.info();
        carriers.push(format!("{peer}:{}{}", info.transport, if info.encrypted { "+sealed" } else { "" }));
        // The lower rank speaks first; both take their peers in ascending order, so nobody waits in a circle.
        let words = if me < peer {
            send(&mut link, me).and_then(|()| receive(&mut link, peer))
        } else {
            receive(&mut link, peer).and_then(|()| send(&mut link, me))
        };
        words.map_err(|error| session.link_failed("exchange", peer, started, &error))?;
    }
    for _ in 0..BARRIERS {
        session.barrier()?;
    }
    say(format_args!("done rank={me} links={} meeting={meeting}", carriers.join(",")));
    session.shutdown()
}

fn linger(session: &Session) -> Result<(), Error> {
    session.barrier()?;
    say(format_args!("in rank={}", session.rank()));
    loop {
        session.barrier()?;
        thread::park_timeout(Duration::from_millis(1)); // leaves the cores to others; nothing depends on it
    }
}

/// A counter goes around the ring, every rank adds its share; rank 0 says when it is enough.
fn traffic(session: &Session) -> Result<(), Error> {
    static ENOUGH: AtomicBool = AtomicBool::new(false);
    let (me, size) = (session.rank(), session.size());
    thread::scope(|scope| {
        if me == 0 {
            thread::spawn(|| {
                let _ = std::io::stdin().read_to_end(&mut Vec::new());
                ENOUGH.store(true, Ordering::Release);
            });
            for lane in OPEN_LANES {
                scope.spawn(move || hear_whoever_calls(session, lane));
            }
        }
        let started = Instant::now();
        let failed = |peer: u32, error| session.link_failed("the ring", peer, started, &error);
        let (before, after) = ((me + size - 1) % size, (me + 1) % size);
        let mut round = 0u64;
        let mut fresh = 0;
        let mut wrong = 0u64;
        loop {
            // New links all the time: the doors must stay open for members.
            let lane = Lane(1000 + fresh);
            fresh += 1;
            let mut from = session.link(before, lane, soon())?;
            let mut to = session.link(after, lane, soon())?;
            for turn in 0..50u64 {
                round += 1;
                let mut last = me == 0 && turn == 49 && ENOUGH.load(Ordering::Acquire);
                let mut sums = vec![0u64; 64];
                if me != 0 {
                    last = take(&mut from, &mut sums).map_err(|error| failed(before, error))?;
                }
                sums.iter_mut().enumerate().for_each(|(index, sum)| *sum += (u64::from(me) + 1) * index as u64 * round);
                pass(&mut to, &sums, last).map_err(|error| failed(after, error))?;
                if me == 0 {
                    take(&mut from, &mut sums).map_err(|error| failed(before, error))?;
                    let all: u64 = (1..=u64::from(size)).sum();
                    wrong += sums.iter().enumerate().filter(|(index, sum)| **sum != all * *index as u64 * round).count() as u64;
                }
                session.barrier()?;
                if last {
                    say(format_args!("done rank={me} rounds={round} links={fresh} wrong={wrong}"));
                    return session.shutdown();
                }
            }
            match fresh {
                2 => say(format_args!("in rank={me}")),
                _ if fresh % 5 == 0 => say(format_args!("through rank={me} links={fresh}")),
                _ => {}
            }
            thread::park_timeout(Duration::from_millis(1));
        }
    })
}

/// Takes what comes from a caller that claims to be rank 2, and says how that ended.
fn hear_whoever_calls(session: &Session, lane: u32) {
    let patience = Deadline::after(Duration::from_secs(60));
    let mut link = match session.link(2, Lane(lane), patience) {
        Ok(link) => link,
        Err(error) => return say(format_args!("heard lane={lane} nobody {}", named(&error))),
    };
    let mut frames = 0;
    loop {
        match link.frame(patience) {
            Ok(_) => {
                frames += 1;
                say(format_args!("sound lane={lane}"));
            }
            Err(error) => return say(format_args!("heard lane={lane} frames={frames} error={:?}", error.to_string())),
        }
    }
}

fn pass(link: &mut Link, sums: &[u64], last: bool) -> Result<(), syncline_transport::LinkError> {
    let bytes: Vec<u8> = sums.iter().flat_map(|sum| sum.to_le_bytes()).collect();
    link.send(&OutFrame { sequence: last.into(), payload: &[&bytes], ..OutFrame::new(Kind::DATA) }, soon())
}

fn take(link: &mut Link, sums: &mut [u64]) -> Result<bool, syncline_transport::LinkError> {
    let head = link.head(soon())?;
    let mut bytes = vec![0; sums.len() * 8];
    link.body_into(&mut bytes, soon())?;
    for (sum, eight) in sums.iter_mut().zip(bytes.chunks_exact(8)) {
        *sum = u64::from_le_bytes(eight.try_into().expect("eight bytes"));
    }
    Ok(head.header.sequence == 1)
}

fn send(link: &mut Link, me: u32) -> Result<(), syncline_transport::LinkError> {
    link.send(&OutFrame { sequence: u64::from(me), payload: &[&pattern(me)], ..OutFrame::new(Kind::DATA) }, soon())
}

fn receive(link: &mut Link, peer: u32) -> Result<(), syncline_transport::LinkError> {
    let (head, body) = link.frame(soon())?;
    assert_eq!((head.header.source, head.header.sequence), (peer, u64::from(peer)), "a frame of somebody else");
    assert!(body == pattern(peer), "a frame of rank {peer} arrived damaged");
    Ok(())
}

fn pattern(rank: u32) -> Vec<u8> {
    (0..PAYLOAD).map(|index| (index as u32).wrapping_mul(31 + rank) as u8).collect()
}

/// Kind, culprit and text of an error, in one line.
fn named(error: &Error) -> String {
    let rank = error.who().map_or("-".to_owned(), |who| who.rank.to_string());
    format!("kind={:?} rank={rank} text={:?}", error.kind(), error.to_string())
}

fn say(words: fmt::Arguments<'_>) {
    println!("{MARK}{words}");
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

/// Warnings and notes of the layers below, a line each on stderr.
struct Log;

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO && metadata.target().starts_with("syncline")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut words = Words(String::new());
        event.record(&mut words);
        eprintln!("{}: {}", event.metadata().level(), words.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Words(String);

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

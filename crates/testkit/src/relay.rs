//! A cable with weather: two hosts of an [`Enclosure`] joined by a relay that delays, drops, slows and cuts.
//!
//! ```text
//!   h1: wire 10.78.0.1 ══ tap ══ relay ══ tap ══ wire 10.78.0.2 :h2
//!                                  └─ queue each way: due = end of its transmission at the rate + delay + jitter, never before the one ahead
//! ```
//! Kernels without the `netem` discipline have nothing of this kind. The relay is one thread of the test; it costs two copies and
//! two system calls for each packet.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tun_rs::{DeviceBuilder, Layer, SyncDevice};

use crate::enclosure::Enclosure;

/// The name of the cable's end on each host.
pub const WIRE: &str = "wire";

/// An Ethernet frame with the usual payload, and room to spare.
const LONGEST_FRAME: usize = 2048;

/// What is under way each way at most, in frames; more is lost, as in any router.
const LONGEST_QUEUE: usize = 4096;

/// What happens to packets, both ways alike.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Weather {
    /// How long each is under way.
    pub delay: Duration,
    /// Up to how much longer, at random; packets keep their order.
    pub jitter: Duration,
    /// Which part of them is lost, from 0 to 1.
    pub loss: f64,
    /// How many bytes a second fit through.
    pub rate: Option<u64>,
    /// Nothing passes, and nobody is told.
    pub cut: bool,
}

/// A relay that runs until it is dropped.
#[derive(Debug)]
pub struct Relay {
    weather: Arc<Mutex<Weather>>,
    stop: Arc<AtomicBool>,
    passed: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Joins two hosts by a cable in fine weather. Its ends are called [`WIRE`] and have the addresses 10.78.0.HOST.
    ///
    /// # Errors
    /// What the system said, such as that there is no `/dev/net/tun`: for a test to say `skipped: reason`.
    pub fn between(place: &Enclosure, hosts: [usize; 2], seed: u64) -> Result<Relay, String> {
        let end = |host: usize| tap_on(place, host).map_err(|error| format!("a tap on h{host} cannot be made: {error}"));
        let ends = [end(hosts[0])?, end(hosts[1])?];
        for host in hosts {
            let space = format!("h{host}");
            place.shell(&format!("ip -n {space} addr add 10.78.0.{host}/24 dev {WIRE}; ip -n {space} link set {WIRE} up"));
        }
        let mut relay = Relay { weather: Arc::default(), stop: Arc::default(), passed: Arc::default(), thread: None };
        let (weather, stop, passed) = (Arc::clone(&relay.weather), Arc::clone(&relay.stop), Arc::clone(&relay.passed));
        let body = move || Queues::new(ends, seed).run(&weather, &stop, &passed);
        let thread = thread::Builder::new().name("relay".into()).spawn(body).map_err(|error| error.to_string())?;
        relay.thread = Some(thread);
        Ok(relay)
    }

    /// Changes the weather for packets that come from now on.
    pub fn set(&self, weather: Weather) {
        *self.weather.lock().expect("no panic while held") = weather;
    }

    /// How many packets arrived so far.
    pub fn passed(&self) -> u64 {
        self.passed.load(Relaxed)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Makes a tap in the network namespace of a host: by a thread that goes there, for a device belongs to where it was made.
fn tap_on(place: &Enclosure, host: usize) -> io::Result<SyncDevice> {
    let space = File::open(place.from_outside(Path::new(&format!("/run/netns/h{host}"))))?;
    let make = move || {
        move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network))?;
        let tap = DeviceBuilder::new().layer(Layer::L2).name(WIRE).enable(false).build_sync()?;
        tap.set_nonblocking(true)?;
        Ok(tap)
    };
    thread::spawn(make).join().expect("no panic in there")
}

/// The packets under way.
struct Queues {
    ends: [SyncDevice; 2],
    /// From each end to the other: when a packet is due, and what it is. Ordered.
    under_way: [VecDeque<(Instant, Vec<u8>)>; 2],
    /// Until when the cable is taken by what was sent before.
    taken_until: [Instant; 2],
    random: u64,
}

impl Queues {
    fn new(ends: [SyncDevice; 2], seed: u64) -> Queues {
        let now = Instant::now();
        Queues { ends, under_way: Default::default(), taken_until: [now; 2], random: seed | 1 }
    }

    fn run(mut self, weather: &Mutex<Weather>, stop: &AtomicBool, passed: &AtomicU64) {
        const LOOK: Duration = Duration::from_millis(20);
        while !stop.load(Acquire) {
            let now = Instant::now();
            for from in 0..2 {
                while self.under_way[from].front().is_some_and(|(due, _)| *due <= now) {
                    let (_, packet) = self.under_way[from].pop_front().expect("there is a first one");
                    // What the other side has no room for is lost.
                    passed.fetch_add(u64::from(self.ends[1 - from].send(&packet).is_ok()), Relaxed);
                }
            }
            let next = self.under_way.iter().filter_map(|queue| queue.front()).map(|(due, _)| *due).min();
            let wait = next.map_or(LOOK, |due| due.saturating_duration_since(Instant::now()).min(LOOK));
            let [one, other] = &self.ends;
            let mut both = [PollFd::new(one, PollFlags::IN), PollFd::new(other, PollFlags::IN)];
            let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(wait.subsec_nanos()) };
            let _ = poll(&mut both, Some(&timeout));
            let weather = *weather.lock().expect("no panic while held");
            for from in 0..2 {
                self.take_in(from, weather);
            }
        }
    }

    /// Takes what came to one end and decides when it arrives at the other, if ever.
    fn take_in(&mut self, from: usize, weather: Weather) {
        let mut frame = [0u8; LONGEST_FRAME];
        while let Ok(length) = self.ends[from].recv(&mut frame) {
            if weather.cut || self.chance() < weather.loss || self.under_way[from].len() >= LONGEST_QUEUE {
                continue;
            }
            let now = Instant::now();
            let begin = self.taken_until[from].max(now);
            let takes = weather.rate.map_or(Duration::ZERO, |rate| Duration::from_secs_f64(length as f64 / rate.max(1) as f64));
            self.taken_until[from] = begin + takes;
            let due = begin + takes + weather.delay + weather.jitter.mul_f64(self.chance());
            let due = self.under_way[from].back().map_or(due, |(ahead, _)| due.max(*ahead));
            self.under_way[from].push_back((due, frame[..length].to_vec()));
        }
    }

    /// A number from 0 to 1, from the seed (xorshift).
    fn chance(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1u64 << 53) as f64
    }
}

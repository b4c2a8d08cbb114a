//! A network in one thread on virtual time: same seed, same history, to the last message.
//!
//! A node is plain data with two entrances, a message and the passing of time. The simulator owns the clock and the
//! only source of chance, so a failing seed replays exactly. Messages between two nodes keep their order, as on a
//! socket, unless [`Weather::reorder`] says otherwise. A crash closes the victim's connections: the others are told
//! after a delay, as a kernel would; a cut tells nobody.
//!
//! ```
//! use std::time::Duration;
//! use syncline_testkit::sim::{Node, Outbox, Sim, Weather};
//!
//! struct Counter(u32);
//! impl Node<u32> for Counter {
//!     fn start(&mut self, _: Duration, out: &mut Outbox<u32>) { out.send(1, 7) }
//!     fn message(&mut self, _: usize, word: u32, _: Duration, _: &mut Outbox<u32>) { self.0 += word }
//! }
//! let mut sim = Sim::new(42, Weather::calm(), vec![Counter(0), Counter(0)]);
//! sim.run(Duration::from_secs(1));
//! assert_eq!(sim.node(1).0, 14); // one from the neighbour, one from itself
//! ```

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::time::Duration;

/// One participant. Every call may put messages and an alarm into its [`Outbox`].
pub trait Node<M> {
    /// The node comes up.
    fn start(&mut self, _now: Duration, _out: &mut Outbox<M>) {}
    /// A message arrived.
    fn message(&mut self, from: usize, message: M, now: Duration, out: &mut Outbox<M>);
    /// The connection to a crashed node was closed.
    fn closed(&mut self, _peer: usize, _now: Duration, _out: &mut Outbox<M>) {}
    /// An alarm set with [`Outbox::alarm_at`] rang.
    fn alarm(&mut self, _now: Duration, _out: &mut Outbox<M>) {}
}

/// What a node wants done.
#[derive(Debug)]
pub struct Outbox<M> {
    sends: Vec<(usize, M)>,
    alarm: Option<Duration>,
}

impl<M> Outbox<M> {
    /// Sends `message` to the node with index `to`.
    pub fn send(&mut self, to: usize, message: M) {
        self.sends.push((to, message));
    }

    /// Rings this node's alarm at `time`; a later call replaces an earlier one.
    pub fn alarm_at(&mut self, time: Duration) {
        self.alarm = Some(time);
    }
}

/// How the network behaves.
#[derive(Debug, Clone)]
pub struct Weather {
    /// The shortest and the longest time a message takes.
    pub delay: (Duration, Duration),
    /// Messages of one pair may overtake each other.
    pub reorder: bool,
    /// Nodes start at random moments within this time.
    pub start_spread: Duration,
}

impl Weather {
    /// One microsecond, in order, everybody at once.
    pub fn calm() -> Self {
        Weather { delay: (Duration::from_micros(1), Duration::from_micros(1)), reorder: false, start_spread: Duration::ZERO }
    }

    /// Delays of up to 50 ms, starts spread over half a second.
    pub fn rough() -> Self {
        Weather { delay: (Duration::from_micros(10), Duration::from_millis(50)), reorder: false, start_spread: Duration::from_millis(500) }
    }
}

#[derive(Debug)]
enum Happening<M> {
    Start(usize),
    Deliver { from: usize, to: usize, message: M },
    Closed { at: usize, peer: usize },
    Alarm { at: usize, generation: u64 },
    Crash(usize),
    Cut(usize, usize),
    Heal(usize, usize),
}

/// The simulated cluster.
#[derive(Debug)]
pub struct Sim<N, M> {
    nodes: Vec<N>,
    now: Duration,
    weather: Weather,
    chance: Chance,
    queue: BinaryHeap<Reverse<(Duration, u64)>>,
    happenings: HashMap<u64, Happening<M>>,
    next_id: u64,
    last_delivery: HashMap<(usize, usize), Duration>,
    alarm_generation: Vec<u64>,
    knocking: HashMap<usize, Vec<Happening<M>>>,
    started: HashSet<usize>,
    crashed: HashSet<usize>,
    cuts: HashSet<(usize, usize)>,
    delivered: u64,
}

impl<M, N: Node<M>> Sim<N, M> {
    /// A cluster of `nodes` under `weather`; everything random follows from `seed`.
    pub fn new(seed: u64, weather: Weather, nodes: Vec<N>) -> Self {
        let count = nodes.len();
        let mut sim = Sim {
            nodes,
            now: Duration::ZERO,
            chance: Chance::new(seed),
            queue: BinaryHeap::new(),
            happenings: HashMap::new(),
            next_id: 0,
            last_delivery: HashMap::new(),
            alarm_generation: vec![0; count],
            knocking: HashMap::new(),
            started: HashSet::new(),
            crashed: HashSet::new(),
            cuts: HashSet::new(),
            delivered: 0,
            weather,
        };
        for node in 0..count {
            let moment = sim.chance.duration(Duration::ZERO, sim.weather.start_spread);
            sim.schedule(moment, Happening::Start(node));
        }
        sim
    }

    /// Crashes `node` at `time`: it never acts again, and the others' connections to it close.
    pub fn crash_at(&mut self, time: Duration, node: usize) {
        self.schedule(time, Happening::Crash(node));
    }

    /// Cuts the path between two nodes at `time`, in silence; what is under way is lost.
    pub fn cut_at(&mut self, time: Duration, a: usize, b: usize) {
        self.schedule(time, Happening::Cut(a, b));
    }

    /// Mends a cut.
    pub fn heal_at(&mut self, time: Duration, a: usize, b: usize) {
        self.schedule(time, Happening::Heal(a, b));
    }

    /// Lets time pass until `end`, or until nothing more can happen.
    pub fn run(&mut self, end: Duration) {
        while let Some(Reverse((time, id))) = self.queue.peek().copied() {
            if time > end {
                break;
            }
            self.queue.pop();
            self.now = time;
            let happening = self.happenings.remove(&id).expect("each queued id has its happening");
            self.happen(happening);
        }
    }

    /// The virtual time.
    pub fn now(&self) -> Duration {
        self.now
    }

    /// One node's data.
    pub fn node(&self, index: usize) -> &N {
        &self.nodes[index]
    }

    /// Whether `node` was crashed.
    pub fn is_crashed(&self, node: usize) -> bool {
        self.crashed.contains(&node)
    }

    /// How many messages arrived.
    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    /// The source of chance, for tests that choose victims and moments from the same seed.
    pub fn chance(&mut self) -> &mut Chance {
        &mut self.chance
    }

    fn happen(&mut self, happening: Happening<M>) {
        match happening {
            Happening::Start(node) if !self.crashed.contains(&node) => {
                self.started.insert(node);
                self.act(node, |node, now, out| node.start(now, out));
                for happening in self.knocking.remove(&node).unwrap_or_default() {
                    self.happen(happening);
                }
            }
            Happening::Deliver { from, to, message } => {
                if self.crashed.contains(&to) || self.is_cut(from, to) {
                    return;
                }
                if !self.started.contains(&to) {
                    // The listener is not up yet: the sender keeps knocking until it is.
                    self.knocking.entry(to).or_default().push(Happening::Deliver { from, to, message });
                    return;
                }
                self.delivered += 1;
                self.act(to, |node, now, out| node.message(from, message, now, out));
            }
            Happening::Closed { at, peer } if !self.crashed.contains(&at) => {
                if self.started.contains(&at) {
                    self.act(at, |node, now, out| node.closed(peer, now, out));
                } else {
                    self.knocking.entry(at).or_default().push(Happening::Closed { at, peer });
                }
            }
            Happening::Alarm { at, generation } if !self.crashed.contains(&at) && self.alarm_generation[at] == generation => {
                self.act(at, |node, now, out| node.alarm(now, out));
            }
            Happening::Crash(victim) => {
                let newly = self.crashed.insert(victim);
                if newly && self.started.contains(&victim) {
                    for at in (0..self.nodes.len()).filter(|at| *at != victim && !self.is_cut(*at, victim)).collect::<Vec<_>>() {
                        let moment = self.arrival(victim, at);
                        self.schedule(moment, Happening::Closed { at, peer: victim });
                    }
                }
            }
            Happening::Cut(a, b) => drop(self.cuts.insert((a.min(b), a.max(b)))),
            Happening::Heal(a, b) => drop(self.cuts.remove(&(a.min(b), a.max(b)))),
            _ => {}
        }
    }

    fn act(&mut self, index: usize, act: impl FnOnce(&mut N, Duration, &mut Outbox<M>)) {
        let mut out = Outbox { sends: Vec::new(), alarm: None };
        act(&mut self.nodes[index], self.now, &mut out);
        for (to, message) in out.sends {
            let moment = self.arrival(index, to);
            self.schedule(moment, Happening::Deliver { from: index, to, message });
        }
        if let Some(time) = out.alarm {
            self.alarm_generation[index] += 1;
            let generation = self.alarm_generation[index];
            self.schedule(time.max(self.now), Happening::Alarm { at: index, generation });
        }
    }

    fn arrival(&mut self, from: usize, to: usize) -> Duration {
        let moment = self.now + self.chance.duration(self.weather.delay.0, self.weather.delay.1);
        if self.weather.reorder {
            return moment;
        }
        let last = self.last_delivery.entry((from, to)).or_default();
        *last = moment.max(*last);
        *last
    }

    fn schedule(&mut self, time: Duration, happening: Happening<M>) {
        let id = self.next_id;
        self.next_id += 1;
        self.happenings.insert(id, happening);
        self.queue.push(Reverse((time, id)));
    }

    fn is_cut(&self, a: usize, b: usize) -> bool {
        self.cuts.contains(&(a.min(b), a.max(b)))
    }
}

/// A small generator (SplitMix64): the point is that it is the same everywhere and for ever.
#[derive(Debug, Clone)]
pub struct Chance(u64);

impl Chance {
    /// The sequence of `seed`.
    pub fn new(seed: u64) -> Self {
        Chance(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which must not be zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.bits() % bound
    }

    /// A time between two others, both possible.
    pub fn duration(&mut self, least: Duration, most: Duration) -> Duration {
        let span = most.saturating_sub(least).as_nanos() as u64;
        least + Duration::from_nanos(if span == 0 { 0 } else { self.below(span + 1) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Passes a token round a ring and writes down when it had it.
    struct Relay {
        next: usize,
        first: bool,
        seen: Vec<(Duration, u32)>,
        closed: Vec<usize>,
    }

    impl Node<u32> for Relay {
        fn start(&mut self, _: Duration, out: &mut Outbox<u32>) {
            if self.first {
                out.send(self.next, 0);
                out.send(self.next, 1);
            }
        }
        fn message(&mut self, _: usize, token: u32, now: Duration, out: &mut Outbox<u32>) {
            self.seen.push((now, token));
            out.send(self.next, token);
        }
        fn closed(&mut self, peer: usize, _: Duration, _: &mut Outbox<u32>) {
            self.closed.push(peer);
        }
    }

    fn ring(seed: u64, weather: Weather) -> Sim<Relay, u32> {
        let nodes = (0..3).map(|index| Relay { next: (index + 1) % 3, first: index == 0, seen: vec![], closed: vec![] }).collect();
        Sim::new(seed, weather, nodes)
    }

    #[test]
    fn the_same_seed_gives_the_same_history() {
        let history = |seed| {
            let mut sim = ring(seed, Weather::rough());
            sim.run(Duration::from_secs(3));
            (0..3).map(|node| sim.node(node).seen.clone()).collect::<Vec<_>>()
        };
        assert_eq!(history(7), history(7));
        assert_ne!(history(7), history(8));
    }

    #[test]
    fn one_pair_keeps_its_order_unless_told_otherwise() {
        let inversions = |reorder| {
            let mut sim = ring(3, Weather { reorder, ..Weather::rough() });
            sim.run(Duration::from_secs(5));
            sim.node(1).seen.windows(2).filter(|pair| pair[0].1 == pair[1].1).count()
        };
        assert_eq!(inversions(false), 0, "two tokens stay in turn");
        assert!(inversions(true) > 0);
    }

    #[test]
    fn a_crash_is_noticed_and_a_cut_is_not() {
        let mut sim = ring(1, Weather::calm());
        sim.crash_at(Duration::from_millis(1), 2);
        sim.cut_at(Duration::from_micros(500), 1, 2);
        sim.run(Duration::from_secs(1));
        assert!(sim.is_crashed(2));
        assert_eq!(sim.node(0).closed, [2]);
        assert_eq!(sim.node(1).closed, [] as [usize; 0], "the cut lies between them");
        let deliveries = sim.delivered();
        sim.run(Duration::from_secs(2));
        assert_eq!(sim.delivered(), deliveries, "the token is lost for good");
    }
}

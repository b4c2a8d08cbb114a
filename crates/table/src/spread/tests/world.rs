//! A job in one process: ranks are numbers, links are queues in memory (or real sockets), and a death is a word.

use std::collections::HashMap;
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use syncline_cluster::{Deadline, Error, Who};
use syncline_tensor::DType;
use syncline_transport::{Link, LinkError, Severer, inproc, tcp};
use syncline_wire::Fingerprint;

use super::naive::Naive;
use crate::keys::KeyShare;
use crate::share::Share;
use crate::spread::{Fate, Form, Gates, Layout, Manner, Places, Reach, Service, Spread};
use crate::{AddOptions, Consistency};

/// What the ranks have in common.
pub(super) struct Hub {
    waiting: Mutex<HashMap<(u32, u32, Fingerprint), Link>>,
    news: Condvar,
    fates: Mutex<HashMap<u32, Fate>>,
    severers: Mutex<Vec<(u32, Severer)>>,
    timeout: Duration,
    sockets: bool,
}

/// One rank's view of it.
pub(super) struct Seat {
    pub(super) hub: Arc<Hub>,
    pub(super) me: u32,
}

impl Hub {
    pub(super) fn new(timeout: Duration, sockets: bool) -> Arc<Hub> {
        let (waiting, news) = (Mutex::default(), Condvar::new());
        Arc::new(Hub { waiting, news, fates: Mutex::default(), severers: Mutex::default(), timeout, sockets })
    }

    pub(super) fn seat(self: &Arc<Hub>, me: u32) -> Arc<dyn Reach> {
        Arc::new(Seat { hub: Arc::clone(self), me })
    }

    /// What a kill looks like: the fate is known, the links are gone.
    pub(super) fn lose(&self, rank: u32) {
        self.fates.lock().expect("no panic").insert(rank, Fate::Lost);
        self.severers.lock().expect("no panic").iter().filter(|(of, _)| *of == rank).for_each(|(_, severer)| severer.sever());
    }

    /// What a polite end looks like to the others.
    pub(super) fn leave(&self, rank: u32) {
        self.fates.lock().expect("no panic").insert(rank, Fate::Left);
    }

    fn pair(&self, one: u32, other: u32) -> (Link, Link) {
        if !self.sockets {
            return inproc::pair_of([(0, one), (0, other)]);
        }
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let dialled = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        let (accepted, _) = listener.accept().expect("somebody dialled");
        let link = |stream: TcpStream, me, peer: u32| tcp::link(stream.into(), format!("rank {peer}"), 0, me).expect("a socket");
        (link(dialled, one, other), link(accepted, other, one))
    }
}

impl Reach for Seat {
    fn link(&self, peer: u32, purpose: Fingerprint, by: Deadline) -> Result<Link, Error> {
        let mut waiting = self.hub.waiting.lock().expect("no panic");
        if let Some(link) = waiting.remove(&(self.me, peer, purpose)) {
            return Ok(link);
        }
        assert!(!by.expired());
        let (mine, theirs) = self.hub.pair(self.me, peer);
        let mut severers = self.hub.severers.lock().expect("no panic");
        severers.extend([(self.me, mine.severer()), (peer, mine.severer())]);
        waiting.insert((peer, self.me, purpose), theirs);
        self.hub.news.notify_all();
        Ok(mine)
    }

    fn link_failed(&self, operation: &str, peer: u32, started: Instant, error: &LinkError) -> Error {
        let who = Who { rank: peer, host: "test".into(), pid: 1 };
        let (operation, waited, hint) = (operation.to_owned(), started.elapsed(), String::new());
        match error {
            LinkError::Timeout { .. } => Error::Timeout { operation, missing: vec![who], detail: String::new(), waited, hint },
            LinkError::Interrupted => Error::Interrupted { operation, waited },
            LinkError::Broken { .. } => Error::System { operation, detail: error.to_string() }, // nobody who lives is to blame
            other => Error::PeerLost { operation, who, how: other.to_string(), waited, hint },
        }
    }

    fn late(&self, operation: &str, missing: &[u32], started: Instant) -> Error {
        let missing = missing.iter().map(|rank| Who { rank: *rank, host: "test".into(), pid: 1 }).collect();
        Error::Timeout { operation: operation.into(), missing, detail: String::new(), waited: started.elapsed(), hint: String::new() }
    }

    fn hopeless(&self, _operation: &str, _missing: &[u32], _started: Instant) -> Option<Error> {
        None
    }

    fn fate(&self, rank: u32) -> Fate {
        self.hub.fates.lock().expect("no panic").get(&rank).copied().unwrap_or(Fate::Present)
    }

    fn has_ended(&self, rank: u32) -> bool {
        self.fate(rank) != Fate::Present
    }

    fn survives_losses(&self) -> bool {
        true
    }

    fn is_closing(&self) -> bool {
        false
    }

    fn timeout(&self) -> Duration {
        self.hub.timeout
    }
}

/// Workers have ranks 0.., the server of share `s` has rank 100 + s.
pub(super) const FIRST_SERVER: u32 = 100;

/// A table with its servers running.
pub(super) struct World {
    pub(super) hub: Arc<Hub>,
    pub(super) places: Arc<Places>,
    pub(super) form: Form,
    pub(super) shares: Vec<Arc<dyn Share>>,
    /// The same, if they are naive.
    pub(super) naive: Vec<Arc<Naive>>,
    services: Vec<JoinHandle<()>>,
}

/// How a world is made.
#[derive(Clone)]
pub(super) struct Plan {
    pub(super) ranges: Vec<std::ops::Range<u64>>,
    pub(super) cols: usize,
    pub(super) dtype: DType,
    pub(super) consistency: Consistency,
    pub(super) workers: u32,
    /// For each worker the share it has in memory, if any.
    pub(super) here: Vec<Option<usize>>,
    pub(super) sockets: bool,
    pub(super) timeout: Duration,
}

impl Plan {
    pub(super) fn new(ranges: &[std::ops::Range<u64>], workers: u32, consistency: Consistency) -> Plan {
        Plan {
            ranges: ranges.to_vec(),
            cols: 3,
            dtype: DType::I64,
            consistency,
            workers,
            here: vec![None; workers as usize],
            sockets: false,
            timeout: Duration::from_secs(10),
        }
    }

    fn places(&self) -> Arc<Places> {
        Arc::new(Places {
            table: Fingerprint::of("table").name("t").finish(),
            name: "table t".into(),
            servers: (0..self.ranges.len() as u32).map(|share| vec![FIRST_SERVER + share]).collect(),
            workers: (0..self.workers).collect(),
        })
    }

    /// A matrix in naive shares.
    pub(super) fn build(&self) -> World {
        let naive = |range: &std::ops::Range<u64>| {
            Arc::new(Naive::new(range.clone(), self.cols, self.dtype, self.consistency, self.workers as usize))
        };
        let naive: Vec<_> = self.ranges.iter().map(naive).collect();
        let shares: Vec<_> = naive.iter().map(|share| Arc::clone(share) as Arc<dyn Share>).collect();
        let form = Form {
            layout: Layout::Ranges(self.ranges.clone()),
            row_bytes: self.cols * self.dtype.size(),
            everywhere: self.consistency != Consistency::Async,
            lanes: shares[0].lanes(),
        };
        World { naive, ..self.start(form, shares, &[]) }
    }

    /// A key-value table over as many servers as there are ranges.
    pub(super) fn build_keys(&self) -> World {
        let hub = Hub::new(self.timeout, self.sockets);
        let ranks: Vec<u32> = (0..self.workers).collect();
        let share = |share: usize| {
            let reach = hub.seat(FIRST_SERVER + share as u32);
            Arc::new(KeyShare::new("table t".into(), self.dtype, self.consistency, ranks.clone(), reach))
        };
        let keys: Vec<_> = (0..self.ranges.len()).map(share).collect();
        let form = Form {
            layout: Layout::Hashed(self.ranges.len()),
            row_bytes: self.dtype.size(),
            everywhere: self.consistency != Consistency::Async,
            lanes: keys[0].lanes(),
        };
        self.start(form, keys.iter().map(|share| Arc::clone(share) as Arc<dyn Share>).collect(), &keys)
    }

    fn start(&self, form: Form, shares: Vec<Arc<dyn Share>>, keys: &[Arc<KeyShare>]) -> World {
        let (hub, places) = (Hub::new(self.timeout, self.sockets), self.places());
        let mut services = Vec::new();
        for (index, share) in shares.iter().enumerate() {
            for worker in (0..self.workers).filter(|worker| self.here[*worker as usize] != Some(index)) {
                let service = Service {
                    places: Arc::clone(&places),
                    index,
                    share: Arc::clone(share),
                    keys: keys.get(index).cloned(),
                    row_bytes: form.row_bytes,
                    consistency: self.consistency,
                    worker,
                    reach: hub.seat(FIRST_SERVER + index as u32),
                    floats: self.dtype == DType::F32,
                    gate: Arc::default(),
                };
                services.push(service.start().expect("a thread"));
            }
        }
        World { hub, places, form, shares, naive: Vec::new(), services }
    }
}

impl World {
    /// Worker `worker`'s table; `here` is the share it has in memory.
    pub(super) fn open(&self, worker: u32, here: Option<usize>) -> Spread {
        let here = (0..self.shares.len()).map(|share| (here == Some(share)).then(|| Arc::clone(&self.shares[share]))).collect();
        Spread::open(Arc::clone(&self.places), worker, self.form.clone(), here, self.hub.seat(worker), &Gates::default(), soon())
            .expect("everybody is there")
    }

    /// Waits for all service threads, whose workers must have closed or died.
    pub(super) fn end(self) {
        self.services.into_iter().for_each(|service| service.join().expect("a service panicked"));
    }
}

/// Numbers as they are, without turns.
impl Spread {
    pub(super) fn add(&self, delta: &[u8], ids: Option<&[i64]>, options: &AddOptions, wait: bool, by: Deadline) -> Result<(), Error> {
        self.add_in(Manner::default(), delta, ids, options, wait, by)
    }

    pub(super) fn get(&self, out: &mut [u8], ids: Option<&[i64]>, by: Deadline) -> Result<(), Error> {
        self.get_in(Manner::default(), out, ids, self.issued(), by)
    }

    pub(super) fn add_get(
        &self,
        delta: &[u8],
        out: &mut [u8],
        ids: Option<&[i64]>,
        options: &AddOptions,
        by: Deadline,
    ) -> Result<(), Error> {
        self.add_get_in(Manner::default(), delta, out, ids, options, by)
    }
}

pub(super) fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

/// Numbers as bytes of an i64 table.
pub(super) fn bytes(numbers: &[i64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// And back.
pub(super) fn numbers(bytes: &[u8]) -> Vec<i64> {
    super::super::moving::words(bytes).collect()
}

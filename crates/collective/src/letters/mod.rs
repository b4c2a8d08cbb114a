//! Messages from one member to another, outside of the calls that all make together.
//!
//! A letter has a tag, and whoever awaits one names it. Letters of one tag between the same two keep their order; one that
//! nobody awaits yet is kept. Each pair has one link of its own, and each direction of it a thread from the first letter on:
//! ```text
//!   send_start ─▶ queue ─▶ thread ═══ link ═══▶ thread ─▶ whoever awaits the tag, else kept
//! ```
//! A thread reads only while somebody awaits a letter of its peer: a sender that is ahead of its readers waits for them.

mod reading;

use std::collections::VecDeque;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use syncline_cluster::{Deadline, Error, Group, Lane, Vigil};
use syncline_transport::{OutFrame, RecvHalf, SendHalf};
use syncline_wire::{Fingerprint, Kind};

use crate::engine::{Pending, Promise};

/// How long a wait lasts before it looks whether it is in vain.
const NAP: Duration = Duration::from_millis(100);

/// The letters of one member of a group.
pub(crate) struct Letters {
    office: Arc<Office>,
}

/// What the threads share.
struct Office {
    vigil: Vigil,
    group: Group,
    lane: Lane,
    /// By position.
    peers: Vec<Peer>,
    desk: Mutex<Desk>,
    /// Somebody awaits a letter, or nobody will any more.
    news: Condvar,
}

/// Another member, as this one reaches it.
#[derive(Default)]
struct Peer {
    link: Mutex<Ends>,
    /// The way to the thread that sends.
    outbox: Mutex<Option<Sender<Posted>>>,
}

/// The ends of a link that no thread has taken yet.
#[derive(Default)]
struct Ends {
    opened: bool,
    sender: Option<Box<dyn SendHalf>>,
    receiver: Option<Box<dyn RecvHalf>>,
}

type Posted = Box<dyn FnOnce(&Office, &mut Option<Box<dyn SendHalf>>) + Send>;

/// Who awaits what, and what came before it was awaited.
struct Desk {
    wants: Vec<Want>,
    /// By position, in order of arrival.
    kept: Vec<VecDeque<(u64, Vec<u8>)>>,
    /// Positions whose letters a thread reads.
    read: Vec<bool>,
    closed: bool,
}

/// Somebody who awaits a letter.
struct Want {
    /// From this position, or from anybody.
    from: Option<usize>,
    tag: u64,
    started: Instant,
    by: Deadline,
    promise: Promise<Vec<u8>>,
}

impl Letters {
    /// Those of `group`; nothing is opened yet.
    pub(crate) fn new(vigil: Vigil, group: Group) -> Letters {
        let name = Fingerprint::of("letters").numbers("ranks", group.ranks().iter().map(|rank| u64::from(*rank))).finish();
        let members = group.len();
        let desk = Desk { wants: Vec::new(), kept: vec![VecDeque::new(); members], read: vec![false; members], closed: false };
        let peers = (0..members).map(|_| Peer::default()).collect();
        let office = Office { vigil, group, lane: Lane::of(name), peers, desk: Mutex::new(desk), news: Condvar::new() };
        Letters { office: Arc::new(office) }
    }

    /// Sends `array` to position `to`; it comes back when the link has taken all of it.
    pub(crate) fn send_start<B: AsMut<[u8]> + Send + 'static>(&self, mut array: B, to: usize, tag: u64, by: Deadline) -> Pending<B> {
        let (pending, promise) = Pending::new();
        let started = Instant::now();
        let outbox = match self.office.another("send", to).and_then(|()| self.outbox(to)) {
            Ok(outbox) => outbox,
            Err(error) => {
                promise.fulfil(Err(error));
                return pending;
            }
        };
        let letter = move |office: &Office, half: &mut Option<Box<dyn SendHalf>>| {
            let sent = office.send(to, tag, array.as_mut(), half, started, by);
            promise.fulfil(sent.map(|()| (array, 0)));
        };
        let _ = outbox.send(Box::new(letter)); // a thread that is gone drops the promise, which tells
        pending
    }

    /// Awaits a letter with `tag` from a position, or from anybody; the number that comes with it says from whom.
    pub(crate) fn recv_start(&self, from: Option<usize>, tag: u64, by: Deadline) -> Pending<Vec<u8>> {
        let (pending, promise) = Pending::new();
        let office = &self.office;
        let checked = office.vigil.usable("recv").and(from.map_or(Ok(()), |from| office.another("recv", from)));
        if let Err(error) = checked {
            promise.fulfil(Err(error));
            return pending;
        }
        let me = office.group.position();
        let mut desk = office.desk();
        let senders: Vec<usize> =
            (0..office.peers.len()).filter(|position| *position != me && from.is_none_or(|from| from == *position)).collect();
        if let Some((position, bytes)) = senders.iter().find_map(|position| Some((*position, desk.take(*position, tag)?))) {
            promise.fulfil(Ok((bytes, position as u32)));
            return pending;
        }
        desk.wants.push(Want { from, tag, started: Instant::now(), by, promise });
        for position in senders {
            if !std::mem::replace(&mut desk.read[position], true) {
                let office = Arc::clone(office);
                let thread = std::thread::Builder::new().name("syncline-letters".into()).spawn(move || office.read(position));
                if let Err(error) = thread {
                    desk.read[position] = false;
                    let detail = error.to_string();
                    desk.fail(position, &Error::System { operation: "recv: a thread that reads letters".into(), detail });
                }
            }
        }
        drop(desk);
        office.news.notify_all();
        pending
    }

    /// The way to the thread that sends to `to`, which is started if need be and ends with these letters.
    fn outbox(&self, to: usize) -> Result<Sender<Posted>, Error> {
        let mut outbox = self.office.peers[to].outbox.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(outbox) = &*outbox {
            return Ok(outbox.clone());
        }
        let (sender, receiver) = channel::<Posted>();
        let office = Arc::clone(&self.office);
        let body = move || {
            let mut half = None;
            for letter in receiver {
                letter(&office, &mut half);
            }
        };
        let thread = std::thread::Builder::new().name("syncline-letters".into()).spawn(body);
        thread.map_err(|error| Error::System { operation: "send: a thread that sends letters".into(), detail: error.to_string() })?;
        Ok(outbox.insert(sender).clone())
    }
}

impl Drop for Letters {
    fn drop(&mut self) {
        self.office.desk().closed = true;
        self.office.news.notify_all();
        for peer in &self.office.peers {
            drop(peer.outbox.lock().unwrap_or_else(PoisonError::into_inner).take());
        }
    }
}

impl Office {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether `position` is a member, and not this one.
    fn another(&self, operation: &str, position: usize) -> Result<(), Error> {
        self.vigil.usable(operation)?;
        let (me, members) = (self.group.position(), self.peers.len());
        if position < members && position != me {
            return Ok(());
        }
        Err(Error::Configuration {
            detail: format!("{operation}: position {position} is nobody to write to for {me} in a group of {members}"),
        })
    }

    fn send(
        &self,
        to: usize,
        tag: u64,
        bytes: &[u8],
        half: &mut Option<Box<dyn SendHalf>>,
        started: Instant,
        by: Deadline,
    ) -> Result<(), Error> {
        let operation = "send";
        if half.is_none() {
            let mut ends = self.ends(to, by, &|| false)?;
            *half = ends.sender.take();
        }
        let rank = self.group.ranks()[to];
        let Some(link) = half else { return Err(self.vigil.explain(operation, &[rank], started, "its link failed before")) };
        let frame = OutFrame { sequence: tag, payload: &[bytes], ..OutFrame::new(Kind::DATA) };
        link.send(&frame, by).map_err(|error| self.vigil.link_failed(operation, rank, started, &error))
    }

    /// The ends of the link with `position`, which is made if need be, unless that is in `vain`.
    fn ends(&self, position: usize, by: Deadline, vain: &dyn Fn() -> bool) -> Result<MutexGuard<'_, Ends>, Error> {
        let mut ends = self.peers[position].link.lock().unwrap_or_else(PoisonError::into_inner);
        if !ends.opened {
            let (sender, receiver) = self.vigil.link_unless(self.group.ranks()[position], self.lane, by, vain)?.split();
            *ends = Ends { opened: true, sender: Some(sender), receiver: Some(receiver) };
        }
        Ok(ends)
    }
}

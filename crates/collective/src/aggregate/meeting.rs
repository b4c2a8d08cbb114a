//! Meetings of a neighbourhood: everybody leaves something in a box, and nobody reads before all have.
//!
//! The README beside this file tells why two boxes each are enough.

use std::sync::Arc;
use std::time::{Duration, Instant};

use syncline_cluster::{Deadline, Error, Job, Vigil};
use syncline_shm::outbox::{Outbox, Post};
use syncline_shm::wait::{WaitError, wait_for};

use super::head::Head;

/// The most that one box holds.
pub(super) const CHUNK: usize = 1 << 20;
/// Boxes are claimed under keys that no table has.
const KEY: u64 = u64::MAX - 1;

/// Which meeting: its number decides the box and the number of the entry there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meeting(u64);

impl Meeting {
    fn side(self) -> usize {
        (self.0 % 2) as usize
    }

    fn sequence(self) -> u64 {
        self.0 / 2 + 1
    }
}

/// This worker's own boxes.
pub(super) struct Desk {
    posts: [Post; 2],
    held: u64,
}

impl Desk {
    /// Claims the boxes of `worker`, this process.
    pub(super) fn claim(job: &Job, worker: u32) -> Result<Desk, Error> {
        let claim = |side: u64| match job.heap().claim([KEY, u64::from(worker) * 2 + side], Outbox::bytes(CHUNK)) {
            Ok(segment) => Ok(Arc::new(Outbox::new(segment)).post()),
            Err(error) => Err(Error::System { operation: "aggregate: memory for the exchange".into(), detail: error.to_string() }),
        };
        Ok(Desk { posts: [claim(0)?, claim(1)?], held: 0 })
    }

    /// Writes `len` bytes for the next meeting and makes them known to the neighbours.
    pub(super) fn publish(
        &mut self,
        words: Head,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), Error>,
        neighbours: &Neighbours,
    ) -> Result<Meeting, Error> {
        let meeting = Meeting(self.held);
        let (post, sequence) = (&mut self.posts[meeting.side()], meeting.sequence());
        // Everything earlier in this box has been read by all: see the README.
        let room = post
            .room(sequence, sequence - 1, None, len, 0)
            .map_err(|full| Error::System { operation: "aggregate".into(), detail: format!("no room for {len} bytes ({full:?})") })?;
        fill(room.delta)?;
        let end = room.end;
        post.stage(sequence, words.0, end);
        post.publish(sequence);
        self.held += 1;
        neighbours.ring();
        Ok(meeting)
    }
}

/// A worker of this neighbourhood.
pub(super) struct Neighbour {
    pub(super) worker: u32,
    pub(super) rank: u32,
    /// None when it died before it ever came, and the others go on.
    boxes: Option<[Arc<Outbox>; 2]>,
}

impl Neighbour {
    fn came(&self, meeting: Meeting) -> bool {
        self.boxes.as_ref().is_some_and(|boxes| boxes[meeting.side()].published() >= meeting.sequence())
    }

    /// What it left for a meeting to which it came.
    pub(super) fn left(&self, meeting: Meeting) -> Result<(Head, &[u8]), Error> {
        let found = self.boxes.as_ref().map(|boxes| &boxes[meeting.side()]);
        let found = found.and_then(|side| side.entry(meeting.sequence()).map(|entry| (Head(entry.options), side.delta(entry.delta))));
        found.ok_or_else(|| Error::System {
            operation: "aggregate".into(),
            detail: format!(
                "what rank {} left in shared memory makes no sense\nhint: do all processes run the same version of Syncline?",
                self.rank
            ),
        })
    }
}

/// All workers of this neighbourhood, this one among them, in order of worker.
pub(super) struct Neighbours {
    pub(super) all: Vec<Neighbour>,
    pub(super) vigil: Vigil,
}

impl Neighbours {
    /// Finds the boxes of `workers` (worker and rank), waiting for those who have not claimed theirs yet.
    pub(super) fn find(job: &Job, workers: &[(u32, u32)], by: Deadline) -> Result<Neighbours, Error> {
        let vigil = job.vigil();
        let all = workers.iter().map(|&(worker, rank)| Ok(Neighbour { worker, rank, boxes: find_boxes(job, &vigil, worker, rank, by)? }));
        Ok(Neighbours { all: all.collect::<Result<_, Error>>()?, vigil })
    }

    /// Waits until everybody came to the meeting, and returns who did: all, but for those whose death the job survives.
    pub(super) fn wait(&self, call: Head, meeting: Meeting, by: Deadline) -> Result<Vec<&Neighbour>, Error> {
        let vigil = &self.vigil;
        // What a dead worker published last is final, so all survivors come to the same answer.
        let left_out = |neighbour: &Neighbour| vigil.goes_on() && vigil.has_ended(neighbour.rank);
        let expected = |neighbour: &&Neighbour| !neighbour.came(meeting) && !left_out(neighbour);
        let started = Instant::now();
        let bell = vigil.my_bell();
        while self.all.iter().any(|neighbour| expected(&neighbour)) {
            let missing = || self.all.iter().filter(expected).map(|neighbour| neighbour.rank).collect::<Vec<_>>();
            let has_left = || !vigil.goes_on() && missing().into_iter().any(|rank| vigil.has_left(rank));
            if vigil.hopeless() || has_left() {
                let missing = missing();
                if missing.is_empty() {
                    break; // It came in the last moment.
                }
                return Err(vigil.explain(&call.to_string(), &missing, started, "it did not come"));
            }
            let deaths = vigil.deaths();
            let poll = || (!self.all.iter().any(|neighbour| expected(&neighbour))).then_some(());
            let still_there = || vigil.deaths() == deaths && !vigil.hopeless() && !has_left();
            match wait_for(poll, &bell, vigil.patience(), by, &still_there) {
                Ok(()) | Err(WaitError::Gone) => {}
                Err(WaitError::Timeout) => return Err(vigil.late(&call.to_string(), &missing(), started, " to call aggregate too")),
                Err(WaitError::Interrupted) => return Err(Error::Interrupted { operation: call.to_string(), waited: started.elapsed() }),
            }
        }
        Ok(self.all.iter().filter(|neighbour| neighbour.came(meeting)).collect())
    }

    /// Wakes those who sleep until somebody comes.
    fn ring(&self) {
        for neighbour in &self.all {
            if let Some(bell) = self.vigil.bell(neighbour.rank).filter(|_| neighbour.rank != self.vigil.me()) {
                bell.ring_if_waiting();
            }
        }
    }
}

fn find_boxes(job: &Job, vigil: &Vigil, worker: u32, rank: u32, by: Deadline) -> Result<Option<[Arc<Outbox>; 2]>, Error> {
    loop {
        let side = |side: u64| {
            let key = [KEY, u64::from(worker) * 2 + side];
            job.claimed_by(rank, key, Outbox::bytes(CHUNK), "aggregate", by).map(|segment| Arc::new(Outbox::new(segment)))
        };
        let ended = vigil.has_ended(rank);
        match side(0).and_then(|first| Ok([first, side(1)?])) {
            Ok(boxes) => return Ok(Some(boxes)),
            // It ended before the search, so it never will have any.
            Err(_) if vigil.goes_on() && ended => return Ok(None),
            // Its end is known and not yet certain: that takes a moment.
            Err(_) if vigil.goes_on() && vigil.is_over(rank) && !by.expired() && !by.interrupted() => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) => return Err(error),
        }
    }
}

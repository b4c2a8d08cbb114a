//! Meetings of a group whose members share memory: everybody lays something on its desk, and nobody reads before all have come.

use std::sync::Arc;

use syncline_cluster::{Deadline, Error, Group, Job, Vigil};
use syncline_shm::Shared;
use syncline_shm::array::{Common, Whereabout};
use syncline_shm::bell::Bell;
use syncline_shm::desk::{Desk, OwnDesk, WORDS};
use syncline_shm::heap::Heap;
use syncline_shm::wait::{WaitError, wait_for};
use syncline_wire::Fingerprint;

use super::head::Head;
use super::reducing::{PIECE, part};
use crate::call::{Call, Failure};
use crate::setback::Setback;

/// What a member may bring to one meeting.
pub(super) const CHUNK: usize = 512 << 10;
/// Room of a side: what is brought, and behind it an answer.
pub(super) const ROOM: usize = 2 * CHUNK;
/// The most of a call's words that is told to the others when calls differ.
const MOST_WORDS: usize = 4 << 10;

/// The desks of a group, this rank's among them.
pub(crate) struct Memory {
    pub(super) own: OwnDesk,
    pub(super) members: Vec<Member>,
    pub(super) me: usize,
    /// The last meeting this rank came to.
    held: u64,
    pub(super) vigil: Vigil,
    bell: Shared<Bell>,
    pub(super) heap: Arc<Heap>,
    /// Where this rank combines its part of a piece, which nobody else reads.
    pub(super) combined: Vec<u8>,
    /// Arrays in shared memory that members brought before, by member, the last one first.
    pub(super) commons: Vec<Vec<(Whereabout, Common)>>,
}

/// A member of the group.
pub(super) struct Member {
    pub(super) rank: u32,
    pub(super) desk: Arc<Desk>,
    bell: Option<Shared<Bell>>,
}

impl Memory {
    /// Claims this rank's desk and finds those of the others, waiting for those who have none yet.
    pub(crate) fn open(job: &Job, group: &Group, by: Deadline) -> Result<Memory, Error> {
        let (vigil, me) = (job.vigil(), group.position());
        let name = Fingerprint::of("desks").numbers("ranks", group.ranks().iter().map(|rank| u64::from(*rank))).finish();
        let name = u64::from_le_bytes(*name.0.first_chunk().expect("sixteen bytes"));
        let refused = |error: syncline_shm::segment::SegmentError| Error::System {
            operation: "collective: memory for the exchange".into(),
            detail: error.to_string(),
        };
        // A second attempt, after one in which somebody did not come in time, finds the desk that the first one claimed.
        let key = |position: usize| [name, position as u64];
        let own = match job.heap().find(key(me)) {
            Some(found) => found.map_err(refused)?,
            None => {
                let segment = job.heap().claim(key(me), Desk::bytes(ROOM)).map_err(refused)?;
                segment.reserve(0, segment.len()).map_err(refused)?;
                segment
            }
        };
        let own = OwnDesk::new(Arc::new(Desk::new(own)));
        let member = |(position, rank): (usize, &u32)| {
            let desk = match position == me {
                true => Arc::clone(own.desk()),
                false => Arc::new(Desk::new(job.claimed_by(*rank, key(position), Desk::bytes(ROOM), "the first call of a group", by)?)),
            };
            Ok(Member { rank: *rank, desk, bell: vigil.bell(*rank).filter(|_| position != me) })
        };
        let members = group.ranks().iter().enumerate().map(member).collect::<Result<Vec<Member>, Error>>()?;
        // Whoever takes up the desk again, as all do then, goes on from the last meeting.
        let held = own.desk().last();
        let commons = members.iter().map(|_| Vec::new()).collect();
        let combined = vec![0; part(PIECE, members.len(), 0).len()];
        Ok(Memory { bell: vigil.my_bell(), own, members, me, held, vigil, heap: Arc::clone(job.heap()), combined, commons })
    }

    /// The number of the next meeting.
    #[inline]
    pub(super) fn next(&self) -> u64 {
        self.held + 1
    }

    /// The last meeting this rank came to.
    #[inline]
    pub(super) fn held(&self) -> u64 {
        self.held
    }

    /// Comes to the next meeting with `head`; what goes with it lies on the desk already.
    #[inline]
    pub(super) fn come_with(&mut self, head: &Head) -> u64 {
        self.own.lay(self.held + 1, &head.0);
        self.come()
    }

    /// Comes to the next meeting.
    #[inline]
    pub(super) fn come(&mut self) -> u64 {
        self.held += 1;
        self.own.come(self.held);
        // Only the last to come lets anyone go: of several at once, at least one sees all the others (`come` fences).
        if self.first_missing(self.held, 0).is_none() {
            for bell in self.members.iter().filter_map(|member| member.bell.as_ref()) {
                bell.ring_if_waiting_for_published();
            }
        }
        self.held
    }

    /// The first member from `from` on that has not come to `meeting`.
    #[inline]
    pub(super) fn first_missing(&self, meeting: u64, from: usize) -> Option<usize> {
        (from..self.members.len()).find(|index| !self.members[*index].desk.has_come(meeting))
    }

    /// Waits until all have come to the last meeting that this rank came to.
    #[inline]
    pub(super) fn wait(&self, call: &Call<'_>) -> Result<(), Failure> {
        let hope = || !self.vigil.hopeless() && !self.missing(self.held).any(|rank| self.vigil.is_over(rank));
        self.until_all_come(self.held, call.by, &hope).map_err(|error| self.nobody_came(error, self.held, call))
    }

    /// Waits until all have come to `meeting`, while there is `hope`.
    #[inline]
    pub(super) fn until_all_come(&self, meeting: u64, by: Deadline, hope: &dyn Fn() -> bool) -> Result<(), WaitError> {
        let mut next = 0;
        let poll = || match self.first_missing(meeting, next) {
            None => Some(()),
            Some(missing) => {
                next = missing;
                None
            }
        };
        wait_for(poll, &self.bell, self.vigil.patience(), by, hope)
    }

    pub(super) fn missing(&self, meeting: u64) -> impl Iterator<Item = u32> {
        self.members.iter().filter(move |member| !member.desk.has_come(meeting)).map(|member| member.rank)
    }

    #[cold]
    pub(super) fn nobody_came(&self, error: WaitError, meeting: u64, call: &Call<'_>) -> Failure {
        let (vigil, missing): (_, Vec<u32>) = (&self.vigil, self.missing(meeting).collect());
        Failure::Astray(match error {
            WaitError::Gone => vigil.explain(&call.operation(), &missing, call.started, "it did not come"),
            WaitError::Timeout => vigil.late(&call.operation(), &missing, call.started, &format!(" to call {} too", call.what.name())),
            WaitError::Interrupted => Error::Interrupted { operation: call.operation(), waited: call.started.elapsed() },
        })
    }

    /// The words that a member brought to `meeting`.
    #[inline]
    pub(super) fn head_of(&self, member: usize, meeting: u64) -> Head {
        let words: [u64; WORDS] = self.members[member].desk.words(meeting);
        Head(words)
    }

    /// Waits for all, and fails on all alike if they were not called for the same. Returns how many contribute.
    #[inline]
    pub(super) fn wait_and_agree(&mut self, mine: &Head, call: &Call<'_>) -> Result<u32, Failure> {
        self.wait(call)?;
        let (mut contributors, mut alike) = (0, true);
        for index in 0..self.members.len() {
            let head = if index == self.me { *mine } else { self.head_of(index, self.held) };
            contributors += u32::from(head.contributes());
            alike &= head.agrees(mine);
        }
        if alike { Ok(contributors) } else { Err(self.mismatch(call)) }
    }

    /// Comes to the next meeting to say that this rank's call failed elsewhere, and waits for nobody: it is out of step.
    pub(crate) fn tell(&mut self, setback: &Setback) {
        if self.first_missing(self.held, 0).is_some() {
            return; // it failed here, where the others see as much
        }
        let words = setback.encode();
        let next = self.next();
        super::copy(self.own.room_for(next, 0..words.len()), &words);
        self.come_with(&Head::failed(words.len()));
    }

    /// All saw that the calls differ, so all come here: they hold one more meeting, to which each brings its call in words.
    /// A member that failed brings its reason along, and comes to no other meeting.
    #[cold]
    fn mismatch(&mut self, call: &Call<'_>) -> Failure {
        let met = self.held;
        let heads: Vec<Head> = (0..self.members.len()).map(|index| self.head_of(index, met)).collect();
        if let Some(failed) = heads.iter().position(Head::is_failed) {
            let len = (heads[failed].length() as usize).min(CHUNK);
            let setback = Setback::decode(self.members[failed].desk.read(met, 0..len), self.members[failed].rank);
            return Failure::Astray(setback.into_error(&self.vigil, call));
        }
        let other = heads.iter().position(|head| !head.agrees(&heads[0])).unwrap_or_default();
        let mut words = call.words();
        words.truncate((0..=MOST_WORDS.min(words.len())).rev().find(|end| words.is_char_boundary(*end)).unwrap_or_default());
        let next = self.next();
        super::copy(self.own.room_for(next, 0..words.len()), words.as_bytes());
        self.come_with(&Head::BLANK.with_length(words.len()));
        if let Err(failure) = self.wait(call) {
            return failure;
        }
        let told = |index: usize| {
            let member = &self.members[index];
            let len = (self.head_of(index, next).length() as usize).min(MOST_WORDS);
            (member.rank, String::from_utf8_lossy(member.desk.read(next, 0..len)).into_owned())
        };
        let ((first, one), (other, two)) = (told(0), told(other));
        Failure::Agreed(Call::mismatch((first, &one), (other, &two)))
    }
}

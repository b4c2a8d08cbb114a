//! What a family of processes owns together: its members, its objects, and blocks for what is large.
//!
//! ```text
//!   [ header ][ members ][ directory ][ a page per object ][ books of blocks ] … [ rooms of objects ] … [ blocks ]
//! ```
//! One sparse range of a heap, mapped once by each member; only what is used costs memory. All words are zero at first, so
//! there is no moment at which half an estate exists. See the README of `syncline-ipc` for what happens to each word
//! if its writer dies.

mod barrier;
mod blocks;
mod deposit;
mod layout;
mod members;
mod mutex;
mod objects;
mod table;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

pub use barrier::{BarrierError, MOST_AT_BARRIER};
pub use blocks::Block;
use blocks::Blocks;
pub use deposit::Deposit;
use layout::{Layout, MOST_MEMBERS, SIZES};
use members::{MemberWords, Members};
pub use mutex::SharedMutex;
pub use objects::{Held, MOST_NAME};
pub use table::{Entry, NewEntry, TableStore};

use crate::fork::ForkGuard;
use crate::heap::Heap;
use crate::latch::Latch;
use crate::placed::{Line, Placed, Shared};
use crate::queue::{Hand, Queue, QueueError};
use crate::segment::{Segment, SegmentError};
use crate::sync::{AtomicU64, Ordering};
use crate::wait::{Deadline, WaitError};

const MAGIC: u64 = u64::from_le_bytes(*b"SLN-estt");

/// The key of the estate in its heap.
const KEY: [u64; 2] = [MAGIC, 1];

/// An object that holds one queue.
pub const KIND_CHANNEL: u8 = 1;
/// An object that holds two queues: leased questions and their answers.
pub const KIND_WORKQUEUE: u8 = 2;
/// A mutex with a barrier.
pub const KIND_MUTEX: u8 = 3;
/// A table.
pub const KIND_TABLE: u8 = 4;
/// A value that was laid out once.
pub const KIND_DEPOSIT: u8 = 5;

#[repr(C)]
#[derive(Default)]
struct Header {
    magic: Line<AtomicU64>,
    /// The family's name, which nobody else has.
    id: Line<AtomicU64>,
    /// Guards the directory of objects.
    directory: Line<Latch>,
    /// Held by whoever buries the dead.
    burial: Line<Latch>,
    /// Directory entries that were ever used.
    objects: Line<AtomicU64>,
    /// Members that were buried so far.
    deaths: Line<AtomicU64>,
}

// SAFETY: `repr(C)`, atomics and padding only, no drop glue, zero is the initial state.
unsafe impl Placed for Header {}

/// Why an estate could not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EstateError {
    /// No memory, or a foreign descriptor.
    #[error(transparent)]
    Memory(#[from] SegmentError),
    /// A wait for a latch was in vain.
    #[error("waited for another member of the family (pid {pid:?}) that holds a latch: {cause}")]
    Wait {
        /// Its process, if it is known.
        pid: Option<u32>,
        /// Why the wait ended.
        cause: WaitError,
    },
    /// A queue of it could not be used.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// All slots of members are taken.
    #[error("the family has {MOST_MEMBERS} members already")]
    TooManyMembers,
    /// All slots of objects are taken.
    #[error("the family has {most} objects already; drop handles that are not needed any more")]
    TooManyObjects {
        /// How many there are.
        most: usize,
    },
    /// A handle leads nowhere (any more).
    #[error("the object {number:x} does not exist (any more)")]
    NoObject {
        /// Its number.
        number: u64,
    },
    /// A name that is no name.
    #[error("a name has 1 to {MOST_NAME} bytes, not {len}")]
    Name {
        /// Its length.
        len: usize,
    },
}

/// The estate of a family, as one member sees it.
pub struct Estate {
    segment: Arc<Segment>,
    layout: Layout,
    header: Shared<Header>,
    members: Arc<Members>,
    is_dead: Box<dyn Fn(u32) -> bool + Send + Sync>,
    blocks: Blocks,
    heap: Arc<Heap>,
    me: u32,
    fork: ForkGuard,
    held: Mutex<HashMap<u64, Weak<Held>>>,
    /// Objects that arrive with records which threads of this process are just taking, and how many of those.
    claimed: Mutex<HashMap<u64, u32>>,
    /// When this process last looked who has died, in milliseconds since it joined.
    looked: AtomicU64,
    joined: Instant,
}

impl Estate {
    /// Joins the estate in `heap`, or makes it; `id` names a new one.
    pub fn open(heap: Arc<Heap>, id: u64) -> Result<Arc<Estate>, EstateError> {
        let segment = Self::segment(&heap)?;
        let layout = Layout::new(segment.len());
        // Words that everybody uses from the first moment on have their pages.
        segment.reserve(0, layout.pages())?;
        let header: Shared<Header> = segment.place(0);
        let _ = header.id.compare_exchange(0, id.max(1), Ordering::AcqRel, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
        let slots = (0..MOST_MEMBERS).map(|slot| segment.place(layout.members() + slot * size_of::<MemberWords>()));
        let members = Arc::new(Members::new(slots.collect()));
        let me = members.join().ok_or(EstateError::TooManyMembers)?;
        let watched = Arc::clone(&members);
        let fork =
            ForkGuard::new().map_err(|source| SegmentError::Memory { what: "guard", name: "a family".into(), asked: 4096, source })?;
        Ok(Arc::new(Estate {
            layout,
            header,
            is_dead: Box::new(move |member| watched.is_dead(member)),
            members,
            blocks: Blocks::new(&segment, layout),
            segment,
            heap,
            me,
            fork,
            held: Mutex::default(),
            claimed: Mutex::default(),
            looked: AtomicU64::new(0),
            joined: Instant::now(),
        }))
    }

    fn segment(heap: &Heap) -> Result<Arc<Segment>, SegmentError> {
        let mut last = None;
        for len in SIZES.into_iter().filter(|len| *len as u64 <= heap.addresses() / 2) {
            // Somebody may be in the middle of claiming it: that is a matter of microseconds, unless it died there.
            let patience = Instant::now();
            loop {
                match heap.find(KEY) {
                    Some(Ok(found)) if Layout::is_size(found.len()) => return Ok(found),
                    Some(Ok(found)) => {
                        return Err(SegmentError::NotASegment { why: format!("the family's estate has {} bytes", found.len()) });
                    }
                    Some(Err(error)) => return Err(error),
                    None => {}
                }
                match heap.claim(KEY, len) {
                    Ok(claimed) => return Ok(claimed),
                    Err(SegmentError::AlreadyThere { .. }) if patience.elapsed() < Duration::from_secs(5) => {
                        std::thread::sleep(Duration::from_micros(100));
                    }
                    Err(error) => {
                        last = Some(error);
                        break;
                    }
                }
            }
        }
        Err(last.unwrap_or_else(|| SegmentError::Full { name: "a family".into(), asked: SIZES[SIZES.len() - 1], of: heap.addresses() }))
    }

    /// The family's name.
    pub fn id(&self) -> u64 {
        self.header.id.load(Ordering::Acquire)
    }

    /// This process's number in the family.
    pub fn me(&self) -> u32 {
        self.me
    }

    /// The heap that it lies in.
    pub fn heap(&self) -> &Arc<Heap> {
        &self.heap
    }

    /// Whether this is the process that joined, and not a forked child of it.
    pub fn is_original(&self) -> bool {
        self.fork.is_original()
    }

    /// The process of a member; none when it is no member (any more).
    pub fn pid_of(&self, member: u32) -> Option<u32> {
        self.members.pid(member)
    }

    /// Everybody who joined and was not buried yet.
    pub fn members(&self) -> Vec<u32> {
        self.members.all()
    }

    /// How many members were buried so far, by whomever.
    pub fn deaths(&self) -> u64 {
        self.header.deaths.load(Ordering::Relaxed)
    }

    /// Whether a member's process has ended.
    pub fn is_dead(&self, member: u32) -> bool {
        self.members.is_dead(member)
    }

    /// The caller as queues and latches want to know it.
    pub fn hand_by(&self, by: Deadline) -> Hand<'_> {
        Hand { me: self.me, is_dead: &*self.is_dead, by }
    }

    pub(crate) fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    /// The largest block there can be.
    pub fn largest_block(&self) -> usize {
        self.blocks.largest()
    }

    /// Blocks in use.
    pub fn blocks_in_use(&self) -> usize {
        self.blocks.in_use()
    }

    fn too_large(&self, len: usize) -> SegmentError {
        SegmentError::Full { name: "blocks of a family".to_owned(), asked: len, of: self.largest_block() as u64 }
    }

    /// Claims a block of `len` bytes.
    pub fn block(self: &Arc<Self>, len: usize) -> Result<Block, SegmentError> {
        let id = self.blocks.claim(len, self.me)?;
        Ok(Block::new(self, id, len).expect("a block that was just claimed"))
    }

    /// Says that this process is going to own the block that a record speaks of.
    pub fn adopt(&self, block: u64) -> bool {
        self.blocks.adopt(block, self.me)
    }

    /// The block that a record speaks of, after it was taken.
    pub fn received(self: &Arc<Self>, block: u64, len: u64) -> Option<Block> {
        Block::new(self, block, usize::try_from(len).ok()?)
    }

    /// Makes an object with one queue.
    pub fn make_channel(self: &Arc<Self>, capacity: usize, leased: bool, thread: u64) -> Result<Arc<Held>, EstateError> {
        let fill = |estate: &Arc<Estate>, slot: usize| Ok(estate.queue_of(slot, 0, 1).create(capacity, leased)?);
        Ok(self.make(KIND_CHANNEL, None, thread, &fill)?.0)
    }

    /// Makes an object with two queues, leased questions and answers, or finds the one of that name; true when it was made.
    pub fn make_workqueue(self: &Arc<Self>, name: Option<&str>, thread: u64) -> Result<(Arc<Held>, bool), EstateError> {
        let fill = |estate: &Arc<Estate>, slot: usize| {
            estate.queue_of(slot, 0, 2).create(0, true)?;
            Ok(estate.queue_of(slot, 1, 2).create(0, false)?)
        };
        self.make(KIND_WORKQUEUE, name, thread, &fill)
    }

    fn hold_directory(&self) -> Result<(), EstateError> {
        match self.header.directory.take(self.me, patient(), &*self.is_dead) {
            Ok(_) => Ok(()),
            Err(cause) => Err(EstateError::Wait { pid: self.pid_of(self.header.directory.holder()), cause }),
        }
    }

    /// Looks who has died, not more often than every 50 ms, and puts their affairs in order. For whoever waits.
    pub fn look_around(self: &Arc<Self>) {
        let now = self.joined.elapsed().as_millis() as u64;
        let before = self.looked.load(Ordering::Relaxed);
        if now.saturating_sub(before) < 50 && before != 0 {
            return;
        }
        self.looked.store(now.max(1), Ordering::Relaxed);
        if self.bury_all(false).contains(&Burial::Hindered) {
            // It took seconds to find that out, and it will not be over at once.
            self.looked.store(now + 5_000, Ordering::Relaxed);
        }
    }

    /// Puts the affairs of all members that have died in order; returns how many there were.
    pub fn bury_the_dead(self: &Arc<Self>) -> usize {
        self.bury_all(true).into_iter().filter(|burial| *burial == Burial::Done).count()
    }

    fn bury_all(self: &Arc<Self>, patiently: bool) -> Vec<Burial> {
        let dead: Vec<u32> = self.members.all().into_iter().filter(|member| self.members.is_dead(*member)).collect();
        dead.into_iter().map(|member| self.bury(member, patiently)).collect()
    }

    /// One burial at a time; whoever comes second finds the work done, and leaves it to the first one if it has no patience.
    fn bury(self: &Arc<Self>, dead: u32, patiently: bool) -> Burial {
        let burial = &self.header.burial;
        let mine = match burial.try_take(self.me) {
            Ok(()) => true,
            Err(holder) if !patiently => self.is_dead(holder) && burial.inherit(holder, self.me),
            Err(_) => burial.take(self.me, Deadline::after(Duration::ZERO), &*self.is_dead).is_ok(),
        };
        if !mine {
            return Burial::Others;
        }
        let buried = match self.members.pid(dead) {
            None => Burial::Others,
            Some(_) => self.settle_affairs(dead),
        };
        if buried == Burial::Done {
            self.members.free(dead);
            self.header.deaths.fetch_add(1, Ordering::Relaxed);
        }
        self.header.burial.let_go_quietly();
        buried
    }

    /// Leases go back, objects and blocks that it alone held are freed. Whoever is hindered leaves the rest, and the dead one its seat, to the
    /// next look: each step can be done again.
    fn settle_affairs(self: &Arc<Self>, member: u32) -> Burial {
        if self.hold_directory().is_err() {
            return Burial::Hindered;
        }
        let mut buried = self.bury_holder(member);
        let mut spoken_of = None;
        if buried == Burial::Done {
            self.end_orphans();
            match self.blocks_spoken_of() {
                Ok(blocks) => spoken_of = blocks,
                Err(_) => buried = Burial::Hindered,
            }
        }
        self.header.directory.let_go_quietly();
        if buried == Burial::Done {
            // Where records make no sense, any block may be one that is still to be read.
            self.blocks.bury(member, self.me, &|block| spoken_of.as_ref().is_none_or(|blocks| blocks.contains(&block)));
        }
        buried
    }

    /// Leaves the family. Objects and blocks of this process that are still in use elsewhere in it stay until the process
    /// ends; so this is for those who hold none any more.
    fn leave(&self) {
        self.members.free(self.me);
    }
}

impl Drop for Estate {
    fn drop(&mut self) {
        // Every block and every held object keeps the estate alive, so nothing is left but the seat.
        if self.is_original() {
            self.leave();
        }
    }
}

/// What became of somebody's affairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Burial {
    /// They are in order.
    Done,
    /// Somebody else is at it, or has done it.
    Others,
    /// Somebody who lives and does not move holds what is needed for it.
    Hindered,
}

/// How many queues an object of a kind has.
fn queues_of(kind: u8) -> usize {
    match kind {
        KIND_CHANNEL => 1,
        KIND_WORKQUEUE => 2,
        _ => 0,
    }
}

/// The objects that one without queues names, when it ends.
type Names = fn(&Arc<Estate>, usize) -> Vec<u64>;

fn names_of(kind: u8) -> Option<Names> {
    match kind {
        KIND_TABLE => Some(table::named_by),
        KIND_DEPOSIT => Some(deposit::named_by),
        _ => None,
    }
}

/// What is called once for the names of an object without queues that ends.
fn emptied(kind: u8) -> Option<Names> {
    if kind == KIND_DEPOSIT { Some(deposit::empty) } else { names_of(kind) }
}

/// Gives back what a dead member had leased. Words that make no sense are nobody's to repair, but whoever does not move is in the way.
fn settle(queues: Vec<Queue>, dead: u32, hand: Hand<'_>) -> Burial {
    let mut queues = queues.into_iter();
    let (first, second) = (queues.next(), queues.next());
    let Some(questions) = first.map(Arc::new) else { return Burial::Done };
    let mut settled = Ok(());
    if let Some(answers) = second {
        let answers = answers.answering(Arc::clone(&questions));
        settled = answers.settle_the_dead(hand);
        answers.forget_dead_sleepers();
    }
    // A question whose answer was published must not go back before it is finished.
    if questions.is_leased() && !matches!(settled, Err(QueueError::Wait(_))) {
        settled = questions.recover(dead, hand).map(drop);
    }
    questions.forget_dead_sleepers();
    if matches!(settled, Err(QueueError::Wait(_))) { Burial::Hindered } else { Burial::Done }
}

/// For waits of microseconds: longer means that a holder was stopped, and then an error is better than silence.
fn patient() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

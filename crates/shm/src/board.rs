//! What the ranks of one host know of each other, in one small segment.
//!
//! ```text
//!   line 0     magic · layout version · ranks · job id          written once by the creator
//!   line 1     release                                          written by the host's leader
//!   rank i     line 0  meeting counter                          written by rank i
//!              line 1  bell · what it sleeps for                rung by anyone · by rank i
//!              line 2  state · pid · rank · blame · waits for   by rank i
//!              line 3  heartbeat                                by rank i
//!              line 4  doing: version · op · sequence · since   by rank i
//! ```
//! Behind them lies the host's [`heap`](crate::heap), so that one descriptor carries both; only the lines are mapped here.
//!
//! A line is 128 bytes, so one rank's writing never disturbs the reading of another's words.
//! Whatever a rank wrote outlives it; whether it lives is asked of the kernel, not of the board.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::bell::Bell;
use crate::heap::Heap;
use crate::meeting::{Meeting, Release, Seat};
use crate::placed::{Line, Placed, Shared};
use crate::segment::{RECEIVED, Segment, SegmentError};
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};
use crate::wait::Patience;

const MAGIC: u64 = u64::from_le_bytes(*b"SLN-bord");
const VERSION: u32 = 1;

/// The bit of a blame that says "silent rather than gone".
const SILENT: u32 = 1 << 31;

/// The most ranks one board takes.
pub const MOST_RANKS: usize = 4096;

/// What a rank says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// Nobody has taken this slot yet.
    Empty = 0,
    /// Its process has the board and waits for the others.
    Joining = 1,
    /// It takes part.
    Running = 2,
    /// It has said goodbye.
    Left = 3,
    /// It ended with an error; its blame says whose fault it was.
    Failed = 4,
}

/// What a rank is waiting in, for the error texts of those who wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doing {
    /// Which operation; 0 is none. The codes belong to the layers above.
    pub op: u32,
    /// The operation's sequence number.
    pub sequence: u64,
    /// When it began, in nanoseconds of a clock all processes of the host share.
    pub since_nanos: u64,
}

/// For whom a rank waits, as one word: `rank + 1` in 24 bits, the reason in 16, and 24 bits that change with every wait.
///
/// Two equal words mean one and the same wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting(u64);

impl Waiting {
    const RANK_BITS: u32 = 24;
    const CODE_BITS: u32 = 16;
    const RANK: u64 = (1 << Self::RANK_BITS) - 1;
    const WAIT: u64 = 1 << (Self::RANK_BITS + Self::CODE_BITS);

    /// The rank it waits for, in the whole job.
    pub fn rank(self) -> u32 {
        ((self.0 & Self::RANK) as u32).saturating_sub(1)
    }

    /// In what it waits. The codes belong to the layers above.
    pub fn code(self) -> u16 {
        (self.0 >> Self::RANK_BITS) as u16
    }
}

/// Why a board could not be made or joined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BoardError {
    /// The memory could not be had.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// It is something else, or of another version, or for another number of ranks.
    #[error("the segment is not the board we expect: its {what} is {found:#x}, not {expected:#x}")]
    Foreign {
        /// The field that differs.
        what: &'static str,
        /// Its value.
        found: u64,
        /// What it should be.
        expected: u64,
    },
    /// It belongs to another job.
    #[error("the board belongs to another job")]
    OtherJob,
}

#[repr(C)]
struct Header {
    magic: AtomicU64,
    version: AtomicU32,
    ranks: AtomicU32,
    job: [AtomicU64; 2],
}

// SAFETY: `repr(C)`, atomics only, no drop glue; zero is a header nobody wrote, which is refused.
unsafe impl Placed for Header {}

#[repr(C)]
struct SlotWords {
    seat: Seat,
    standing: Line<Standing>,
    heartbeat: Line<AtomicU64>,
    doing: Line<DoingWords>,
}

// SAFETY: `repr(C)`, atomics and padding only, no drop glue, zero is an empty slot.
unsafe impl Placed for SlotWords {}

#[repr(C)]
struct Standing {
    state: AtomicU32,
    blame: AtomicU32,
    pid: AtomicU32,
    rank: AtomicU32,
    /// See [`Waiting`]; a rank of zero is nobody.
    waiting: AtomicU64,
}

#[repr(C)]
struct DoingWords {
    /// Odd while the rank writes; a reader that sees it change looks again.
    version: AtomicU32,
    op: AtomicU32,
    sequence: AtomicU64,
    since: AtomicU64,
}

const RELEASE_AT: usize = 128;
const SLOTS_AT: usize = 256;

/// The common segment of one host's ranks.
///
/// ```
/// use syncline_shm::board::{Board, State};
///
/// let job = [7; 16];
/// let board = Board::create(2, job)?;
/// let theirs = Board::open(board.fd().try_clone_to_owned()?, 2, job)?; // in another process
///
/// theirs.slot(1).set_state(State::Running);
/// assert_eq!(board.slot(1).state(), State::Running);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Board {
    segment: Arc<Segment>,
    heap: Arc<Heap>,
    slots: Vec<Shared<SlotWords>>,
    release: Shared<Release>,
}

impl Board {
    /// Makes the board for `ranks` local ranks of the job `job`.
    ///
    /// # Panics
    /// When `ranks` is 0 or more than [`MOST_RANKS`].
    pub fn create(ranks: usize, job: [u8; 16]) -> Result<Board, BoardError> {
        const NAME: &str = "syncline-board";
        let len = Self::len_for(ranks);
        let size = Heap::file_size(len as u64, NAME)?;
        let file = Arc::new(Segment::create_file(NAME, size)?);
        let segment = Segment::window(Arc::clone(&file), 0, len, NAME.to_owned())?;
        segment.reserve(0, len)?;
        let heap = Heap::create_in(file, len as u64, size, NAME)?;
        let header: Shared<Header> = segment.place(0);
        for (word, value) in header.job.iter().zip(job_words(job)) {
            word.store(value, Ordering::Relaxed);
        }
        header.ranks.store(ranks as u32, Ordering::Relaxed);
        header.version.store(VERSION, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
        Ok(Self::over(segment, heap, ranks))
    }

    /// Joins the board behind `fd`, which must be that of `job` for `ranks` local ranks.
    ///
    /// # Panics
    /// When `ranks` is 0 or more than [`MOST_RANKS`].
    pub fn open(fd: OwnedFd, ranks: usize, job: [u8; 16]) -> Result<Board, BoardError> {
        let len = Self::len_for(ranks);
        let size = Segment::check_file(&fd, len)?;
        let file = Arc::new(fd);
        let segment = Segment::window(Arc::clone(&file), 0, len, RECEIVED.to_owned())?;
        let header: Shared<Header> = segment.place(0);
        let expect = |what, found: u64, expected: u64| {
            if found == expected {
                return Ok(());
            }
            Err(BoardError::Foreign { what, found, expected })
        };
        expect("magic", header.magic.load(Ordering::Acquire), MAGIC)?;
        let version = header.version.load(Ordering::Relaxed);
        expect("version", version.into(), VERSION.into())?;
        let found = header.ranks.load(Ordering::Relaxed);
        expect("number of ranks", found.into(), ranks as u64)?;
        let found = header.job.each_ref().map(|word| word.load(Ordering::Relaxed));
        if found != job_words(job) {
            return Err(BoardError::OtherJob);
        }
        let heap = Heap::open_in(file, len as u64, size, RECEIVED)?;
        Ok(Self::over(segment, heap, ranks))
    }

    fn len_for(ranks: usize) -> usize {
        assert!((1..=MOST_RANKS).contains(&ranks), "a board for {ranks} ranks");
        SLOTS_AT + ranks * size_of::<SlotWords>()
    }

    fn over(segment: Arc<Segment>, heap: Heap, ranks: usize) -> Board {
        Board {
            heap: Arc::new(heap),
            slots: (0..ranks).map(|rank| segment.place(SLOTS_AT + rank * size_of::<SlotWords>())).collect(),
            release: segment.place(RELEASE_AT),
            segment,
        }
    }

    /// The descriptor to hand to the other ranks of the host.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.segment.fd()
    }

    /// The memory that the ranks of this host claim by name.
    pub fn heap(&self) -> &Arc<Heap> {
        &self.heap
    }

    /// How many local ranks it has.
    pub fn ranks(&self) -> usize {
        self.slots.len()
    }

    /// The slot of the local rank `index`.
    ///
    /// # Panics
    /// When there is no such rank.
    pub fn slot(&self, index: usize) -> Slot<'_> {
        Slot { words: &self.slots[index] }
    }

    /// The part of local rank `me` in the meetings of this host. A process makes it once.
    ///
    /// # Panics
    /// When there is no such rank.
    pub fn meeting(&self, me: usize, patience: Patience) -> Meeting {
        let everybody: Vec<usize> = (0..self.ranks()).collect();
        self.meeting_of(&everybody, me, patience)
    }

    /// The same for the local ranks `members` only, of which this process is the one at `position`. The meeting counts
    /// its members from 0. Each rank takes part in meetings of one list of members.
    ///
    /// # Panics
    /// When there is no such rank or position.
    pub fn meeting_of(&self, members: &[usize], position: usize, patience: Patience) -> Meeting {
        let seats = members.iter().map(|index| self.slots[*index].part(|words| &words.seat));
        Meeting::over(seats.collect(), self.release.clone(), position, patience)
    }
}

fn job_words(job: [u8; 16]) -> [u64; 2] {
    let word = |at: usize| u64::from_le_bytes(job[at..at + 8].try_into().expect("8 bytes"));
    [word(0), word(8)]
}

/// The words of one rank. The setters are for the rank that owns the slot.
#[derive(Clone, Copy)]
pub struct Slot<'a> {
    words: &'a Shared<SlotWords>,
}

impl Slot<'_> {
    /// What the rank says of itself; a word that is no state counts as `Failed`.
    pub fn state(&self) -> State {
        match self.words.standing.state.load(Ordering::Acquire) {
            0 => State::Empty,
            1 => State::Joining,
            2 => State::Running,
            3 => State::Left,
            _ => State::Failed,
        }
    }

    /// Says it. Everything written to the slot before is visible to whoever reads the state.
    pub fn set_state(&self, state: State) {
        self.words.standing.state.store(state as u32, Ordering::Release);
    }

    /// Whom this rank blames for its failure, and whether that one is silent rather than gone.
    pub fn blame(&self) -> Option<(u32, bool)> {
        let word = self.words.standing.blame.load(Ordering::Acquire);
        (word & !SILENT).checked_sub(1).map(|rank| (rank, word & SILENT != 0))
    }

    /// Blames `rank`; the first blame stays, and `false` says that this one came later.
    pub fn blame_once(&self, rank: u32, silent: bool) -> bool {
        let word = (rank.min(SILENT - 2) + 1) | if silent { SILENT } else { 0 };
        self.words.standing.blame.compare_exchange(0, word, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// The rank's process id; 0 before it joined.
    pub fn pid(&self) -> u32 {
        self.words.standing.pid.load(Ordering::Acquire)
    }

    /// Sets the process id.
    pub fn set_pid(&self, pid: u32) {
        self.words.standing.pid.store(pid, Ordering::Release);
    }

    /// The number of this rank in the whole job, which is more than this host.
    pub fn rank(&self) -> u32 {
        self.words.standing.rank.load(Ordering::Acquire)
    }

    /// Sets the number of this rank in the whole job.
    pub fn set_rank(&self, rank: u32) {
        self.words.standing.rank.store(rank, Ordering::Release);
    }

    /// When the rank's watcher last showed that it runs, on a clock all processes of the host share; 0 is never.
    pub fn heartbeat(&self) -> u64 {
        self.words.heartbeat.load(Ordering::Relaxed)
    }

    /// Shows that it runs.
    pub fn beat(&self, now_nanos: u64) {
        self.words.heartbeat.store(now_nanos, Ordering::Relaxed);
    }

    /// For whom the rank waits, if it says so.
    pub fn waiting(&self) -> Option<Waiting> {
        let word = self.words.standing.waiting.load(Ordering::Acquire);
        (word & Waiting::RANK != 0).then_some(Waiting(word))
    }

    /// Says that a wait for `rank` begins. Of several threads that wait at once the last one is shown.
    pub fn begin_waiting(&self, rank: u32, code: u16) -> Waiting {
        let who = u64::from(rank).min(Waiting::RANK - 1) + 1;
        let before = self.words.standing.waiting.load(Ordering::Relaxed);
        let wait = (before & !(Waiting::WAIT - 1)).wrapping_add(Waiting::WAIT);
        let word = wait | u64::from(code) << Waiting::RANK_BITS | who;
        self.words.standing.waiting.store(word, Ordering::Release);
        Waiting(word)
    }

    /// Says that it is over, unless another wait is shown by now.
    pub fn end_waiting(&self, wait: Waiting) {
        let over = wait.0 & !(Waiting::WAIT - 1);
        let _ = self.words.standing.waiting.compare_exchange(wait.0, over, Ordering::Release, Ordering::Relaxed);
    }

    /// The bell this rank sleeps on.
    pub fn bell(&self) -> Shared<Bell> {
        self.words.part(|words| &words.seat.bell.bell)
    }

    /// The round of meetings this rank has arrived at.
    pub fn round(&self) -> u64 {
        self.words.seat.round()
    }

    /// What the rank is doing; `None` when it was changing that, or died while it did.
    pub fn doing(&self) -> Option<Doing> {
        let words = &*self.words.doing;
        for _ in 0..16 {
            // Acquire pairs with the Release store in `set_doing`.
            let before = words.version.load(Ordering::Acquire);
            let doing = Doing {
                op: words.op.load(Ordering::Relaxed),
                sequence: words.sequence.load(Ordering::Relaxed),
                since_nanos: words.since.load(Ordering::Relaxed),
            };
            // Pairs with the Release fence in `set_doing`: if one of the loads above saw a new
            // word, the load below sees the odd version that was stored before it.
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && words.version.load(Ordering::Relaxed) == before {
                return Some(doing);
            }
        }
        None
    }

    /// Says what the rank is doing. Costs five stores to a line nobody else writes.
    #[inline]
    pub fn set_doing(&self, doing: Doing) {
        let words = &*self.words.doing;
        let version = words.version.load(Ordering::Relaxed) | 1;
        words.version.store(version, Ordering::Relaxed);
        fence(Ordering::Release);
        words.op.store(doing.op, Ordering::Relaxed);
        words.sequence.store(doing.sequence, Ordering::Relaxed);
        words.since.store(doing.since_nanos, Ordering::Relaxed);
        words.version.store(version.wrapping_add(1), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_board_of_another_job_size_or_kind_is_refused() {
        let board = Board::create(3, [1; 16]).unwrap();
        let fd = || board.fd().try_clone_to_owned().unwrap();
        assert!(matches!(Board::open(fd(), 3, [2; 16]), Err(BoardError::OtherJob)));
        let error = Board::open(fd(), 2, [1; 16]).err().unwrap();
        assert!(error.to_string().contains("number of ranks is 0x3, not 0x2"));
        let error = Board::open(fd(), 4, [1; 16]).err().unwrap();
        assert!(error.to_string().contains("number of ranks is 0x3, not 0x4"));
        let short = Segment::create("short", 64).unwrap();
        let short = Board::open(short.fd().try_clone_to_owned().unwrap(), 3, [1; 16]);
        assert!(matches!(short, Err(BoardError::Segment(SegmentError::TooShort { .. }))));
        let other = Segment::create("other", 1 << 16).unwrap();
        let error = Board::open(other.fd().try_clone_to_owned().unwrap(), 3, [1; 16]);
        assert!(matches!(error, Err(BoardError::Foreign { what: "magic", .. })));
        assert!(Board::open(fd(), 3, [1; 16]).is_ok());
    }

    #[test]
    fn the_first_blame_stays() {
        let board = Board::create(2, [0; 16]).unwrap();
        let slot = board.slot(1);
        assert_eq!(slot.blame(), None);
        assert!(slot.blame_once(0, true));
        assert!(!slot.blame_once(5, false));
        assert_eq!(slot.blame(), Some((0, true)));
    }

    #[test]
    fn what_a_rank_does_is_read_whole_or_not_at_all() {
        let board = Board::create(1, [0; 16]).unwrap();
        let of = |n: u64| Doing { op: n as u32, sequence: n, since_nanos: n };
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| (0..200_000).for_each(|n| board.slot(0).set_doing(of(n))));
            while !writer.is_finished() {
                if let Some(seen) = board.slot(0).doing() {
                    assert_eq!(seen, of(seen.sequence));
                }
            }
        });
        assert_eq!(board.slot(0).doing(), Some(of(199_999)));
    }

    #[test]
    fn a_meeting_of_some_does_not_wait_for_the_rest() {
        use crate::wait::{Deadline, WaitError};
        let board = Board::create(4, [0; 16]).unwrap();
        let mut parts: Vec<Meeting> = (0..2).map(|position| board.meeting_of(&[1, 3], position, Patience::none())).collect();
        let round = parts[0].arrive();
        assert_eq!(parts[0].missing(round), [1], "positions, not slots");
        let over = Deadline::after(std::time::Duration::ZERO);
        assert_eq!(parts[0].wait(round, over, &|_| false).map_err(|error| error.cause), Err(WaitError::Timeout));
        parts[1].arrive();
        assert_eq!(parts[0].wait(round, over, &|_| false), Ok(()));
        assert_eq!((board.slot(1).round(), board.slot(0).round()), (round, 0));
    }

    #[test]
    fn every_wait_has_a_word_of_its_own_and_ends_only_itself() {
        let board = Board::create(1, [0; 16]).unwrap();
        let slot = board.slot(0);
        assert_eq!(slot.waiting(), None);
        let first = slot.begin_waiting(65_535, 7);
        assert_eq!(slot.waiting().map(|wait| (wait.rank(), wait.code())), Some((65_535, 7)));
        slot.end_waiting(first);
        assert_eq!(slot.waiting(), None);
        let again = slot.begin_waiting(65_535, 7);
        assert_ne!(first, again);
        let other = slot.begin_waiting(0, u16::MAX);
        slot.end_waiting(again);
        assert_eq!(slot.waiting(), Some(other));
        assert_eq!((other.rank(), other.code()), (0, u16::MAX));
        slot.end_waiting(other);
        assert_eq!(slot.waiting(), None);
    }

    #[test]
    fn the_heap_comes_with_the_board() {
        let board = Board::create(2, [0; 16]).unwrap();
        let theirs = Board::open(board.fd().try_clone_to_owned().unwrap(), 2, [0; 16]).unwrap();
        board.heap().claim([1, 0], 1 << 20).unwrap().region(0, 5).copy_in(0, b"bytes");
        let mut seen = [0; 5];
        theirs.heap().find([1, 0]).unwrap().unwrap().region(0, 5).copy_out(0, &mut seen);
        assert_eq!(&seen, b"bytes");
    }

    #[test]
    fn lines_keep_the_ranks_apart() {
        assert_eq!(size_of::<SlotWords>(), 5 * 128);
        assert!(size_of::<Header>() <= RELEASE_AT);
        assert_eq!(RELEASE_AT + size_of::<Release>(), SLOTS_AT);
    }
}

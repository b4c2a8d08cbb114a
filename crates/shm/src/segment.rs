//! Memory without a name: a sealed memfd, mapped by every process that was handed its descriptor.
//!
//! Nothing lies in a file system, so nothing is left behind when every holder is killed. The
//! seals forbid anyone to shrink the file under a mapping (which would turn a load into SIGBUS).
//! Pages are costly when fresh (about 1 GB/s) and free afterwards, so [`Segment::reserve`] takes
//! them ahead and turns "no memory left" into an error instead of a signal.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::process::{Resource, getrlimit};

use crate::mapping::{HUGE, Mapping};
use crate::placed::{Keeper, Placed, Region, Shared};

const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// What a segment is called that another process made.
pub(crate) const RECEIVED: &str = "a received segment";

/// Why a segment could not be made or taken over.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentError {
    /// The kernel refused the memory.
    #[error(
        "cannot {what} {asked} bytes of shared memory for `{name}`; check the memory limit of \
         this container or job (cgroup memory.max, ulimit -f, ulimit -v)"
    )]
    Memory {
        /// What was being done.
        what: &'static str,
        /// The name given to the segment.
        name: String,
        /// How many bytes were asked for.
        asked: usize,
        /// What the kernel said.
        source: io::Error,
    },
    /// The descriptor is not a segment of ours.
    #[error("the descriptor is not a sealed memory segment: {why}")]
    NotASegment {
        /// What was found.
        why: String,
    },
    /// The segment is smaller than its layout.
    #[error("the segment has {found} bytes, its layout needs at least {needed}")]
    TooShort {
        /// Its size.
        found: u64,
        /// What was expected at least.
        needed: usize,
    },
    /// The key of a heap is taken.
    #[error("the key {key:x?} of the shared memory is taken already")]
    AlreadyThere {
        /// Which.
        key: [u64; 2],
    },
    /// A heap has handed out all it has.
    #[error("no room for {asked} bytes more in the shared memory `{name}`, which has {of} in all")]
    Full {
        /// The name given to the heap.
        name: String,
        /// How many bytes were asked for.
        asked: usize,
        /// How many bytes or keys there are.
        of: u64,
    },
}

/// A mapped memfd, or a window of one: offsets count from where the window begins.
///
/// ```
/// use syncline_shm::segment::Segment;
///
/// let segment = Segment::create("example", 4096)?;
/// let same = Segment::open(segment.fd().try_clone_to_owned()?, 4096)?;
/// assert_eq!(same.len(), segment.len());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Segment {
    file: Arc<OwnedFd>,
    /// Where in the file the mapping begins.
    at: u64,
    map: Mapping,
    name: String,
}

impl Segment {
    /// Makes a segment of `len` zero bytes; `name` only shows in `/proc/*/maps`.
    ///
    /// The pages are not taken yet: see [`Segment::reserve`].
    pub fn create(name: &str, len: usize) -> Result<Arc<Segment>, SegmentError> {
        let file = Self::create_file(name, len as u64)?;
        Self::window(Arc::new(file), 0, len, name.to_owned())
    }

    /// Makes a sealed file of `len` zero bytes without mapping it.
    pub(crate) fn create_file(name: &str, len: u64) -> Result<OwnedFd, SegmentError> {
        let refused = |what, source: io::Error| SegmentError::Memory { what, name: name.to_owned(), asked: len as usize, source };
        // A file beyond this limit would not be refused: the kernel sends SIGXFSZ, which kills.
        if getrlimit(Resource::Fsize).current.is_some_and(|limit| len > limit) {
            return Err(refused("size", rustix::io::Errno::FBIG.into()));
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // Kernels before 6.3 do not know NOEXEC_SEAL and answer EINVAL.
        let file = rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL)
            .or_else(|_| rustix::fs::memfd_create(name, flags))
            .map_err(|e| refused("create", e.into()))?;
        rustix::fs::ftruncate(&file, len).map_err(|e| refused("size", e.into()))?;
        rustix::fs::fcntl_add_seals(&file, SEALS | SealFlags::SEAL).map_err(|e| refused("seal", e.into()))?;
        Ok(file)
    }

    /// Maps a segment that another process made, after checking its seals and its size.
    pub fn open(file: OwnedFd, at_least: usize) -> Result<Arc<Segment>, SegmentError> {
        let found = Self::check_file(&file, at_least)?;
        let len = usize::try_from(found).map_err(|_| SegmentError::NotASegment { why: format!("it has {found} bytes") })?;
        Self::window(Arc::new(file), 0, len, RECEIVED.to_owned())
    }

    /// Checks the seals of a file that another process made, and returns its size.
    pub(crate) fn check_file(file: &OwnedFd, at_least: usize) -> Result<u64, SegmentError> {
        let not_ours = |why: String| SegmentError::NotASegment { why };
        let seals = rustix::fs::fcntl_get_seals(file).map_err(|e| not_ours(format!("it has no seals ({e})")))?;
        if !seals.contains(SEALS) {
            return Err(not_ours(format!("its size is not sealed ({seals:?})")));
        }
        if seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE) {
            return Err(not_ours(format!("it is sealed against writing ({seals:?})")));
        }
        let found = rustix::fs::fstat(file).map_err(|e| not_ours(format!("its size cannot be read ({e})")))?.st_size as u64;
        if found < at_least as u64 || found == 0 {
            return Err(SegmentError::TooShort { found, needed: at_least });
        }
        Ok(found)
    }

    /// Maps `len` bytes of a sealed file from the page boundary `at` on; the caller knows that they lie inside of it.
    pub(crate) fn window(file: Arc<OwnedFd>, at: u64, len: usize, name: String) -> Result<Arc<Segment>, SegmentError> {
        match Mapping::new(&*file, at, len) {
            Ok(map) => Ok(Arc::new(Segment { file, at, map, name })),
            Err(source) => Err(SegmentError::Memory { what: "map", name, asked: len, source }),
        }
    }

    /// Takes the pages of `offset..offset + len` now, so that no later store can fail for memory.
    ///
    /// Pages that exist already keep their contents. Where the kernel has huge pages (2 MB), they are used. Costs 0.2 to
    /// 1 ms per MiB of fresh pages. One process does it while the others wait: two would get in each other's way.
    pub fn reserve(&self, offset: usize, len: usize) -> Result<(), SegmentError> {
        assert!(offset <= self.len() && len <= self.len() - offset, "a reservation lies inside its segment");
        if len == 0 {
            return Ok(());
        }
        let take = |from: usize, len: usize| loop {
            match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), self.at + from as u64, len as u64) {
                Err(rustix::io::Errno::INTR) => continue,
                result => return result,
            }
        };
        let huge = self.map.huge_pages(offset, len);
        // One small page lets the kernel make a huge one: that is quicker than 512 small ones, here and at every access.
        if huge.clone().step_by(HUGE).all(|page| take(page, 1).is_ok()) {
            self.map.collapse(huge);
        }
        take(offset, len).map_err(|e| SegmentError::Memory { what: "reserve", name: self.name.clone(), asked: len, source: e.into() })?;
        self.map.populate(offset, len);
        Ok(())
    }

    /// Gives the whole pages of a range back to the kernel: whoever looks at them finds zeros.
    pub(crate) fn give_back(&self, offset: usize, len: usize) {
        assert!(offset <= self.len() && len <= self.len() - offset, "a range of the segment");
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        while rustix::fs::fallocate(&self.file, flags, self.at + offset as u64, len as u64) == Err(rustix::io::Errno::INTR) {}
    }

    /// Maps pages that somebody has reserved here too, so that no later access stops for them.
    pub fn populate(&self, offset: usize, len: usize) {
        self.map.populate(offset, len);
    }

    /// Where in its file it begins.
    pub(crate) fn place_in_file(&self) -> u64 {
        self.at
    }

    /// The descriptor of the whole file, to hand to other processes (see [`crate::fdpass`]).
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Its size in bytes.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether it has no bytes (it always has some).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The control structure at `offset`.
    #[cfg(not(loom))]
    pub(crate) fn place<T: Placed>(self: &Arc<Self>, offset: usize) -> Shared<T> {
        let at = self.address(offset, size_of::<T>()).cast::<T>();
        assert!(at.is_aligned(), "control words are placed aligned");
        // SAFETY: `address` keeps the structure inside the mapping, the line above checks its
        // alignment, the map is writable and lives while this `Arc` does, and `Placed` promises
        // that any bytes are a valid `T`. The layouts of `duplex` and `board` do not overlap.
        unsafe { Shared::from_raw(at, Arc::clone(self) as Keeper) }
    }

    /// The payload bytes `offset..offset + len`.
    #[cfg(not(loom))]
    pub(crate) fn region(self: &Arc<Self>, offset: usize, len: usize) -> Region {
        let at = self.address(offset, len);
        // SAFETY: `address` keeps the bytes inside the mapping, which is writable and lives
        // while this `Arc` does; the crate never makes a reference into a region.
        unsafe { Region::from_raw(at, len, Arc::clone(self) as Keeper) }
    }

    #[cfg(not(loom))]
    pub(crate) fn address(&self, offset: usize, len: usize) -> NonNull<u8> {
        assert!(offset <= self.len() && len <= self.len() - offset, "a layout lies inside its segment");
        // SAFETY: the offset was just checked against the length of the mapping.
        let at = unsafe { self.map.as_ptr().add(offset) };
        NonNull::new(at).expect("a mapping never starts at zero")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_mappings_show_the_same_bytes() {
        let here = Segment::create("test", 10_000).unwrap();
        let there = Segment::open(here.fd().try_clone_to_owned().unwrap(), 10_000).unwrap();
        here.region(5_000, 3).copy_in(0, b"abc");
        let mut seen = [0; 3];
        there.region(5_000, 3).copy_out(0, &mut seen);
        assert_eq!(&seen, b"abc");
    }

    #[test]
    fn an_unsealed_or_short_or_foreign_descriptor_is_refused() {
        let loose = rustix::fs::memfd_create("loose", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&loose, 4096).unwrap();
        let error = Segment::open(loose, 4096).unwrap_err();
        assert!(matches!(error, SegmentError::NotASegment { .. }), "{error}");

        let short = Segment::create("short", 4096).unwrap();
        let error = Segment::open(short.fd().try_clone_to_owned().unwrap(), 4097).unwrap_err();
        assert_eq!(error.to_string(), "the segment has 4096 bytes, its layout needs at least 4097");

        let (pipe, _other) = rustix::pipe::pipe().unwrap();
        let error = Segment::open(pipe, 1).unwrap_err();
        assert!(matches!(error, SegmentError::NotASegment { .. }), "{error}");
    }

    #[test]
    fn nobody_can_shrink_a_segment_under_its_users() {
        let segment = Segment::create("sealed", 8192).unwrap();
        assert!(rustix::fs::ftruncate(segment.fd(), 0).is_err());
        assert!(rustix::fs::ftruncate(segment.fd(), 1 << 20).is_err());
    }

    #[test]
    fn a_size_beyond_all_memory_says_how_much_was_asked() {
        let asked = 1_usize << 62;
        let error = Segment::create("huge", asked).unwrap_err();
        assert!(error.to_string().contains(&asked.to_string()), "{error}");
    }
}

//! Tells a process from its forked children, at the price of one load.
//!
//! A forked child inherits every mapping and descriptor but none of the threads, and its peers
//! know nothing of it: it must not use its parent's links. The kernel clears the page of the
//! guard in each child, so the child sees zero where its parent wrote one.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use memmap2::MmapMut;
use rustix::mm::Advice;

const ORIGINAL: u32 = 1;

/// A page that only the process which made it sees filled.
///
/// ```
/// let guard = syncline_shm::fork::ForkGuard::new()?;
/// assert!(guard.is_original());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct ForkGuard {
    page: MmapMut,
}

impl ForkGuard {
    /// Marks the calling process as the original.
    pub fn new() -> io::Result<ForkGuard> {
        let mut page = MmapMut::map_anon(rustix::param::page_size())?;
        // SAFETY: the range is exactly the page that was just mapped and that nobody else has
        // seen; the advice changes nothing in this process.
        unsafe {
            rustix::mm::madvise(page.as_mut_ptr().cast(), page.len(), Advice::LinuxWipeOnFork)?;
        }
        page[..4].copy_from_slice(&ORIGINAL.to_ne_bytes());
        Ok(ForkGuard { page })
    }

    /// Whether this is the process that made the guard, and not a forked child of it.
    #[inline]
    pub fn is_original(&self) -> bool {
        // SAFETY: the page is mapped while `self` lives, aligned far beyond 4 bytes, and after
        // `new` it is only ever read (the kernel clears it before a child runs). Reading it as
        // an atomic keeps the compiler from assuming what it holds.
        let mark = unsafe { &*self.page.as_ptr().cast::<AtomicU32>() };
        mark.load(Ordering::Relaxed) == ORIGINAL
    }
}

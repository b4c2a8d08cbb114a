//! A window of a file in this process's addresses, placed so that the kernel can back it with huge pages.
//!
//! A table's rows are read at random: with pages of 4 KB most accesses begin with a walk through the page tables (under
//! virtualisation two of them, some 40 ns). Pages of 2 MB need file and address to agree in their low bits, which a
//! mapping at the kernel's choice does by luck only; so a larger stretch of addresses is taken first and the window
//! is put at the right place inside of it.

use std::io;
use std::os::fd::AsFd;
use std::ptr::{NonNull, null_mut};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

/// The size of a huge page.
pub(crate) const HUGE: usize = 2 << 20;

/// Mapped bytes of a file, shared with whoever else maps it.
#[derive(Debug)]
pub(crate) struct Mapping {
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: it only owns the addresses; who may touch the bytes when is the business of whoever uses them.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of `file` from the page boundary `from` on.
    pub(crate) fn new(file: impl AsFd, from: u64, len: usize) -> io::Result<Mapping> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        if len < HUGE {
            // SAFETY: the kernel picks addresses that nothing else uses.
            let at = unsafe { mmap(null_mut(), len, access, MapFlags::SHARED, file, from)? };
            return Ok(Mapping { at: NonNull::new(at.cast()).expect("a mapping never starts at zero"), len });
        }
        let page = rustix::param::page_size();
        let whole = len.checked_next_multiple_of(page).and_then(|len| len.checked_add(HUGE)).ok_or(rustix::io::Errno::NOMEM)?;
        // SAFETY: again the kernel's choice. The pages are neither readable nor writable and cost nothing.
        let room = unsafe { mmap_anonymous(null_mut(), whole, ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE)? };
        let before = (from as usize).wrapping_sub(room.addr()) % HUGE;
        let at = room.wrapping_byte_add(before);
        // SAFETY: all three calls stay inside of the addresses that were just taken and that nobody knows of yet:
        // `before` is less than HUGE, and `whole` is at least that much more than `len`.
        unsafe {
            if let Err(refused) = mmap(at, len, access, MapFlags::SHARED | MapFlags::FIXED, file, from) {
                let _ = munmap(room, whole);
                return Err(refused.into());
            }
            let end = before + len.next_multiple_of(page);
            let _ = if before > 0 { munmap(room, before) } else { Ok(()) };
            let _ = munmap(room.wrapping_byte_add(end), whole - end);
        }
        Ok(Mapping { at: NonNull::new(at.cast()).expect("a mapping never starts at zero"), len })
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.at.as_ptr()
    }

    /// Takes the page faults of a range now. Only saves time, and kernels before 5.14 do not know it.
    pub(crate) fn populate(&self, offset: usize, len: usize) {
        let start = offset / rustix::param::page_size() * rustix::param::page_size();
        assert!(offset <= self.len && len <= self.len - offset, "a range of the mapping");
        // SAFETY: the range lies inside the mapping; populating changes no byte of it.
        let _ = unsafe { madvise(self.at.as_ptr().add(start).cast(), offset + len - start, Advice::LinuxPopulateWrite) };
    }

    /// The huge pages that lie wholly inside a range, as offsets.
    pub(crate) fn huge_pages(&self, offset: usize, len: usize) -> std::ops::Range<usize> {
        let address = self.at.as_ptr().addr();
        let first = (address + offset).next_multiple_of(HUGE) - address;
        let end = ((address + offset + len) / HUGE * HUGE).saturating_sub(address);
        first..end.max(first)
    }

    /// Backs `range`, made of [`huge_pages`](Mapping::huge_pages) each of which has a page already, with huge pages
    /// as far as the kernel will: before 6.1 it does not know how, and it may have none left.
    pub(crate) fn collapse(&self, range: std::ops::Range<usize>) {
        if !range.is_empty() {
            assert!(range.end <= self.len, "a range of the mapping");
            // SAFETY: the range lies inside the mapping; which pages are behind it changes no byte of it. rustix has no
            // name for this advice.
            unsafe { libc::madvise(self.at.as_ptr().add(range.start).cast(), range.len(), libc::MADV_COLLAPSE) };
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: these addresses are this mapping's own, and whoever reaches into it keeps it alive.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), self.len) };
    }
}

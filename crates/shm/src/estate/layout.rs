//! Where everything lies in an estate. It follows from the number of bytes alone, so every member comes to the same.

const PAGE: usize = 4096;

/// Members at a time.
pub(crate) const MOST_MEMBERS: usize = 1024;
/// Objects at a time.
pub(crate) const MOST_OBJECTS: usize = 4096;
/// Bytes of an object's own words.
pub(crate) const OBJECT_PAGE: usize = PAGE;

/// The smallest block holds 2^this bytes.
pub(crate) const FIRST_CLASS: u32 = 15;
/// Sizes of blocks.
pub(crate) const CLASSES: usize = 20;
/// Blocks of one size, at most.
pub(crate) const MOST_BLOCKS: usize = 1 << 16;

/// Sizes of estates that are tried, the largest first: addresses are cheap, but limits on files and addresses exist.
pub(crate) const SIZES: [usize; 4] = [4 << 40, 256 << 30, 16 << 30, 1 << 30];

/// The places in an estate of `len` bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    len: usize,
}

impl Layout {
    pub(crate) fn new(len: usize) -> Layout {
        Layout { len }
    }

    pub(crate) fn is_size(len: usize) -> bool {
        SIZES.contains(&len)
    }

    pub(crate) fn members(self) -> usize {
        PAGE
    }

    pub(crate) fn directory(self) -> usize {
        self.members() + MOST_MEMBERS * 64
    }

    pub(crate) fn pages(self) -> usize {
        self.directory() + MOST_OBJECTS * 32
    }

    /// The bookkeeping of a class: its counters (a page), two bitmaps, a word per block.
    pub(crate) fn books(self, class: usize) -> usize {
        self.pages() + MOST_OBJECTS * OBJECT_PAGE + class * Self::BOOKS
    }

    pub(crate) const FREE_BITS: usize = PAGE;
    pub(crate) const RESIDENT_BITS: usize = Self::FREE_BITS + MOST_BLOCKS / 8;
    pub(crate) const TITLES: usize = Self::RESIDENT_BITS + MOST_BLOCKS / 8;
    const BOOKS: usize = Self::TITLES + MOST_BLOCKS * 8;

    /// How much room each object has besides its page.
    pub(crate) fn object_room(self) -> usize {
        self.len / 2 / MOST_OBJECTS
    }

    pub(crate) fn object_area(self, slot: usize) -> usize {
        self.len / 4 + slot * self.object_room()
    }

    /// How much room the blocks of a class have.
    fn class_room(self) -> usize {
        self.len / 4 / CLASSES / crate::mapping::HUGE * crate::mapping::HUGE
    }

    pub(crate) fn blocks_of(self, class: usize) -> usize {
        (self.class_room() >> (FIRST_CLASS as usize + class)).min(MOST_BLOCKS)
    }

    pub(crate) fn block(self, class: usize, index: usize) -> usize {
        self.len / 4 * 3 + class * self.class_room() + (index << (FIRST_CLASS as usize + class))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_overlaps_in_any_estate() {
        for len in SIZES {
            let layout = Layout::new(len);
            assert!(layout.books(CLASSES) <= layout.object_area(0), "words of {len}");
            assert!(layout.object_area(MOST_OBJECTS) <= layout.block(0, 0), "objects of {len}");
            for class in 0..CLASSES {
                let end = layout.block(class, layout.blocks_of(class));
                assert!(end <= layout.block(class + 1, 0) && end <= len, "blocks of class {class} of {len}");
            }
            assert!(layout.object_room() >= 64 << 10, "a ring of {len}");
        }
    }
}

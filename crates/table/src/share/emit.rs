//! Where the bytes of a get go while they are still warm.

use syncline_cluster::Error;
use syncline_tensor::kernels::copy_past_cache;

/// Takes the values of a share, block by block, as an apply or a read passes them.
pub(crate) trait Emit {
    /// Values from element `first` of the share on; called with a stripe in hand, so it only copies.
    fn block(&mut self, first: u64, values: &[u8]);

    /// Where values from `first` on may be written to without a detour, if there is such a place: then `block` is not called for them.
    fn place(&mut self, first: u64, bytes: usize) -> Option<&mut [u8]> {
        let _ = (first, bytes);
        None
    }

    /// Whether that place is better written past the cache.
    fn past_cache(&self) -> bool {
        false
    }

    /// A stripe is complete and free again: the time to do something slow.
    fn stripe_done(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

/// Straight into the caller's array.
pub(crate) struct IntoArray<'a> {
    pub(crate) out: &'a mut [u8],
    pub(crate) element: usize,
    /// The array is larger than a core's own cache, so whoever reads it next fetches it anyway.
    pub(crate) past_cache: bool,
}

impl Emit for IntoArray<'_> {
    #[inline]
    fn block(&mut self, first: u64, values: &[u8]) {
        let at = first as usize * self.element;
        let out = &mut self.out[at..at + values.len()];
        if self.past_cache { copy_past_cache(out, values) } else { out.copy_from_slice(values) }
    }

    #[inline]
    fn place(&mut self, first: u64, bytes: usize) -> Option<&mut [u8]> {
        let at = first as usize * self.element;
        Some(&mut self.out[at..at + bytes])
    }

    fn past_cache(&self) -> bool {
        self.past_cache
    }
}

//! Where the bytes of a get go while they are still warm.

use std::collections::BTreeMap;

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

/// Bytes that are handed on together: about a stripe.
const AT_ONCE: usize = 64 << 10;

/// Hands stripes on in order. An apply may begin in the middle; what comes before its turn waits.
pub(super) struct IntoSink<'a> {
    sink: &'a mut dyn FnMut(&[u8]) -> Result<(), Error>,
    ready: Vec<u8>,
    /// The element that comes next, behind those in `ready`.
    next: u64,
    element: usize,
    early: BTreeMap<u64, Vec<u8>>,
}

impl<'a> IntoSink<'a> {
    /// For numbers of `element` bytes, from the first on.
    pub(super) fn new(element: usize, sink: &'a mut dyn FnMut(&[u8]) -> Result<(), Error>) -> IntoSink<'a> {
        IntoSink { sink, ready: Vec::with_capacity(AT_ONCE), next: 0, element, early: BTreeMap::new() }
    }

    /// Hands on what is ready.
    pub(super) fn flush(&mut self) -> Result<(), Error> {
        if !self.ready.is_empty() {
            (self.sink)(&self.ready)?;
            self.ready.clear();
        }
        Ok(())
    }
}

impl Emit for IntoSink<'_> {
    fn block(&mut self, first: u64, values: &[u8]) {
        if first != self.next {
            self.early.insert(first, values.to_vec());
            return;
        }
        self.ready.extend_from_slice(values);
        self.next += (values.len() / self.element) as u64;
        while let Some(values) = self.early.remove(&self.next) {
            self.ready.extend_from_slice(&values);
            self.next += (values.len() / self.element) as u64;
        }
    }

    fn stripe_done(&mut self) -> Result<(), Error> {
        if self.ready.len() >= AT_ONCE { self.flush() } else { Ok(()) }
    }
}

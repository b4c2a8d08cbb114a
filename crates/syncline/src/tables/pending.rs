//! Values on their way.

use std::marker::PhantomData;
use std::time::Duration;

use syncline_cluster::Deadline;
use syncline_table::Pending;
use syncline_tensor::Element;

use crate::Error;

/// A get that goes on while its caller computes. Any number may be under way.
///
/// ```
/// let session = syncline::Session::solo()?;
/// let table = session.array::<u8>(3).create()?;
/// let pending = table.get_async()?;
/// assert_eq!(pending.wait()?, [0, 0, 0]);
/// assert!(pending.done()); // and the result stays
/// # Ok::<(), syncline::Error>(())
/// ```
#[derive(Debug)]
pub struct PendingValues<T: Element> {
    pending: Pending,
    numbers: PhantomData<fn() -> T>,
}

impl<T: Element> PendingValues<T> {
    pub(super) fn new(pending: Pending) -> PendingValues<T> {
        PendingValues { pending, numbers: PhantomData }
    }

    /// Whether [`wait`](Self::wait) would return at once.
    pub fn done(&self) -> bool {
        self.pending.done()
    }

    /// The values. The get itself ends with an error when it takes longer than the session's timeout.
    pub fn wait(&self) -> Result<Vec<T>, Error> {
        self.wait_at_most(None)
    }

    /// The values, or a `Timeout` when they are not there so soon; they may be waited for again.
    pub fn wait_for(&self, timeout: Duration) -> Result<Vec<T>, Error> {
        self.wait_at_most(Some(timeout))
    }

    fn wait_at_most(&self, timeout: Option<Duration>) -> Result<Vec<T>, Error> {
        let bytes = self.pending.wait(timeout, Deadline::never())?;
        Ok(bytemuck::pod_collect_to_vec(&bytes[..])) // the bytes may begin anywhere
    }
}

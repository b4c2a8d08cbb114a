//! The moment from which an add counts.

use syncline_cluster::Error;

use crate::share::Share;

/// Makes a staged add count; an error means that it does not.
///
/// A share publishes first and then applies, which may have to wait for somebody who is stuck. What counts is not refused for that: its
/// number would be given to another add, and whoever reads or settles next applies it, or hears what is in the way.
pub(super) fn publish(share: &dyn Share, worker: u32, sequence: u64) -> Result<(), Error> {
    match share.publish(worker, sequence) {
        Err(error) if share.published(worker) < sequence => Err(error),
        Err(error) => {
            tracing::debug!("add {sequence} of worker {worker} counts, and could not be applied at once: {error}");
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

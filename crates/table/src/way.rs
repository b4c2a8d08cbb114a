//! How a process reaches a table's values, and what it does with a whole table: brings it up to date, copies it, is done with it.

use std::sync::Arc;

use syncline_cluster::{Deadline, Error};

use crate::keys::{KeyShare, Pairs};
use crate::share::{LocalShare, Share};
use crate::spread::Spread;
use crate::table::Inner;
use crate::{Consistency, Spec};

/// How this process reaches a table's values.
pub(crate) enum Way {
    /// All of them are in shared memory.
    Here(Arc<LocalShare>),
    /// Some of them are behind links.
    Spread(Arc<Spread>),
    /// Keys, spread over the servers.
    Keys {
        spread: Arc<Spread>,
        /// Those that this process keeps.
        here: Option<Arc<KeyShare>>,
    },
}

impl Way {
    /// Stores worker 0's value as it is, in the values and in the states that begin with them.
    pub(crate) fn set_initial(&self, initial: &[u8], spec: &Spec, workers: u32, by: Deadline) -> Result<(), Error> {
        match self {
            Way::Here(share) => share.set_initial(initial),
            Way::Spread(spread) => {
                spread.write_lane(0, 0, initial, by)?;
                let states = spec.updater.state_lanes(spec.dtype(), workers);
                for (index, _) in states.iter().enumerate().filter(|(_, lane)| lane.starts_as_value) {
                    spread.write_lane(index + 1, 0, initial, by)?;
                }
            }
            Way::Keys { .. } => {}
        }
        Ok(())
    }
}

impl Inner {
    /// How many adds are applied, if more wait for this process to apply them: for the caretaker.
    pub(crate) fn applied_of_more(&self) -> Option<u64> {
        match &self.way {
            Way::Here(share) => share.has_unapplied(self.worker).then(|| share.applied(self.worker)),
            Way::Spread(_) | Way::Keys { .. } => None,
        }
    }

    pub(crate) fn apply_left_over(&self, by: Deadline) {
        if let Way::Here(share) = &self.way {
            // What goes wrong here goes wrong again in the next call of the user, who can do something about it.
            let _ = share.settle(self.worker, share.published(self.worker), by);
        }
    }

    /// Returns when what this worker added is applied, as far as that depends on this worker.
    pub(crate) fn flush(&self, by: Deadline) -> Result<(), Error> {
        match &self.way {
            // Rounds wait for others; that this worker's adds count does not.
            Way::Spread(spread) | Way::Keys { spread, .. } if self.spec.consistency == Consistency::Sync => spread.deliver(by),
            _ if self.spec.consistency == Consistency::Sync => Ok(()),
            Way::Spread(spread) | Way::Keys { spread, .. } => spread.settle(by),
            Way::Here(share) if share.has_unapplied(self.worker) => share.settle(self.worker, share.published(self.worker), by),
            Way::Here(_) => Ok(()),
        }
    }

    /// Returns when what the dead left is in the values here.
    pub(crate) fn settle_losses(&self, by: Deadline) -> Result<(), Error> {
        match &self.way {
            Way::Here(share) => share.settle_losses(by),
            Way::Spread(_) | Way::Keys { .. } => Ok(()), // A flush waits for the verdicts.
        }
    }

    /// Returns when everything this worker added is applied; in sync mode that needs the others' rounds.
    pub(crate) fn settle(&self, by: Deadline) -> Result<(), Error> {
        match &self.way {
            Way::Here(share) => {
                let adds = self.own_adds("flush", by)?;
                share.settle(self.worker, adds, by)
            }
            Way::Spread(spread) | Way::Keys { spread, .. } => spread.settle(by),
        }
    }

    /// Rows of a lane as they are.
    pub(crate) fn read_lane(&self, lane: usize, first_row: u64, out: &mut [u8], by: Deadline) -> Result<(), Error> {
        match &self.way {
            Way::Here(share) => share.read_lane(lane, first_row, out, by),
            Way::Spread(spread) | Way::Keys { spread, .. } => spread.read_lane(lane, first_row, out, by),
        }
    }

    /// Overwrites rows of a lane; no updater, no clock.
    pub(crate) fn write_lane(&self, lane: usize, first_row: u64, bytes: &[u8], by: Deadline) -> Result<(), Error> {
        match &self.way {
            Way::Here(share) => share.write_lane(lane, first_row, bytes, by),
            Way::Spread(spread) | Way::Keys { spread, .. } => spread.write_lane(lane, first_row, bytes, by),
        }
    }

    /// The first row of each part of the table that lies somewhere.
    pub(crate) fn homes_of_rows(&self) -> Vec<u64> {
        match &self.way {
            Way::Here(_) => vec![0],
            Way::Spread(spread) | Way::Keys { spread, .. } => spread.first_rows(),
        }
    }

    /// All pairs of a key-value table, server by server.
    pub(crate) fn export_keys(&self, by: Deadline) -> Result<Vec<Pairs>, Error> {
        match &self.way {
            Way::Keys { spread, here } => spread.export(|| here.as_ref().map(|share| share.export()).unwrap_or_default(), by),
            _ => Ok(Vec::new()),
        }
    }

    /// Makes these pairs the whole contents of a key-value table.
    pub(crate) fn import_keys(&self, keys: &[i64], values: &[u8], by: Deadline) -> Result<(), Error> {
        match &self.way {
            Way::Keys { spread, here } => {
                let take = |keys: &[i64], values: &[u8]| {
                    if let Some(share) = here {
                        share.import(keys, values);
                    }
                };
                spread.import(keys, values, take, by)
            }
            _ => Ok(()),
        }
    }

    /// No clock waits for this worker any more.
    pub(crate) fn finish(&self, by: Deadline) -> Result<(), Error> {
        match &self.way {
            Way::Here(share) => {
                share.finish(self.worker);
                Ok(())
            }
            Way::Spread(spread) | Way::Keys { spread, .. } => spread.finish(by),
        }
    }
}

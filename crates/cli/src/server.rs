//! `syncline server`: the process that `run --servers` starts beside the workers.
//!
//! It owns no shard yet: it stays until it is told to leave, so that roles, supervision and shutdown of a job with servers are
//! already what they will be. The tables move in here.

use std::process::ExitCode;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Stays until SIGINT or SIGTERM, then leaves with code 0.
pub(crate) fn serve() -> ExitCode {
    match Signals::new([SIGINT, SIGTERM]) {
        Ok(mut signals) => {
            signals.forever().next();
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("syncline: cannot listen for signals: {error}");
            ExitCode::FAILURE
        }
    }
}

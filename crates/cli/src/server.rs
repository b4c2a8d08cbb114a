//! `syncline server`: a dedicated server process that joins a job, and stays as long as workers do.
//!
//! `run --servers` starts these beside the workers; under another launcher it is started like any rank, with
//! `SYNCLINE_ROLE=server`. The tables of a job move in here. As a DMLC scheduler it coordinates the others instead.

use std::process::ExitCode;

use syncline::{Config, Deadline, Error, Role, Session};

/// Joins the job of this environment and returns when its workers are gone.
pub(crate) fn serve() -> ExitCode {
    match stay() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("syncline server: {error}");
            ExitCode::FAILURE
        }
    }
}

fn stay() -> Result<(), Error> {
    let config = Config::from_env()?;
    if config.launch().role == Role::Coordinator {
        return Session::coordinate(&config); // DMLC_ROLE=scheduler
    }
    let session = Session::open(config)?;
    tracing::info!("rank {} of {} serves", session.rank(), session.size());
    session.stay_for_workers(Deadline::never())?; // The workers' lives are watched; how long they train is theirs to say.
    session.shutdown()
}

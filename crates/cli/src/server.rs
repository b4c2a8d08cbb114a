//! `syncline server`: a dedicated server process that joins a job, and stays as long as workers do.
//!
//! `run --servers` starts these beside the workers; under another launcher it is started like any rank, in place of a
//! program. The tables of a job move in here. As a DMLC scheduler it coordinates the others instead.

use std::process::ExitCode;

use syncline::bootstrap::Meeting;
use syncline::{Config, Deadline, Role, Session};

pub(crate) const AFTER_HELP: &str = "\
The job is found as every rank finds it; `syncline env` says which one that would be. Ranks that
work hold no part of the tables if they are told that they only work (SYNCLINE_ROLE=worker).

Examples:
  syncline run -n 4 --servers 2 train.py    starts two of these by itself
  mpirun -np 4 env SYNCLINE_ROLE=worker python train.py : -np 2 syncline server

It ends when the workers have ended.";

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

fn stay() -> Result<(), Box<dyn std::error::Error>> {
    let config = Config::from_env()?;
    if config.launch().role == Role::Coordinator {
        return Ok(Session::coordinate(&config)?); // DMLC_ROLE=scheduler
    }
    let config = match (&config.launch().meeting, config.launch().role) {
        (Meeting::Alone, _) => {
            let hint = "`syncline run -n 4 --servers 2 train.py` starts servers with their workers; `--help` has other ways";
            return Err(format!("this process is in no job\nhint: {hint}").into());
        }
        (_, Role::Worker) => return Err("SYNCLINE_ROLE says that this process is a worker\nhint: leave it out, or set it to server".into()),
        _ => config.role(Role::Server),
    };
    let session = Session::open(config)?;
    tracing::info!("rank {} of {} serves", session.rank(), session.size());
    session.stay_for_workers(Deadline::never())?; // The workers' lives are watched; how long they train is theirs to say.
    Ok(session.shutdown()?)
}

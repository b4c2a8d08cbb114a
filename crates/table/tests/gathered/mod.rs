//! A whole job in one process: each rank is a thread with a seat and tables of its own.

use std::sync::Arc;
use std::time::Duration;

use syncline_cluster::bootstrap::{Arguments, Environment, find};
use syncline_cluster::{Deadline, Job, Settings, TransportChoice};
use syncline_table::Tables;
use syncline_testkit::ranks::threads;

/// Runs `body` on each worker of a job whose ranks have these roles; dedicated servers stay until the workers are gone.
pub(crate) fn job<T: Send>(
    name: &str,
    roles: &[&str],
    transport: TransportChoice,
    body: impl Fn(&Job, &Tables, usize) -> T + Sync,
) -> Vec<Option<T>> {
    let rendezvous = format!("unix:@table-{}-{name}-{transport}", std::process::id());
    job_with(&rendezvous, roles, &Settings { transport, encrypt: false, ..Settings::default() }, body)
}

/// The same with any settings; `body` may end the job for its rank.
pub(crate) fn job_with<T: Send>(
    rendezvous: &str,
    roles: &[&str],
    settings: &Settings,
    body: impl Fn(&Job, &Tables, usize) -> T + Sync,
) -> Vec<Option<T>> {
    threads(roles.len(), |rank| {
        let (number, world) = (rank.to_string(), roles.len().to_string());
        let environment = Environment::from_variables([
            ("SYNCLINE_RANK", number.as_str()),
            ("SYNCLINE_WORLD_SIZE", world.as_str()),
            ("SYNCLINE_RENDEZVOUS", rendezvous),
            ("SYNCLINE_TOKEN", "t"),
            ("SYNCLINE_ROLE", roles[rank]),
        ]);
        let launch = find(&environment, &Arguments::default()).expect("a sound environment");
        let job = Arc::new(Job::join(&launch, settings, soon()).expect("everybody comes"));
        let tables = Tables::new(Arc::clone(&job));
        let worker = job.topology().workers().iter().position(|worker| *worker == job.rank());
        let result = worker.map(|worker| body(&job, &tables, worker));
        match worker {
            Some(_) if job.vigil().usable("shutdown").is_err() => return result, // it "died"
            Some(_) => tables.finish(soon()).expect("nothing is left to fail"),
            None => job.stay_for_workers(Deadline::never()).expect("they leave"),
        }
        job.leave(soon()).expect("a polite end");
        result
    })
}

/// Patient enough for a loaded machine; only a failing test waits for it.
pub(crate) fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(30))
}

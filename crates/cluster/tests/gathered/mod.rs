//! A whole job in one process: each rank is a thread with a seat of its own.

use std::time::Duration;

use syncline_cluster::bootstrap::{Arguments, Environment, find};
use syncline_cluster::{Deadline, Job, Settings};
use syncline_testkit::ranks::threads;

/// Runs `body` on each rank of a job whose ranks have the `roles`, with `settings`.
pub(crate) fn job<T: Send>(name: &str, roles: &[&str], settings: &Settings, body: impl Fn(Job) -> T + Sync) -> Vec<T> {
    let rendezvous = format!("unix:@gathered-{}-{name}", std::process::id());
    threads(roles.len(), |rank| {
        let (number, world) = (rank.to_string(), roles.len().to_string());
        let environment = Environment::from_variables([
            ("SYNCLINE_RANK", number.as_str()),
            ("SYNCLINE_WORLD_SIZE", world.as_str()),
            ("SYNCLINE_RENDEZVOUS", rendezvous.as_str()),
            ("SYNCLINE_TOKEN", "t"),
            ("SYNCLINE_ROLE", roles[rank]),
        ]);
        let launch = find(&environment, &Arguments::default()).expect("a sound environment");
        body(Job::join(&launch, settings, soon()).expect("everybody comes"))
    })
}

/// Patient enough for a loaded machine; only a failing test waits for it.
pub(crate) fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

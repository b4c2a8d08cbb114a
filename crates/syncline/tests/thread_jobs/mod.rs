//! Jobs whose ranks are threads of one test, each with a session of its own: real memory and real links, one process.
#![allow(dead_code, reason = "each test file uses its part")]

use std::time::Duration;

use syncline::bootstrap::{Arguments, Environment};
use syncline::{Config, Deadline, Session};
use syncline_testkit::ranks::threads;

/// Who serves, and how workers reach each other and what they share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    pub(crate) servers: u32,
    pub(crate) transport: &'static str,
}

/// Every process worker and server, sharing memory: the usual case.
pub(crate) const TOGETHER: Manner = Manner { servers: 0, transport: "auto" };
/// As if every rank sat on another host.
pub(crate) const APART: Manner = Manner { servers: 0, transport: "tcp" };

/// Every manner: with and without servers of their own, in shared memory and without it.
pub(crate) const MANNERS: [Manner; 5] = [
    TOGETHER,
    Manner { servers: 1, transport: "auto" },
    APART,
    Manner { servers: 1, transport: "tcp" },
    Manner { servers: 2, transport: "unix" },
];

/// Longer than anything here should take, shorter than a test may.
pub(crate) fn by() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

/// Runs `body` on each of `workers` workers that share memory.
pub(crate) fn job<T: Send>(workers: u32, name: &str, body: impl Fn(&Session) -> T + Sync) -> Vec<T> {
    job_in(TOGETHER, workers, name, body)
}

/// Runs `body` on each worker of a job that is kept in this manner; everybody leaves politely.
pub(crate) fn job_in<T: Send>(manner: Manner, workers: u32, name: &str, body: impl Fn(&Session) -> T + Sync) -> Vec<T> {
    mortal_job(manner, workers, name, "20", |session| {
        let result = body(session);
        session.shutdown().expect("a polite end");
        Some(result)
    })
    .into_iter()
    .flatten()
    .collect()
}

/// The same for jobs in which somebody dies: who returns `None` drops its session without a goodbye.
pub(crate) fn mortal_job<T: Send>(
    manner: Manner,
    workers: u32,
    name: &str,
    timeout: &str,
    body: impl Fn(&Session) -> Option<T> + Sync,
) -> Vec<Option<T>> {
    let rendezvous = format!("unix:@thread-job-{}-{name}-{workers}-{}-{}", std::process::id(), manner.servers, manner.transport);
    let world = workers + manner.servers;
    let results = threads(world as usize, |rank| {
        let role = match manner.servers {
            0 => "both",
            _ if rank as u32 >= workers => "server",
            _ => "worker",
        };
        let (rank, world) = (rank.to_string(), world.to_string());
        let environment = Environment::from_variables([
            ("SYNCLINE_RANK", rank.as_str()),
            ("SYNCLINE_WORLD_SIZE", world.as_str()),
            ("SYNCLINE_RENDEZVOUS", rendezvous.as_str()),
            ("SYNCLINE_TOKEN", "t"),
            ("SYNCLINE_TIMEOUT", timeout),
            ("SYNCLINE_TRANSPORT", manner.transport),
            ("SYNCLINE_ROLE", role),
        ]);
        let config = Config::from_environment(&environment, &Arguments::default()).expect("a sound environment");
        let session = Session::open(config).expect("everybody comes");
        if role == "server" {
            session.stay_for_workers(by()).expect("the workers leave");
            session.shutdown().expect("a polite end");
            return None;
        }
        let result = body(&session);
        if result.is_some() {
            let _ = session.shutdown(); // Done already, or not polite any more where somebody died.
        }
        Some(result)
    });
    results.into_iter().flatten().collect()
}

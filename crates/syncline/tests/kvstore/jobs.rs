//! Jobs whose ranks are threads of a test, each with a session of its own.

use syncline::bootstrap::{Arguments, Environment};
use syncline::{Config, Deadline, Session};
use syncline_testkit::ranks::threads;

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

/// Who takes part and how they reach each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    pub(crate) workers: u32,
    /// Dedicated ones; none means that every worker serves.
    pub(crate) servers: u32,
    pub(crate) transport: &'static str,
}

/// Workers that share memory, all of them servers.
pub(crate) const fn together(workers: u32) -> Manner {
    Manner { workers, servers: 0, transport: "auto" }
}

/// The numbers of workers and servers that the nightly tests ask for; those without shared memory are as far apart as hosts are.
pub(crate) const MANNERS: [Manner; 9] = [
    together(1),
    together(2),
    Manner { workers: 3, servers: 1, transport: "auto" },
    Manner { workers: 4, servers: 2, transport: "auto" },
    Manner { workers: 7, servers: 3, transport: "auto" },
    Manner { workers: 2, servers: 0, transport: "tcp" },
    Manner { workers: 1, servers: 2, transport: "tcp" },
    Manner { workers: 4, servers: 3, transport: "tcp" },
    Manner { workers: 3, servers: 1, transport: "unix" },
];

/// Longer than anything here should take, shorter than a test may.
pub(crate) fn by() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

/// Runs `body` on each worker; everybody leaves politely.
pub(crate) fn job<T: Send>(manner: Manner, body: impl Fn(&Session) -> T + Sync) -> Vec<T> {
    job_with(manner, &[], body)
}

/// The same with variables of its own.
pub(crate) fn job_with<T: Send>(manner: Manner, variables: &[(&str, &str)], body: impl Fn(&Session) -> T + Sync) -> Vec<T> {
    static JOBS: AtomicU32 = AtomicU32::new(0);
    let rendezvous = format!("unix:@kvstore-{}-{}", std::process::id(), JOBS.fetch_add(1, Relaxed));
    let Manner { workers, servers, transport } = manner;
    let world = workers + servers;
    let results = threads(world as usize, |rank| {
        let role = match servers {
            0 => "both",
            _ if rank as u32 >= workers => "server",
            _ => "worker",
        };
        let (rank, world) = (rank.to_string(), world.to_string());
        let mut all = vec![
            ("SYNCLINE_RANK", rank.as_str()),
            ("SYNCLINE_WORLD_SIZE", world.as_str()),
            ("SYNCLINE_RENDEZVOUS", rendezvous.as_str()),
            ("SYNCLINE_TOKEN", "t"),
            ("SYNCLINE_TIMEOUT", "20"),
            ("SYNCLINE_TRANSPORT", transport),
            ("SYNCLINE_ROLE", role),
        ];
        all.extend_from_slice(variables);
        let config = Config::from_environment(&Environment::from_variables(all), &Arguments::default()).expect("a sound environment");
        let session = Session::open(config).expect("everybody comes");
        if role == "server" {
            session.stay_for_workers(Deadline::after(session.timeout())).expect("the workers leave");
            session.shutdown().expect("a polite end");
            return None;
        }
        let result = body(&session);
        session.shutdown().expect("a polite end");
        Some(result)
    });
    results.into_iter().flatten().collect()
}

//! Who meets in a barrier, over a real coordinator and a real board.

mod gathered;

use std::sync::atomic::{AtomicU32, Ordering::*};

use gathered::{job, soon};
use syncline_cluster::{ErrorKind, Settings};

#[test]
fn workers_meet_without_the_servers_which_are_told_so() {
    let arrived = AtomicU32::new(0);
    // A server in front, between and behind: the workers' places on the board have gaps.
    job("servers", &["server", "worker", "server", "both", "worker", "server"], &Settings::default(), |job| {
        if !job.role().works() {
            let error = job.barrier(soon()).expect_err("not for servers");
            assert_eq!(error.kind(), ErrorKind::Configuration);
            assert!(error.to_string().contains("servers take no part"), "{error}");
            job.stay_for_workers(soon()).expect("the workers leave");
            return job.leave(soon()).expect("a polite end");
        }
        for round in 1..=100 {
            arrived.fetch_add(1, SeqCst);
            job.barrier(soon()).expect("all workers are there");
            assert!(arrived.load(SeqCst) >= 3 * round, "round {round} ended early");
            job.barrier(soon()).expect("all workers are there");
        }
        job.leave(soon()).expect("a polite end");
    });
}

#[test]
fn one_worker_among_servers_waits_for_nobody() {
    job("lonely", &["worker", "server"], &Settings::default(), |job| {
        if job.role().works() {
            job.barrier(soon()).expect("nobody to wait for");
        } else {
            job.stay_for_workers(soon()).expect("the worker leaves");
        }
        job.leave(soon()).expect("a polite end");
    });
}

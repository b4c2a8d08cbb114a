//! Who meets in a barrier, over a real coordinator and a real board.

mod gathered;

use std::sync::atomic::{AtomicU32, Ordering::*};
use std::time::Duration;

use gathered::{job, soon};
use syncline_cluster::{Deadline, ErrorKind, OnPeerLoss, Settings, waits};
use syncline_wire::Fingerprint;

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

#[test]
fn where_the_others_go_on_a_dead_worker_is_not_waited_for() {
    let settings = Settings { on_peer_loss: OnPeerLoss::Continue, ..Settings::default() };
    let heard = job("goes-on", &["both"; 4], &settings, |job| {
        job.barrier(soon()).expect("all are there");
        if job.rank() == 2 {
            job.abort("it has enough");
            return 0;
        }
        assert!(job.vigil().goes_on());
        for _ in 0..200 {
            job.barrier(soon()).expect("the others suffice");
        }
        let agreement = job.agree("array", Fingerprint::of("array").finish(), "", &[job.rank() as u8], soon()).expect("the others suffice");
        assert_eq!(agreement.payload, [0]);
        assert!(job.vigil().is_over(2) && !job.vigil().has_ended(2), "its process is this one");
        assert!(!job.vigil().hopeless());
        job.leave(soon()).expect("a polite end");
        1
    });
    assert_eq!(heard, [1, 1, 0, 1]);
}

#[test]
fn where_the_others_go_on_a_dead_server_is_still_an_error() {
    let settings = Settings { on_peer_loss: OnPeerLoss::Continue, ..Settings::default() };
    job("server-dies", &["worker", "worker", "server"], &settings, |job| {
        if job.rank() == 2 {
            return job.abort("it has enough");
        }
        let error = loop {
            if let Err(error) = job.barrier(soon()) {
                break error;
            }
            if job.vigil().hopeless() {
                // Nobody waited at that moment; the next wait tells.
                break job.vigil().explain("barrier", &[], std::time::Instant::now(), "");
            }
        };
        assert_eq!((error.kind(), error.who().map(|who| who.rank)), (ErrorKind::PeerLost, Some(2)), "{error}");
        job.abort("because of it");
    });
}

#[test]
fn ranks_that_wait_in_a_circle_are_found_and_told() {
    let [here, there] = [std::sync::Barrier::new(3), std::sync::Barrier::new(3)];
    job("circle", &["both"; 3], &Settings::default(), |job| {
        let vigil = job.vigil();
        let next = (job.rank() + 1) % 3;
        assert_eq!(vigil.circle(next), None, "nobody waits");
        let guard = (job.rank() != 2).then(|| vigil.waiting(next, waits::GET));
        here.wait();
        assert_eq!(vigil.circle(next), None, "rank 2 does not wait");
        there.wait();
        if job.rank() == 2 {
            // The circle is closed by a barrier to which rank 0 does not come.
            let error = job.barrier(Deadline::after(Duration::from_millis(300))).expect_err("nobody comes");
            let circle = "they wait in a circle: rank 2 in a barrier, rank 0 in a get, rank 1 in a get";
            assert!(error.kind() == ErrorKind::Timeout && error.to_string().contains(circle), "{error}");
            let _guard = vigil.waiting(0, waits::BARRIER);
            here.wait();
            there.wait();
        } else {
            here.wait();
            assert_eq!(vigil.circle(next), None, "one look is not enough");
            let circle = eventually_some(|| vigil.circle(next));
            assert_eq!(circle, [job.rank(), next, (next + 1) % 3]);
            there.wait();
        }
        drop(guard);
        here.wait();
        assert_eq!(vigil.circle(next), None, "nobody waits any more");
        there.wait();
        job.leave(soon()).expect("a polite end");
    });
}

fn eventually_some<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let since = std::time::Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(since.elapsed() < Duration::from_secs(20), "it never came");
        std::thread::yield_now();
    }
}

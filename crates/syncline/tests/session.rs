//! Sessions as users hold them, with the ranks of a job as threads of one process: nothing is global, so they live
//! side by side.

use std::sync::atomic::{AtomicU32, Ordering::*};
use std::time::{Duration, Instant};

use syncline::bootstrap::{Arguments, Environment};
use syncline::transport::OutFrame;
use syncline::{Config, Deadline, ErrorKind, Lane, Session};
use syncline_testkit::ranks::threads;
use syncline_wire::Kind;

/// Runs `body` on each rank of a job of `world`, each on a thread with a session of its own.
fn job<T: Send>(world: u32, name: &str, body: impl Fn(Session) -> T + Sync) -> Vec<T> {
    let rendezvous = format!("unix:@session-test-{}-{name}", std::process::id());
    threads(world as usize, |rank| {
        let (rank, world) = (rank.to_string(), world.to_string());
        let environment = Environment::from_variables([
            ("SYNCLINE_RANK", rank.as_str()),
            ("SYNCLINE_WORLD_SIZE", world.as_str()),
            ("SYNCLINE_RENDEZVOUS", rendezvous.as_str()),
            ("SYNCLINE_TOKEN", "t"),
            ("SYNCLINE_TIMEOUT", "10"),
        ]);
        let config = Config::from_environment(&environment, &Arguments::default()).expect("a sound environment");
        body(Session::open(config).expect("everybody comes"))
    })
}

#[test]
fn nobody_leaves_a_barrier_before_everybody_has_come() {
    let arrived = AtomicU32::new(0);
    job(4, "barrier", |session| {
        for round in 1..=200 {
            arrived.fetch_add(1, SeqCst);
            session.barrier().expect("all are there");
            assert!(arrived.load(SeqCst) >= 4 * round, "round {round} ended early");
            session.barrier().expect("all are there");
        }
        session.shutdown().expect("a polite end");
    });
}

#[test]
fn a_group_meets_without_the_others_and_in_any_order_of_groups() {
    let pairs = [AtomicU32::new(0), AtomicU32::new(0)];
    job(4, "groups", |session| {
        let rank = session.rank();
        let parity = session.group(&[rank % 2, rank % 2 + 2]).expect("in it");
        for round in 1..=50 {
            pairs[rank as usize % 2].fetch_add(1, SeqCst);
            session.group_barrier(&parity).expect("the other one comes");
            assert!(pairs[rank as usize % 2].load(SeqCst) >= 2 * round);
            session.group_barrier(&parity).expect("the other one comes");
        }
        if rank != 2 {
            let three = session.group(&[3, 0, 1]).expect("in it");
            session.group_barrier(&three).expect("rank 2 is not needed");
        }
        assert!(session.group(&[0, 0, rank]).is_err() && session.group(&[rank, 9]).is_err());
        session.barrier().expect("all are there");
        session.shutdown().expect("a polite end");
    });
}

#[test]
fn ranks_know_their_place_and_roles() {
    let places = job(3, "places", |session| {
        session.barrier().expect("all are there");
        let place =
            (session.rank(), session.size(), session.local_rank(), session.local_size(), session.worker_id(), session.is_master_worker());
        session.shutdown().expect("a polite end");
        assert_eq!(session.barrier().expect_err("it is over").kind(), ErrorKind::Closed);
        place
    });
    assert_eq!(places, [(0, 3, 0, 3, Some(0), true), (1, 3, 1, 3, Some(1), false), (2, 3, 2, 3, Some(2), false)]);
}

#[test]
fn a_session_that_is_dropped_without_leaving_is_named_by_the_others() {
    let errors = job(3, "dropped", |session| {
        session.barrier().expect("all are there");
        if session.rank() == 1 {
            return None; // Dropped here, as by a panic.
        }
        let error = session.barrier().expect_err("rank 1 is gone");
        Some((error.kind(), error.who().map(|who| who.rank)))
    });
    assert_eq!(errors, [Some((ErrorKind::PeerLost, Some(1))), None, Some((ErrorKind::PeerLost, Some(1)))]);
}

#[test]
fn an_abort_reaches_the_others_with_its_reason() {
    for failing in [0, 2] {
        let texts = job(3, &format!("abort{failing}"), |session| {
            session.barrier().expect("all are there");
            if session.rank() == failing {
                session.abort("ValueError: bad batch");
                return String::new();
            }
            session.barrier().expect_err("somebody failed").to_string()
        });
        for (rank, text) in texts.iter().enumerate().filter(|(rank, _)| *rank != failing as usize) {
            assert!(text.contains(&format!("rank {failing}")) && text.contains("bad batch"), "rank {rank} heard: {text}");
        }
    }
}

#[test]
fn who_comes_too_late_is_named_and_may_still_come() {
    job(2, "late", |session| {
        if session.rank() == 0 {
            let started = Instant::now();
            let error = session.barrier_by(Deadline::after(Duration::from_millis(200))).expect_err("rank 1 waits for our word");
            assert_eq!((error.kind(), error.who().map(|who| who.rank)), (ErrorKind::Timeout, Some(1)));
            assert!(started.elapsed() < Duration::from_secs(5));
        }
        let mut link = session.link(1 - session.rank(), Lane::FIRST_FREE, Deadline::after(Duration::from_secs(10))).expect("a link");
        let soon = Deadline::after(Duration::from_secs(10));
        if session.rank() == 0 {
            link.send(&OutFrame { payload: &[b"come"], ..OutFrame::new(Kind::DATA) }, soon).expect("sent");
        } else {
            assert_eq!(link.frame(soon).expect("the word").1, b"come");
            session.barrier().expect("the round that rank 0 gave up on is complete now");
        }
        session.barrier().expect("both are there");
        session.shutdown().expect("a polite end");
    });
}

//! Whom survivors name when one of them failed because of somebody who is not dead: who left too early, or came too late.

mod gathered;

use std::time::{Duration, Instant};

use gathered::{job, soon};
use syncline_cluster::{Deadline, Error, ErrorKind, Job, Settings};

/// What a wait says that fails once this rank knows that `rank` is gone.
fn error_after_the_end_of(job: &Job, rank: u32) -> Error {
    let patience = Instant::now() + Duration::from_secs(20);
    while !job.vigil().is_over(rank) {
        assert!(Instant::now() < patience, "the end of rank {rank} is never told");
        std::thread::yield_now();
    }
    job.vigil().explain("get", &[], Instant::now(), "no news came")
}

fn assert_names(error: &Error, rank: u32, words: &str) {
    assert_eq!((error.kind(), error.who().map(|who| who.rank)), (ErrorKind::PeerLost, Some(rank)), "{error}");
    assert!(error.to_string().contains(words), "{error}");
}

#[test]
fn survivors_of_a_survivor_name_the_rank_that_left_too_early() {
    // Rank 0 hosts the coordinator and takes it along when it fails; any other does not.
    for fails_first in [0, 1] {
        job(&format!("left-{fails_first}"), &["both"; 4], &Settings::default(), |job| {
            match job.rank() {
                2 => return job.leave(soon()).expect("a polite end"),
                rank if rank == fails_first => assert_names(&job.barrier(soon()).expect_err("rank 2 left"), 2, "has left the job"),
                _ => assert_names(&error_after_the_end_of(&job, fails_first), 2, "has left the job"),
            }
            job.abort("because of it");
        });
    }
}

#[test]
fn a_rank_that_came_too_late_is_told_who_gave_it_up_and_not_that_it_is_silent_itself() {
    job("late", &["both"; 2], &Settings::default(), |job| {
        if job.rank() == 0 {
            assert_names(&error_after_the_end_of(&job, 1), 1, "it gave up waiting for this process");
        } else {
            let error = job.barrier(Deadline::after(Duration::from_millis(100))).expect_err("rank 0 does not come");
            assert_eq!((error.kind(), error.who().map(|who| who.rank)), (ErrorKind::Timeout, Some(0)), "{error}");
        }
        job.abort("because of it");
    });
}

#[test]
fn a_rank_that_waits_elsewhere_is_named_with_what_it_waits_in() {
    job("elsewhere", &["both"; 2], &Settings::default(), |job| {
        if job.rank() == 1 {
            return drop(job.barrier(soon()).expect_err("rank 0 does something else"));
        }
        let patience = Instant::now() + Duration::from_secs(20);
        loop {
            let error = job.vigil().late("all_reduce 3", &[1], Instant::now(), " to call all_reduce too").to_string();
            if error.contains("rank 1 is alive but has not come here: it waits for this one in a barrier") {
                break;
            }
            assert!(Instant::now() < patience, "{error}");
            std::thread::yield_now();
        }
        job.abort("they differ");
    });
}

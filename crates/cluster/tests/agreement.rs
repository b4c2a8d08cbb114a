//! Calls that all workers must make alike, over a real coordinator.

mod gathered;

use std::time::Duration;

use gathered::{job, soon};
use syncline_cluster::{Deadline, Error, ErrorKind, Settings};
use syncline_wire::Fingerprint;

fn print(text: &str) -> Fingerprint {
    Fingerprint::of(text).finish()
}

#[test]
fn everybody_hears_what_the_lowest_worker_brought_and_servers_hear_it_in_order() {
    let heard = job("agree", &["worker", "both", "worker", "server"], &Settings::default(), |job| {
        let mut heard = Vec::new();
        for number in 1..=20u64 {
            let agreement = if job.role().works() {
                let operation = format!("thing {number}");
                job.agree(&operation, print(&operation), "here.py:1", &[job.rank() as u8, number as u8], soon())
            } else {
                job.next_agreement(soon())
            };
            heard.push(agreement.expect("all make the same calls"));
        }
        if !job.role().works() {
            let over = job.next_agreement(soon()).expect_err("the workers leave");
            assert_eq!(over.kind(), ErrorKind::Closed, "{over}");
        }
        job.leave(soon()).expect("a polite end");
        heard
    });
    for member in &heard {
        assert_eq!(member, &heard[0]);
    }
    assert_eq!((heard[0][4].number, heard[0][4].payload.as_slice(), heard[0][4].operation.as_str()), (5, &[0u8, 5][..], "thing 5"));
}

#[test]
fn a_difference_names_both_ranks_both_calls_and_both_places_on_every_worker() {
    let errors = job("differ", &["both"; 3], &Settings::default(), |job| {
        let same = job.agree("array of 3 float32", print("same"), "train.py:3", &[], soon());
        assert!(same.is_ok(), "{same:?}");
        let (operation, site) =
            if job.rank() == 2 { ("matrix of 3 x 4 float32", "train.py:19") } else { ("array of 10 float32", "train.py:14") };
        let error = job.agree(operation, print(operation), site, &[], soon()).expect_err("they differ");
        // The next one is a new chance: all have heard of the difference.
        let again = job.agree("array of 5 float32", print("again"), "", &[], soon());
        assert_eq!(again.map(|agreement| agreement.number).ok(), Some(3));
        job.leave(soon()).expect("a polite end");
        error
    });
    for error in &errors {
        assert_eq!(error.kind(), ErrorKind::ContractMismatch);
        let text = error.to_string();
        let of_two = "rank 2 called matrix of 3 x 4 float32 at train.py:19";
        assert!(text.starts_with("agreement 2: rank ") && text.contains(of_two), "{text}");
        assert!(text.contains("called array of 10 float32 at train.py:14"), "{text}");
        assert_eq!(text, errors[0].to_string(), "all hear the same");
    }
}

#[test]
fn who_waits_in_vain_names_those_that_did_not_come() {
    job("late", &["both"; 3], &Settings::default(), |job| {
        if job.rank() != 1 {
            let patience = Deadline::after(Duration::from_millis(300));
            let error = job.agree("array of 10 float32", print("array"), "train.py:14", &[], patience).expect_err("rank 1 does not come");
            let Error::Timeout { missing, .. } = &error else { panic!("{error}") };
            assert_eq!(missing.iter().map(|who| who.rank).collect::<Vec<_>>(), [1], "{error}");
            assert!(error.to_string().starts_with("array of 10 float32 at train.py:14: waited "), "{error}");
        }
        job.barrier(soon()).expect("all live");
        job.leave(soon()).expect("a polite end");
    });
}

#[test]
fn a_death_ends_the_wait_and_is_named() {
    let errors = job("death", &["both"; 3], &Settings::default(), |job| {
        if job.rank() == 1 {
            job.abort("it has enough");
            return None;
        }
        let error = job.agree("array", print("array"), "", &[], soon()).expect_err("rank 1 is gone");
        job.abort("because of rank 1");
        Some((error.kind(), error.who().map(|who| who.rank)))
    });
    assert_eq!(errors, [Some((ErrorKind::PeerLost, Some(1))), None, Some((ErrorKind::PeerLost, Some(1)))]);
}

#[test]
fn a_worker_that_left_is_not_waited_for() {
    job("left", &["both"; 3], &Settings::default(), |job| {
        if job.rank() != 2 {
            let agreement = job.agree("array", print("array"), "", &[7], soon()).expect("the others suffice");
            assert_eq!(agreement.payload, [7]);
        }
        job.leave(soon()).expect("a polite end");
    });
}

#[test]
fn a_world_of_one_agrees_with_itself() {
    let job = syncline_cluster::Job::alone(Duration::from_secs(5)).expect("a world of one");
    let agreement = job.agree("array", print("array"), "x.py:1", &[1, 2], soon()).expect("nobody differs");
    assert_eq!((agreement.number, agreement.payload.as_slice(), agreement.operation.as_str()), (1, &[1u8, 2][..], "array"));
    assert!(job.agree("array", print("array"), "", &[0; 70_000], soon()).is_err(), "too much to send");
    assert_eq!(job.next_agreement(soon()).map_err(|error| error.kind()), Err(ErrorKind::Configuration));
}

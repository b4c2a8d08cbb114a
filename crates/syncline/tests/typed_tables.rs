//! Typed tables: the builders' promises, and each updater from one end to the other.

use std::time::Duration;

use syncline::bootstrap::{Arguments, Environment};
use syncline::prelude::*;
use syncline::{Consistency, Element, bf16, f16};
use syncline_testkit::ranks::threads;

/// Runs `body` on both ranks of a job, each on a thread with a session of its own.
fn pair<T: Send>(name: &str, body: impl Fn(&Session) -> T + Sync) -> Vec<T> {
    let rendezvous = format!("unix:@typed-tables-test-{}-{name}", std::process::id());
    threads(2, |rank| {
        let rank = rank.to_string();
        let environment = Environment::from_variables([
            ("SYNCLINE_RANK", rank.as_str()),
            ("SYNCLINE_WORLD_SIZE", "2"),
            ("SYNCLINE_RENDEZVOUS", rendezvous.as_str()),
            ("SYNCLINE_TOKEN", "t"),
            ("SYNCLINE_TIMEOUT", "10"),
        ]);
        let config = Config::from_environment(&environment, &Arguments::default()).expect("a sound environment");
        let session = Session::open(config).expect("both come");
        let result = body(&session);
        session.shutdown().expect("a polite end");
        result
    })
}

#[test]
fn every_number_type_goes_in_and_comes_out() {
    let session = Session::solo().unwrap();
    fn check<T: Element>(session: &Session, one: T, two: T, zero: T) {
        let array = session.array::<T>(3).initial(&[one; 3]).create().unwrap();
        array.add(&[one; 3]).unwrap();
        assert_eq!(array.get().unwrap(), [two; 3], "{}", T::DTYPE);
        let mut out = [zero; 3];
        array.get_into(&mut out).unwrap();
        assert_eq!(out, [two; 3]);
        assert_eq!(array.get_async().unwrap().wait().unwrap(), [two; 3]);
        let matrix = session.matrix::<T>(2, 2).updater(Updater::Sgd).initial(&[two; 4]).create().unwrap();
        matrix.add_rows(&[1], &[one; 2]).unwrap();
        assert_eq!(matrix.get().unwrap(), [two, two, one, one]);
        assert_eq!(matrix.get_rows_async([1, 0]).unwrap().wait().unwrap(), [one, one, two, two]);
        assert_eq!((matrix.rows(), matrix.cols(), matrix.len()), (2, 2, 4));
    }
    check(&session, 1.0f32, 2.0, 0.0);
    check(&session, 1.0f64, 2.0, 0.0);
    check(&session, f16::ONE, f16::from_f32(2.0), f16::ZERO);
    check(&session, bf16::ONE, bf16::from_f32(2.0), bf16::ZERO);
    check(&session, 1i8, 2, 0);
    check(&session, 1i16, 2, 0);
    check(&session, 1i32, 2, 0);
    check(&session, 1i64, 2, 0);
    check(&session, 1u8, 2, 0);
    session.shutdown().unwrap();
}

#[test]
fn the_dial_is_the_sessions_unless_the_table_says_otherwise() {
    for sync in [false, true] {
        let session = Session::open(Config::solo().sync(sync)).unwrap();
        let table = |builder: syncline::TableBuilder<'_, ArrayTable<f32>>| builder.create().unwrap().table().spec().consistency;
        let default = if sync { Consistency::Sync } else { Consistency::Async };
        assert_eq!(table(session.array(1)), default);
        assert_eq!(table(session.array(1).sync(!sync)), if sync { Consistency::Async } else { Consistency::Sync });
        assert_eq!(table(session.array(1).staleness(3)), Consistency::Bounded(3));
        assert_eq!(table(session.array(1).staleness(0)), Consistency::Sync);
        session.shutdown().unwrap();
    }
}

#[test]
fn momentum_and_adagrad_remember_between_adds() {
    let session = Session::solo().unwrap();
    let momentum = session.array::<f64>(1).updater(Updater::MomentumSgd).create().unwrap();
    let half = AddOptions { momentum: Some(0.5), ..AddOptions::default() };
    momentum.add_with(&[1.0], &half).unwrap(); // s = 0.5
    momentum.add_with(&[1.0], &half).unwrap(); // s = 0.75
    assert_eq!(momentum.get().unwrap(), [-1.25]);

    let adagrad = session.matrix::<f64>(2, 1).updater(Updater::Adagrad).create().unwrap();
    let options = AddOptions { learning_rate: Some(0.5), rho: Some(0.25), ..AddOptions::default() };
    for round in 1..=4 {
        let before = adagrad.get_rows(&[1]).unwrap()[0];
        adagrad.add_rows_with(&[1], &[0.5], &options).unwrap(); // g = 1, so h counts the rounds
        let step = before - adagrad.get_rows(&[1]).unwrap()[0];
        assert!((step - 0.25 / f64::from(round).sqrt()).abs() < 1e-6, "round {round}: {step}");
    }
    assert_eq!(adagrad.get_rows(&[0]).unwrap(), [0.0]);
    session.shutdown().unwrap();
}

#[test]
fn delay_compensation_counts_from_what_the_worker_last_got() {
    for updater in [Updater::Dcasgd, Updater::Dcasgda] {
        let values = pair(updater.name(), |session| {
            let table = session.array::<f64>(1).initial(&[1.0]).updater(updater).create().unwrap();
            let options = AddOptions { learning_rate: Some(0.5), lambda: Some(0.5), momentum: Some(0.0), ..AddOptions::default() };
            if session.worker_id() == Some(0) {
                table.add_with(&[0.5], &options).unwrap(); // nobody moved it since the beginning: 1 − 0.5
            }
            session.barrier().unwrap();
            if session.worker_id() == Some(1) {
                table.add_with(&[0.5], &options).unwrap(); // it is half a step behind
                assert_ne!(table.get().unwrap(), [0.0]);
                let before = table.get().unwrap()[0];
                table.add_with(&[0.5], &options).unwrap(); // and now it is not
                assert_eq!(table.get().unwrap(), [before - 0.5]);
            }
            session.barrier().unwrap();
            table.get().unwrap()
        });
        // d·d/lr = 0.5, x − b = −0.5, λ = 0.5; with no memory of squares √(v+ε) is about g = 1.
        let expected = 0.5 - (0.5 + 0.5 * 0.5 * -0.5) - 0.5;
        for value in values {
            assert!((value[0] - expected).abs() < 1e-6, "{updater}: {value:?}, expected {expected}");
        }
    }
}

#[test]
fn options_that_make_no_sense_change_nothing() {
    let session = Session::solo().unwrap();
    let table = session.array::<f32>(1).updater(Updater::Adagrad).create().unwrap();
    let bad = AddOptions { learning_rate: Some(0.0), ..AddOptions::default() };
    let error = table.add_with(&[1.0], &bad).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Configuration);
    assert!(error.to_string().contains("learning_rate"), "{error}");
    assert_eq!(table.get().unwrap(), [0.0]);
    let error = session.array::<i32>(1).updater(Updater::Adagrad).create().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Configuration, "{error}");
    session.shutdown().unwrap();
}

#[test]
fn workers_who_disagree_see_both_lines() {
    let seen = pair("disagree", |session| {
        let (made, line) = if session.rank() == 0 {
            (session.array::<f32>(10).create().map(|_| ()), line!())
        } else {
            (session.array::<f32>(11).create().map(|_| ()), line!())
        };
        (made.unwrap_err(), line)
    });
    let lines: Vec<String> = seen.iter().map(|(_, line)| format!("typed_tables.rs:{line}:")).collect();
    for (error, _) in &seen {
        assert_eq!(error.kind(), ErrorKind::ContractMismatch, "{error}");
        assert!(lines.iter().all(|line| error.to_string().contains(line)), "{error} names {lines:?}");
    }
}

#[test]
fn a_handle_may_be_less_patient_than_its_session() {
    pair("patience", |session| {
        let table = session.array::<f32>(1).sync(true).create().unwrap();
        if session.worker_id() == Some(0) {
            table.add(&[1.0]).unwrap();
            let error = table.with_timeout(Duration::from_millis(50)).get().unwrap_err(); // the other one has not added yet
            assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        }
        session.barrier().unwrap();
        if session.worker_id() == Some(1) {
            table.add(&[2.0]).unwrap();
        }
        assert_eq!(table.get().unwrap(), [3.0]);
    });
}

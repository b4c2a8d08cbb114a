//! Tables made by name: any order, any time, any roles, over every transport.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use syncline_cluster::TransportChoice::{self, Auto, Tcp, Unix};
use syncline_cluster::{Deadline, ErrorKind, Settings};
use syncline_table::{AddOptions, Consistency, Placement, Spec, Table};
use syncline_testkit::ranks::eventually;

use crate::gathered::{job, job_with, soon};

mod gradients;

const ROLES: [&[&str]; 4] =
    [&["both", "both", "both"], &["worker", "worker", "server"], &["worker", "server", "worker", "server"], &["both", "worker", "server"]];

fn everywhere(name: &str, test: impl Fn(&str, &[&str], TransportChoice)) {
    for (index, roles) in ROLES.iter().enumerate() {
        for transport in [Auto, Unix, Tcp] {
            test(&format!("{name}{index}"), roles, transport);
        }
    }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks(4).map(|bytes| f32::from_le_bytes(bytes.try_into().expect("four"))).collect()
}

fn bytes(numbers: impl IntoIterator<Item = f32>) -> Vec<u8> {
    numbers.into_iter().flat_map(f32::to_le_bytes).collect()
}

fn values(table: &Table) -> Vec<f32> {
    let mut out = vec![0; table.spec().bytes()];
    table.get(&mut out, None, soon()).expect("got");
    floats(&out)
}

fn spec(key: u64, size: u64) -> Spec {
    let placement = if key.is_multiple_of(2) { Placement::Split } else { Placement::Whole { on: key } };
    Spec::array(size).named(format!("key {key}")).with_consistency(Consistency::Sync).placed(placement)
}

#[test]
fn every_worker_names_them_in_an_order_of_its_own_between_ordinary_tables() {
    everywhere("order", |name, roles, transport| {
        let seen = job(name, roles, transport, |_, tables, worker| {
            let mut keys: Vec<u64> = (0..6).collect();
            keys.rotate_left(worker * 2);
            let mut made: Vec<(u64, Table)> = Vec::new();
            tables.create(Spec::array(3), Some(&bytes([9.0; 3])), "here", soon()).expect("an ordinary one");
            for key in keys {
                let initial = bytes((0..700).map(|index| (index + 1000 * key + 7 * worker as u64) as f32));
                made.push((key, tables.create_named(spec(key, 700), Some(&initial), "here", soon()).expect("made")));
            }
            tables.create(Spec::array(3), Some(&bytes([9.0; 3])), "here", soon()).expect("another");
            made.sort_by_key(|(key, _)| *key);
            for (key, table) in &made {
                table.add(&bytes((0..700).map(|_| *key as f32)), None, &AddOptions::default(), false, soon()).expect("added");
            }
            made.iter().map(|(_, table)| values(table)).collect::<Vec<_>>()
        });
        let seen: Vec<_> = seen.into_iter().flatten().collect();
        let workers = seen.len() as f32;
        for tables in seen {
            for (key, values) in tables.iter().enumerate() {
                let expected: Vec<f32> = (0..700).map(|index| (index + 1000 * key) as f32 + key as f32 * workers).collect();
                assert_eq!(*values, expected, "{name} {transport}: worker 0's value and everybody's adds");
            }
        }
    });
}

#[test]
fn worker_0_waits_for_nobody_and_the_others_for_it_only() {
    everywhere("alone", |name, roles, transport| {
        let done = AtomicBool::new(false);
        job(name, roles, transport, |_, tables, worker| match worker {
            0 => {
                let table = tables.create_named(spec(1, 40_000), Some(&bytes([2.5; 40_000])), "here", soon()).expect("nobody else came");
                let split = tables.create_named(spec(2, 40_000), None, "here", soon()).expect("nobody else came");
                assert_eq!(values(&table)[39_999], 2.5);
                assert_eq!(values(&split)[39_999], 0.0);
                done.store(true, SeqCst);
            }
            1 => {
                eventually("worker 0 is done", Duration::from_secs(20), || done.load(SeqCst));
                let table = tables.create_named(spec(1, 40_000), None, "here", soon()).expect("it is there");
                assert_eq!(values(&table), [2.5; 40_000]);
            }
            _ => eventually("worker 0 is done", Duration::from_secs(20), || done.load(SeqCst)), // it never names any
        });
    });
}

#[test]
fn who_differs_is_told_with_both_sites_and_may_try_again() {
    everywhere("differs", |name, roles, transport| {
        job(name, roles, transport, |_, tables, worker| {
            let size = if worker == 1 { 11 } else { 10 };
            let made = tables.create_named(spec(1, size), None, &format!("train{worker}.py:3"), soon());
            if worker == 1 {
                let error = made.expect_err("another size");
                assert_eq!(error.kind(), ErrorKind::ContractMismatch);
                let text = error.to_string();
                for fact in ["train0.py:3", "train1.py:3", "array of 10", "array of 11", "key 1"] {
                    assert!(text.contains(fact), "{fact} is missing: {text}");
                }
                tables.create_named(spec(1, 10), None, "again", soon()).expect("the name is still free for this worker");
            } else {
                made.expect("its own is sound");
            }
            let twice = tables.create_named(spec(1, 10), None, "twice", soon()).expect_err("named before");
            assert!(twice.to_string().contains("named by this worker before"), "{twice}");
            let both = [(spec(5, 4), None), (spec(5, 4), None)];
            assert!(tables.create_named_many(&both, "both", soon()).is_err(), "twice in one call");
            tables.create_named(spec(5, 4), None, "after", soon()).expect("nothing was harmed");
            tables.create_named(Spec::array(3), None, "nameless", soon()).expect_err("without a name");
        });
    });
}

#[test]
fn a_worker_that_waits_in_vain_names_worker_0() {
    let settings = Settings { transport: Tcp, encrypt: false, ..Settings::default() };
    let rendezvous = format!("unix:@named-{}-vain", std::process::id());
    let over = AtomicBool::new(false);
    job_with(&rendezvous, &["both", "both"], &settings, |_, tables, worker| {
        if worker == 1 {
            let error =
                tables.create_named(spec(1, 4), None, "here", Deadline::after(Duration::from_millis(200))).expect_err("nobody made it");
            assert_eq!(error.kind(), ErrorKind::Timeout);
            assert!(error.to_string().contains("rank 0"), "{error}");
            over.store(true, SeqCst);
        } else {
            eventually("the other gave up", Duration::from_secs(20), || over.load(SeqCst));
        }
    });
}

#[test]
fn a_death_of_worker_0_is_named() {
    for transport in [Auto, Tcp] {
        let settings = Settings { transport, encrypt: false, timeout: Duration::from_secs(20), ..Settings::default() };
        let rendezvous = format!("unix:@named-{}-death-{transport}", std::process::id());
        job_with(&rendezvous, &["both", "both", "both"], &settings, |job, tables, worker| {
            if worker == 0 {
                job.abort("killed by the test");
                return;
            }
            let started = Instant::now();
            let error = tables.create_named(spec(1, 4), None, "here", soon()).expect_err("its maker is dead");
            assert!(error.to_string().contains("rank 0"), "{error}");
            assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
            job.abort("because of rank 0");
        });
    }
}

#[test]
fn two_hundred_keys_are_made_in_a_moment() {
    for transport in [Auto, Tcp] {
        for at_once in [true, false] {
            let name = format!("many{at_once}");
            let took = job(&name, &["both", "both", "both", "both"], transport, |_, tables, _| {
                let specs: Vec<_> =
                    (0..200).map(|key| (Spec::array(1000).named(format!("k{key}")).placed(Placement::Whole { on: key }), None)).collect();
                let started = Instant::now();
                if at_once {
                    tables.create_named_many(&specs, "here", soon()).expect("made");
                } else {
                    specs.into_iter().for_each(|(spec, none)| drop(tables.create_named(spec, none, "here", soon()).expect("made")));
                }
                started.elapsed()
            });
            let slowest = took.into_iter().flatten().max().expect("somebody");
            println!("200 keys, {transport}, at once {at_once}: {slowest:?}");
            assert!(slowest < Duration::from_secs(20), "{slowest:?}");
        }
    }
}

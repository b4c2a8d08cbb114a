//! Tables of whole jobs, over every transport and with every role: what each worker sees is the same wherever rows live.

mod gathered;
mod gradients;
mod named;

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::time::{Duration, Instant};

use gathered::{job, job_with, soon};
use syncline_cluster::TransportChoice::{self, Auto, Tcp, Unix};
use syncline_cluster::{Deadline, Error, OnPeerLoss, Settings};
use syncline_table::{AddOptions, Consistency, Spec};
use syncline_tensor::DType;
use syncline_testkit::ranks::eventually;
use syncline_testkit::sim::Chance;

/// All-in-one, one dedicated server, several of them, and a mixture.
const ROLES: [&[&str]; 4] =
    [&["both", "both", "both"], &["worker", "worker", "server"], &["worker", "server", "worker", "server"], &["both", "worker", "server"]];

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks(4).map(|bytes| f32::from_le_bytes(bytes.try_into().expect("four"))).collect()
}

fn bytes(numbers: impl IntoIterator<Item = f32>) -> Vec<u8> {
    numbers.into_iter().flat_map(f32::to_le_bytes).collect()
}

fn everywhere(name: &str, test: impl Fn(&str, &[&str], TransportChoice)) {
    for (index, roles) in ROLES.iter().enumerate() {
        for transport in [Auto, Unix, Tcp] {
            test(&format!("{name}{index}"), roles, transport);
        }
    }
}

#[test]
fn adds_of_all_workers_add_up_after_a_barrier() {
    everywhere("sum", |name, roles, transport| {
        let seen = job(name, roles, transport, |job, tables, worker| {
            let initial = bytes((0..70_000).map(|index| index as f32));
            let array = tables.create(Spec::array(70_000), Some(&initial), "here", soon()).expect("made");
            let matrix = tables.create(Spec::matrix(11, 5).with_dtype(DType::F32), None, "here", soon()).expect("made");
            let tiny = tables.create(Spec::array(1), None, "here", soon()).expect("made");
            let none = tables.create(Spec::array(0), None, "here", soon()).expect("made");
            for _ in 0..3 {
                array.add(&bytes((0..70_000).map(|_| 1.0)), None, &AddOptions::default(), false, soon()).expect("added");
                let ids = [10, 0, 10, worker as i64];
                matrix.add(&bytes((0..20).map(|_| 1.0)), Some(&ids), &AddOptions::default(), false, soon()).expect("added");
                tiny.add(&bytes([0.5]), None, &AddOptions::default(), true, soon()).expect("added");
                none.add(&[], None, &AddOptions::default(), true, soon()).expect("added");
            }
            let mut own = vec![0; 20 * 4];
            matrix.get(&mut own, Some(&[10, 3, 10, 0]), soon()).expect("got");
            assert!(floats(&own)[0] >= 6.0 && floats(&own)[..5] == floats(&own)[10..15], "read your writes: {own:?}");
            tables.flush(soon()).expect("flushed");
            job.barrier(soon()).expect("all live");
            let (mut whole, mut rows, mut one) = (vec![0; 280_000], vec![0; 220], vec![0; 4]);
            array.get(&mut whole, None, soon()).expect("got");
            matrix.get(&mut rows, None, soon()).expect("got");
            tiny.get(&mut one, None, soon()).expect("got");
            none.get(&mut [], None, soon()).expect("got");
            job.barrier(soon()).expect("all live");
            (floats(&whole), floats(&rows), floats(&one))
        });
        let seen: Vec<_> = seen.into_iter().flatten().collect();
        let workers = seen.len() as f32;
        for (whole, rows, one) in seen {
            assert!(whole.iter().enumerate().all(|(index, value)| *value == index as f32 + 3.0 * workers), "{name} {transport}");
            assert_eq!(rows[50..], [6.0 * workers; 5], "{name} {transport}: row 10, twice in each add");
            assert_eq!(rows[..5], [3.0 * workers + 3.0; 5], "{name} {transport}: row 0, and once more by worker 0");
            assert_eq!(one, [1.5 * workers], "{name} {transport}");
        }
    });
}

/// A get that meets a thread of its own process in the middle of applying the add finds nothing left to apply, and must read.
#[test]
fn a_get_beside_a_flush_of_the_same_add_reads_what_that_one_applied() {
    const NUMBERS: usize = 400_000;
    let roles = ["worker", "worker", "server"];
    job("beside", &roles, Auto, |_, tables, _| {
        let array = tables.create(Spec::array(NUMBERS as u64), None, "here", soon()).expect("made");
        let one = bytes((0..NUMBERS).map(|_| 1.0));
        let over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(std::sync::atomic::Ordering::Acquire) {
                    tables.flush(soon()).expect("flushed");
                }
            });
            for round in 1..=100 {
                array.add(&one, None, &AddOptions::default(), false, soon()).expect("added");
                let mut seen = vec![0; NUMBERS * 4];
                array.get(&mut seen, None, soon()).expect("got");
                let least = floats(&seen).into_iter().fold(f32::INFINITY, f32::min);
                assert!(least >= round as f32, "round {round}: a number is {least}");
            }
            over.store(true, std::sync::atomic::Ordering::Release);
        });
    });
}

#[test]
fn sync_gets_have_the_same_bytes_on_every_worker_whatever_they_touched() {
    everywhere("sync", |name, roles, transport| {
        let seen = job(name, roles, transport, |_, tables, worker| {
            let spec = Spec::matrix(9, 3).with_consistency(Consistency::Sync);
            let table = tables.create(spec, None, "here", soon()).expect("made");
            let mut chance = Chance::new(worker as u64);
            let mut gets = Vec::new();
            // Worker w stops after 6 + 2w rounds: nobody waits for one that has finished.
            for round in 0..6 + 2 * worker {
                let ids: Vec<i64> = (0..1 + chance.below(3)).map(|_| chance.below(9) as i64).collect();
                let delta = bytes(ids.iter().flat_map(|_| [0.1f32; 3]).map(|step| step * chance.below(1000) as f32));
                match round % 3 {
                    0 => table.add(&bytes([1.0 / 3.0; 27]), None, &AddOptions::default(), false, soon()).expect("added"),
                    _ => table.add(&delta, Some(&ids), &AddOptions::default(), false, soon()).expect("added"),
                }
                let mut out = vec![0; 9 * 3 * 4];
                table.get(&mut out, None, soon()).expect("got");
                gets.push(out);
            }
            tables.finish(soon()).expect("done early");
            gets
        });
        let seen: Vec<_> = seen.into_iter().flatten().collect();
        for pair in seen.windows(2) {
            let common = pair[0].len().min(pair[1].len());
            assert_eq!(pair[0][..common], pair[1][..common], "{name} {transport}");
        }
    });
}

#[test]
fn keys_live_anywhere() {
    everywhere("keys", |name, roles, transport| {
        let seen = job(name, roles, transport, |job, tables, worker| {
            let table = tables.create(Spec::keys().with_dtype(DType::I64), None, "here", soon()).expect("made");
            let keys: Vec<i64> = (-50..50).chain([worker as i64 * 1000, i64::MIN, i64::MAX]).collect();
            let ones: Vec<u8> = keys.iter().flat_map(|_| 1i64.to_le_bytes()).collect();
            for wait in [false, true] {
                table.add_keys(&keys, &ones, wait, soon()).expect("added");
            }
            tables.flush(soon()).expect("flushed");
            job.barrier(soon()).expect("all live");
            let asked = [7, -7, i64::MIN, 12345, 7, 1000];
            let mut out = vec![0; 48];
            table.get_keys(&asked, &mut out, soon()).expect("got");
            job.barrier(soon()).expect("all live");
            out.chunks(8).map(|bytes| i64::from_le_bytes(bytes.try_into().expect("eight"))).collect::<Vec<i64>>()
        });
        let seen: Vec<_> = seen.into_iter().flatten().collect();
        let all = 2 * seen.len() as i64;
        for values in seen {
            assert_eq!(values, [all, all, all, 0, all, 2], "{name} {transport}");
        }
    });
}

#[test]
fn a_bound_is_kept_between_processes_that_share_nothing() {
    for transport in [Auto, Tcp] {
        let seen = job("bound", &["both", "both", "server"], transport, |_, tables, worker| {
            let spec = Spec::matrix(6, 2).with_consistency(Consistency::Bounded(2));
            let table = tables.create(spec, None, "here", soon()).expect("made");
            let mut least = Vec::new();
            for round in 1..=30 {
                // Each worker counts in its own column of every row.
                let delta = bytes((0..12).map(|index| f32::from(u8::from(index % 2 == worker))));
                table.add(&delta, None, &AddOptions::default(), false, soon()).expect("added");
                let mut out = vec![0; 48];
                table.get(&mut out, None, soon()).expect("got");
                let values = floats(&out);
                assert!(values.iter().skip(worker).step_by(2).all(|own| *own == round as f32), "read your writes: {values:?}");
                least.push(values.iter().skip(1 - worker).step_by(2).copied().fold(f32::MAX, f32::min) - round as f32);
            }
            least
        });
        assert!(seen.iter().flatten().flatten().all(|gap| *gap >= -2.0), "{transport}: {seen:?}");
    }
}

#[test]
fn a_worker_that_dies_leaves_whole_adds_and_holds_nobody_up() {
    for (number, consistency) in [Consistency::Async, Consistency::Sync, Consistency::Bounded(1)].into_iter().enumerate() {
        for seed in 0..3u64 {
            let settings = Settings { transport: Tcp, encrypt: false, on_peer_loss: OnPeerLoss::Continue, ..Settings::default() };
            let rendezvous = format!("unix:@table-{}-dies-{number}-{seed}", std::process::id());
            // Rows 0 to 7 live on two servers; worker 2 adds to all of them and is gone in the middle of its program.
            let seen = job_with(&rendezvous, &["worker", "server", "worker", "worker", "server"], &settings, |job, tables, worker| {
                let table = tables.create(Spec::matrix(8, 3).with_consistency(consistency), None, "here", soon()).expect("made");
                let ones = bytes((0..24).map(|index| f32::from(u8::from(index % 3 == worker))));
                let rounds = if worker == 2 { 3 + seed } else { 12 };
                let mut out = vec![0; 96];
                for round in 0..rounds {
                    table
                        .add(&ones, None, &AddOptions::default(), round % 2 == 0 && consistency == Consistency::Async, soon())
                        .expect("added");
                    if worker != 2 || round + 1 < rounds {
                        table.get(&mut out, None, soon()).expect("got");
                    }
                }
                if worker == 2 {
                    job.abort("as if killed");
                    return Vec::new();
                }
                job.barrier(soon()).expect("the others go on");
                if consistency != Consistency::Sync {
                    // Who flushes after the news of a death waits for the verdict; the news may be on its way to the servers.
                    eventually("the last add counts everywhere or nowhere", Duration::from_secs(10), || {
                        tables.flush(soon()).expect("flushed");
                        table.get(&mut out, None, soon()).expect("got");
                        let values = floats(&out);
                        values.iter().skip(2).step_by(3).all(|value| *value == values[2])
                    });
                }
                job.barrier(soon()).expect("the others go on");
                table.get(&mut out, None, soon()).expect("got");
                job.barrier(soon()).expect("the others go on");
                floats(&out)
            });
            let seen: Vec<Vec<f32>> = seen.into_iter().flatten().filter(|values| !values.is_empty()).collect();
            assert_eq!(seen.len(), 2);
            for values in seen {
                let columns = |column: usize| values.iter().skip(column).step_by(3).copied().collect::<Vec<f32>>();
                assert_eq!((columns(0), columns(1)), (vec![12.0; 8], vec![12.0; 8]), "{consistency:?} seed {seed}");
                let left = columns(2);
                let (least, most) = ((2 + seed) as f32, (3 + seed) as f32);
                assert!(
                    left.iter().all(|value| *value == left[0] && (least..=most).contains(value)),
                    "{consistency:?} seed {seed}: {left:?}"
                );
            }
        }
    }
}

/// Ctrl-C, once: who has heard of it is not told again.
fn ctrl_c() -> bool {
    static TOLD: AtomicBool = AtomicBool::new(false);
    !TOLD.swap(true, AcqRel)
}

#[test]
fn one_ctrl_c_ends_a_save_whose_adds_wait_for_another_worker() {
    let folder = std::env::temp_dir().join(format!("syncline-called-off-{}", std::process::id()));
    let ended = AtomicBool::new(false);
    job("called-off", &["both", "both"], Tcp, |_, tables, worker| {
        let table = tables.create(Spec::array(100).with_consistency(Consistency::Sync), None, "here", soon()).expect("made");
        let add = |by| table.add(&bytes([1.0; 100]), None, &AddOptions::default(), false, by);
        if worker == 1 {
            eventually("the other's save", Duration::from_secs(60), || ended.load(Acquire));
            let failed = tables.save(&folder, soon()).expect_err("one of the two was called off");
            return assert!(failed.to_string().contains("rank 0"), "{failed}");
        }
        // More than the servers take before the other has added too.
        while add(Deadline::after(Duration::from_millis(200))).is_ok() {}
        let began = Instant::now();
        let failed = tables.save(&folder, soon().with_interrupt(ctrl_c)).expect_err("the adds wait, and so does who saves them");
        ended.store(true, Release);
        assert!(
            matches!(failed, Error::Interrupted { .. }) && began.elapsed() < Duration::from_secs(10),
            "{failed} after {:?}",
            began.elapsed()
        );
    });
    assert!(!folder.join("manifest.json").exists());
    let _ = std::fs::remove_dir_all(&folder); // where it was begun
}

//! Tables as their users see them, with the ranks of a job as threads of one process that share real memory.

mod thread_jobs;

use std::cell::Cell;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use syncline::{AddOptions, Consistency, DType, Element, ErrorKind, Session, Spec, Table, Updater};
use syncline_testkit::ranks::eventually;
use thread_jobs::{APART, MANNERS, Manner, TOGETHER, by, job, job_in};

fn add<T: Element + bytemuck::Pod>(table: &Table, delta: &[T], rows: Option<&[i64]>) {
    table.add(bytemuck::cast_slice(delta), rows, &AddOptions::default(), false, by()).expect("added");
}

fn get<T: Element + bytemuck::Pod>(table: &Table, rows: Option<&[i64]>) -> Vec<T> {
    let bytes = rows.map_or(table.spec().bytes(), |rows| rows.len() * table.spec().row_bytes());
    let mut out = vec![T::zeroed(); bytes / size_of::<T>()];
    table.get(bytemuck::cast_slice_mut(&mut out), rows, by()).expect("fetched");
    out
}

#[test]
fn the_array_of_multiversos_own_test() {
    for (world, manner) in (1..=4).flat_map(|world| MANNERS.map(|manner| (world, manner))) {
        job_in(manner, world, "array", |session| {
            let size = 10_000;
            let table = session.create_table(Spec::array(size), None).unwrap();
            let delta: Vec<f32> = (1..=size).map(|value| value as f32).collect();
            for round in 0..100 {
                add(&table, &delta, None);
                add(&table, &delta, None);
                session.barrier().unwrap();
                let factor = ((round + 1) * 2 * world) as f32;
                let values = get::<f32>(&table, None);
                assert!(values.iter().zip(&delta).all(|(value, delta)| *value == delta * factor), "round {round}");
                session.barrier().unwrap();
            }
        });
    }
}

#[test]
fn the_matrix_of_multiversos_own_test() {
    for (world, manner) in (1..=4).flat_map(|world| MANNERS.map(|manner| (world, manner))) {
        job_in(manner, world, "matrix", |session| {
            let table = session.create_table(Spec::matrix(11, 10), None).unwrap();
            let all: Vec<f32> = (0..110).map(|value| value as f32).collect();
            let ids = [0_i64, 1, 5, 10];
            let rows: Vec<f32> = ids.iter().flat_map(|id| (0..10).map(move |col| (id * 10 + col) as f32)).collect();
            for count in 1..=20 {
                add(&table, &all, None);
                add(&table, &rows, Some(&ids));
                session.barrier().unwrap();
                let factor = (count * world) as f32;
                for (index, value) in get::<f32>(&table, None).into_iter().enumerate() {
                    let twice = if ids.contains(&(index as i64 / 10)) { 2.0 } else { 1.0 };
                    assert_eq!(value, index as f32 * factor * twice);
                }
                session.barrier().unwrap();
                let fetched = get::<f32>(&table, Some(&ids));
                assert!(fetched.iter().zip(&rows).all(|(value, row)| *value == row * factor * 2.0));
                session.barrier().unwrap();
            }
        });
    }
}

/// Multiverso's test of matrices in rounds: everything and then some rows, each of which has been added to twice as often.
#[test]
fn the_sync_matrix_of_multiversos_core_test() {
    const COLS: i32 = 3592;
    for (world, manner) in (1..=4).flat_map(|world| MANNERS.map(|manner| (world, manner))) {
        job_in(manner, world, "core-matrix", |session| {
            for rows in [11, 1] {
                let spec = Spec::matrix(rows, COLS as u64).with_dtype(DType::I32).with_consistency(Consistency::Sync);
                let table = session.create_table(spec, None).unwrap();
                let all: Vec<i32> = (1..=rows as i32 * COLS).collect();
                let ids: Vec<i64> = [0_i64, 1, 3, 7].into_iter().filter(|id| *id < rows as i64).collect();
                let some: Vec<i32> = ids.iter().flat_map(|id| (1..=COLS).map(move |col| *id as i32 * COLS + col)).collect();
                for count in 1..=20 {
                    add(&table, &all, None);
                    let before = get::<i32>(&table, None);
                    add(&table, &some, Some(&ids));
                    let fetched = get::<i32>(&table, Some(&ids));
                    let factor = count * world as i32;
                    for (index, (value, delta)) in before.iter().zip(&all).enumerate() {
                        let rounds = if ids.contains(&(index as i64 / i64::from(COLS))) { 2 * factor - world as i32 } else { factor };
                        assert_eq!(*value, delta * rounds, "element {index} of {rows} rows, round {count}");
                    }
                    assert!(fetched.iter().zip(&some).all(|(value, delta)| *value == delta * factor * 2), "round {count}");
                }
            }
        });
    }
}

/// Its test of uneven loops: who makes fewer rounds lets the others go on.
#[test]
fn the_sync_array_of_multiversos_core_test() {
    for (world, manner) in (1..=4).flat_map(|world| MANNERS.map(|manner| (world, manner))) {
        let last = job_in(manner, world, "core-array", |session| {
            let spec = Spec::array(500).with_dtype(DType::I32).with_consistency(Consistency::Sync);
            let table = session.create_table(spec, None).unwrap();
            let delta: Vec<i32> = (0..500).collect();
            for _ in 0..10 * (session.rank() + 10) {
                for _ in 0..3 {
                    add(&table, &delta, None);
                }
                for _ in 0..3 {
                    get::<i32>(&table, None);
                }
            }
            get::<i32>(&table, None)
        });
        // Who makes the most rounds has seen all of everybody's.
        let adds: i32 = (0..world as i32).map(|rank| 30 * (rank + 10)).sum();
        assert!(last[world as usize - 1].iter().zip(0..).all(|(value, delta)| *value == delta * adds), "{world} workers, {manner:?}");
    }
}

/// Its test of many rows: a tenth, two tenths … of a million, each by the one worker that it falls to.
#[test]
fn the_rows_of_multiversos_core_test() {
    const COLS: i64 = 50;
    for (world, rows, manner) in [(4, 1_000_000, TOGETHER), (3, 20_000, APART)] {
        job_in(manner, world, "core-rows", |session| {
            let (world, me) = (i64::from(world), i64::from(session.rank()));
            for percent in [0, 4, 9] {
                let table = session.create_table(Spec::matrix(rows as u64, COLS as u64), None).unwrap();
                let mine: Vec<i64> = (0..rows).filter(|row| row % 10 <= percent && row % world == me).collect();
                let value = |row: i64, col: i64| (row * COLS + col) as f32;
                for ids in mine.chunks(20_000) {
                    let delta: Vec<f32> = ids.iter().flat_map(|row| (0..COLS).map(move |col| value(*row, col))).collect();
                    add(&table, &delta, Some(ids));
                }
                session.barrier().unwrap();
                let sample: Vec<i64> = (0..rows).filter(|row| row % 997 < 12).collect();
                let fetched = get::<f32>(&table, Some(&sample));
                for (row, values) in sample.iter().zip(fetched.chunks_exact(COLS as usize)) {
                    let touched = row % 10 <= percent;
                    assert!(values.iter().zip(0..).all(|(found, col)| *found == if touched { value(*row, col) } else { 0.0 }), "row {row}");
                }
                session.barrier().unwrap();
            }
        });
    }
}

#[test]
fn sync_workers_see_the_same_rounds() {
    let worlds = [(1, 10), (2, 40_000), (3, 100_000), (4, 5)];
    for ((world, size), manner) in worlds.into_iter().flat_map(|world| MANNERS.map(|manner| (world, manner))) {
        let seen = job_in(manner, world, "rounds", |session| {
            let table = session.create_table(Spec::array(size).with_consistency(Consistency::Sync), None).unwrap();
            let mut seen = Vec::new();
            for round in 0..30_u32 {
                let delta: Vec<f32> = (0..size).map(|i| 0.1 * (i % 13) as f32 + 0.37 * (session.rank() * 7 + round) as f32).collect();
                add(&table, &delta, None);
                if round % 3 == session.rank() % 3 {
                    std::thread::yield_now();
                }
                seen.push(get::<f32>(&table, None));
            }
            seen
        });
        for worker in &seen[1..] {
            assert!(worker == &seen[0], "{world} workers, {manner:?}");
        }
    }
}

#[test]
fn sync_rows_get_first_loops_and_early_finishers() {
    MANNERS.into_iter().for_each(uneven_loops);
}

fn uneven_loops(manner: Manner) {
    let seen = job_in(manner, 4, "uneven", |session| {
        let spec = Spec::matrix(3000, 33).with_dtype(DType::I64).with_consistency(Consistency::Sync);
        let table = session.create_table(spec, None).unwrap();
        let rank = i64::from(session.rank());
        let mut sums = Vec::new();
        // Get first, then add; each worker makes another number of rounds and touches other rows.
        for round in 0..10 + 5 * rank {
            sums.push(get::<i64>(&table, None).iter().sum::<i64>());
            let ids = [2999 - rank, rank, (round * 97) % 3000, rank];
            add(&table, &vec![rank + 1; 4 * 33], Some(&ids));
        }
        sums
    });
    // After j own adds a get sees min(j, total) adds of every worker, each of 4 rows x 33 x (rank + 1).
    for (rank, sums) in seen.iter().enumerate() {
        for (j, sum) in sums.iter().enumerate() {
            let expected: i64 = (0..4).map(|w| (j as i64).min(10 + 5 * w) * 4 * 33 * (w + 1)).sum();
            assert_eq!(*sum, expected, "rank {rank}, get {j}, {manner:?}");
        }
    }
}

#[test]
fn bounded_staleness_holds() {
    MANNERS.into_iter().for_each(bounded);
}

fn bounded(manner: Manner) {
    job_in(manner, 3, "bounded", |session| {
        let table = session.create_table(Spec::array(7).with_dtype(DType::I32).with_consistency(Consistency::Bounded(2)), None).unwrap();
        for own in 1..=50 {
            add(&table, &[1_i32; 7], None);
            let values = get::<i32>(&table, None);
            let least = own + 2 * (own - 2).max(0);
            assert!(values[0] >= least, "after {own} adds the sum {} is below {least}", values[0]);
            assert!(table.clocks().iter().all(|clock| *clock as i32 >= own - 2));
        }
    });
}

#[test]
fn the_masters_initial_value_counts_and_no_updater_touches_it() {
    let updaters = [Updater::Add, Updater::Sgd, Updater::MomentumSgd, Updater::Adagrad, Updater::Dcasgd, Updater::Dcasgda];
    for (updater, manner) in updaters.into_iter().flat_map(|updater| MANNERS.map(|manner| (updater, manner))) {
        job_in(manner, 2, updater.name(), |session| {
            let mine = vec![session.rank() as f32 + 3.5; 5];
            let table = session.create_table(Spec::array(5).with_updater(updater), Some(bytemuck::cast_slice(&mine))).unwrap();
            assert_eq!(get::<f32>(&table, None), [3.5; 5]);
        });
    }
}

#[test]
fn repeated_and_unsorted_rows_mean_what_they_say() {
    for manner in MANNERS {
        job_in(manner, 1, "repeats", repeats);
        job_in(manner, 2, "repeats", repeats);
    }
}

fn repeats(session: &Session) {
    let table = session.create_table(Spec::matrix(5, 2).with_dtype(DType::I16), None).unwrap();
    if session.rank() == 0 {
        add(&table, &[1_i16, 2, 10, 20, 100, 200], Some(&[3, 0, 3]));
    }
    session.barrier().unwrap();
    assert_eq!(get::<i16>(&table, Some(&[3, 3, 1, 0])), [101, 202, 101, 202, 0, 0, 10, 20]);
    assert_eq!(get::<i16>(&table, Some(&[])), [0_i16; 0]);
}

#[test]
fn bad_calls_say_what_is_wrong_and_change_nothing() {
    MANNERS.into_iter().for_each(bad_calls);
}

fn bad_calls(manner: Manner) {
    job_in(manner, 2, "bad", |session| {
        let table = session.create_table(Spec::matrix(4, 3), None).unwrap();
        let refused = |delta: &[f32], rows: Option<&[i64]>| {
            table.add(bytemuck::cast_slice(delta), rows, &AddOptions::default(), true, by()).unwrap_err()
        };
        assert_eq!(refused(&[1.0; 11], None).kind(), ErrorKind::ShapeMismatch);
        assert_eq!(refused(&[1.0; 6], Some(&[0])).kind(), ErrorKind::ShapeMismatch);
        for id in [-1, 4, i64::MIN, i64::MAX] {
            let error = refused(&[1.0; 6], Some(&[0, id]));
            assert!(error.kind() == ErrorKind::UnknownKey && error.to_string().contains(&id.to_string()), "{error}");
            assert!(table.get(&mut [0; 12], Some(&[id]), by()).is_err());
        }
        session.barrier().unwrap();
        assert_eq!(get::<f32>(&table, None), [0.0; 12]);
    });
}

#[test]
fn only_rows_that_others_changed_come_back() {
    MANNERS.into_iter().for_each(changed_rows);
}

fn changed_rows(manner: Manner) {
    job_in(manner, 2, "changed", |session| {
        let table = session.create_table(Spec::matrix(100, 4), None).unwrap();
        let mut view = vec![0_f32; 400];
        let mut changed = || table.get_changed(bytemuck::cast_slice_mut(&mut view), by()).unwrap();
        assert_eq!(changed().len(), 100, "the first time everything is new");
        session.barrier().unwrap();
        assert_eq!(changed(), [0_i64; 0]);
        session.barrier().unwrap();
        let rank = i64::from(session.rank());
        add(&table, &[1.0_f32; 8], Some(&[10 + rank, 50]));
        add(&table, &[0.0_f32; 4], Some(&[99]));
        session.barrier().unwrap();
        assert_eq!(changed(), [11 - rank, 50], "the other's rows, not mine, and none that stayed equal");
        session.barrier().unwrap();
        if rank == 0 {
            add(&table, &[1.0_f32; 400], None);
        }
        session.barrier().unwrap();
        assert_eq!(changed().len(), if rank == 0 { 0 } else { 100 });
        session.barrier().unwrap();
        if rank == 1 {
            assert_eq!(view, get::<f32>(&table, None));
        }
    });
}

#[test]
fn large_adds_reach_others_without_a_get_or_barrier() {
    job(2, "left", |session| {
        let size = 500_000;
        let table = session.create_table(Spec::array(size), None).unwrap();
        if session.rank() == 0 {
            add(&table, &vec![1.0_f32; size as usize], None);
        } else {
            syncline_testkit::ranks::eventually("the add arrives", std::time::Duration::from_secs(5), || {
                get::<f32>(&table, None)[7] == 1.0
            });
        }
        session.barrier().unwrap();
    });
}

#[test]
fn empty_and_tiny_tables_work() {
    MANNERS.into_iter().for_each(tiny_tables);
}

fn tiny_tables(manner: Manner) {
    job_in(manner, 4, "tiny", |session| {
        let empty = session.create_table(Spec::array(0), None).unwrap();
        add::<f32>(&empty, &[], None);
        assert_eq!(get::<f32>(&empty, None), [0.0_f32; 0]);
        let no_cols = session.create_table(Spec::matrix(3, 0).with_consistency(Consistency::Sync), None).unwrap();
        add::<f32>(&no_cols, &[], Some(&[2, 0]));
        assert_eq!(get::<f32>(&no_cols, None), [0.0_f32; 0]);
        let one = session.create_table(Spec::array(1).with_dtype(DType::U8), None).unwrap();
        add(&one, &[1_u8], None);
        session.barrier().unwrap();
        assert_eq!(get::<u8>(&one, None), [4]);
    });
}

#[test]
fn gets_in_the_background_contain_what_was_added_before() {
    MANNERS.into_iter().for_each(background_gets);
}

fn background_gets(manner: Manner) {
    job_in(manner, 2, "background", |session| {
        let sync = Spec::array(1000).with_dtype(DType::I64).with_consistency(Consistency::Sync);
        let table = session.create_table(sync, None).unwrap();
        for round in 1..=20 {
            add(&table, &[1_i64; 1000], None);
            let first = table.get_async(None).unwrap();
            let second = table.get_async(None).unwrap();
            add(&table, &[1_i64; 1000], None);
            for pending in [first, second] {
                let bytes = pending.wait(None, by()).unwrap();
                assert_eq!(bytemuck::pod_read_unaligned::<i64>(&bytes[..8]), 2 * (2 * round - 1));
            }
        }
    });
}

#[test]
fn keys_of_an_open_space() {
    for (world, manner) in (1..=3).flat_map(|world| MANNERS.map(|manner| (world, manner))) {
        job_in(manner, world, "keys", |session| {
            let table = session.create_table(Spec::keys().with_dtype(DType::I64), None).unwrap();
            let get = |keys: &[i64]| {
                let mut out = vec![0_i64; keys.len()];
                table.get_keys(keys, bytemuck::cast_slice_mut(&mut out), by()).unwrap();
                out
            };
            let add = |keys: &[i64], values: &[i64]| table.add_keys(keys, bytemuck::cast_slice(values), false, by()).unwrap();
            assert_eq!(get(&[0]), [0]);
            session.barrier().unwrap();
            add(&[0, i64::MIN, -7, 0], &[1, 2, 3, 2]);
            session.barrier().unwrap();
            let w = i64::from(world);
            assert_eq!(get(&[0, 0, -7, i64::MIN, i64::MAX]), [3 * w, 3 * w, 3 * w, 2 * w, 0]);
            session.barrier().unwrap();
            add(&[0], &[-4]);
            session.barrier().unwrap();
            assert_eq!(get(&[0]), [-w]);
            assert_eq!(get(&[]), [0_i64; 0]);
            assert!(table.add_keys(&[1, 2], &[0; 8], false, by()).is_err());
        });
    }
}

#[test]
fn a_checkpoint_is_loaded_by_any_number_of_workers_and_servers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model");
    let make = |session: &Session| {
        let momentum = Spec::matrix(1000, 7).with_updater(Updater::MomentumSgd).named("weights");
        let sync = Spec::array(50_001).with_dtype(DType::F64).with_consistency(Consistency::Sync);
        let history = Spec::array(9).with_updater(Updater::Adagrad);
        let keys = Spec::keys().with_dtype(DType::I32);
        [momentum, sync, history, keys].map(|spec| session.create_table(spec, None).unwrap())
    };
    let options = AddOptions { momentum: Some(0.5), ..AddOptions::default() };
    let go_on = |session: &Session, tables: &[Table; 4]| {
        let one = session.rank() as f32 + 1.0;
        tables[0].add(bytemuck::cast_slice(&vec![one; 7000]), None, &options, true, by()).unwrap();
        add(&tables[1], &vec![0.1_f64; 50_001], None);
        add(&tables[2], &[0.25_f32; 9], None);
        tables[3].add_keys(&[7, -9], bytemuck::cast_slice(&[1_i32, 2]), true, by()).unwrap();
        session.barrier().unwrap();
        let mut keys = [0_i32; 3];
        tables[3].get_keys(&[7, -9, 8], bytemuck::cast_slice_mut(&mut keys), by()).unwrap();
        (get::<f32>(&tables[0], None), get::<f64>(&tables[1], None), get::<f32>(&tables[2], None), keys)
    };
    let mut saved = Vec::new();
    for manner in [TOGETHER, MANNERS[3]] {
        saved = job_in(manner, 3, "save", |session| {
            let tables = make(session);
            let state = go_on(session, &tables);
            session.barrier().unwrap();
            session.save(&path).unwrap();
            session.save(&path).unwrap(); // the second replaces the first
            state
        });
    }
    let after = |manner: Manner, workers: u32, load: bool| {
        job_in(manner, workers, if load { "load" } else { "plain" }, |session| {
            let tables = make(session);
            if load {
                session.load(&path).unwrap();
                let mut keys = [0_i32; 2];
                tables[3].get_keys(&[7, -9], bytemuck::cast_slice_mut(&mut keys), by()).unwrap();
                assert_eq!((keys, &get::<f32>(&tables[0], None)), ([3, 6], &saved[0].0));
                assert_eq!((&get::<f64>(&tables[1], None), &get::<f32>(&tables[2], None)), (&saved[0].1, &saved[0].2));
                session.barrier().unwrap();
            } else {
                go_on(session, &tables);
                session.barrier().unwrap();
            }
            go_on(session, &tables)
        })
    };
    // Going on after a load is the same as never having stopped, states included, where the workers are as many.
    for manner in MANNERS {
        let (loaded, straight) = (after(manner, 3, true), after(manner, 3, false));
        assert!(loaded[0].1 == straight[0].1 && loaded[0].3 == straight[0].3, "{manner:?}");
        after(manner, 2, true);
    }
    let error = job(1, "other", |session| {
        session.create_table(Spec::array(3).named("weights"), None).unwrap();
        session.load(&path).unwrap_err()
    });
    assert!(error[0].kind() == ErrorKind::ShapeMismatch && error[0].to_string().contains("weights"), "{}", error[0]);
}

#[test]
fn workers_that_wait_for_each_other_are_told_so() {
    job(2, "circle", |session| {
        let sync = Spec::array(10).with_consistency(Consistency::Sync);
        let table = session.create_table(sync, None).unwrap();
        if session.rank() == 0 {
            // Worker 0 makes one add more than worker 1, which is in a barrier.
            add(&table, &[1.0_f32; 10], None);
            let error = table.get(&mut [0; 40], None, by()).unwrap_err();
            let text = error.to_string();
            assert!(error.kind() == ErrorKind::ContractMismatch, "{text}");
            assert!(text.contains("rank 1") && text.contains("a barrier") && text.contains("rank 0"), "{text}");
        }
        session.barrier().unwrap();
    });
}

#[test]
fn rows_beyond_what_fits_at_once_are_refused_by_the_call_that_brings_them() {
    for manner in MANNERS {
        job_in(manner, 2, "many-rows", |session| {
            for consistency in [Consistency::Async, Consistency::Sync] {
                let table = session.create_table(Spec::matrix(4, 60).with_dtype(DType::U8).with_consistency(consistency), None).unwrap();
                let add =
                    |rows: usize, wait: bool| table.add(&vec![1; rows * 60], Some(&vec![2; rows]), &AddOptions::default(), wait, by());
                for wait in [false, true] {
                    let error = add(1_200_000, wait).expect_err("80 MB with their ids, for a table of 240 bytes");
                    assert_eq!(error.kind(), ErrorKind::ShapeMismatch, "{manner:?}: {error}");
                    assert!(error.to_string().contains("several calls"), "{manner:?}: {error}");
                }
                add(700_000, false).expect("53 MB fit");
                session.barrier().unwrap();
                let sum = (2 * 700_000 % 256) as u8;
                assert_eq!(get::<u8>(&table, Some(&[1, 2]))[59..61], [0, sum], "{manner:?}: what was refused changed nothing");
            }
        });
    }
}

#[test]
fn an_initial_value_of_the_wrong_size_fails_everywhere_and_the_next_table_is_the_same_for_all() {
    for (wrong, manner) in [0, 1].into_iter().flat_map(|wrong| MANNERS.map(|manner| (wrong, manner))) {
        job_in(manner, 2, &format!("wrong-size-{wrong}"), |session| {
            let initial = if session.rank() == wrong { vec![1.0_f32; 7] } else { vec![1.0_f32; 10] };
            let error = session.create_table(Spec::array(10), Some(bytemuck::cast_slice(&initial))).expect_err("a wrong size");
            let text = error.to_string();
            assert!(text.contains("7 elements") && text.contains("10"), "{manner:?}: {text}");
            assert!(session.rank() == wrong || text.contains(&format!("rank {wrong}")), "{manner:?}: {text}");
            let next = session.create_table(Spec::array(3), Some(bytemuck::cast_slice(&[session.rank() as f32; 3]))).expect("made by all");
            add(&next, &[1.0_f32; 3], None);
            session.barrier().unwrap();
            assert_eq!(get::<f32>(&next, None), [2.0; 3], "{manner:?}");
        });
    }
}

/// Of three that fail, two may be through before the third has looked for their memory.
#[test]
fn workers_that_all_fail_to_make_a_table_do_not_wait_for_each_other() {
    for manner in MANNERS {
        job_in(manner, 3, "all-fail", |session| {
            for attempt in 0..200 {
                let error = session.create_table(Spec::array(10), Some(&[0; 7])).expect_err("a wrong size");
                assert_eq!(error.kind(), ErrorKind::ShapeMismatch, "{manner:?}, attempt {attempt}: {error}");
            }
            session.barrier().unwrap();
        });
    }
}

/// Two workers have asked for a table when the third, which they count on, leaves.
#[test]
fn a_table_is_made_by_those_who_are_left_when_one_leaves_while_they_ask_for_it() {
    static ASKING: AtomicU64 = AtomicU64::new(0);
    fn asks() -> bool {
        thread_local!(static ASKED: Cell<bool> = const { Cell::new(false) });
        if !ASKED.replace(true) {
            ASKING.fetch_add(1, SeqCst);
        }
        false
    }
    for manner in MANNERS {
        ASKING.store(0, SeqCst);
        job_in(manner, 3, "leaves-meanwhile", |session| {
            if session.rank() == 1 {
                return eventually("the others ask", Duration::from_secs(20), || ASKING.load(SeqCst) == 2);
            }
            let spec = Spec::matrix(5, 2).with_consistency(Consistency::Sync);
            let table = session.create_table_at(spec, None, "here", by().with_interrupt(asks)).expect("made by those who are left");
            for round in 1..=3 {
                add(&table, &[1.0_f32; 10], None);
                assert_eq!(get::<f32>(&table, None), [2.0 * round as f32; 10], "{manner:?}");
            }
        });
    }
}

/// A world of one adds in place; what goes through its outbox all the same must find that up to date.
#[test]
fn a_worker_alone_loses_no_add_whichever_way_it_goes() {
    let session = Session::solo().unwrap();
    let table = session.create_table(Spec::matrix(40, 3), None).unwrap();
    for _ in 0..300 {
        add(&table, &[1.0_f32; 120], None);
    }
    let mut mirror = vec![0.0_f32; 120];
    assert_eq!(table.get_changed(bytemuck::cast_slice_mut(&mut mirror), by()).unwrap().len(), 40);
    add(&table, &[1.0_f32; 6], Some(&[1, 2]));
    assert_eq!(get::<f32>(&table, Some(&[0, 1, 2])), [300.0, 300.0, 300.0, 301.0, 301.0, 301.0, 301.0, 301.0, 301.0]);
    for _ in 0..300 {
        add(&table, &[1.0_f32; 120], None);
        add(&table, &[1.0_f32; 6], Some(&[1, 2]));
    }
    assert_eq!(get::<f32>(&table, Some(&[0, 1]))[..4], [600.0, 600.0, 600.0, 901.0]);
}

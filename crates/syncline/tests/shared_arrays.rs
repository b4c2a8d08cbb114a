//! Arrays in shared memory as their users see them: memory like any other, which tables do not copy.

mod thread_jobs;

use syncline::{AddOptions, Consistency, DType, ReduceOp, Session, Spec};
use thread_jobs::{by, job};

#[test]
fn an_array_outlives_its_session_and_begins_as_zeros_on_a_page() {
    let mut arrays = job(2, "outlives", |session| session.empty_shared(100_000).expect("memory"));
    for array in &mut arrays {
        assert!(array.as_ptr().addr().is_multiple_of(4096) && array.len() == 100_000);
        assert!(array.bytes().iter().all(|byte| *byte == 0));
        array.bytes_mut().fill(3);
        assert_eq!(array.bytes()[99_999], 3);
    }
}

#[test]
fn many_arrays_come_and_go() {
    let session = Session::solo().expect("alone");
    for round in 0..100_000 {
        let array = session.empty_shared(round % 3).expect("numbers are used again");
        assert_eq!(array.len(), round % 3);
    }
    session.shutdown().expect("a polite end");
    assert!(session.empty_shared(1).is_err());
}

#[test]
fn adds_of_shared_arrays_count_once_however_they_are_mixed_and_may_be_changed_at_once() {
    for consistency in [Consistency::Async, Consistency::Bounded(3), Consistency::Sync] {
        for workers in [1, 3] {
            let name = format!("mixed-{workers}-{consistency:?}");
            let seen = job(workers, &name, |session| {
                let size = 300_000_usize;
                let spec = Spec::array(size as u64).with_dtype(DType::I32).with_consistency(consistency);
                let table = session.create_table(spec, None).expect("made");
                let mut shared = session.empty_shared(size * 4 + 64).expect("memory");
                let mut out = vec![0; size * 4];
                let options = AddOptions::default();
                for round in 0..20 {
                    bytemuck::cast_slice_mut::<u8, i32>(shared.bytes_mut()).fill(round);
                    let delta = &shared.bytes()[64..]; // a part of it
                    match round % 3 {
                        0 => table.add(delta, None, &options, round % 2 == 0, by()).expect("added"),
                        1 => table.add_get(delta, &mut out, None, &options, by()).expect("added and fetched"),
                        _ => {
                            out.copy_from_slice(delta); // memory that is not shared
                            table.add(&out, None, &options, false, by()).expect("added");
                        }
                    }
                }
                shared.bytes_mut().fill(0x55);
                session.barrier().expect("all come here");
                table.get(&mut out, None, by()).expect("fetched");
                session.barrier().expect("all come here");
                out
            });
            let sum = 190 * workers as i32; // 0 + 1 + … + 19
            assert!(seen.iter().all(|out| bytemuck::cast_slice::<u8, i32>(out).iter().all(|value| *value == sum)), "{name}");
        }
    }
}

#[test]
fn threads_may_lend_to_the_same_table() {
    job(2, "threads", |session| {
        let size = 100_000_usize;
        let table = session.create_table(Spec::array(size as u64).with_dtype(DType::I64), None).expect("made");
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut shared = session.empty_shared(size * 8).expect("memory");
                    let mut out = vec![0; size * 8];
                    for round in 0..30 {
                        bytemuck::cast_slice_mut(shared.bytes_mut()).fill(1_i64);
                        match round % 2 {
                            0 => table.add(shared.bytes(), None, &AddOptions::default(), false, by()).expect("added"),
                            _ => table.add_get(shared.bytes(), &mut out, None, &AddOptions::default(), by()).expect("added"),
                        }
                        shared.bytes_mut().fill(0x77);
                    }
                });
            }
        });
        session.barrier().expect("all come here");
        let mut out = vec![0; size * 8];
        table.get(&mut out, None, by()).expect("fetched");
        assert!(bytemuck::cast_slice::<u8, i64>(&out).iter().all(|value| *value == 180));
    });
}

#[test]
fn a_shared_array_can_be_aggregated() {
    job(3, "aggregate", |session| {
        let mut shared = session.empty_shared(800_000).expect("memory");
        bytemuck::cast_slice_mut(shared.bytes_mut()).fill(1.5_f64);
        session.aggregate_bytes(shared.bytes_mut(), DType::F64, ReduceOp::Sum, by()).expect("all agree");
        assert!(bytemuck::cast_slice::<u8, f64>(shared.bytes()).iter().all(|value| *value == 4.5));
    });
}

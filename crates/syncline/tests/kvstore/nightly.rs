//! What MXNet's nightly tests of distributed stores expect, with one to seven workers, with and without servers of their own, in shared memory and over links.
//!
//! The bound for small arrays is low here, so that arrays of a few thousand numbers are split where there are several hosts.

use syncline::kvstore::{Key, KvStore, Optimizer, RowSparse, Tensor, Value};
use syncline::{Session, f16};

use crate::jobs::{MANNERS, Manner, by, job_with};
use crate::model::{Dice, Does, Program};
use crate::{all_of, filled, numbers, refusal, rows_of};

const SMALL: [usize; 2] = [2, 3];
const BIG: [usize; 2] = [60, 70];
const ROUNDS: i32 = 4;

/// Runs `body` in every manner, with this worker's number and the number of all.
fn everywhere(body: impl Fn(&Session, u32, u32) + Sync) {
    for manner in MANNERS {
        in_manner(manner, &body);
    }
}

fn in_manner(manner: Manner, body: impl Fn(&Session, u32, u32) + Sync) {
    job_with(manner, &[("MXNET_KVSTORE_BIGARRAY_BOUND", "1000")], |session| {
        body(session, session.worker_id().expect("a worker"), session.num_workers());
    });
}

/// w += 2 g, set by every worker as MXNet's script does.
fn doubling() -> Optimizer {
    Optimizer::create("test", &[("rescale_grad", 2.0.into())]).expect("known")
}

fn sync_store(session: &Session) -> KvStore {
    let store = session.kvstore("dist_sync").expect("a store");
    store.set_optimizer(doubling()).expect("set");
    store
}

/// 1 + the sum over all workers of 2 (rank + 1), so many times.
fn after_rounds(workers: u32, rounds: i32) -> f32 {
    (workers * (workers + 1)) as f32 * rounds as f32 + 1.0
}

#[test]
fn rounds_of_dense_pushes() {
    everywhere(|session, worker, workers| {
        let store = sync_store(session);
        assert_eq!((store.rank(), store.num_workers(), store.raw().num_dead_node()), (worker, workers, 0));
        for (key, shape) in [("3", SMALL), ("5", SMALL), ("99", BIG)] {
            store.init(key, &filled(&shape, 1.0f32)).expect("new");
            store.init(format!("{key}h").as_str(), &filled(&shape, f16::ONE)).expect("new");
        }
        for round in 1..=ROUNDS {
            for (key, shape) in [("3", SMALL), ("5", SMALL), ("99", BIG)] {
                store.push(key, &filled(&shape, worker as f32 + 1.0)).expect("pushed");
                assert_eq!(all_of(&store.pull(key).expect("there")), after_rounds(workers, round));
                let half = format!("{key}h");
                let pushed = filled(&shape, f16::from_f32(worker as f32 + 1.0));
                let pulled = store.push_pull(half.as_str(), &pushed).expect("both");
                assert!(numbers::<f16>(&pulled).iter().all(|number| number.to_f32() == after_rounds(workers, round)));
            }
        }
    });
}

#[test]
fn values_of_two_devices() {
    everywhere(|session, worker, workers| {
        let store = session.kvstore("dist_device_sync").expect("a store");
        store.set_optimizer(doubling()).expect("set");
        let value = filled(&BIG, worker as f32 + 1.0);
        store.init(7, &filled(&BIG, 1.0f32)).expect("new");
        for round in 1..=ROUNDS {
            store.push_values(7, &[Value::from(&value); 2]).expect("pushed");
            assert_eq!(all_of(&store.pull(7).expect("there")), 2.0 * (after_rounds(workers, round) - 1.0) + 1.0);
        }
        // Without an optimizer the sum replaces the value, and replaces it again.
        let plain = session.kvstore("dist_sync_device").expect("another store");
        plain.init(7, &filled(&SMALL, 1.0f32)).expect("new");
        let value = filled(&SMALL, worker as f32 + 1.0);
        for _ in 0..3 {
            plain.push_values(7, &[Value::from(&value); 2]).expect("pushed");
            assert_eq!(all_of(&plain.pull(7).expect("there")), (workers * (workers + 1)) as f32);
        }
    });
}

#[test]
fn rounds_of_rows() {
    everywhere(|session, worker, workers| {
        let store = sync_store(session);
        for (key, shape) in [("small", SMALL), ("big", BIG)] {
            store.init(key, &rows_of(&shape, &(0..shape[0] as i64).collect::<Vec<_>>(), 1.0)).expect("new");
        }
        let dice = &mut Dice::new(u64::from(worker) + 5);
        let of_row = |row: u32, rounds: i32| {
            (0..workers).filter(|other| other % 2 == row).map(|other| other as f32 + 1.0).sum::<f32>() * 2.0 * rounds as f32 + 1.0
        };
        for round in 1..=ROUNDS {
            for (key, shape) in [("small", SMALL), ("big", BIG)] {
                store.push(key, &rows_of(&shape, &[i64::from(worker % 2)], worker as f32 + 1.0)).expect("pushed");
                let ids: Vec<i64> = (0..5).map(|_| dice.below(shape[0] as u64) as i64).collect();
                let pulled = store.row_sparse_pull(key, &ids).expect("there");
                for (row, values) in (0..).zip(numbers::<f32>(&pulled.to_dense()).chunks(shape[1])) {
                    let expected = match ids.contains(&i64::from(row)) {
                        true => {
                            if row < 2 {
                                of_row(row, round)
                            } else {
                                1.0
                            }
                        }
                        false => 0.0,
                    };
                    assert!(values.iter().all(|value| *value == expected), "{key} row {row} of {ids:?}: {values:?}, expected {expected}");
                }
            }
        }
        // A push without any row counts as this worker's contribution, and changes nothing.
        store.init("zeros", &rows_of(&SMALL, &[0, 1], 1.0)).expect("new");
        for _ in 0..ROUNDS {
            store.push("zeros", &RowSparse::empty(syncline::DType::F32, &SMALL).expect("sound")).expect("pushed");
            assert_eq!(all_of(&store.row_sparse_pull("zeros", &[0, 1]).expect("there").to_dense()), 1.0);
            assert_eq!(all_of(&store.row_sparse_pull("zeros", &[]).expect("nothing").to_dense()), 0.0);
        }
    });
}

#[test]
fn two_bits_with_residuals() {
    everywhere(|session, worker, workers| {
        let store = session.kvstore("dist_sync").expect("a store");
        store.set_gradient_compression(&[("type", "2bit"), ("threshold", "0.5")]).expect("distributed");
        store.set_optimizer(doubling()).expect("set");
        let keys = [("221", SMALL), ("112", [37, 41]), ("99", BIG)];
        let unit = 0.5 * 2.0 * workers as f32;
        for (key, shape) in keys {
            store.init(key, &filled(&shape, 0.0f32)).expect("new");
            assert_eq!(all_of(&store.pull(key).expect("there")), 0.0);
        }
        store.init("ones", &filled(&SMALL, 1.0f32)).expect("new");
        assert_eq!(all_of(&store.pull("ones").expect("there")), 1.0, "an init is never compressed");
        for (pushed, expected) in [(0.0, 0.0), (0.4, 0.0), (0.1, 1.0), (0.2, 1.0), (0.3, 2.0), (0.5, 3.0)] {
            for (key, shape) in keys {
                store.push(key, &filled(&shape, pushed as f32)).expect("pushed");
                assert_eq!(all_of(&store.pull(key).expect("there")), expected * unit, "worker {worker} key {key} after {pushed}");
            }
        }
    });
}

#[test]
fn one_bit() {
    everywhere(|session, _, workers| {
        let store = session.kvstore("dist_sync").expect("a store");
        store.set_gradient_compression(&[("type", "1bit"), ("threshold", "0")]).expect("distributed");
        store.set_optimizer(doubling()).expect("set");
        let unit = 2.0 * workers as f32;
        for (key, shape) in [(1, SMALL), (2, BIG)] {
            store.init(key, &filled(&shape, 0.0f32)).expect("new");
            for (pushed, expected) in [(1.0, 1.0), (-1.0, 0.0), (2.0, 1.0), (0.0, 2.0), (-2.0, 1.0)] {
                store.push(key, &filled(&shape, pushed as f32)).expect("pushed");
                assert_eq!(all_of(&store.pull(key).expect("there")), expected * unit, "after {pushed}");
            }
        }
    });
}

#[test]
fn every_code_is_that_of_the_quantiser_with_a_residual_per_worker() {
    use syncline::kvstore::{Compression, Quantizer};
    everywhere(|session, worker, workers| {
        for words in
            [&[("type", "2bit")][..], &[("type", "fp16")], &[("type", "bf16")], &[("type", "int8")], &[("type", "topk"), ("ratio", "0.1")]]
        {
            let store = session.kvstore("dist_sync").expect("a store");
            store.set_gradient_compression(words).expect("distributed");
            let code: Quantizer = Compression::from_words(words).expect("sound").quantizer;
            store.init(1, &filled(&BIG, 0.0f32)).expect("new");
            let elements = BIG[0] * BIG[1];
            let mut residuals = vec![vec![0.0f32; elements]; workers as usize];
            for round in 0..3 {
                let gradient = |worker: u32| -> Vec<f32> {
                    let dice = &mut Dice::new(u64::from(worker) * 1000 + round + 1);
                    (0..elements).map(|_| dice.below(2001) as f32 / 1000.0 - 1.0).collect()
                };
                // What the quantiser says of every worker's gradient, summed in order of worker.
                let mut expected: Vec<f32> = Vec::new();
                for (other, residual) in (0..).zip(&mut residuals) {
                    let mut words = vec![0; code.encoded_len(elements)];
                    code.encode(&gradient(other), residual, &mut words).expect("encoded");
                    let mut said = vec![0.0f32; elements];
                    code.decode(&words, &mut said, decode()).expect("decoded");
                    match expected.is_empty() {
                        true => expected = said,
                        false => expected.iter_mut().zip(said).for_each(|(sum, more)| *sum += more),
                    }
                }
                store.push(1, &Tensor::from_slice(&BIG, &gradient(worker)).expect("sound")).expect("pushed");
                let pulled = numbers::<f32>(&store.pull(1).expect("there"));
                assert!(pulled.iter().zip(&expected).all(|(a, b)| a == b), "{words:?} round {round}");
            }
        }
    });
}

fn decode() -> syncline_tensor::kernels::quantize::Decode {
    syncline_tensor::kernels::quantize::Decode::Overwrite
}

#[test]
fn pulls_in_few_bits_are_rounded_and_no_more() {
    everywhere(|session, _, _| {
        let store = session.kvstore("dist_sync").expect("a store");
        store.set_gradient_compression(&[("type", "bf16"), ("pull", "true")]).expect("distributed");
        store.init("w", &filled(&BIG, 1.003f32)).expect("new");
        assert_eq!(all_of(&store.pull("w").expect("there")), syncline::bf16::from_f32(1.003).to_f32());
    });
}

#[test]
fn many_keys_in_lists_and_in_an_order_of_each_workers_own() {
    everywhere(|session, worker, _| {
        let store = session.kvstore("dist_sync").expect("a store");
        let keys: Vec<Key> = (0..40).map(Key::from).collect();
        let values: Vec<Tensor> =
            (0..40).map(|key| filled(if key % 2 == 0 { &SMALL } else { &BIG }, if worker == 0 { key as f32 } else { -1.0 })).collect();
        let mut order: Vec<usize> = (0..40).collect();
        let dice = &mut Dice::new(u64::from(worker) + 9);
        (1..40).for_each(|last| order.swap(last, dice.below(last as u64 + 1) as usize));
        for part in order.chunks(1 + worker as usize * 7) {
            let pairs: Vec<(&Key, Value<'_>)> = part.iter().map(|at| (&keys[*at], Value::from(&values[*at]))).collect();
            store.raw().init(&pairs, "here", by()).expect("new");
        }
        for key in 0..40 {
            assert_eq!(all_of(&store.pull(key).expect("there")), key as f32, "worker 0's value");
        }
        assert!(refusal(store.pull(99)).contains("key 99 doesn't exist"));
        assert!(refusal(store.init(3, &values[3])).contains("duplicate init of key 3"));
    });
}

#[test]
fn a_trainers_step_dense_and_sparse() {
    everywhere(|session, worker, workers| {
        let store = session.kvstore("dist_sync").expect("a store");
        store.set_optimizer(Optimizer::create("sgd", &[("learning_rate", 1.0.into())]).expect("known")).expect("set");
        store.init("w", &filled(&SMALL, 1.0f32)).expect("new");
        store.init("e", &rows_of(&SMALL, &[0, 1], 1.0)).expect("new");
        store.push("w", &filled(&SMALL, worker as f32 + 1.0)).expect("pushed");
        store.push("e", &rows_of(&SMALL, &[0, 1], worker as f32 + 1.0)).expect("pushed");
        let expected = 1.0 - (workers * (workers + 1) / 2) as f32;
        assert_eq!(all_of(&store.pull("w").expect("there")), expected);
        assert_eq!(all_of(&store.row_sparse_pull("e", &[1, 0]).expect("there").to_dense()), expected);
    });
}

#[test]
fn asynchronous_pushes_all_count() {
    everywhere(|session, worker, workers| {
        let store = session.kvstore("dist_async").expect("a store");
        store.init("w", &filled(&BIG, 1.0f32)).expect("new");
        store.init("e", &rows_of(&BIG, &[0], 1.0)).expect("new");
        session.barrier().expect("everybody");
        if worker == 0 {
            assert!(refusal(store.push("w", &filled(&BIG, 1.0f32))).contains("needs an optimizer"));
            store.set_optimizer(doubling()).expect("set");
        }
        session.barrier().expect("everybody");
        for _ in 0..ROUNDS {
            store.push("w", &filled(&BIG, worker as f32 + 1.0)).expect("pushed");
            store.push("e", &rows_of(&BIG, &[i64::from(worker), 59], 1.0)).expect("pushed");
        }
        let mine = all_of_at_least(&store.pull("w").expect("there"));
        assert!(mine >= 1.0 + 2.0 * (worker + 1) as f32 * ROUNDS as f32, "a worker reads its own writes");
        store.barrier().expect("everybody");
        assert_eq!(all_of(&store.pull("w").expect("there")), after_rounds(workers, ROUNDS));
        let rows = numbers::<f32>(&store.pull("e").expect("there"));
        assert_eq!(rows[59 * BIG[1]], 2.0 * ROUNDS as f32 * workers as f32);
        assert_eq!(rows[0], 1.0 + 2.0 * ROUNDS as f32);
    });
}

fn all_of_at_least(tensor: &Tensor) -> f32 {
    numbers::<f32>(tensor).into_iter().fold(f32::INFINITY, f32::min)
}

#[test]
fn learning_rates_schedules_and_formulas_reach_the_servers() {
    everywhere(|session, worker, workers| {
        let store = session.kvstore("dist_sync").expect("a store");
        store.set_optimizer(Optimizer::create("sgd", &[("learning_rate", 1.0.into())]).expect("known")).expect("set");
        store.init("w", &filled(&SMALL, 0.0f32)).expect("new");
        let step = |store: &KvStore| all_of(&store.push_pull("w", &filled(&SMALL, 1.0f32)).expect("both"));
        assert_eq!(step(&store), -(workers as f32));
        session.barrier().expect("everybody");
        if worker == workers - 1 {
            store.set_learning_rate(0.5).expect("no schedule");
        }
        session.barrier().expect("everybody");
        assert_eq!(step(&store), -1.5 * workers as f32);
        // A formula of one's own with a state, one number per weight.
        let own = session.kvstore("dist_sync").expect("another store");
        let formula = Optimizer::create("custom", &[("update", "sum = sum + g; w = w - lr * sum".into()), ("learning_rate", 1.0.into())]);
        own.set_optimizer(formula.expect("a formula")).expect("set");
        own.init("w", &filled(&SMALL, 0.0f32)).expect("new");
        assert_eq!([step(&own), step(&own), step(&own)], [-1.0, -3.0, -6.0].map(|times| times * workers as f32));
        assert!(refusal(own.set_updater(|_, _, _| Ok(()))).contains("hint"));
    });
}

#[test]
fn random_programs_do_what_the_model_does() {
    for (seed, manner) in (0..).zip(MANNERS) {
        for does in [Does::Replace, Does::Add { rescale: 2.0 }] {
            let program = Program::random(seed * 31 + 7, u64::from(manner.workers), does, 90);
            in_manner(manner, |session, worker, _| {
                let store = session.kvstore(if seed % 2 == 0 { "dist_sync" } else { "dist_sync_device" }).expect("a store");
                program.play(&store, worker as usize);
            });
        }
    }
}

/// LAMB and LARS step in proportion to norms of the whole array: a key that would be cut lives in one place if its optimizer was known when it was made.
#[test]
fn optimizers_that_follow_norms_step_alike_wherever_keys_live() {
    let gradient = |worker: u32, round: i32| {
        let numbers: Vec<f32> = (0..4200).map(|at| ((at * 7 + worker as i32 * 31 + round * 13) % 101) as f32 / 50.0 - 1.0).collect();
        Tensor::from_slice(&BIG, &numbers).expect("sound")
    };
    for name in ["lamb", "lars"] {
        let optimizer = || Optimizer::create(name, &[("learning_rate", 0.1.into()), ("wd", 0.01.into())]).expect("known");
        everywhere(|session, worker, workers| {
            let store = session.kvstore("dist_sync").expect("a store");
            store.set_optimizer(optimizer()).expect("set");
            let alone = KvStore::local("local").expect("a store");
            alone.set_optimizer(optimizer()).expect("set");
            for store in [&store, &alone] {
                store.init("w", &gradient(9, 9)).expect("new");
            }
            for round in 1..=ROUNDS {
                store.push("w", &gradient(worker, round)).expect("pushed");
                let all: Vec<Tensor> = (0..workers).map(|other| gradient(other, round)).collect();
                alone.push_values("w", &all.iter().map(Value::from).collect::<Vec<_>>()).expect("pushed");
                let (found, expected) = (store.pull("w").expect("there"), alone.pull("w").expect("there"));
                assert_eq!(found.bytes(), expected.bytes(), "{name}, round {round} of {workers} workers");
            }
        });
    }
}

#[test]
fn an_optimizer_that_a_split_key_cannot_follow_is_refused_before_anything_happens() {
    in_manner(Manner { workers: 2, servers: 3, transport: "tcp" }, |session, _, _| {
        let store = session.kvstore("dist_async").expect("a store");
        store.set_optimizer(doubling()).expect("set");
        store.init("w", &filled(&BIG, 1.0f32)).expect("new");
        let lamb = Optimizer::create("lamb", &[]).expect("known");
        let why = refusal(store.set_optimizer(lamb));
        assert!(why.contains("set_optimizer: optimizer `lamb`") && why.contains("key w is split over 3 servers"), "{why}");
        assert!(why.contains("before the key is made"), "{why}");
        session.barrier().expect("all live");
        store.push("w", &filled(&BIG, 1.0f32)).expect("the optimizer before it stands");
        store.barrier().expect("all live");
        assert_eq!(all_of(&store.pull("w").expect("there")), 5.0);
    });
}

//! Training that stops and goes on in another job, of other numbers of workers and servers: the weights come out the same, bit by bit.

use std::path::Path;

use syncline::kvstore::{KvStore, Optimizer, Tensor, Value};
use syncline::{ErrorKind, Session, f16};

use crate::jobs::{MANNERS, Manner, by, job_with, together};
use crate::{filled, numbers, refusal, rows_of};

const DENSE: [usize; 2] = [40, 50];
const ROWS: [usize; 2] = [30, 4];

/// What all keys hold, as bytes.
type Weights = Vec<Vec<u8>>;

fn open(session: &Session, kind: &str, optimizer: Option<&str>, weights: Option<&Weights>) -> KvStore {
    let store = session.kvstore(kind).expect("a store");
    if let Some(optimizer) = optimizer {
        let options = [("learning_rate", 0.1.into()), ("multi_precision", true.into())];
        store.set_optimizer(Optimizer::create(optimizer, &options).expect("known")).expect("set");
    }
    let all: Vec<i64> = (0..ROWS[0] as i64).collect();
    let first = [filled(&DENSE, 1.0f32), filled(&DENSE, f16::ONE), rows_of(&ROWS, &all, 1.0).to_dense()];
    let value = |at: usize| match weights {
        Some(weights) => Tensor::from_bytes(first[at].dtype(), first[at].shape().clone(), &weights[at]).expect("as it was pulled"),
        None => first[at].clone(),
    };
    store.init("dense", &value(0)).expect("new");
    store.init("half", &value(1)).expect("new");
    let rows = syncline::kvstore::RowSparse::from_dense(syncline::DType::F32, &ROWS, value(2).bytes()).expect("sound");
    store.init("rows", &rows).expect("new");
    session.barrier().expect("everybody");
    store
}

/// One step whose gradient does not depend on how many workers there are: only worker 0 brings one that is not zero.
fn step(store: &KvStore, number: i32) {
    let size = if store.rank() == 0 { 0.01 * (number as f32 + 1.0) } else { 0.0 };
    if store.kind().is_sync() || store.rank() == 0 {
        store.push("dense", &filled(&DENSE, size)).expect("pushed");
        store.push("half", &filled(&DENSE, f16::from_f32(size))).expect("pushed");
        let ids: Vec<i64> = if store.rank() == 0 { vec![i64::from(number), 7, 29] } else { Vec::new() };
        store.push("rows", &rows_of(&ROWS, &ids, size)).expect("pushed");
    }
    store.pull("dense").expect("there"); // in step
}

fn pull(store: &KvStore) -> Weights {
    store.barrier().expect("everybody");
    ["dense", "half", "rows"].map(|key| store.pull(key).expect("there").bytes().to_vec()).to_vec()
}

fn in_manner<T: Send>(manner: Manner, body: impl Fn(&Session) -> T + Sync) -> T {
    job_with(manner, &[("MXNET_KVSTORE_BIGARRAY_BOUND", "1000")], body).swap_remove(0)
}

#[test]
fn states_of_any_job_are_those_of_any_other() {
    let folder = tempfile::tempdir().expect("a folder");
    for (kind, optimizer) in [("dist_sync", "adam"), ("dist_async", "adam"), ("dist_sync", "nadam"), ("dist_sync", "sgd")] {
        let path = &folder.path().join(format!("{kind}-{optimizer}"));
        let (middle, end) = in_manner(together(2), |session| {
            let store = open(session, kind, Some(optimizer), None);
            (0..4).for_each(|number| step(&store, number));
            let middle = pull(&store);
            store.save_optimizer_states(path, true).expect("saved");
            (4..8).for_each(|number| step(&store, number));
            (middle, pull(&store))
        });
        for manner in MANNERS {
            let resumed = in_manner(manner, |session| {
                let store = open(session, kind, None, Some(&middle));
                store.load_optimizer_states(path).expect("loaded, with its optimizer");
                (4..8).for_each(|number| step(&store, number));
                pull(&store)
            });
            assert_eq!(resumed, end, "{kind} {optimizer} in {manner:?}");
        }
        // A local store takes it, too, and writes what a job takes.
        let local = KvStore::local("local").expect("local");
        for (key, bytes) in ["dense", "half"].iter().zip(&middle) {
            let dtype = if *key == "half" { syncline::DType::F16 } else { syncline::DType::F32 };
            let shape = syncline::kvstore::Shape::new(&DENSE).expect("sound");
            local.init(*key, &Tensor::from_bytes(dtype, shape, bytes).expect("as it was pulled")).expect("new");
        }
        assert!(refusal(local.load_optimizer_states(path)).contains("key rows doesn't exist"));
    }
}

#[test]
fn a_file_that_does_not_fit_is_refused_by_all_and_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let path: &Path = &folder.path().join("states");
    in_manner(together(2), |session| {
        let store = open(session, "dist_sync", Some("adam"), None);
        step(&store, 0);
        store.save_optimizer_states(path, false).expect("saved");
        let before = pull(&store);
        // Nothing there, another optimizer, no optimizer at all: every worker hears of it and goes on.
        assert!(refusal(store.load_optimizer_states(folder.path().join("nothing"))).contains("nothing"));
        let other = open(session, "dist_sync", Some("sgd"), None);
        assert!(refusal(other.load_optimizer_states(path)).contains("adam"));
        let none = open(session, "dist_sync", None, None);
        assert!(refusal(none.save_optimizer_states(folder.path().join("none"), false)).contains("no optimizer"));
        assert!(refusal(none.load_optimizer_states(path)).contains("no optimizer"));
        assert!(!folder.path().join("none").exists());
        // A worker that has other keys is told so.
        if session.rank() == 0 {
            none.init("more", &filled(&[2], 0.0f32)).expect("new");
        }
        let error = none.save_optimizer_states(path, false).expect_err("different keys");
        assert_eq!(error.kind(), ErrorKind::ContractMismatch, "{error}");
        assert_eq!(pull(&store), before);
        step(&store, 1);
        let values = numbers::<f32>(&store.pull("dense").expect("there"));
        assert!(values.iter().all(|value| *value == values[0] && *value < 1.0));
        store
            .raw()
            .push(&[syncline::kvstore::Push { key: &"dense".into(), values: &[Value::from(&filled(&DENSE, 0.0f32))] }], by())
            .expect("goes on");
    });
}

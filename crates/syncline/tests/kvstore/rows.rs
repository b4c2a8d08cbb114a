//! Rows pushed and pulled as they come: what a row-sparse array of them does, bit for bit, and nothing for what does not fit.

use syncline::Session;
use syncline::kvstore::{Dense, DenseMut, KvStore, Optimizer, OptionValue, RowSparse};

use crate::jobs::{MANNERS, by, job, together};
use crate::model::Dice;
use crate::{filled, numbers, refusal};

const ROWS: usize = 300;
const COLS: usize = 17;

/// Steps that take rows one by one, with and without states; that take them for an array full of zeros; that measure the whole array.
const OPTIMIZERS: [(&str, &[(&str, f64)]); 6] =
    [("sgd", &[("wd", 0.1)]), ("sgd", &[("momentum", 0.9)]), ("adam", &[]), ("nag", &[("momentum", 0.5)]), ("adagrad", &[]), ("lamb", &[])];

fn optimizer((name, options): (&str, &[(&str, f64)])) -> Optimizer {
    let options: Vec<(&str, OptionValue)> = options.iter().map(|(name, value)| (*name, (*value).into())).collect();
    Optimizer::create(name, &options).expect("known")
}

/// Ids in no order, many of them twice, and numbers for each of their rows, of which any sum is exact: a round adds the rows of all workers one after the
/// other, and not those of each worker first.
fn drawn(dice: &mut Dice) -> (Vec<i64>, Vec<f32>) {
    let ids: Vec<i64> = (0..dice.below(60)).map(|_| dice.below(ROWS as u64 / 4) as i64 * 4).collect();
    let numbers = (0..ids.len() * COLS).map(|_| dice.below(2048) as f32 / 1024.0 - 1.0).collect();
    (ids, numbers)
}

/// Pushes the same rows to two keys, to one as they come and to the other as an array, and compares the keys.
fn push_both(store: &KvStore, dice: &mut Dice, steps: usize, pushes: bool, meet: impl Fn()) {
    for _ in 0..steps {
        if pushes {
            let (ids, numbers) = drawn(dice);
            store.push("array", &RowSparse::of(&[ROWS, COLS], ids.clone(), &numbers).expect("sound")).expect("pushed");
            store.push_rows("rows", &ids, Dense::of(&[ids.len(), COLS], &numbers).expect("sound")).expect("pushed");
        }
        meet();
        let bits = |key: &str| numbers::<f32>(&store.pull(key).expect("there")).into_iter().map(f32::to_bits).collect::<Vec<_>>();
        assert_eq!(bits("rows"), bits("array"));
        meet();
    }
}

fn prepare(store: &KvStore, how: (&str, &[(&str, f64)])) {
    let start: Vec<f32> = (0..ROWS * COLS).map(|at| at as f32 / 1000.0).collect();
    let all: Vec<i64> = (0..ROWS as i64).collect();
    for key in ["array", "rows"] {
        store.init(key, &RowSparse::of(&[ROWS, COLS], all.clone(), &start).expect("sound")).expect("new");
    }
    store.set_optimizer(optimizer(how)).expect("set");
}

#[test]
fn rows_as_they_come_are_those_of_an_array_of_them() {
    for how in OPTIMIZERS {
        let store = KvStore::local("local").expect("known");
        prepare(&store, how);
        push_both(&store, &mut Dice::new(7), 8, true, || ());
    }
}

#[test]
fn so_they_are_in_jobs_of_every_manner() {
    for manner in MANNERS {
        for kind in ["dist_async", "dist_sync"] {
            job(manner, |session: &Session| {
                let me = session.worker_id().expect("a worker");
                for how in OPTIMIZERS {
                    let store = session.kvstore(kind).expect("known");
                    // Norms of an array that is split over servers are nobody's.
                    if how.0 == "lamb" && manner.transport != "auto" {
                        continue;
                    }
                    prepare(&store, how);
                    store.barrier().expect("all are here");
                    // Who pushes beside others without rounds does so in another order to each key.
                    let pushes = kind == "dist_sync" || me == 0;
                    push_both(&store, &mut Dice::new(u64::from(me) + 1), 4, pushes, || store.barrier().expect("all are here"));
                }
            });
        }
    }
}

#[test]
fn rows_are_pulled_in_the_order_asked_for() {
    for kind in ["local", "dist_async"] {
        job(together(1), |session| {
            let store = if kind == "local" { KvStore::local(kind) } else { session.kvstore(kind) }.expect("known");
            prepare(&store, OPTIMIZERS[0]);
            let ids = [299, 0, 7, 7, 3];
            let mut rows = [0.0f32; 5 * COLS];
            store.pull_rows("rows", &ids, DenseMut::of(&[5, COLS], &mut rows).expect("sound")).expect("pulled");
            let expected = ids.iter().flat_map(|id| (0..COLS).map(move |at| (*id as usize * COLS + at) as f32 / 1000.0));
            assert!(rows.iter().copied().eq(expected), "{rows:?}");
            let new = store.raw().pull_rows_new(&"rows".into(), &ids, by()).expect("pulled");
            assert_eq!((new.shape().dims(), numbers::<f32>(&new)), (&[5, COLS][..], rows.to_vec()));
            store.pull_rows("rows", &[], DenseMut::of::<f32>(&[0, COLS], &mut []).expect("sound")).expect("none");
        });
    }
}

#[test]
fn rows_that_do_not_fit_are_refused_and_change_nothing() {
    for kind in ["local", "dist_async"] {
        job(together(1), |session| {
            let store = if kind == "local" { KvStore::local(kind) } else { session.kvstore(kind) }.expect("known");
            prepare(&store, OPTIMIZERS[0]);
            store.init("dense", &filled(&[4, 2], 0.0f32)).expect("new");
            let before = numbers::<f32>(&store.pull("rows").expect("there"));
            let two = [1.0f32; 2 * COLS];
            let push = |key: &str, ids: &[i64], shape: &[usize], rows: &[f32]| {
                refusal(store.push_rows(key, ids, Dense::of(shape, rows).expect("sound")))
            };
            assert!(push("rows", &[0, 300], &[2, COLS], &two).contains("row id 300 (number 1 of 2)"));
            assert!(push("rows", &[0, -1], &[2, COLS], &two).contains("row id -1"));
            assert!(push("rows", &[0], &[2, COLS], &two).contains("shape [2, 17] for 1 rows"));
            assert!(push("rows", &[0, 1], &[2 * COLS], &two).contains("shape [34] for 2 rows"));
            assert!(push("none", &[0, 1], &[2, COLS], &two).contains("doesn't exist"));
            assert!(refusal(store.push_rows("rows", &[0], Dense::of(&[1, COLS], &[1.0f64; COLS]).expect("sound"))).contains("float64"));
            let mut out = [0.0f32; 2];
            let pulled = store.pull_rows("dense", &[0], DenseMut::of(&[1, 2], &mut out).expect("sound"));
            assert!(refusal(pulled).contains("was not initialised with a row-sparse value"));
            assert_eq!(numbers::<f32>(&store.pull("rows").expect("there")), before);
        });
    }
}

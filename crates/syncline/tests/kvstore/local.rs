//! Stores of one process: the unit tests of MXNet's Python and Perl faces, and what they leave open.

use std::sync::{Arc, Mutex};

use syncline::kvstore::{Key, KvStore, Optimizer, Output, Pull, Push, RowPull, RowSparse, Tensor, Value, wait_one};
use syncline::{DType, Deadline, Error, ErrorKind};

use crate::{all_of, filled, numbers, refusal, rows_of};

const SHAPE: [usize; 2] = [4, 4];

fn by() -> Deadline {
    Deadline::after(std::time::Duration::from_secs(20))
}

/// Keys 3 and 5 7 9, or their names, all zeros.
fn store(kind: &str, names: bool, rows: bool) -> (KvStore, Vec<Key>) {
    let store = KvStore::local(kind).expect("a local kind");
    let keys: Vec<Key> = if names { ["a", "b", "c", "d"].map(Key::from).to_vec() } else { [3, 5, 7, 9].map(Key::from).to_vec() };
    let (dense, sparse) = (filled(&SHAPE, 0.0f32), RowSparse::empty(DType::F32, &SHAPE).expect("sound"));
    for key in &keys {
        store.init(key.clone(), if rows { Value::from(&sparse) } else { Value::from(&dense) }).expect("new");
    }
    (store, keys)
}

/// local += recv
fn adds(store: &KvStore) -> Arc<Mutex<Vec<Key>>> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    store
        .set_updater(move |key, value, mut weight| {
            log.lock().expect("whole").push(key.clone());
            let pushed = match value {
                Value::Dense(dense) => bytemuck::pod_collect_to_vec::<u8, f32>(dense.bytes()),
                Value::RowSparse(rows) => numbers(&rows.to_dense()),
            };
            let stored: &mut [f32] = bytemuck::cast_slice_mut(weight.bytes());
            stored.iter_mut().zip(pushed).for_each(|(stored, pushed)| *stored += pushed);
            Ok(())
        })
        .expect("a local store");
    seen
}

#[test]
fn a_value_that_was_stored_comes_back_and_a_push_replaces_it() {
    for (kind, names) in [("local", false), ("local_allreduce_cpu", true), ("DEVICE", false), ("row_sparse", true)] {
        let (store, keys) = store(kind, names, false);
        assert_eq!(store.kind().name(), kind.to_lowercase());
        assert_eq!((store.rank(), store.num_workers(), store.raw().num_dead_node()), (0, 1, 0));
        assert_eq!(all_of(&store.pull(keys[0].clone()).expect("there")), 0.0);
        store.push(keys[0].clone(), &filled(&SHAPE, 8.0f32)).expect("pushed");
        store.push(keys[0].clone(), &filled(&SHAPE, 1.0f32)).expect("pushed");
        assert_eq!(all_of(&store.pull(keys[0].clone()).expect("there")), 1.0);
        assert_eq!(all_of(&store.pull(keys[1].clone()).expect("there")), 0.0, "another key");
    }
}

#[test]
fn lists_of_keys_and_values_of_several_devices_are_summed() {
    let (store, keys) = store("local", false, false);
    let (one, two) = (filled(&SHAPE, 1.0f32), filled(&SHAPE, 2.0f32));
    let (ones, twos) = ([Value::from(&one); 4], [Value::from(&two); 4]);
    store.push_values(3, &ones).expect("pushed");
    let mut outs: Vec<Tensor> = (0..4).map(|_| filled(&SHAPE, -1.0f32)).collect();
    let shapes = SHAPE;
    let mut outputs: Vec<Output<'_>> = outs.iter_mut().map(|out| dense_out(&shapes, out)).collect();
    store.raw().pull(&mut [Pull { key: &keys[0], outputs: &mut outputs }], true, by()).expect("pulled");
    assert!(outs.iter().all(|out| all_of(out) == 4.0));
    let pushes: Vec<Push<'_>> = keys[1..].iter().map(|key| Push { key, values: &twos }).collect();
    store.raw().push(&pushes, by()).expect("pushed");
    for key in &keys[1..] {
        assert_eq!(all_of(&store.pull(key.clone()).expect("there")), 8.0);
    }
    // The same key three times in one call is one push of all its values.
    let repeated =
        [Push { key: &keys[0], values: &ones }, Push { key: &keys[1], values: &ones[..1] }, Push { key: &keys[0], values: &twos[..1] }];
    store.raw().push(&repeated, by()).expect("pushed");
    assert_eq!(all_of(&store.pull(3).expect("there")), 6.0);
}

fn dense_out<'a>(shape: &'a [usize], out: &'a mut Tensor) -> Output<'a> {
    syncline::kvstore::DenseMut::new(out.dtype(), shape, out.bytes_mut()).expect("its own shape").into()
}

#[test]
fn updaters_see_the_users_key_and_add() {
    for names in [false, true] {
        for rows in [false, true] {
            let (store, keys) = store("local", names, rows);
            let seen = adds(&store);
            let one = filled(&SHAPE, 1.0f32);
            let all = rows_of(&SHAPE, &[0, 1, 2, 3], 1.0);
            let value = if rows { Value::from(&all) } else { Value::from(&one) };
            store.push_values(keys[0].clone(), &[value; 4]).expect("pushed");
            assert_eq!(all_of(&store.pull(keys[0].clone()).expect("there")), 4.0);
            let four = [value; 4];
            for _ in 0..10 {
                let pushes: Vec<Push<'_>> = keys[1..].iter().map(|key| Push { key, values: &four }).collect();
                store.raw().push(&pushes, by()).expect("pushed");
            }
            for key in &keys[1..] {
                assert_eq!(all_of(&store.pull(key.clone()).expect("there")), 40.0);
            }
            assert_eq!(seen.lock().expect("whole")[0], keys[0]);
            assert!(seen.lock().expect("whole").contains(&keys[3]));
        }
    }
}

#[test]
fn the_numbers_of_the_tutorials() {
    let store = KvStore::local("local").expect("local");
    store.init(3, &filled(&[2, 3], 2.0f32)).expect("new");
    assert_eq!(all_of(&store.pull(3).expect("there")), 2.0);
    store.push(3, &filled(&[2, 3], 8.0f32)).expect("pushed");
    assert_eq!(all_of(&store.pull(3).expect("there")), 8.0);
    let one = filled(&[2, 3], 1.0f32);
    store.push_values(3, &[Value::from(&one); 4]).expect("pushed");
    assert_eq!(all_of(&store.pull(3).expect("there")), 4.0);
    store
        .set_updater(|_, value, mut weight| {
            let Value::Dense(dense) = value else { return Err(Error::of_function("updater", "dense only")) };
            let pushed = bytemuck::pod_collect_to_vec::<u8, f32>(dense.bytes());
            bytemuck::cast_slice_mut::<u8, f32>(weight.bytes()).iter_mut().zip(pushed).for_each(|(stored, pushed)| *stored += 2.0 * pushed);
            Ok(())
        })
        .expect("local");
    store.push(3, &one).expect("pushed");
    assert_eq!(all_of(&store.pull(3).expect("there")), 6.0);
    for key in [5, 7, 9] {
        store.init(key, &one).expect("new");
        store.push(key, &one).expect("pushed");
        assert_eq!(all_of(&store.pull(key).expect("there")), 3.0);
        store.push_values(key, &[Value::from(&one); 4]).expect("pushed");
        assert_eq!(all_of(&store.pull(key).expect("there")), 11.0);
    }
    let sgd = KvStore::local("local").expect("local");
    sgd.init("w", &filled(&[1], 0.0f32)).expect("new");
    sgd.set_optimizer(Optimizer::create("sgd", &[]).expect("known")).expect("set");
    sgd.push("w", &filled(&[1], 1.0f32)).expect("pushed");
    assert_eq!(numbers::<f32>(&sgd.pull("w").expect("there")), [-0.01]);
}

#[test]
fn rows_are_pulled_by_unsorted_repeated_and_no_ids_into_one_or_many_outputs() {
    let store = KvStore::local("local").expect("local");
    let key = Key::from("e");
    store.init("e", &rows_of(&SHAPE, &[0, 1, 2, 3], 1.0)).expect("new");
    let mut outs = vec![rows_of(&SHAPE, &[2], 9.0); 4];
    let mut outputs: Vec<Output<'_>> = outs.iter_mut().map(Output::from).collect();
    store.raw().row_sparse_pull(&mut [RowPull { key: &key, ids: &[3, 0, 3, 0], outputs: &mut outputs }], by()).expect("pulled");
    for out in &outs {
        assert_eq!((out.indices(), numbers::<f32>(&out.to_dense())), (&[0, 3][..], [[1.0f32; 4], [0.0; 4], [0.0; 4], [1.0; 4]].concat()));
    }
    let none = store.row_sparse_pull("e", &[]).expect("nothing is fine");
    assert!(none.indices().is_empty() && all_of(&none.to_dense()) == 0.0);
    let mut dense = filled(&SHAPE, 2.0f32);
    let refused = store.raw().row_sparse_pull(&mut [RowPull { key: &key, ids: &[1], outputs: &mut [dense_out(&SHAPE, &mut dense)] }], by());
    assert!(refusal(refused).contains("must be row-sparse"));
    for bad in [-1, 4, i64::MAX] {
        let error = store.row_sparse_pull("e", &[0, bad]).expect_err("no such row");
        assert_eq!(error.kind(), ErrorKind::UnknownKey);
        assert!(error.to_string().contains(&format!("row id {bad}")), "{error}");
    }
    store.init("dense", &filled(&SHAPE, 1.0f32)).expect("new");
    assert!(refusal(store.row_sparse_pull("dense", &[0])).contains("row-sparse"));
}

#[test]
fn sums_of_rows_are_those_of_what_was_pushed() {
    let (store, keys) = store("row_sparse", true, true);
    let parts: Vec<RowSparse> = (0..4).map(|i| RowSparse::of(&SHAPE, vec![i, (i + 2) % 4], &[0.5 + i as f32; 8]).expect("sound")).collect();
    let values: Vec<Value<'_>> = parts.iter().map(Value::from).collect();
    store.push_values(keys[0].clone(), &values).expect("pushed");
    let pulled = store.row_sparse_pull(keys[0].clone(), &[0, 1, 2, 3]).expect("there");
    let mut expected = vec![0.0f32; 16];
    for part in &parts {
        expected.iter_mut().zip(numbers::<f32>(&part.to_dense())).for_each(|(sum, more)| *sum += more);
    }
    assert_eq!(numbers::<f32>(&pulled.to_dense()), expected);
    // A row-sparse init may have any of its rows.
    store.init("partly", &rows_of(&SHAPE, &[2], 5.0)).expect("new");
    assert_eq!(numbers::<f32>(&store.pull("partly").expect("there"))[7..9], [0.0, 5.0]);
}

#[test]
fn pulls_leave_row_sparse_outputs_alone_unless_told_otherwise() {
    let store = KvStore::local("local").expect("local");
    let key = Key::from(1);
    store.init(1, &rows_of(&SHAPE, &[1], 1.0)).expect("new");
    let mut out = rows_of(&SHAPE, &[0, 1, 2, 3], 2.0);
    store.raw().pull(&mut [Pull { key: &key, outputs: &mut [Output::from(&mut out)] }], true, by()).expect("ignored");
    assert_eq!(all_of(&out.to_dense()), 2.0);
    store.raw().pull(&mut [Pull { key: &key, outputs: &mut [Output::from(&mut out)] }], false, by()).expect("all rows");
    assert_eq!(numbers::<f32>(&out.to_dense()), numbers::<f32>(&store.pull(1).expect("there")));
}

#[test]
fn pushpull_and_broadcast() {
    for kind in ["local", "device"] {
        let store = KvStore::local(kind).expect("local");
        let (one, two) = (filled(&SHAPE, 1.0f32), filled(&SHAPE, 2.0f32));
        assert_eq!(all_of(&store.broadcast(3, &one).expect("new")), 1.0);
        assert!(refusal(store.broadcast(3, &one)).contains("duplicate init of key 3"));
        for _ in 0..2 {
            let key = Key::from(3);
            let mut out = filled(&SHAPE, 0.0f32);
            let pushes = [Push { key: &key, values: &[Value::from(&one); 4] }];
            store.raw().push_pull(&pushes, &mut [Pull { key: &key, outputs: &mut [dense_out(&SHAPE, &mut out)] }], by()).expect("both");
            assert_eq!(all_of(&out), 4.0, "no accumulation");
        }
        assert_eq!(all_of(&store.push_pull(3, &two).expect("both")), 2.0);
    }
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let (store, keys) = store("local", false, false);
    let good = filled(&SHAPE, 1.0f32);
    for bad in [filled(&[4, 5], 1.0f32), filled(&[16], 1.0f32)] {
        assert_eq!(store.push(3, &bad).expect_err("another shape").kind(), ErrorKind::ShapeMismatch);
    }
    assert_eq!(store.push(3, &filled(&SHAPE, 1.0f64)).expect_err("another dtype").kind(), ErrorKind::ShapeMismatch);
    let missing = Key::from(4);
    let list = [Push { key: &keys[0], values: &[Value::from(&good)] }, Push { key: &missing, values: &[Value::from(&good)] }];
    assert!(refusal(store.raw().push(&list, by())).contains("key 4 doesn't exist. Did you init?"));
    assert!(refusal(store.raw().push(&[Push { key: &keys[0], values: &[] }], by())).contains("no value"));
    assert_eq!(store.pull(4).expect_err("unknown").kind(), ErrorKind::UnknownKey);
    assert!(refusal(store.init(5, &good)).contains("duplicate init of key 5"));
    let six = Key::from(6);
    assert!(refusal(store.raw().init(&[(&six, Value::from(&good)), (&six, Value::from(&good))], "here", by())).contains("duplicate"));
    assert_eq!(store.pull(6).expect_err("not half made").kind(), ErrorKind::UnknownKey);
    for call in [store.init("a", &good), store.push("a", &good), store.pull("a").map(drop), store.row_sparse_pull("a", &[0]).map(drop)] {
        assert!(refusal(call).contains("Mixed key types are not allowed"));
    }
    assert_eq!(all_of(&store.pull(3).expect("there")), 0.0, "nothing of all this was stored");
    let odd = KvStore::local("local").expect("local");
    let (number, name) = (Key::from(1), Key::from("1"));
    assert!(refusal(odd.raw().init(&[(&number, Value::from(&good)), (&name, Value::from(&good))], "here", by())).contains("Mixed"));
    odd.init("1", &good).expect("the refused call decided nothing");
}

#[test]
fn capabilities_commands_and_compression_as_mxnet_has_them() {
    let (store, _) = store("local", false, false);
    assert!(store.raw().is_capable("optimizer").expect("known"));
    assert!(refusal(store.raw().is_capable("teleport")).contains("teleport"));
    assert!(
        refusal(store.set_gradient_compression(&[("type", "2bit")]))
            .starts_with("Gradient compression is not supported for this type of kvstore")
    );
    let device = KvStore::local("device").expect("local");
    for (words, text) in [
        (&[("type", "2bit"), ("threshold", "0")][..], "above 0"),
        (&[("type", "4bit")], "Unknown type for gradient compression 4bit"),
        (&[("threshold", "1")], "needs a type"),
        (&[("type", "2bit"), ("pull", "1")], "fp16"),
        (&[("type", "topk"), ("ratio", "2")], "ratio"),
    ] {
        assert!(refusal(device.set_gradient_compression(words)).contains(text), "{words:?}");
    }
    let command = |head, body: &[u8]| device.raw().send_command_to_servers(head, body, by());
    assert!(command(77, b"rm -rf /").expect("ignored").contains("ignored"));
    assert!(refusal(command(0, b"\x80\x04cposix")).contains("never as code"));
    let sgd = Optimizer::create("sgd", &[]).expect("known");
    assert!(command(0, &sgd.encode().expect("small")).expect("an optimizer").contains("sgd"));
    assert_eq!(device.raw().optimizer(by()).expect("local"), Some(sgd));
    assert!(command(4, b"2bit,0.25").expect("a code").contains("2bit"));
}

#[test]
fn each_devices_value_is_compressed_with_a_residual_of_its_own() {
    // MXNet's nightly numbers: threshold 0.5, an optimizer that doubles, four devices.
    let store = KvStore::local("local_allreduce_device").expect("local");
    store.set_gradient_compression(&[("type", "2bit"), ("threshold", "0.5")]).expect("a device store");
    store.set_optimizer(Optimizer::create("test", &[("rescale_grad", 2.0.into())]).expect("known")).expect("set");
    store.init("w", &filled(&[3, 5], 0.0f32)).expect("new");
    for (pushed, expected) in [(0.0, 0.0), (0.4, 0.0), (0.2, 4.0), (0.2, 4.0), (0.2, 8.0), (-0.5, 4.0), (-0.5, 0.0)] {
        let value = filled(&[3, 5], pushed as f32);
        store.push_values("w", &[Value::from(&value); 4]).expect("pushed");
        assert_eq!(all_of(&store.pull("w").expect("there")), expected, "after {pushed}");
    }
    store.init("half", &filled(&[2], syncline::f16::ONE)).expect("new");
    assert!(refusal(store.push("half", &filled(&[2], syncline::f16::ONE))).contains("float32"));
    store.init("rows", &rows_of(&SHAPE, &[0], 1.0)).expect("new");
    assert!(refusal(store.push("rows", &rows_of(&SHAPE, &[0], 1.0))).contains("row-sparse"));
}

#[test]
fn every_dtype_is_stored_summed_and_optimized_in_its_own() {
    fn check<T: syncline::Element + From<u8>>(store: &KvStore, key: i64) {
        let (one, two) = (T::from(1), T::from(2));
        store.init(key, &filled(&[3], one)).expect("new");
        let value = filled(&[3], one);
        store.push_values(key, &[Value::from(&value); 2]).expect("pushed");
        assert_eq!(numbers::<T>(&store.pull(key).expect("there")), [two; 3]);
    }
    let store = KvStore::local("local").expect("local");
    check::<u8>(&store, 0);
    check::<i16>(&store, 2);
    check::<i32>(&store, 3);
    check::<i64>(&store, 4);
    check::<f32>(&store, 5);
    check::<f64>(&store, 6);
    store.init(7, &filled(&[3], 1i8)).expect("new");
    store.init(8, &filled(&[3], syncline::bf16::ONE)).expect("new");
    store
        .set_optimizer(Optimizer::create("sgd", &[("learning_rate", 0.5.into()), ("multi_precision", true.into())]).expect("known"))
        .expect("set");
    assert!(refusal(store.push(7, &filled(&[3], 1i8))).contains("float"));
    store.push(8, &filled(&[3], syncline::bf16::ONE)).expect("pushed");
    assert_eq!(numbers::<syncline::bf16>(&store.pull(8).expect("there"))[0].to_f32(), 0.5);
    // Nothing at all is a shape too.
    store.init(9, &filled(&[0, 3], 0.0f32)).expect("new");
    store.push(9, &filled(&[0, 3], 0.0f32)).expect("pushed");
    assert!(store.pull(9).expect("there").bytes().is_empty());
    store.init(10, &filled(&[], 2.0f64)).expect("a scalar");
    assert_eq!(numbers::<f64>(&store.pull(10).expect("there")), [2.0]);
}

#[test]
fn the_learning_rate_may_change_and_multipliers_see_the_users_key() {
    let mut multipliers = std::collections::BTreeMap::new();
    multipliers.insert(Key::from("slow"), 0.5);
    let sgd = Optimizer::create("sgd", &[("learning_rate", 1.0.into()), ("lr_mult", syncline::kvstore::OptionValue::Numbers(multipliers))]);
    let store = KvStore::local("local").expect("local");
    assert!(refusal(store.set_learning_rate(0.1)).contains("set_optimizer first"));
    store.set_optimizer(sgd.expect("known")).expect("set");
    for key in ["fast", "slow"] {
        store.init(key, &filled(&[1], 0.0f32)).expect("new");
        store.push(key, &filled(&[1], 1.0f32)).expect("pushed");
    }
    let all = |store: &KvStore| ["fast", "slow"].map(|key| all_of(&store.pull(key).expect("there")));
    assert_eq!(all(&store), [-1.0, -0.5]);
    store.set_learning_rate(2.0).expect("no schedule");
    for key in ["fast", "slow"] {
        store.push(key, &filled(&[1], 1.0f32)).expect("pushed");
    }
    assert_eq!(all(&store), [-3.0, -1.5]);
}

#[test]
fn states_come_back_from_a_file_with_counts_residuals_and_the_optimizer() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("states");
    let train = |store: &KvStore, steps: std::ops::Range<i32>| {
        for step in steps {
            store.push("w", &filled(&[3], 0.3 + step as f32)).expect("pushed");
        }
    };
    let fresh = |optimizer: Option<&str>| {
        let store = KvStore::local("device").expect("local");
        store.set_gradient_compression(&[("type", "int8")]).expect("a device store");
        if let Some(optimizer) = optimizer {
            store.set_optimizer(Optimizer::create(optimizer, &[]).expect("known")).expect("set");
        }
        store
    };
    let whole = fresh(Some("adam"));
    whole.init("w", &filled(&[3], 1.0f32)).expect("new");
    train(&whole, 0..5);
    whole.save_optimizer_states(&path, true).expect("saved");
    let middle = whole.pull("w").expect("there");
    train(&whole, 5..9);
    let resumed = fresh(None);
    assert!(refusal(resumed.save_optimizer_states(folder.path().join("none"), false)).contains("no optimizer"));
    assert!(refusal(resumed.load_optimizer_states(&path)).contains("key w doesn't exist"));
    resumed.init("w", &middle).expect("new");
    resumed.load_optimizer_states(&path).expect("with its optimizer");
    assert_eq!(resumed.raw().optimizer(by()).expect("local"), whole.raw().optimizer(by()).expect("local"));
    train(&resumed, 5..9);
    assert_eq!(numbers::<f32>(&resumed.pull("w").expect("there")), numbers::<f32>(&whole.pull("w").expect("there")));
    // Without the optimizer in the file, the store's own must be of the same name.
    whole.save_optimizer_states(&path, false).expect("saved over the old one");
    let other = fresh(Some("sgd"));
    other.init("w", &middle).expect("new");
    assert!(refusal(other.load_optimizer_states(&path)).contains("`adam`"));
    let small = fresh(Some("adam"));
    small.init("w", &filled(&[2], 1.0f32)).expect("new");
    assert_eq!(small.load_optimizer_states(&path).expect_err("another shape").kind(), ErrorKind::ShapeMismatch);
    std::fs::write(&path, b"not a file of states").expect("written");
    assert!(refusal(whole.load_optimizer_states(&path)).contains("no file of optimizer states"));
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 1, "no draft is left");
}

#[test]
fn calls_in_the_background_keep_the_order_of_each_key() {
    let (store, keys) = store("local", false, false);
    let mut results = Vec::new();
    for round in 0..50 {
        for (priority, key) in (0..).zip(&keys) {
            store.push_async(key.clone(), &filled(&SHAPE, round as f32), priority).expect("queued");
            results.push((round, store.pull_async(key.clone(), -priority).expect("queued")));
        }
    }
    for (round, result) in &results {
        assert_eq!(all_of(&wait_one(result).expect("pulled")), *round as f32);
    }
    store.push_async(3, &filled(&SHAPE, -1.0f32), 0).expect("queued");
    assert_eq!(all_of(&store.pull(3).expect("there")), -1.0, "a direct call waits for those before it");
}

#[test]
fn the_error_of_a_push_in_the_background_is_that_of_the_next_pull() {
    let (store, _) = store("local", false, false);
    store.set_updater(|key, _, _| Err(Error::of_function("updater", format!("key {key} is not to my taste")))).expect("local");
    store.push_async(3, &filled(&SHAPE, 1.0f32), 0).expect("queued");
    assert!(refusal(store.pull(3)).contains("not to my taste"));
    store.pull(3).expect("once");
    assert!(refusal(store.push(3, &filled(&SHAPE, 1.0f32))).contains("not to my taste"), "a direct push says it itself");
}

#[test]
fn an_updater_that_calls_the_store_or_panics_harms_nobody() {
    let (store, _) = store("local", false, false);
    let inner = store.clone();
    store.set_updater(move |_, _, _| inner.pull(3).map(drop)).expect("local");
    assert!(refusal(store.push(3, &filled(&SHAPE, 1.0f32))).contains("inside of an updater"));
    store.set_updater(|_, _, _| panic!("a bug of the user's")).expect("local");
    let pending = store.push_async(3, &filled(&SHAPE, 1.0f32), 0).expect("queued");
    assert!(refusal(wait_one(&pending)).contains("panicked"));
    let _ = store.pull(3); // may tell of the panic
    store.raw().set_updater(None).expect("local");
    store.push(3, &filled(&SHAPE, 1.0f32)).expect("pushed");
    assert_eq!(all_of(&store.pull(3).expect("there")), 1.0);
}

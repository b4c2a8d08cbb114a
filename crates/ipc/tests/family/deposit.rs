//! Values that are laid out once and read where they lie: large ones of tables, and marshalled ones.

use syncline_ipc::{Channel, DType, ErrorKind, Family, Marshal, Shape, SharedTable, Value};

use crate::child::Kid;
use crate::{as_int, int, soon};

pub(crate) fn bytes(fill: u8, len: usize) -> Value<'static> {
    Value::tensor(DType::U8, Shape::new(&[len]).unwrap(), vec![fill; len]).unwrap()
}

/// Where the bytes of a tensor lie; panics if it has them for itself.
fn place(value: &Value<'_>) -> *const u8 {
    let Value::Tensor(tensor) = value else { panic!("{value:?} is no tensor") };
    assert!(tensor.shared().is_some(), "a copy");
    tensor.data().as_ptr()
}

#[test]
fn a_large_value_of_a_table_is_read_where_it_lies_and_stays_while_somebody_has_it() {
    let family = Family::alone().unwrap();
    let table = SharedTable::new(&family).unwrap();
    let before = table.size().unwrap();
    table.set(&int(1), &bytes(7, 100_000)).unwrap();
    assert!(table.size().unwrap() >= before + 100_000);
    let (first, second) = (table.get(&int(1)).unwrap().unwrap(), table.pairs().unwrap().remove(0).1);
    assert_eq!(place(&first), place(&second));
    assert!(table.set(&int(1), &bytes(8, 100_000)).unwrap());
    assert!(first == bytes(7, 100_000) && table.get(&int(1)).unwrap() == Some(bytes(8, 100_000)));
    assert_eq!((family.stats().blocks, family.stats().objects), (2, 3));
    drop((first, second));
    assert_eq!((family.stats().blocks, family.stats().objects), (1, 2));
    let taken = table.take(&int(1)).unwrap().unwrap();
    assert!(table.is_empty().unwrap() && table.take(&int(1)).unwrap().is_none());
    drop(table);
    assert_eq!((family.stats().blocks, family.stats().objects), (1, 1), "what was taken is still there");
    assert!(taken == bytes(8, 100_000));
    drop(taken);
    assert_eq!((family.stats().blocks, family.stats().objects), (0, 0));
}

#[test]
fn a_value_may_be_larger_than_what_a_table_has_room_for() {
    let family = Family::alone().unwrap();
    let len = 260 << 20; // a table holds 256 MB of small ones
    let table = SharedTable::new(&family).unwrap();
    table.set(&int(1), &bytes(0, len)).unwrap();
    let Some(Value::Tensor(tensor)) = table.get(&int(1)).unwrap() else { panic!("a tensor") };
    assert_eq!(tensor.data().len(), len);
    table.clear().unwrap();
    drop(tensor);
    assert_eq!(family.stats().blocks, 0);
}

#[test]
fn a_large_value_keeps_what_it_leads_to() {
    let family = Family::alone().unwrap();
    let table = SharedTable::new(&family).unwrap();
    {
        let channel = Channel::new(&family).unwrap();
        channel.write(&int(42), soon()).unwrap();
        table.set(&int(1), &Value::List(vec![bytes(1, 50_000), channel.handle().unwrap()])).unwrap();
    }
    assert_eq!(family.stats().objects, 3);
    let Some(Value::List(items)) = table.get(&int(1)).unwrap() else { panic!("a list") };
    table.remove(&int(1)).unwrap();
    let channel = Channel::open(&family, &items[1]).unwrap();
    assert_eq!(channel.try_read().unwrap().item.map(|item| as_int(&item)), Some(42));
    drop((items, channel));
    assert_eq!((family.stats().blocks, family.stats().objects), (0, 1));
}

/// Whoever takes a value has it alone, and none is removed that nobody got.
#[test]
fn taking_is_one_step() {
    const ROUNDS: i64 = 20_000;
    let table = SharedTable::new(&Family::alone().unwrap()).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let takers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut taken = 0;
                    while !done.load(std::sync::atomic::Ordering::Acquire) {
                        taken += i64::from(table.take(&int(1)).unwrap().is_some());
                    }
                    taken
                })
            })
            .collect();
        let replaced = (0..ROUNDS).filter(|round| table.set(&int(1), &int(*round)).unwrap()).count() as i64;
        done.store(true, std::sync::atomic::Ordering::Release);
        let taken: i64 = takers.into_iter().map(|taker| taker.join().unwrap()).sum();
        assert_eq!(taken + replaced + table.len().unwrap() as i64, ROUNDS);
        assert!(taken > 0, "nobody took anything: this proves nothing");
    });
}

#[test]
fn an_empty_table_is_as_good_as_new() {
    let family = Family::alone().unwrap();
    let table = SharedTable::new(&family).unwrap();
    for round in 0..3 {
        (0..500).for_each(|number| assert!(!table.set(&int(number), &int(round)).unwrap()));
        table.set(&Value::from("inner"), &SharedTable::new(&family).unwrap().handle()).unwrap();
        table.set(&Value::from("large"), &bytes(1, 40_000)).unwrap();
        table.clear().unwrap();
        assert!(table.is_empty().unwrap() && table.get(&int(3)).unwrap().is_none());
        assert_eq!((family.stats().blocks, family.stats().objects), (0, 1));
    }
}

/// Readers of values that are replaced all the time get whole ones.
#[test]
fn large_values_are_replaced_while_others_read_them() {
    let family = Family::alone().unwrap();
    let table = SharedTable::new(&family).unwrap();
    table.set(&int(1), &bytes(0, 40_000)).unwrap();
    let mut kids: Vec<Kid> = (0..2).map(|_| Kid::start("read_table", &family, &[table.handle()], &[])).collect();
    for round in 1..400 {
        table.set(&int(1), &bytes(round as u8, 40_000)).unwrap();
    }
    table.set(&int(1), &Value::Nil).unwrap();
    assert!(kids.iter_mut().all(Kid::ends_well));
    family.bury_the_dead();
    assert_eq!((family.stats().blocks, family.stats().objects), (0, 1));
}

/// T12: read twice, a tensor has two owners.
#[test]
fn every_read_of_a_marshalled_value_is_the_value_and_its_tensors_lie_in_one_place() {
    let family = Family::alone().unwrap();
    let value = Value::Map(vec![(Value::from("weights"), bytes(3, 1_000)), (Value::from("steps"), int(3))]);
    let marshal = Marshal::new(&family, &value).unwrap();
    let weights = |value: Value<'static>| match value {
        Value::Map(mut pairs) => pairs.remove(0).1,
        other => panic!("{other:?}"),
    };
    let first = weights(marshal.read().unwrap());
    assert_eq!(place(&first), place(&weights(marshal.read().unwrap())));
    assert_eq!(marshal.read().unwrap(), value);
    assert!(marshal.size() >= 1_000);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..100).for_each(|_| assert_eq!(marshal.read().unwrap(), value)));
        }
    });
    drop(marshal);
    assert_eq!(first, bytes(3, 1_000), "it outlives what it was read from");
    drop(first);
    assert_eq!((family.stats().blocks, family.stats().objects), (0, 0));
}

#[test]
fn a_marshalled_value_is_read_by_other_processes_and_travels_through_channels() {
    let family = Family::alone().unwrap();
    let (ways, answers) = (Channel::new(&family).unwrap(), Channel::new(&family).unwrap());
    let opaque = Value::Opaque(vec![1, 2, 3].into());
    {
        let marshal = Marshal::new(&family, &Value::List(vec![bytes(5, 300_000), opaque, answers.handle().unwrap()])).unwrap();
        (0..3).for_each(|_| assert_eq!(ways.write(&marshal.handle().unwrap(), soon()).unwrap() as u8, 0));
    }
    let mut kids: Vec<Kid> = (0..3).map(|_| Kid::start("read_marshal", &family, &[ways.handle().unwrap()], &[])).collect();
    assert!((0..3).all(|_| as_int(&answers.read(soon()).unwrap().item.unwrap()) == 1_500_000));
    assert!(kids.iter_mut().all(Kid::ends_well));
    family.bury_the_dead();
    assert_eq!((family.stats().blocks, family.stats().objects), (0, 2));
}

#[test]
fn nil_cannot_be_marshalled_and_a_closed_one_says_so() {
    let family = Family::alone().unwrap();
    assert_eq!(Marshal::new(&family, &Value::Nil).expect_err("nothing").kind(), ErrorKind::Configuration);
    let marshal = Marshal::new(&family, &int(1)).unwrap();
    assert!(SharedTable::open(&family, &marshal.handle().unwrap()).is_err());
    marshal.close();
    marshal.close();
    assert_eq!(marshal.read().expect_err("closed").kind(), ErrorKind::Closed);
    assert_eq!(marshal.handle().expect_err("closed").kind(), ErrorKind::Closed);
}

#[test]
#[cfg(debug_assertions)]
fn whoever_dies_with_large_values_leaves_whole_ones_and_no_memory() {
    let mut step = 1;
    loop {
        let family = Family::alone().unwrap();
        let table = SharedTable::new(&family).unwrap();
        table.set(&int(0), &bytes(0, 40_000)).unwrap();
        let lives = Kid::start("deposit_until", &family, &[table.handle()], &[step]).ends_well();
        family.bury_the_dead();
        for (key, value) in table.pairs().unwrap() {
            let Value::List(items) = &value else {
                assert_eq!((key, value), (int(0), bytes(0, 40_000)), "died at {step}");
                continue;
            };
            assert!(items[0] == bytes(as_int(&key) as u8, 40_000), "died at {step}");
            Channel::open(&family, &items[1]).unwrap_or_else(|error| panic!("died at {step}: {error}"));
        }
        table.set(&int(9), &bytes(9, 40_000)).unwrap();
        drop(table);
        family.bury_the_dead();
        assert_eq!((family.stats().blocks, family.stats().objects), (0, 0), "died at {step}");
        if lives {
            return;
        }
        step += 1;
        assert!(step < 1_000, "it never comes through");
    }
}

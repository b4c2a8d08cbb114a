//! Shared tables between threads; `processes` has the same between processes.

use syncline_ipc::{Channel, Family, Mutex, SharedTable, Value};

use crate::{as_int, int, soon};

#[test]
fn a_list_has_its_length_and_a_moved_one_is_empty() {
    let family = Family::alone().unwrap();
    let table = SharedTable::of(&family, &Value::List(vec![int(2), int(3), int(4)])).unwrap();
    assert_eq!((table.len().unwrap(), table.get(&int(2)).unwrap()), (3, Some(int(3))));
    let mut source = Value::Map(vec![(Value::from("a"), int(1)), (Value::Float(0.5), Value::Nil)]);
    let moved = SharedTable::moved(&family, &mut source).unwrap();
    assert_eq!(source, Value::Map(Vec::new()));
    assert_eq!(moved.get(&Value::Float(0.5)).unwrap(), Some(Value::Nil), "a nil that was set is there");
    assert_eq!(moved.get(&Value::Float(1.5)).unwrap(), None);
    assert!(SharedTable::of(&family, &int(1)).is_err());
    assert!(moved.set(&Value::Nil, &int(1)).is_err());
}

#[test]
fn a_hundred_threads_write_each_its_own() {
    let table = SharedTable::new(&Family::alone().unwrap()).unwrap();
    std::thread::scope(|scope| {
        for number in 0..100 {
            let table = &table;
            scope.spawn(move || table.set(&int(number), &int(number)).unwrap());
        }
    });
    assert_eq!(table.len().unwrap(), 100);
    assert!(table.pairs().unwrap().iter().all(|(key, value)| key == value));
}

#[test]
fn locked_increments_are_all_counted() {
    let family = Family::alone().unwrap();
    let (table, mutex) = (SharedTable::new(&family).unwrap(), Mutex::new(&family).unwrap());
    std::thread::scope(|scope| {
        for _ in 0..10 {
            scope.spawn(|| {
                for number in 0..100 {
                    let _held = mutex.lock(soon()).unwrap();
                    let before = table.get(&int(number)).unwrap().map_or(0, |value| as_int(&value));
                    table.set(&int(number), &int(before + 1)).unwrap();
                }
            });
        }
    });
    assert!((0..100).all(|number| table.get(&int(number)).unwrap() == Some(int(10))));
}

#[test]
fn tables_lie_in_tables_and_keep_what_they_name_alive() {
    let family = Family::alone().unwrap();
    let outer = SharedTable::new(&family).unwrap();
    {
        let inner = SharedTable::new(&family).unwrap();
        inner.set(&int(1), &Value::from("one")).unwrap();
        outer.set(&Value::from("inner"), &inner.handle()).unwrap();
        outer.set(&Value::from("channel"), &Channel::new(&family).unwrap().handle().unwrap()).unwrap();
    }
    assert_eq!(family.stats().objects, 3);
    let inner = SharedTable::open(&family, &outer.get(&Value::from("inner")).unwrap().unwrap()).unwrap();
    assert_eq!(inner.get(&int(1)).unwrap(), Some(Value::from("one")));
    drop(inner);
    assert!(outer.remove(&Value::from("channel")).unwrap());
    assert_eq!(family.stats().objects, 2);
    assert!(outer.set(&Value::from("inner"), &int(1)).unwrap());
    assert_eq!(family.stats().objects, 1);
    outer.set(&Value::from("last"), &SharedTable::new(&family).unwrap().handle()).unwrap();
    drop(outer);
    assert_eq!(family.stats().objects, 0);
}

#[test]
fn it_grows_with_what_is_in_it_and_not_with_what_was_replaced() {
    let table = SharedTable::new(&Family::alone().unwrap()).unwrap();
    let empty = table.size().unwrap();
    (0..2_000).for_each(|number| assert!(!table.set(&int(number), &Value::from("z".repeat(50))).unwrap()));
    let full = table.size().unwrap();
    assert!(full > empty + 2_000 * 50);
    for round in 0..100 {
        (0..2_000).for_each(|number| assert!(table.set(&int(number), &int(round)).unwrap()));
    }
    assert!(table.size().unwrap() < 4 * full, "{} after {full}", table.size().unwrap());
    assert_eq!(table.len().unwrap(), 2_000);
    let large = Value::from(vec![1_u8; 3_000_000]);
    table.set(&int(5), &large).unwrap();
    assert!(table.get(&int(5)).unwrap() == Some(large));
    (0..2_000).for_each(|number| assert!(table.remove(&int(number)).unwrap()));
    assert!(table.is_empty().unwrap() && !table.remove(&int(1)).unwrap());
}

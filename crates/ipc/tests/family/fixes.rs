//! What torch-ipc got wrong between threads, right between processes too. The same between threads stands beside each object's tests.

use std::time::Duration;

use syncline_ipc::{Channel, ChannelOptions, Deadline, Error, Family, Taken, Value, Workqueue};

use crate::child::Kid;
use crate::{as_int, int, soon};

/// T5: a write of several items wakes as many readers, each of which takes one and no more.
#[test]
fn one_write_of_many_items_wakes_as_many_processes() {
    let family = Family::alone().unwrap();
    let make = || Channel::new(&family).unwrap();
    let (items, taken) = (make(), make());
    let mut kids: Vec<Kid> =
        (0..4).map(|_| Kid::start("take_one", &family, &[items.handle().unwrap(), taken.handle().unwrap()], &[])).collect();
    (0..4).for_each(|_| assert_eq!(taken.read(soon()).unwrap().item, Some(Value::Nil), "each says that it is there"));
    items.write_all(&[int(1), int(2), int(3), int(4)], soon()).unwrap();
    let mut got: Vec<i64> = (0..4).map(|_| as_int(&taken.read(soon()).unwrap().item.unwrap())).collect();
    got.sort_unstable();
    assert_eq!(got, [1, 2, 3, 4]);
    assert!(kids.iter_mut().all(Kid::ends_well));
}

/// T7: items that a worker in another process has taken and not finished are waited for.
#[test]
fn drain_waits_for_what_another_process_works_on() {
    let family = Family::alone().unwrap();
    let queue = Workqueue::new(&family).unwrap();
    let mut kids: Vec<Kid> = (0..2).map(|_| Kid::start("echo", &family, &[queue.handle()], &[])).collect();
    for round in 0..20 {
        queue.write_all(&(1..=13).map(int).collect::<Vec<_>>(), soon()).unwrap();
        queue.drain(soon()).unwrap();
        let answers: Vec<i64> = std::iter::from_fn(|| queue.try_read().unwrap().item().map(|item| as_int(item.value()))).collect();
        assert_eq!((answers.len(), answers.iter().sum::<i64>()), (13, 91), "round {round}");
    }
    queue.close().unwrap();
    assert!(kids.iter_mut().all(Kid::ends_well));
}

/// T11: a named queue that was sent as a value lives as long as somebody has it, and no longer.
#[test]
fn a_named_queue_that_travelled_is_counted_like_any_other() {
    let family = Family::alone().unwrap();
    let carrier = Channel::new(&family).unwrap();
    let (queue, _) = Workqueue::named(&family, "sent about").unwrap();
    (0..3).for_each(|_| assert_eq!(carrier.write(&queue.handle(), soon()).unwrap() as u8, 0));
    let mut kid = Kid::start("open_all", &family, &[carrier.handle().unwrap()], &[3]);
    assert!(kid.ends_well());
    queue.write(&int(1), soon()).unwrap();
    assert_eq!(queue.num_questions(), 1, "it is still there");
    drop(queue);
    family.bury_the_dead();
    assert_eq!(family.stats().objects, 1, "only the carrier is left");
    assert!(Workqueue::named(&family, "sent about").unwrap().1, "a new one");
}

/// T17: an array that was sent is the reader's own; what its writer does to its array afterwards is not seen.
#[test]
fn an_array_that_arrived_is_not_shared_with_its_writer() {
    let family = Family::alone().unwrap();
    let (there, back) = (Channel::new(&family).unwrap(), Channel::new(&family).unwrap());
    let mut kid = Kid::start("relay", &family, &[there.handle().unwrap(), back.handle().unwrap()], &[]);
    let mut numbers = vec![1_u8; 100_000];
    let shape = syncline_ipc::Shape::new(&[numbers.len()]).unwrap();
    there.write(&Value::tensor(syncline_ipc::DType::U8, shape, &numbers[..]).unwrap(), soon()).unwrap();
    numbers.fill(9);
    let Some(Value::Tensor(tensor)) = back.read(soon()).unwrap().item else { panic!("a tensor") };
    assert!(tensor.data().iter().all(|number| *number == 1));
    there.close().unwrap();
    assert!(kid.ends_well());
}

/// T18: nothing and nil are told apart, a full channel holds its writer back, and waits end in time.
#[test]
fn nothing_is_no_nil_and_no_wait_is_endless_between_processes() {
    let family = Family::alone().unwrap();
    let narrow = Channel::with(&family, ChannelOptions { capacity: Some(1), leases: false }).unwrap();
    let back = Channel::new(&family).unwrap();
    assert_eq!(back.try_read().unwrap().item, None);
    narrow.write(&Value::Nil, soon()).unwrap();
    assert_eq!(narrow.try_write(&int(1)).unwrap(), None, "it is full");
    let late = narrow.write(&int(1), Deadline::after(Duration::from_millis(5)));
    assert!(matches!(late, Err(Error::Timeout { .. })), "{late:?}");
    let mut kid = Kid::start("relay", &family, &[narrow.handle().unwrap(), back.handle().unwrap()], &[]);
    assert_eq!(back.read(soon()).unwrap().item, Some(Value::Nil), "a nil is an item");
    let late = back.read(Deadline::after(Duration::from_millis(5)));
    assert!(matches!(late, Err(Error::Timeout { .. })), "{late:?}");
    narrow.close().unwrap();
    assert!(kid.ends_well());
    let queue = Workqueue::new(&family).unwrap();
    assert!(matches!(queue.try_read().unwrap(), Taken::Nothing));
}

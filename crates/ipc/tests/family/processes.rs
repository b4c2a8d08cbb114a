//! The same promises between processes.

use std::time::{Duration, Instant};

use syncline_ipc::{Channel, ChannelOptions, DType, Deadline, Error, Family, Mutex, Shape, SharedTable, Taken, Value, Workqueue};

use crate::child::Kid;
use crate::{as_int, int, soon};

#[test]
fn ten_generators_and_five_workers_in_processes_lose_and_double_nothing() {
    let family = Family::alone().unwrap();
    let (numbers, results) = (Channel::new(&family).unwrap(), Channel::new(&family).unwrap());
    let both = [numbers.handle(), results.handle()];
    let mut workers: Vec<Kid> = (0..5).map(|_| Kid::start("relay", &family, &both, &[])).collect();
    let mut generators: Vec<Kid> = (0..10).map(|_| Kid::start("produce", &family, &both, &[100])).collect();
    assert!(generators.iter_mut().all(Kid::ends_well));
    numbers.close().unwrap();
    assert!(workers.iter_mut().all(Kid::ends_well));
    results.close().unwrap();
    let mut counts = [0; 101];
    results.iter(soon()).for_each(|value| counts[as_int(&value.unwrap()) as usize] += 1);
    assert_eq!(counts[1..], [10; 100]);
    family.bury_the_dead();
    assert_eq!(family.members().len(), 1, "those who left and those who died have no seat any more");
}

#[test]
fn whatever_is_asked_comes_back_from_another_process() {
    let family = Family::alone().unwrap();
    let queue = Workqueue::new(&family).unwrap();
    let mut workers: Vec<Kid> = (0..2).map(|_| Kid::start("echo", &family, &[queue.handle()], &[])).collect();
    let tensor = |fill: u8| Value::tensor(DType::U8, Shape::new(&[1_000, 100]).unwrap(), vec![fill; 100_000]).unwrap();
    let values = [Value::Nil, Value::Bool(true), Value::Float(42.13), Value::from("text"), tensor(13), tensor(42)];
    for value in &values {
        queue.write(value, soon()).unwrap();
        assert_eq!(queue.read(soon()).unwrap().item().unwrap().value(), value);
    }
    for _ in 0..20 {
        queue.write_all(&(1..=13).map(int).collect::<Vec<_>>(), soon()).unwrap();
        queue.drain(soon()).unwrap();
        let mut answers: Vec<i64> = (0..13).map(|_| as_int(queue.try_read().unwrap().item().unwrap().value())).collect();
        answers.sort_unstable();
        assert_eq!(answers, (1..=13).collect::<Vec<_>>());
        assert!(matches!(queue.try_read().unwrap(), Taken::Nothing));
    }
    queue.close().unwrap();
    assert!(workers.iter_mut().all(Kid::ends_well));
    assert_eq!(family.stats().blocks, 0);
}

#[test]
fn a_name_means_the_same_queue_in_every_process() {
    let family = Family::alone().unwrap();
    let (queue, made) = Workqueue::named(&family, "known to all").unwrap();
    assert!(made);
    let mut kid = Kid::start("open", &family, &[], &[]);
    assert_eq!(queue.read(soon()).unwrap().item().unwrap().value(), &Value::Bool(false));
    assert!(kid.ends_well());
}

/// T6: nobody passes a barrier before the last one has come.
#[test]
fn four_meet_twice_and_count_under_one_lock() {
    let family = Family::alone().unwrap();
    let (mutex, table) = (Mutex::new(&family).unwrap(), SharedTable::new(&family).unwrap());
    let mut kids: Vec<Kid> = (0..3).map(|_| Kid::start("count", &family, &[mutex.handle(), table.handle()], &[4, 100])).collect();
    mutex.barrier(4, soon()).unwrap();
    assert!(table.get(&Value::from("sum")).unwrap().is_none(), "nobody counts before the second barrier");
    mutex.barrier(4, soon()).unwrap();
    assert!(kids.iter_mut().all(Kid::ends_well));
    assert_eq!(table.get(&Value::from("sum")).unwrap(), Some(int(300)));
    assert_eq!(table.len().unwrap(), 4);
    assert!(matches!(mutex.release(), Err(Error::Configuration { .. })));
}

#[test]
fn the_next_holder_of_a_mutex_is_told_that_the_last_one_died() {
    let family = Family::alone().unwrap();
    let (mutex, said) = (Mutex::new(&family).unwrap(), Channel::new(&family).unwrap());
    let mut kid = Kid::start("hold", &family, &[mutex.handle(), said.handle()], &[]);
    said.read(soon()).unwrap();
    let error = mutex.lock(Deadline::after(Duration::from_millis(30))).err().unwrap();
    assert!(error.to_string().contains("which holds it"), "{error}");
    kid.kill();
    let began = Instant::now();
    assert!(mutex.lock(soon()).unwrap().recovered());
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert!(!mutex.lock(soon()).unwrap().recovered(), "told once");
}

#[test]
fn arrays_arrive_in_place_and_memory_is_bounded_by_the_capacity() {
    let family = Family::alone().unwrap();
    let channel = Channel::with(&family, ChannelOptions { capacity: Some(4), leases: false }).unwrap();
    let mut kid = Kid::start("arrays", &family, &[channel.handle()], &[200]);
    for number in 0..200_u64 {
        let Some(Value::Tensor(tensor)) = channel.read(soon()).unwrap().item else { panic!("a tensor") };
        assert!(tensor.shared().is_some() && tensor.data().iter().all(|byte| *byte == number as u8), "array {number}");
        // Four in the channel, one in the writer's hands, one in ours.
        assert!(family.stats().blocks <= 6 && family.stats().memory < 24 << 20, "{:?}", family.stats());
    }
    assert!(kid.ends_well());
    assert_eq!(family.stats().blocks, 0);
}

#[test]
fn nobody_is_taken_for_dead_by_a_process_that_has_run_out_of_descriptors() {
    let family = Family::alone().unwrap();
    let channel = Channel::new(&family).unwrap();
    let mut kid = Kid::start("without_descriptors", &family, &[channel.handle()], &[]);
    assert!(kid.ends_well());
    assert_eq!(channel.read(soon()).unwrap().item, Some(int(1)), "this process is still a member, and so is what it holds");
}

#[test]
fn an_invitation_to_nowhere_is_refused() {
    for line in ["", "syncline-family:1:2", "syncline-family:x:y:0:1", "syncline-family:999999999:3:0:1"] {
        assert!(Family::accept(line).is_err(), "{line}");
    }
    let family = Family::alone().unwrap();
    let forged = family.invitation().unwrap().rsplit_once(':').unwrap().0.to_owned() + ":1234";
    let error = Family::accept(&forged).unwrap_err();
    assert!(error.to_string().contains("another family"), "{error}");
}

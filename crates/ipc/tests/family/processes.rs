//! The same promises between processes.

use std::time::{Duration, Instant};

use syncline_ipc::{
    Channel, ChannelOptions, DType, Deadline, Error, Family, Mutex, Shape, SharedTable, Status, Taken, Value, Workqueue, select,
};

use crate::child::Kid;
use crate::{as_int, int, soon};

#[test]
fn ten_generators_and_five_workers_in_processes_lose_and_double_nothing() {
    let family = Family::alone().unwrap();
    let (numbers, results) = (Channel::new(&family).unwrap(), Channel::new(&family).unwrap());
    let both = [numbers.handle().unwrap(), results.handle().unwrap()];
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
    let mut kid = Kid::start("hold", &family, &[mutex.handle(), said.handle().unwrap()], &[]);
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
    let mut kid = Kid::start("arrays", &family, &[channel.handle().unwrap()], &[200]);
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
    let mut kid = Kid::start("without_descriptors", &family, &[channel.handle().unwrap()], &[]);
    assert!(kid.ends_well());
    assert_eq!(channel.read(soon()).unwrap().item, Some(int(1)), "this process is still a member, and so is what it holds");
}

#[test]
fn a_closed_channel_waits_for_what_another_process_has_on_a_lease() {
    let family = Family::alone().unwrap();
    let channel = Channel::with(&family, ChannelOptions { capacity: None, leases: true }).unwrap();
    let said = Channel::new(&family).unwrap();
    channel.write(&int(1), soon()).unwrap();
    let mut kid = Kid::start("lease", &family, &[channel.handle().unwrap(), said.handle().unwrap()], &[]);
    said.read(soon()).unwrap();
    channel.close().unwrap();
    let shortly = || Deadline::after(Duration::from_millis(30));
    let in_vain = [
        channel.lease(shortly()).map(drop),
        channel.read(shortly()).map(drop),
        channel.read_many(4, shortly()).map(drop),
        select(&[&channel], shortly()).map(drop),
    ];
    for waited in in_vain {
        assert!(matches!(waited, Err(Error::Timeout { .. })), "it may still come back: {waited:?}");
    }
    kid.kill();
    let item = channel.lease(soon()).unwrap().item().expect("it came back");
    assert_eq!((as_int(item.value()), item.attempts()), (1, 1));
    item.done().unwrap();
    assert!(matches!(channel.lease(soon()).unwrap(), Taken::Over));
    assert_eq!(channel.read_many(4, soon()).unwrap(), (Status::Drained, vec![]));
    assert_eq!(select(&[&channel], soon()).unwrap().index, None);
}

#[test]
fn a_closed_queue_waits_for_what_a_worker_has_taken_and_gets_it_when_that_dies() {
    let family = Family::alone().unwrap();
    let (queue, said) = (Workqueue::new(&family).unwrap(), Channel::new(&family).unwrap());
    queue.write(&int(1), soon()).unwrap();
    let mut kid = Kid::start("take", &family, &[queue.handle(), said.handle().unwrap()], &[]);
    said.read(soon()).unwrap();
    queue.close().unwrap();
    let worker = queue.as_worker();
    assert!(matches!(worker.try_read().unwrap(), Taken::Nothing) && matches!(queue.try_read().unwrap(), Taken::Nothing));
    kid.kill();
    worker.read(soon()).unwrap().item().expect("it came back").answer(&int(2), soon()).unwrap();
    assert!(matches!(worker.read(soon()).unwrap(), Taken::Over));
    assert_eq!(as_int(queue.read(soon()).unwrap().item().unwrap().value()), 2);
    assert!(matches!(queue.read(soon()).unwrap(), Taken::Over));
}

#[test]
fn a_worker_whose_owner_was_killed_is_told_so_by_name() {
    let family = Family::alone().unwrap();
    let said = Channel::new(&family).unwrap();
    let mut owner = Kid::start("own", &family, &[said.handle().unwrap()], &[]);
    said.read(soon()).unwrap();
    let (queue, made) = Workqueue::named(&family, "orphaned").unwrap();
    assert!(!made);
    let pid = owner.pid();
    let lost_in_time = || {
        let began = Instant::now();
        let error = queue.read(soon()).expect_err("nobody will ever ask");
        assert!(matches!(error, Error::PeerLost { .. }) && began.elapsed() < Duration::from_secs(1), "{error} after {:?}", began.elapsed());
        assert_eq!(error.whom().unwrap().pid, Some(pid));
    };
    owner.kill();
    assert_eq!(as_int(queue.read(soon()).unwrap().item().expect("what it had asked is answered first").value()), 1);
    lost_in_time();
    family.bury_the_dead();
    lost_in_time();
}

/// A process that reads and writes a channel all the time, stopped where the call fails that `is_hindered` makes.
fn stopped_over(family: &Family, channel: &Channel, mut is_hindered: impl FnMut() -> bool) -> Kid {
    let kid = Kid::start("churn", family, &[channel.handle().unwrap()], &[]);
    // Until it is hit there: how often that takes is the scheduler's affair.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(40) {
        kid.stop();
        if is_hindered() {
            return kid;
        }
        kid.go_on();
    }
    panic!("it is never stopped there");
}

fn is_told_who_stopped<T: std::fmt::Debug>(kid: &Kid, call: impl FnOnce() -> Result<T, Error>) {
    let began = Instant::now();
    let error = call().unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert!(matches!(error, Error::Timeout { waited, .. } if waited.as_secs() >= 1), "{error}");
    assert_eq!(error.whom().unwrap().pid, Some(kid.pid()), "{error}");
}

#[test]
fn reads_end_in_time_although_somebody_was_stopped_in_the_middle_of_one() {
    let family = Family::alone().unwrap();
    let channel = Channel::new(&family).unwrap();
    channel.write_all(&(0..30_000).map(int).collect::<Vec<_>>(), soon()).unwrap();
    let quick = || matches!(channel.try_read_by(Deadline::brief(), |_| ()), Err(Error::Interrupted { .. }));
    let kid = stopped_over(&family, &channel, quick);
    is_told_who_stopped(&kid, || channel.read(Deadline::after(Duration::from_millis(100))));
    is_told_who_stopped(&kid, || channel.try_read());
    let interrupted = channel.read(Deadline::never().with_interrupt(|| true));
    assert!(matches!(interrupted, Err(Error::Interrupted { .. })), "{interrupted:?}");
    kid.go_on();
    assert!(channel.read(soon()).unwrap().item.is_some());
}

#[test]
fn writes_end_in_time_although_somebody_was_stopped_in_the_middle_of_one() {
    let family = Family::alone().unwrap();
    let channel = Channel::new(&family).unwrap();
    channel.write_all(&(0..10).map(int).collect::<Vec<_>>(), soon()).unwrap();
    let quick = || matches!(channel.try_write_by(&int(1), Deadline::brief()), Err(Error::Interrupted { .. }));
    let kid = stopped_over(&family, &channel, quick);
    is_told_who_stopped(&kid, || channel.write(&int(1), Deadline::after(Duration::from_millis(100))));
    is_told_who_stopped(&kid, || channel.write_all(&[int(1), int(2)], Deadline::after(Duration::from_millis(100))));
    let before = channel.num_items();
    kid.go_on();
    assert_eq!(channel.write(&int(2), soon()).unwrap(), Status::Open);
    assert!(channel.num_items() <= before + 2, "what raised was not written");
}

/// Ctrl-C ends such a call, and then the item is still there to be decided about.
#[test]
fn what_becomes_of_an_item_can_be_called_off_while_somebody_who_was_stopped_is_in_the_way() {
    let family = Family::alone().unwrap();
    let channel = Channel::with(&family, ChannelOptions { capacity: None, leases: true }).unwrap();
    channel.write_all(&(0..30_000).map(int).collect::<Vec<_>>(), soon()).unwrap();
    let called_off = || Deadline::never().with_interrupt(|| true);
    let take = || channel.lease(soon()).unwrap().item().unwrap();
    let mut item = take();
    let kid = stopped_over(&family, &channel, || {
        let began = Instant::now();
        match item.give_back_by(called_off()) {
            Err(Error::Interrupted { .. }) => {
                assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
                true
            }
            ended => {
                ended.unwrap();
                item = take(); // Nobody is in the way.
                false
            }
        }
    });
    assert!(item.is_leased());
    is_told_who_stopped(&kid, || item.done_by(Deadline::after(Duration::from_millis(100))));
    assert!(item.is_leased());
    kid.go_on();
    item.done_by(soon()).unwrap();
    assert!(!item.is_leased());
}

#[test]
fn select_takes_from_channels_that_other_processes_write() {
    let family = Family::alone().unwrap();
    let channels: Vec<Channel> = (0..3).map(|_| Channel::new(&family).unwrap()).collect();
    let all: Vec<&Channel> = channels.iter().collect();
    let sums = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut sums = [0; 3];
            while let (Some(index), Some(value)) = select(&all, soon()).map(|found| (found.index, found.read.item)).unwrap() {
                sums[index] += as_int(&value);
            }
            sums
        });
        let mut kids: Vec<Kid> =
            (1..=3).zip(&channels).map(|(n, channel)| Kid::start("produce", &family, &[channel.handle().unwrap()], &[n * 100])).collect();
        assert!(kids.iter_mut().all(Kid::ends_well));
        channels.iter().for_each(|channel| channel.close().unwrap());
        reader.join().unwrap()
    });
    assert_eq!(sums, [5_050, 20_100, 45_150]);
}

#[test]
fn another_process_sees_the_same_end_of_a_channel() {
    let family = Family::alone().unwrap();
    let (channel, told) = (Channel::new(&family).unwrap(), Channel::new(&family).unwrap());
    channel.write_all(&[int(1), int(2)], soon()).unwrap();
    channel.close().unwrap();
    assert!(Kid::start("statuses", &family, &[channel.handle().unwrap(), told.handle().unwrap()], &[]).ends_well());
    let [closed, drained] = [Status::Closed, Status::Drained].map(|status| int(status as i64));
    let expected = [closed.clone(), closed.clone(), int(1), closed, int(2), drained.clone(), Value::Nil, drained];
    assert_eq!(told.read(soon()).unwrap().item, Some(Value::List(expected.to_vec())));
    assert!(channel.drained());
}

#[test]
fn tables_in_tables_are_the_same_in_every_process_and_outlive_who_made_them() {
    let family = Family::alone().unwrap();
    let (outer, inner) = (SharedTable::new(&family).unwrap(), SharedTable::new(&family).unwrap());
    inner.set(&int(1), &Value::from("one")).unwrap();
    outer.set(&Value::from("inner"), &inner.handle()).unwrap();
    assert!(Kid::start("tables", &family, &[outer.handle()], &[]).ends_well());
    family.bury_the_dead();
    assert_eq!((inner.len().unwrap(), inner.get(&int(2)).unwrap()), (2, Some(Value::from("two"))));
    let moved = SharedTable::open(&family, &outer.get(&Value::from("moved")).unwrap().unwrap()).unwrap();
    let mut pairs = moved.pairs().unwrap();
    pairs.sort_by_key(|(_, value)| as_int(value));
    assert_eq!(pairs, [(Value::from("a"), int(1)), (Value::from("b"), int(2))]);
    assert_eq!(family.stats().objects, 3);
}

#[test]
fn a_queue_that_is_full_says_so_in_time_and_how_much_was_written() {
    assert!(Kid::start("little_room", &Family::alone().unwrap(), &[], &[]).ends_well());
}

#[test]
fn a_channel_that_finds_no_room_in_the_family_stays_as_it_is() {
    assert!(Kid::start("too_full_to_move", &Family::alone().unwrap(), &[], &[]).ends_well());
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

//! Channels against a naive model: random programs of one thread, and of several while the channel moves.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use syncline_ipc::{
    Channel, ChannelOptions, DType, Data, Deadline, Error, Family, Mutex, Shape, SharedBytes, Status, TensorValue, Value, select,
};

use crate::{as_int, int, soon};

/// Numbers from a seed, which a failed test prints.
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

fn seed() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    since.as_nanos() as u64 ^ u64::from(std::process::id())
}

/// A channel as a list.
#[derive(Default)]
struct Model {
    items: VecDeque<Value<'static>>,
    capacity: Option<usize>,
    closed: bool,
}

impl Model {
    fn room(&self) -> usize {
        self.capacity.map_or(usize::MAX, |capacity| capacity - self.items.len())
    }

    fn status(&self) -> Status {
        match (self.closed, self.items.is_empty()) {
            (false, _) => Status::Open,
            (true, false) => Status::Closed,
            (true, true) => Status::Drained,
        }
    }

    fn read(&mut self) -> (Status, Option<Value<'static>>) {
        match self.items.pop_front() {
            Some(item) => (if self.closed { Status::Closed } else { Status::Open }, Some(item)),
            None => (self.status(), None),
        }
    }
}

/// Every kind of value, of every size that is treated in its own way.
fn some_value(dice: &mut Dice, mutex: &Mutex) -> Value<'static> {
    let sizes = [0, 1, 7, 8, 63, 64, 65, 200, 1_023, 1_024, 3_000, 8_200, 40_000];
    let size = sizes[dice.below(sizes.len() as u64) as usize];
    let bytes: Vec<u8> = (0..size).map(|n| (n as u64 * 7 + dice.0) as u8).collect();
    match dice.below(12) {
        0 => Value::Nil,
        1 => Value::Bool(dice.below(2) == 0),
        2 => Value::Int(dice.0 as i64),
        3 => Value::Float(dice.0 as f64 / 3.0),
        4 => Value::Str("ä".repeat(size / 2).into()),
        5 | 6 => Value::Bytes(bytes.into()),
        7 => Value::Opaque(bytes.into()),
        8 => Value::List(vec![int(1), Value::from("two"), Value::from(bytes)]),
        9 => Value::Map(vec![(Value::from("key"), Value::tensor(DType::U8, Shape::new(&[size]).unwrap(), bytes).unwrap())]),
        10 => mutex.handle(),
        _ => Value::tensor(DType::U8, Shape::new(&[size]).unwrap(), SharedBytes::new(std::sync::Arc::new(bytes))).unwrap(),
    }
}

#[test]
fn any_program_of_one_thread_reads_what_a_list_would_say() {
    let family = Family::alone().unwrap();
    let mutex = Mutex::new(&family).unwrap();
    let begin = seed();
    for program in 0..150 {
        let seed = begin + program;
        let mut dice = Dice(seed);
        let capacity = [None, Some(1), Some(3), Some(40)][dice.below(4) as usize];
        let channel = Channel::with(&family, ChannelOptions { capacity, leases: false }).unwrap();
        let mut model = Model { capacity, ..Model::default() };
        for step in 0..80 {
            let what = format!("seed {seed}, step {step}, capacity {capacity:?}");
            match dice.below(22) {
                0..=6 => {
                    let value = some_value(&mut dice, &mutex);
                    let written = channel.try_write(&value).unwrap();
                    let expected = if model.closed { Some(model.status()) } else { (model.room() > 0).then_some(Status::Open) };
                    assert_eq!(written, expected, "{what}");
                    if expected == Some(Status::Open) {
                        model.items.push_back(value);
                    }
                }
                7 | 8 if model.closed || model.room() >= 3 => {
                    let values: Vec<Value<'_>> = (0..3).map(|_| some_value(&mut dice, &mutex)).collect();
                    assert_eq!(channel.write_all(&values, soon()).unwrap(), model.status(), "{what}");
                    if !model.closed {
                        model.items.extend(values);
                    }
                }
                9 if model.closed || model.room() > 0 => {
                    let mut value = some_value(&mut dice, &mutex);
                    let kept = value.clone();
                    assert_eq!(channel.write_moved(&mut value, soon()).unwrap(), model.status(), "{what}");
                    if model.closed {
                        assert_eq!(value, kept, "{what}: what was refused is given back");
                    } else {
                        assert_eq!(value, Value::Nil, "{what}");
                        model.items.push_back(kept);
                    }
                }
                10..=15 => {
                    let read = channel.try_read().unwrap();
                    assert_eq!((read.status, read.item), model.read(), "{what}");
                }
                16 if !model.items.is_empty() || model.closed => {
                    let most = 1 + dice.below(4) as usize;
                    let (status, items) = channel.read_many(most, soon()).unwrap();
                    let expected: Vec<_> = (0..most).map_while(|_| model.read().1).collect();
                    let as_expected = if items.is_empty() {
                        Status::Drained
                    } else if model.closed {
                        Status::Closed
                    } else {
                        Status::Open
                    };
                    assert_eq!((status, items), (as_expected, expected), "{what}");
                }
                17 if !model.items.is_empty() || model.closed => {
                    let read = channel.read_with(soon(), |value| value.clone().into_owned()).unwrap();
                    assert_eq!(read, model.read().1, "{what}");
                }
                18 if dice.below(4) == 0 => {
                    channel.close().unwrap();
                    model.closed = true;
                }
                19 if dice.below(3) == 0 => assert!(matches!(channel.handle().unwrap(), Value::Handle(_)), "{what}"),
                20 if !model.closed && model.room() == 0 => {
                    let error = channel.write(&int(1), Deadline::after(Duration::ZERO)).unwrap_err();
                    assert!(matches!(error, Error::Timeout { .. }), "{what}: {error}");
                }
                21 if !model.closed && model.items.is_empty() => {
                    assert!(channel.read(Deadline::after(Duration::ZERO)).is_err(), "{what}");
                }
                _ => {}
            }
            let seen = (channel.num_items(), channel.closed(), channel.drained(), channel.capacity());
            assert_eq!(seen, (model.items.len(), model.closed, model.status() == Status::Drained, capacity), "{what}");
        }
    }
    assert_eq!((family.stats().objects, family.stats().blocks), (1, 0), "everything but the mutex is gone");
}

/// Several writers and readers, in all the ways there are, while the channel moves: each item once, each writer's in order.
#[test]
fn threads_lose_double_and_reorder_nothing_while_the_channel_moves() {
    let patient = || Deadline::after(Duration::from_secs(100)); // A reader may have bad luck for long where others are quicker.
    let family = Family::alone().unwrap();
    let begin = seed();
    let begun = std::time::Instant::now();
    for program in 0..30 {
        if begun.elapsed() > Duration::from_secs(15) {
            break; // The machine is busy: every look of a thread that waits costs it a round of the scheduler. Fewer will do.
        }
        let seed = begin + program;
        let mut dice = Dice(seed);
        let capacity = [None, Some(1), Some(16), Some(1_000)][dice.below(4) as usize];
        let channel = Channel::with(&family, ChannelOptions { capacity, leases: false }).unwrap();
        // With room for one, each item needs a turn of the scheduler, which on a busy machine takes as long as everybody else likes to run.
        let (least, more) = if capacity == Some(1) { (50, 100) } else { (400, 2_000) };
        let (writers, readers, each) = (1 + dice.below(3) as i64, 1 + dice.below(3), least + dice.below(more) as i64);
        let moment = dice.below(writers as u64 * each as u64);
        let read: Vec<Vec<i64>> = std::thread::scope(|scope| {
            let channel = &channel;
            let writing: Vec<_> = (0..writers)
                .map(|writer| {
                    let mut dice = Dice(seed ^ writer as u64);
                    scope.spawn(move || {
                        let mut next = 0;
                        while next < each {
                            let some = (1 + dice.below(4) as i64).min(each - next);
                            let values: Vec<Value<'_>> = (next..next + some).map(|n| int(writer << 32 | n)).collect();
                            match dice.below(3) {
                                0 => assert_eq!(channel.write_all(&values, patient()).unwrap(), Status::Open),
                                1 => values.iter().for_each(|value| assert_eq!(channel.write(value, patient()).unwrap(), Status::Open)),
                                _ => values.iter().for_each(|value| {
                                    while channel.try_write(value).unwrap().is_none() {
                                        std::thread::yield_now()
                                    }
                                }),
                            }
                            next += some;
                        }
                    })
                })
                .collect();
            let reading: Vec<_> = (0..readers)
                .map(|reader| {
                    let mut dice = Dice(seed ^ (reader << 20));
                    scope.spawn(move || {
                        let mut all = Vec::new();
                        loop {
                            let items = match dice.below(4) {
                                0 => channel.read(patient()).unwrap().item.into_iter().collect(),
                                1 => channel.read_with(patient(), |value| value.clone().into_owned()).unwrap().into_iter().collect(),
                                2 => select(&[channel], patient()).unwrap().read.item.into_iter().collect(),
                                _ => channel.read_many(3, patient()).unwrap().1,
                            };
                            if items.is_empty() {
                                return all;
                            }
                            all.extend(items.iter().map(as_int));
                        }
                    })
                })
                .collect();
            scope.spawn(move || {
                for _ in 0..moment {
                    std::hint::spin_loop();
                }
                channel.handle().unwrap();
            });
            writing.into_iter().for_each(|writer| writer.join().unwrap());
            channel.close().unwrap();
            reading.into_iter().map(|reader| reader.join().unwrap()).collect()
        });
        for one in &read {
            let mut last = vec![-1; writers as usize];
            for number in one {
                let (writer, n) = ((number >> 32) as usize, number & 0xffff_ffff);
                assert!(last[writer] < n, "seed {seed}: {n} of writer {writer} after {}", last[writer]);
                last[writer] = n;
            }
        }
        let mut all: Vec<i64> = read.concat();
        all.sort_unstable();
        let expected: Vec<i64> = (0..writers).flat_map(|writer| (0..each).map(move |n| writer << 32 | n)).collect();
        assert!(all == expected, "seed {seed}: {} items of {}", all.len(), expected.len());
    }
}

/// Sleepers of every kind go on where the channel is now, at once.
#[test]
fn whoever_sleeps_when_the_channel_moves_is_woken_and_goes_on() {
    let family = Family::alone().unwrap();
    let make = |capacity| Channel::with(&family, ChannelOptions { capacity, leases: false }).unwrap();
    let (empty, chosen, full) = (make(None), make(None), make(Some(1)));
    full.write(&int(1), soon()).unwrap();
    let sleepers = crate::Sleepers::default();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            sleepers.here();
            empty.read(soon()).unwrap().item
        });
        let selecting = scope.spawn(|| {
            sleepers.here();
            select(&[&chosen, &full], soon().within(Duration::from_secs(20))).unwrap().read.item
        });
        sleepers.all_sleep_but(2, 1); // `select` finds what is in the full one.
        assert_eq!(selecting.join().unwrap(), Some(int(1)));
        full.write(&int(2), soon()).unwrap();
        let writer = scope.spawn(|| {
            sleepers.here();
            full.write(&int(3), soon()).unwrap()
        });
        let selecting = scope.spawn(|| {
            sleepers.here();
            select(&[&chosen], soon()).unwrap().read.item
        });
        sleepers.all_sleep_but(4, 1);
        for channel in [&empty, &chosen, &full] {
            let there = Channel::open(&family, &channel.handle().unwrap()).unwrap();
            assert_eq!(there.num_items(), channel.num_items());
        }
        empty.write(&int(4), soon()).unwrap();
        chosen.write(&int(5), soon()).unwrap();
        assert_eq!((reader.join().unwrap(), selecting.join().unwrap()), (Some(int(4)), Some(int(5))));
        assert_eq!(as_int(&full.read(soon()).unwrap().item.unwrap()), 2);
        assert_eq!(writer.join().unwrap(), Status::Open);
        assert_eq!(as_int(&full.read(soon()).unwrap().item.unwrap()), 3);
    });
}

/// Where a tensor's numbers lie.
fn address(value: &Value<'_>) -> usize {
    let Value::Tensor(tensor) = value else { panic!("{value:?} is no tensor") };
    tensor.data().as_ptr().addr()
}

#[test]
fn threads_hand_tensors_over_by_reference() {
    let family = Family::alone().unwrap();
    let channel = Channel::new(&family).unwrap();
    let tensor = |data: Data<'static>| Value::Tensor(Box::new(TensorValue::new(DType::U8, Shape::new(&[1 << 20]).unwrap(), data).unwrap()));
    let shared = tensor(SharedBytes::new(std::sync::Arc::new(vec![3_u8; 1 << 20])).into());
    channel.write(&shared, soon()).unwrap();
    channel.write(&Value::List(vec![int(1), shared.clone()]), soon()).unwrap();
    let mut owned = tensor(vec![4_u8; 1 << 20].into());
    let there = address(&owned);
    channel.write_moved(&mut owned, soon()).unwrap();
    assert_eq!(family.stats().blocks, 0, "nothing was copied");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let read = || channel.read(soon()).unwrap().item.unwrap();
            assert_eq!(address(&read()), address(&shared));
            let Value::List(items) = read() else { panic!("a list") };
            assert_eq!(address(&items[1]), address(&shared));
            assert_eq!(address(&read()), there);
        });
    });
    // What is only lent is copied once, by the writer.
    let lent = vec![5_u8; 1 << 20];
    channel.write(&Value::tensor(DType::U8, Shape::new(&[1 << 20]).unwrap(), &lent).unwrap(), soon()).unwrap();
    assert_eq!(family.stats().blocks, 1);
    let read = channel.read(soon()).unwrap().item.unwrap();
    assert!(address(&read) != lent.as_ptr().addr() && matches!(&read, Value::Tensor(tensor) if tensor.data() == lent));
}

#[test]
fn a_refused_value_that_was_to_be_given_away_stays_with_its_owner() {
    let family = Family::alone().unwrap();
    let channel = Channel::with(&family, ChannelOptions { capacity: Some(1), leases: false }).unwrap();
    for round in 0..2 {
        let mut value = Value::from(vec![7_u8; 5_000]);
        channel.write_moved(&mut value, soon()).unwrap();
        let mut value = Value::from(vec![8_u8; 5_000]);
        assert!(channel.write_moved(&mut value, Deadline::after(Duration::ZERO)).is_err());
        assert_eq!(value, Value::from(vec![8_u8; 5_000]), "round {round}");
        let mut deep = (0..200).fold(Value::Nil, |inner, _| Value::List(vec![inner]));
        assert!(channel.write_moved(&mut deep, soon()).is_err());
        assert!(matches!(deep, Value::List(_)));
        assert_eq!(channel.read(soon()).unwrap().item, Some(Value::from(vec![7_u8; 5_000])));
        channel.handle().unwrap(); // The second round is the shared channel's.
    }
    channel.close().unwrap();
    let mut value = int(1);
    assert_eq!(channel.write_moved(&mut value, soon()).unwrap(), Status::Drained);
    assert_eq!(value, int(1));
}

/// The number of a channel is known before it moves, and equal channels are equal wherever they lie.
#[test]
fn clones_and_handles_lead_to_one_channel() {
    let family = Family::alone().unwrap();
    let (one, other) = (Channel::new(&family).unwrap(), Channel::new(&family).unwrap());
    let number = one.number();
    assert!(one == one.clone() && one != other);
    let opened = Channel::open(&family, &one.handle().unwrap()).unwrap();
    assert!(opened == one && opened.number() == number);
    opened.write(&int(1), soon()).unwrap();
    assert_eq!(one.try_read().unwrap().item, Some(int(1)));
}

/// What lies in a local channel keeps the objects that it leads to, also where whoever made the handle did not.
#[test]
fn a_handle_in_a_local_channel_keeps_its_object() {
    let family = Family::alone().unwrap();
    let channel = Channel::new(&family).unwrap();
    let inner = Mutex::new(&family).unwrap();
    let Value::Handle(mut handle) = inner.handle() else { panic!("a handle") };
    handle.keeper = None;
    let value = Value::List(vec![Value::Handle(handle)]);
    channel.write(&value, soon()).unwrap();
    drop(inner);
    assert_eq!(family.stats().objects, 2);
    let Some(Value::List(items)) = channel.read(soon()).unwrap().item else { panic!("a list") };
    drop(Mutex::open(&family, &items[0]).unwrap());
    drop(items);
    assert_eq!(family.stats().objects, 1);
    let error = channel.write(&value, soon()).unwrap_err();
    assert!(matches!(error, Error::Closed { .. }), "{error}: it leads nowhere any more");
    assert_eq!(channel.num_items(), 0);
}

/// Reads and writes go on while another thread asks for handles all the time.
#[test]
fn a_second_handle_changes_nothing() {
    let family = Family::alone().unwrap();
    let (channel, over) = (Channel::new(&family).unwrap(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Relaxed) {
                channel.handle().unwrap();
            }
        });
        for number in 0..1_000 {
            channel.write(&int(number), soon()).unwrap();
            assert_eq!(channel.read(soon()).unwrap().item, Some(int(number)));
        }
        over.store(true, Relaxed);
    });
}

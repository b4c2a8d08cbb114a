//! Channels between threads, wherever they lie; `processes` has the same between processes, `model` what random programs do.

use std::time::{Duration, Instant};

use syncline_ipc::{Channel, ChannelOptions, DType, Data, Deadline, Error, Family, Shape, SharedBytes, Status, Taken, Value, select};

use crate::{Sleepers, as_int, int, soon};

/// How a channel of these tests is made.
type Make = fn(&Family, ChannelOptions) -> Channel;

/// In this process's memory, where a channel begins.
fn local(family: &Family, options: ChannelOptions) -> Channel {
    Channel::with(family, options).unwrap()
}

/// In the family's memory, where it is once somebody has its handle.
fn shared(family: &Family, options: ChannelOptions) -> Channel {
    let channel = local(family, options);
    channel.handle().unwrap();
    channel
}

/// First there, then here: it moves at some moment of the test.
fn moving(family: &Family, options: ChannelOptions) -> Channel {
    let channel = local(family, options);
    let clone = channel.clone();
    // Not joined: a test may end before, and then it has moved nothing.
    std::thread::spawn(move || {
        let moment =
            Duration::from_nanos(u64::from(std::process::id().wrapping_add(clone.number() as u32).wrapping_mul(2_654_435_761)) % 300_000);
        let began = Instant::now();
        while began.elapsed() < moment {
            std::hint::spin_loop();
        }
        clone.handle().unwrap();
    });
    channel
}

/// Each promise is kept by channels in every place.
macro_rules! everywhere {
    ($($promise:ident)*) => {
        everywhere!(local: $($promise)*);
        everywhere!(shared: $($promise)*);
        everywhere!(moving: $($promise)*);
    };
    ($place:ident: $($promise:ident)*) => {
        mod $place {
            $(#[test] fn $promise() { super::$promise(super::$place) })*
        }
    };
}

everywhere! {
    ten_values_and_a_nil_come_out_as_they_went_in
    twelve_at_once_are_twelve_items
    a_closed_channel_is_read_to_its_end_and_written_no_more
    ten_blocked_readers_are_woken_by_close
    a_multi_value_write_wakes_a_reader_for_each_item
    ten_generators_and_five_workers_lose_and_double_nothing
    each_writers_items_keep_their_order
    a_full_channel_makes_its_writer_wait_and_says_so_in_time
    a_sleeping_writer_finds_little_room_soon_too
    a_writer_that_waits_for_room_is_told_of_the_close
    a_write_of_several_that_was_cut_off_by_the_close_says_how_many_were_written
    items_of_every_size_come_out_as_they_went_in
    a_channel_grows_with_what_is_in_it_and_shrinks_again
    what_is_nested_without_end_is_refused_and_leaves_nothing_behind
    opaque_bytes_travel_inside_a_family_only
    select_takes_from_whichever_channel_has_something
}

const ANY_NUMBER: ChannelOptions = ChannelOptions { capacity: None, leases: false };

fn room_for(items: usize) -> ChannelOptions {
    ChannelOptions { capacity: Some(items), leases: false }
}

fn ten_values_and_a_nil_come_out_as_they_went_in(make: Make) {
    let channel = make(&Family::alone().unwrap(), ANY_NUMBER);
    for number in 0..10 {
        assert_eq!(channel.write(&int(number), soon()).unwrap(), Status::Open);
    }
    channel.write(&Value::Nil, soon()).unwrap();
    assert_eq!(channel.num_items(), 11);
    for number in 0..10 {
        let read = channel.read(soon()).unwrap();
        assert_eq!((read.status, read.item), (Status::Open, Some(int(number))));
    }
    // T18: a nil and nothing are told apart.
    assert_eq!(channel.try_read().unwrap().item, Some(Value::Nil));
    let nothing = channel.try_read().unwrap();
    assert_eq!((nothing.status, nothing.item), (Status::Open, None));
}

fn twelve_at_once_are_twelve_items(make: Make) {
    let channel = make(&Family::alone().unwrap(), ANY_NUMBER);
    let values: Vec<Value<'_>> = (0..12).map(int).collect();
    channel.write_all(&values, soon()).unwrap();
    assert_eq!(channel.num_items(), 12);
    let (status, items) = channel.read_many(100, soon()).unwrap();
    assert_eq!((status, items), (Status::Open, values));
}

fn a_closed_channel_is_read_to_its_end_and_written_no_more(make: Make) {
    let channel = make(&Family::alone().unwrap(), ANY_NUMBER);
    channel.write_all(&[int(1), int(2)], soon()).unwrap();
    assert!(!channel.closed() && !channel.drained());
    channel.close().unwrap();
    channel.close().unwrap();
    assert!(channel.closed() && !channel.drained());
    assert_eq!(channel.write(&int(3), soon()).unwrap(), Status::Closed);
    assert_eq!(channel.read(soon()).unwrap().status, Status::Closed);
    let last = channel.read(soon()).unwrap();
    assert_eq!((last.status, last.item), (Status::Closed, Some(int(2))));
    assert!(channel.drained());
    assert_eq!(channel.write(&int(3), soon()).unwrap(), Status::Drained);
    let after = channel.read(soon()).unwrap();
    assert_eq!((after.status, after.item), (Status::Drained, None));

    let empty = make(channel.family(), ANY_NUMBER);
    empty.close().unwrap();
    assert!(empty.drained(), "an empty channel is drained at once");
}

/// Less than what is left of a slice of 200 ms: a sleeper that is not woken finds out by itself only at the end of that.
const AWAKE_AT_ONCE: Duration = Duration::from_millis(100);

/// How long `count` threads that sleep in `read` take to come back after `wake`; the quickest of ten, since others use these cores too.
fn time_to_wake(make: Make, count: usize, read: impl Fn(&Channel) + Sync, wake: impl Fn(&Channel)) -> Duration {
    let family = Family::alone().unwrap();
    let one_round = |_| {
        let (channel, sleepers) = (make(&family, ANY_NUMBER), Sleepers::default());
        std::thread::scope(|scope| {
            let start = || {
                scope.spawn(|| {
                    sleepers.here();
                    read(&channel);
                })
            };
            let readers: Vec<_> = (0..count).map(|_| start()).collect();
            sleepers.all_sleep(count);
            let began = Instant::now();
            wake(&channel);
            readers.into_iter().for_each(|reader| reader.join().unwrap());
            began.elapsed()
        })
    };
    (0..10).map(one_round).min().unwrap()
}

fn ten_blocked_readers_are_woken_by_close(make: Make) {
    let read = |channel: &Channel| assert_eq!(channel.read(soon()).unwrap().status, Status::Drained);
    let took = time_to_wake(make, 10, read, |channel| channel.close().unwrap());
    assert!(took < AWAKE_AT_ONCE, "{took:?}");
}

/// T5: a write of several items wakes as many readers, of which each takes one and no more.
fn a_multi_value_write_wakes_a_reader_for_each_item(make: Make) {
    let read = |channel: &Channel| assert!(channel.read(soon()).unwrap().item.is_some());
    let items: Vec<Value<'_>> = (0..8).map(int).collect();
    let took = time_to_wake(make, 8, read, |channel| assert_eq!(channel.write_all(&items, soon()).unwrap(), Status::Open));
    assert!(took < AWAKE_AT_ONCE, "{took:?}");
}

fn ten_generators_and_five_workers_lose_and_double_nothing(make: Make) {
    let family = Family::alone().unwrap();
    let (numbers, results) = (make(&family, ANY_NUMBER), make(&family, ANY_NUMBER));
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..5)
            .map(|_| {
                scope.spawn(|| {
                    for value in numbers.iter(soon()) {
                        results.write(&value.unwrap(), soon()).unwrap();
                    }
                })
            })
            .collect();
        let generators: Vec<_> = (0..10)
            .map(|_| scope.spawn(|| (1..=100).for_each(|number| assert_eq!(numbers.write(&int(number), soon()).unwrap(), Status::Open))))
            .collect();
        generators.into_iter().for_each(|generator| generator.join().unwrap());
        numbers.close().unwrap();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        results.close().unwrap();
    });
    let mut counts = [0; 101];
    results.iter(soon()).for_each(|value| counts[as_int(&value.unwrap()) as usize] += 1);
    assert_eq!(counts[1..], [10; 100]);
}

fn each_writers_items_keep_their_order(make: Make) {
    let channel = make(&Family::alone().unwrap(), room_for(7));
    std::thread::scope(|scope| {
        for writer in 0..3 {
            let channel = &channel;
            scope.spawn(move || {
                (0..5_000).for_each(|n| assert_eq!(channel.write(&int(writer * 1_000_000 + n), soon()).unwrap(), Status::Open))
            });
        }
        let mut last = [-1; 3];
        for _ in 0..15_000 {
            let number = as_int(&channel.read(soon()).unwrap().item.unwrap());
            let (writer, n) = ((number / 1_000_000) as usize, number % 1_000_000);
            assert_eq!(n, last[writer] + 1);
            last[writer] = n;
            assert!(channel.num_items() <= 7);
        }
    });
}

/// T18: back-pressure and time-outs.
fn a_full_channel_makes_its_writer_wait_and_says_so_in_time(make: Make) {
    let channel = make(&Family::alone().unwrap(), room_for(2));
    channel.write_all(&[int(1), int(2)], soon()).unwrap();
    let error = channel.write(&int(3), Deadline::after(Duration::from_millis(20))).unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    let error = channel.write_all(&[int(3), int(4)], Deadline::after(Duration::ZERO)).unwrap_err();
    assert!(error.to_string().contains("room"), "{error}");
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| channel.write_all(&[int(3), int(4)], soon()).unwrap());
        let read: Vec<i64> = (0..4).map(|_| as_int(&channel.read(soon()).unwrap().item.unwrap())).collect();
        assert_eq!(read, [1, 2, 3, 4]);
        assert_eq!(writer.join().unwrap(), Status::Open);
    });
    let error = channel.read(Deadline::after(Duration::from_millis(20))).unwrap_err();
    assert!(error.to_string().contains("an item in the channel"), "{error}");
}

/// Readers ring for a quarter of a large capacity, and may stop before that.
fn a_sleeping_writer_finds_little_room_soon_too(make: Make) {
    let channel = make(&Family::alone().unwrap(), room_for(100));
    (0..100).for_each(|n| assert_eq!(channel.write(&int(n), soon()).unwrap(), Status::Open));
    let late = |_| {
        let sleepers = Sleepers::default();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                sleepers.here();
                channel.write(&int(100), soon()).unwrap();
                Instant::now()
            });
            sleepers.all_sleep(1);
            let there_is_room = Instant::now();
            assert!(channel.read(soon()).unwrap().item.is_some());
            writer.join().unwrap() - there_is_room
        })
    };
    // Whoever slept a whole slice would always be nearly 200 ms late; the machine may be busy now and then.
    let best = (0..10).map(late).min().unwrap();
    assert!(best < Duration::from_millis(100), "{best:?}");
}

fn a_writer_that_waits_for_room_is_told_of_the_close(make: Make) {
    let channel = make(&Family::alone().unwrap(), room_for(1));
    channel.write(&int(1), soon()).unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| channel.write(&int(2), soon()).unwrap());
        while !writer.is_finished() && channel.num_items() == 1 {
            channel.close().unwrap();
        }
        assert_eq!(writer.join().unwrap(), Status::Closed);
    });
}

fn a_write_of_several_that_was_cut_off_by_the_close_says_how_many_were_written(make: Make) {
    let channel = make(&Family::alone().unwrap(), room_for(1));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| channel.write_all(&[int(1), int(2), int(3)], soon()));
        while channel.num_items() == 0 {
            std::thread::yield_now();
        }
        channel.close().unwrap();
        let error = writer.join().unwrap().expect_err("one has room");
        assert!(matches!(error, Error::Closed { .. }) && error.to_string().contains("1 of 3"), "{error}");
    });
    assert_eq!(channel.read_many(4, soon()).unwrap(), (Status::Closed, vec![int(1)]));
    assert_eq!(channel.write_all(&[int(1), int(2)], soon()).unwrap(), Status::Drained, "nothing was written");
}

fn items_of_every_size_come_out_as_they_went_in(make: Make) {
    let family = Family::alone().unwrap();
    let channel = make(&family, ANY_NUMBER);
    let bytes = |len: usize| Value::from((0..len).map(|n| (n * 7 % 251) as u8).collect::<Vec<u8>>());
    let sizes = [0, 1, 63, 64, 500, 1_023, 1_024, 4_000, 8_000, 8_100, 8_192, 9_000, 33_000, 70_000, 1 << 20, 3_000_000];
    for round in 0..3 {
        for len in sizes {
            channel.write(&bytes(len), soon()).unwrap();
        }
        for len in sizes {
            assert!(channel.read(soon()).unwrap().item == Some(bytes(len)), "{len} bytes in round {round}");
        }
    }
    let nested = Value::Map(vec![(Value::from("list"), Value::List(vec![int(1), Value::Float(0.5), bytes(20_000), Value::Bool(true)]))]);
    channel.write(&nested, soon()).unwrap();
    assert!(channel.read(soon()).unwrap().item == Some(nested));
    drop(channel);
    while family.stats().objects > 0 {
        std::thread::yield_now(); // While it moves, two of each are there.
    }
    assert_eq!(family.stats().blocks, 0, "every block was given back");
}

fn a_channel_grows_with_what_is_in_it_and_shrinks_again(make: Make) {
    let family = Family::alone().unwrap();
    let channel = make(&family, ANY_NUMBER);
    for round in 0..2 {
        for number in 0..50_000 {
            channel
                .write(&Value::List(vec![int(number), Value::from("some text that takes a few cells of the ring, or not")]), soon())
                .unwrap();
            if number % 3 == round {
                channel.read(soon()).unwrap();
            }
        }
        let left = channel.num_items();
        assert_eq!(left, 50_000 - 16_667);
        let mut expected = 50_000 - left as i64;
        while let Some(Value::List(items)) = channel.try_read().unwrap().item {
            assert_eq!(as_int(&items[0]), expected);
            expected += 1;
        }
        assert_eq!(expected, 50_000);
    }
}

/// Values are trees of bounded depth: what would be a cycle in another language is an error and nothing is written (T17).
fn what_is_nested_without_end_is_refused_and_leaves_nothing_behind(make: Make) {
    let channel = make(&Family::alone().unwrap(), ANY_NUMBER);
    let deep = (0..200).fold(Value::Nil, |inner, _| Value::List(vec![inner]));
    let error = channel.write_all(&[int(1), deep], soon()).unwrap_err();
    assert!(matches!(error, Error::Unsendable { .. }), "{error}");
    assert_eq!(channel.num_items(), 0);
}

#[test]
fn a_large_tensor_is_read_where_it_arrived_and_freed_with_its_last_holder() {
    let family = Family::alone().unwrap();
    let channel = Channel::new(&family).unwrap();
    let numbers: Vec<u8> = (0..1_000_000_u32).map(|n| n as u8).collect();
    let tensor = Value::tensor(DType::U8, Shape::new(&[1_000, 1_000]).unwrap(), &numbers[..]).unwrap();
    channel.write(&tensor, soon()).unwrap();
    let Some(Value::Tensor(received)) = channel.read(soon()).unwrap().item else { panic!("a tensor") };
    assert_eq!(received.data(), &numbers[..]);
    let shared: SharedBytes = received.shared().expect("not copied").clone();
    assert_eq!(shared.as_ptr().align_offset(64), 0);
    let (_, _, data) = received.into_data();
    assert!(matches!(data, Data::Shared(_)));
    drop(data);
    assert_eq!(family.stats().blocks, 1);
    drop(shared);
    assert_eq!(family.stats().blocks, 0);
}

fn opaque_bytes_travel_inside_a_family_only(make: Make) {
    let channel = make(&Family::alone().unwrap(), ANY_NUMBER);
    let opaque = Value::Opaque(vec![1, 2, 3].into());
    channel.write(&opaque, soon()).unwrap();
    assert_eq!(channel.read(soon()).unwrap().item, Some(opaque.clone()));
    assert!(opaque.encode(&Default::default()).is_err());
}

#[test]
fn handles_travel_through_each_other_and_keep_their_objects_alive() {
    let family = Family::alone().unwrap();
    let post = Channel::new(&family).unwrap();
    {
        let inner = Channel::new(&family).unwrap();
        inner.write(&int(42), soon()).unwrap();
        post.write(&Value::List(vec![int(1), inner.handle().unwrap()]), soon()).unwrap();
    }
    assert_eq!(family.stats().objects, 2, "the one inside lives by being named");
    let Some(Value::List(items)) = post.read(soon()).unwrap().item else { panic!("a list") };
    let inner = Channel::open(&family, &items[1]).unwrap();
    drop(items);
    assert_eq!(inner.read(soon()).unwrap().item, Some(int(42)));
    drop(inner);
    assert_eq!(family.stats().objects, 1);

    // Unread, it goes with the channel it lies in.
    post.write(&Channel::new(&family).unwrap().handle().unwrap(), soon()).unwrap();
    drop(post);
    assert_eq!(family.stats().objects, 0);
    let other = Channel::new(&Family::alone().unwrap()).unwrap();
    let stranger = Channel::new(&family).unwrap();
    assert!(stranger.write(&other.handle().unwrap(), soon()).is_err());
    assert!(Channel::open(&family, &other.handle().unwrap()).is_err());
    assert!(Channel::open(&family, &int(1)).is_err());
}

fn select_takes_from_whichever_channel_has_something(make: Make) {
    let family = Family::alone().unwrap();
    let channels: Vec<Channel> = (0..3).map(|_| make(&family, ANY_NUMBER)).collect();
    let all: Vec<&Channel> = channels.iter().collect();
    channels[1].write(&int(7), soon()).unwrap();
    let found = select(&all, soon()).unwrap();
    assert_eq!((found.index, found.read.item), (Some(1), Some(int(7))));
    let error = select(&all, Deadline::after(Duration::from_millis(10))).unwrap_err();
    assert!(error.to_string().contains("any of 3 channels"), "{error}");
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut sums = [0; 3];
            loop {
                let found = select(&all, soon()).unwrap();
                match (found.index, found.read.item) {
                    (Some(index), Some(value)) => sums[index] += as_int(&value),
                    _ => return sums,
                }
            }
        });
        for (index, channel) in channels.iter().enumerate() {
            scope.spawn(move || {
                (0..500).for_each(|_| assert_eq!(channel.write(&int(index as i64 + 1), soon()).unwrap(), Status::Open));
                channel.close().unwrap();
            });
        }
        assert_eq!(reader.join().unwrap(), [500, 1_000, 1_500]);
    });
}

#[test]
fn a_leased_item_comes_back_to_the_front_until_it_is_done() {
    let channel = Channel::with(&Family::alone().unwrap(), ChannelOptions { capacity: None, leases: true }).unwrap();
    channel.write_all(&[int(1), int(2), int(3)], soon()).unwrap();
    let first = channel.lease(soon()).unwrap().item().unwrap();
    let second = channel.lease(soon()).unwrap().item().unwrap();
    assert_eq!((as_int(first.value()), as_int(second.value()), channel.num_items()), (1, 2, 1));
    first.give_back().unwrap();
    assert_eq!(channel.num_items(), 2);
    let again = channel.lease(soon()).unwrap().item().unwrap();
    assert_eq!((as_int(again.value()), again.attempts()), (1, 1));
    again.done().unwrap();
    assert_eq!(second.into_value().unwrap(), int(2));
    channel.close().unwrap();
    assert_eq!(channel.read(soon()).unwrap().item, Some(int(3)));
    assert!(matches!(channel.try_lease().unwrap(), Taken::Over));
    assert!(channel.drained());
}

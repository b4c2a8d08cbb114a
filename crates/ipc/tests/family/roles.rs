//! What started processes do.

use std::time::Duration;

use syncline_ipc::{Channel, Deadline, Error, Family, Item, Marshal, Mutex, SharedTable, Taken, Value, Workqueue};

use crate::child::Part;
use crate::{as_int, int, soon};

/// Plays the part of that name.
pub(crate) fn play(role: &str, part: &Part) {
    match role {
        "produce" => produce(part),
        "relay" => relay(part),
        "take_one" => take_one(part),
        "open_all" => open_all(part),
        "echo" => echo(part),
        "square" => square(part),
        "open" => open(part),
        "count" => count(part),
        "arrays" => arrays(part),
        "hold" => hold(part),
        "meet" => meet(part),
        "meet_until" => meet_until(part),
        "without_descriptors" => without_descriptors(part),
        "write_until" => write_until(part),
        "churn" => churn(part),
        "lease" => lease(part),
        "take" => take(part),
        "own" => own(part),
        "end_until" => end_until(part),
        "read_until" => read_until(part),
        "answer_until" => answer_until(part),
        "change_until" => change_until(part),
        "deposit_until" => deposit_until(part),
        "read_table" => read_table(part),
        "read_marshal" => read_marshal(part),
        "statuses" => statuses(part),
        "tables" => tables(part),
        "little_room" => little_room(),
        "too_full_to_move" => too_full_to_move(),
        other => panic!("no role {other}"),
    }
}

fn produce(part: &Part) {
    let channel = part.channel(0);
    let first = part.numbers.get(1).map_or(0, |number| *number as i64);
    (1..=part.numbers[0] as i64).for_each(|number| assert_eq!(channel.write(&int(first + number), soon()).unwrap() as u8, 0));
}

fn relay(part: &Part) {
    let (from, to) = (part.channel(0), part.channel(1));
    for value in from.iter(soon()) {
        let mut value = value.unwrap();
        if let Some(name) = part.numbers.first() {
            value = Value::List(vec![int(*name as i64), value]);
        }
        to.write(&value, soon()).unwrap();
    }
}

/// Says that it is there, takes one item and hands it on.
fn take_one(part: &Part) {
    let (from, to) = (part.channel(0), part.channel(1));
    to.write(&Value::Nil, soon()).unwrap();
    to.write(&from.read(soon()).unwrap().item.unwrap(), soon()).unwrap();
}

/// Tells how far a closed channel has come whenever it touches it.
fn statuses(part: &Part) {
    let (channel, told) = (part.channel(0), part.channel(1));
    let mut seen = Vec::new();
    let write = |seen: &mut Vec<Value<'static>>| seen.push(int(channel.write(&int(9), soon()).unwrap() as i64));
    write(&mut seen);
    loop {
        let read = channel.read(soon()).unwrap();
        seen.extend([int(read.status as i64), read.item.clone().unwrap_or(Value::Nil)]);
        if read.item.is_none() {
            break;
        }
    }
    write(&mut seen);
    told.write(&Value::List(seen), soon()).unwrap();
}

/// Looks at a table inside of a table, adds to it, and leaves another one there.
fn tables(part: &Part) {
    let outer = SharedTable::open(&part.family, &part.handles[0]).unwrap();
    let inner = SharedTable::open(&part.family, &outer.get(&Value::from("inner")).unwrap().unwrap()).unwrap();
    assert_eq!((inner.len().unwrap(), inner.pairs().unwrap()), (1, vec![(int(1), Value::from("one"))]));
    inner.set(&int(2), &Value::from("two")).unwrap();
    let mut source = Value::Map(vec![(Value::from("a"), int(1)), (Value::from("b"), int(2))]);
    let moved = SharedTable::moved(&part.family, &mut source).unwrap();
    assert_eq!(source, Value::Map(Vec::new()));
    outer.set(&Value::from("moved"), &moved.handle()).unwrap();
}

/// Opens as many queues as it is told from handles that come through a channel.
fn open_all(part: &Part) {
    for _ in 0..part.numbers[0] {
        Workqueue::open(&part.family, &part.channel(0).read(soon()).unwrap().item.unwrap()).unwrap();
    }
}

fn echo(part: &Part) {
    let queue = part.queue(0);
    while let Some(question) = queue.read(soon()).unwrap().item() {
        let value = question.value().clone();
        question.answer(&value, soon()).unwrap();
    }
}

/// A worker that dawdles a little, so that kills find it in the middle of something.
fn square(part: &Part) {
    let queue = part.queue(0);
    while let Some(question) = queue.read(soon()).unwrap().item() {
        let number = match question.value() {
            Value::Int(number) => *number,
            Value::List(items) => as_int(&items[0]),
            other => panic!("{other:?}"),
        };
        question
            .answer(&Value::List(vec![int(number * number), Value::from(vec![number as u8; (number as usize % 5) * 9_000])]), soon())
            .unwrap();
    }
}

fn open(part: &Part) {
    let (queue, made) = Workqueue::named(&part.family, "known to all").unwrap();
    queue.write(&Value::Bool(made), soon()).unwrap();
}

/// Meets the others twice, then counts up under the lock.
fn count(part: &Part) {
    let mutex = Mutex::open(&part.family, &part.handles[0]).unwrap();
    let table = SharedTable::open(&part.family, &part.handles[1]).unwrap();
    for _ in 0..2 {
        mutex.barrier(part.numbers[0] as usize, soon()).unwrap();
    }
    for _ in 0..part.numbers[1] {
        let _outer = mutex.lock(soon()).unwrap();
        let _held = mutex.lock(soon()).unwrap();
        let before = table.get(&Value::from("sum")).unwrap().map_or(0, |value| as_int(&value));
        table.set(&Value::from("sum"), &int(before + 1)).unwrap();
    }
    table.set(&int(part.family.me().into()), &Value::Bool(true)).unwrap();
}

fn arrays(part: &Part) {
    let channel = part.channel(0);
    let shape = syncline_ipc::Shape::new(&[1 << 20]).unwrap();
    for number in 0..part.numbers[0] {
        let data = vec![number as u8; 1 << 20];
        channel.write(&Value::tensor(syncline_ipc::DType::U8, shape.clone(), data).unwrap(), soon()).unwrap();
    }
}

/// Holds a mutex, says so, and waits for its end.
fn hold(part: &Part) {
    let mutex = Mutex::open(&part.family, &part.handles[0]).unwrap();
    let _held = mutex.lock(soon()).unwrap();
    part.channel(1).write(&Value::Bool(true), soon()).unwrap();
    loop {
        std::thread::park();
    }
}

/// Says that it comes, and meets as many as the first number says.
fn meet(part: &Part) {
    let mutex = Mutex::open(&part.family, &part.handles[0]).unwrap();
    part.channel(1).write(&Value::Bool(true), soon()).unwrap();
    mutex.barrier(part.numbers[0] as usize, soon()).unwrap();
}

/// Comes to a barrier of three, and dies somewhere there.
fn meet_until(part: &Part) {
    let mutex = Mutex::open(&part.family, &part.handles[0]).unwrap();
    mortal(part);
    let _ = mutex.barrier(3, Deadline::after(Duration::from_millis(20)));
}

/// Cannot open anything, and still knows who lives.
fn without_descriptors(part: &Part) {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let all_alive = || part.family.members().len() == 2 && part.family.members().iter().all(|member| member.alive);
    let usual = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, rustix::process::Rlimit { current: Some(3), ..usual }).unwrap();
    assert!(std::fs::File::open("/proc/self/stat").is_err(), "no descriptor is left");
    assert!(all_alive());
    assert_eq!(part.family.bury_the_dead(), 0);
    setrlimit(Resource::Nofile, usual).unwrap();
    assert!(all_alive(), "what could not be known then is asked again");
    part.channel(0).write(&int(1), soon()).unwrap();
}

/// Lets this process die at the moment that the first number says.
fn mortal(part: &Part) {
    #[cfg(debug_assertions)]
    syncline_shm::mortality::die_at(part.numbers[0]);
    let _ = part;
}

pub(crate) fn large(number: i64) -> Value<'static> {
    Value::List(vec![int(number), Value::from(vec![number as u8; 40_000])])
}

fn write_until(part: &Part) {
    let channel = part.channel(0);
    mortal(part);
    channel.write(&int(0), soon()).unwrap();
    channel.write_all(&[int(1), int(2), large(3)], soon()).unwrap();
    channel.write(&Value::List(vec![int(4), Channel::new(&part.family).unwrap().handle().unwrap()]), soon()).unwrap();
    let bulky = |number: i64| Value::List(vec![int(number), Value::from("x".repeat(900))]);
    (5..80).for_each(|number| assert_eq!(channel.write(&bulky(number), soon()).unwrap() as u8, 0));
}

/// Takes out and writes back, again and again.
fn churn(part: &Part) {
    let channel = part.channel(0);
    loop {
        let item = channel.read(soon()).unwrap().item.unwrap();
        channel.write(&item, soon()).unwrap();
    }
}

fn park_with<T>(_kept: T) -> ! {
    loop {
        std::thread::park();
    }
}

/// Takes an item of a channel on a lease, says so, and waits for its end.
fn lease(part: &Part) {
    let item = part.channel(0).lease(soon()).unwrap().item().unwrap();
    part.channel(1).write(&Value::Nil, soon()).unwrap();
    park_with(item);
}

/// The same with a question of a workqueue.
fn take(part: &Part) {
    let item = part.queue(0).read(soon()).unwrap().item().unwrap();
    part.channel(1).write(&Value::Nil, soon()).unwrap();
    park_with(item);
}

/// Owns a queue with one question in it, and waits for its end.
fn own(part: &Part) {
    let (queue, made) = Workqueue::named(&part.family, "orphaned").unwrap();
    assert!(made);
    queue.write(&int(1), soon()).unwrap();
    part.channel(0).write(&Value::Nil, soon()).unwrap();
    park_with(queue);
}

/// A family of its own whose queues are full after a few dozen kilobytes.
fn family_with_little_room() -> Family {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    setrlimit(Resource::Fsize, Rlimit { current: Some(3 << 30), ..getrlimit(Resource::Fsize) }).unwrap();
    Family::alone().unwrap()
}

fn little_room() {
    let family = family_with_little_room();
    let queue = Workqueue::new(&family).unwrap();
    let worker = queue.as_worker();
    let text = Value::from("x".repeat(1_000));
    let shortly = || Deadline::after(Duration::from_millis(30));
    queue.write(&int(1), soon()).unwrap();
    let question = worker.read(soon()).unwrap().item().unwrap();
    while worker.write(&text, Deadline::after(Duration::ZERO)).is_ok() {
        assert!(queue.num_answers() < 10_000, "it is never full");
    }
    let error = question.answer(&text, shortly()).unwrap_err();
    let Error::Timeout { waited, .. } = error else { panic!("{error}") };
    assert!((30..10_000).contains(&waited.as_millis()), "{error}");
    let again = worker.read(soon()).unwrap().item().unwrap();
    assert_eq!((as_int(again.value()), again.attempts()), (1, 1), "a question without an answer goes back");
    queue.read(soon()).unwrap();
    again.answer(&int(2), soon()).unwrap();

    let many = vec![text; 200];
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| queue.as_owner().write_all(&many, soon()));
        while queue.num_questions() < 30 {
            std::thread::yield_now();
        }
        queue.close().unwrap();
        let error = asking.join().unwrap().expect_err("not all of them fit");
        let written = queue.num_questions();
        assert!(matches!(error, Error::Closed { .. }) && error.to_string().contains(&format!("{written} of 200")), "{error}");
    });
}

/// A channel that finds no room in the family stays what and where it is, and may move later.
fn too_full_to_move() {
    let family = family_with_little_room();
    let channel = Channel::new(&family).unwrap();
    let mutex = Mutex::new(&family).unwrap();
    let item = |number| Value::List(vec![int(number), Value::from("x".repeat(900)), Value::from(vec![7_u8; 9_000]), mutex.handle()]);
    (0..10_000).for_each(|number| assert_eq!(channel.write(&item(number), soon()).unwrap() as u8, 0));
    std::thread::scope(|scope| {
        let error = scope.spawn(|| channel.handle()).join().unwrap().expect_err("there is no room");
        assert!(matches!(error, Error::System { .. }), "{error}");
    });
    assert_eq!((channel.num_items(), channel.closed(), family.stats().blocks), (10_000, false, 0), "it is as it was");
    assert_eq!(channel.write(&item(10_000), soon()).unwrap() as u8, 0);
    (0..9_995).for_each(|number| assert_eq!(channel.read(soon()).unwrap().item, Some(item(number))));
    let moved = Channel::open(&family, &channel.handle().unwrap()).unwrap();
    assert_eq!((moved.num_items(), family.stats().blocks), (6, 6));
    (9_995..=10_000).for_each(|number| assert_eq!(moved.read(soon()).unwrap().item, Some(item(number))));
    drop((channel, moved));
    assert_eq!((family.stats().objects, family.stats().blocks), (1, 0));
}

/// Ends a channel, being the last who has it, and dies over that.
fn end_until(part: &Part) {
    let (channel, said) = (part.channel(0), part.channel(1));
    said.write(&Value::Nil, soon()).unwrap();
    part.channel(2).read(soon()).unwrap();
    mortal(part);
    drop(channel);
}

fn read_until(part: &Part) {
    let channel = part.channel(0);
    mortal(part);
    while channel.try_read().unwrap().item.is_some() {}
}

fn answer_until(part: &Part) {
    let queue = part.queue(0);
    mortal(part);
    let mut first: Option<Item> = None;
    while let Taken::Item(item) = queue.try_read().unwrap() {
        let value = item.value().clone();
        match first.take() {
            // The first one waits until the second is answered, and one of them goes back once.
            None if item.id() == 0 => first = Some(item),
            None => item.answer(&value, soon()).unwrap(),
            Some(before) if item.attempts() == 0 => {
                item.give_back().unwrap();
                let value = before.value().clone();
                before.answer(&value, soon()).unwrap();
            }
            Some(before) => {
                drop(value);
                before.give_back().unwrap();
                item.done().unwrap();
            }
        }
    }
}

fn change_until(part: &Part) {
    let mutex = Mutex::open(&part.family, &part.handles[0]).unwrap();
    let table = SharedTable::open(&part.family, &part.handles[1]).unwrap();
    mortal(part);
    let _held = mutex.lock(soon()).unwrap();
    for number in 0..60 {
        table.set(&int(number), &Value::from("y".repeat(20))).unwrap();
    }
    table.set(&Value::from("inner"), &SharedTable::new(&part.family).unwrap().handle()).unwrap();
    table.set(&Value::from("inner"), &int(1)).unwrap();
    (0..30).for_each(|number| assert!(table.remove(&int(number)).unwrap()));
}

/// Puts large values into a table that name a channel each, replaces one, takes one, and removes them all.
fn deposit_until(part: &Part) {
    let table = SharedTable::open(&part.family, &part.handles[0]).unwrap();
    mortal(part);
    let put = |number: i64| {
        let channel = Channel::new(&part.family).unwrap();
        let value = Value::List(vec![crate::deposit::bytes(number as u8, 40_000), channel.handle().unwrap()]);
        table.set(&int(number), &value).unwrap()
    };
    assert!(!put(1) && !put(2) && put(1));
    assert!(table.get(&int(0)).unwrap().is_some() && table.take(&int(2)).unwrap().is_some());
    put(3);
    table.clear().unwrap();
}

/// Reads the value under 1 until it is nil; every one of them is whole.
fn read_table(part: &Part) {
    let table = SharedTable::open(&part.family, &part.handles[0]).unwrap();
    while let Some(Value::Tensor(tensor)) = table.get(&int(1)).unwrap() {
        let data = tensor.data();
        assert!(data.len() == 40_000 && data.iter().all(|byte| *byte == data[0]));
    }
}

/// Reads what a handle leads to that comes through a channel, and sends the sum of its bytes to the channel in it.
fn read_marshal(part: &Part) {
    let handle = part.channel(0).read(soon()).unwrap().item.unwrap();
    let Value::List(items) = Marshal::open(&part.family, &handle).unwrap().read().unwrap() else { panic!("a list") };
    let Value::Tensor(tensor) = &items[0] else { panic!("a tensor") };
    assert!(tensor.shared().is_some() && matches!(&items[1], Value::Opaque(bytes) if **bytes == [1, 2, 3]));
    let sum: i64 = tensor.data().iter().map(|byte| i64::from(*byte)).sum();
    Channel::open(&part.family, &items[2]).unwrap().write(&int(sum), soon()).unwrap();
}

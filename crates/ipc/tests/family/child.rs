//! Other processes of the family: this very program, started again with a role in its environment.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};

use syncline_ipc::{Channel, Family, Handle, HandleKind, Item, Marshal, Mutex, SharedTable, Taken, Value, Workqueue};

use crate::{as_int, int, soon};

const ROLE: &str = "SYNCLINE_TEST_ROLE";

/// A process of the family, killed when the test ends, however it ends.
pub(crate) struct Kid {
    child: Child,
}

impl Kid {
    /// Starts a process in a role, with handles and numbers that the role knows how to use.
    pub(crate) fn start(role: &str, family: &Family, handles: &[Value<'_>], numbers: &[u64]) -> Kid {
        let mut line = format!("{role} {}", family.invitation().unwrap());
        for handle in handles {
            let Value::Handle(handle) = handle else { panic!("a handle") };
            line += &format!(" {}={:x}", handle.kind as u8, handle.object);
        }
        numbers.iter().for_each(|number| line += &format!(" {number}"));
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child::play_a_role", "--nocapture", "--test-threads=1"])
            .env(ROLE, line)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Kid { child }
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits for its end; true if it came through, false if it was killed.
    pub(crate) fn ends_well(&mut self) -> bool {
        let status: ExitStatus = self.child.wait().unwrap();
        assert!(status.success() || status.signal() == Some(9), "{status}");
        status.success()
    }
}

impl Drop for Kid {
    fn drop(&mut self) {
        self.kill();
    }
}

struct Part {
    family: Family,
    handles: Vec<Value<'static>>,
    numbers: Vec<u64>,
}

impl Part {
    fn channel(&self, index: usize) -> Channel {
        Channel::open(&self.family, &self.handles[index]).unwrap()
    }

    fn queue(&self, index: usize) -> Workqueue {
        Workqueue::open(&self.family, &self.handles[index]).unwrap()
    }
}

/// Not a test of its own: what a started process does.
#[test]
fn play_a_role() {
    let Ok(line) = std::env::var(ROLE) else { return };
    let mut words = line.split(' ');
    let role = words.next().unwrap().to_owned();
    let family = Family::accept(words.next().unwrap()).unwrap();
    let (mut handles, mut numbers) = (Vec::new(), Vec::new());
    for word in words {
        match word.split_once('=') {
            Some((kind, object)) => handles.push(Value::Handle(Box::new(Handle {
                kind: HandleKind::from_code(kind.parse().unwrap()).unwrap(),
                family: family.id(),
                object: u64::from_str_radix(object, 16).unwrap(),
                keeper: None,
            }))),
            None => numbers.push(word.parse().unwrap()),
        }
    }
    let part = Part { family, handles, numbers };
    match role.as_str() {
        "produce" => produce(&part),
        "relay" => relay(&part),
        "take_one" => take_one(&part),
        "open_all" => open_all(&part),
        "echo" => echo(&part),
        "square" => square(&part),
        "open" => open(&part),
        "count" => count(&part),
        "arrays" => arrays(&part),
        "hold" => hold(&part),
        "meet" => meet(&part),
        "meet_until" => meet_until(&part),
        "write_until" => write_until(&part),
        "read_until" => read_until(&part),
        "answer_until" => answer_until(&part),
        "change_until" => change_until(&part),
        "deposit_until" => deposit_until(&part),
        "read_table" => read_table(&part),
        "read_marshal" => read_marshal(&part),
        other => panic!("no role {other}"),
    }
}

fn produce(part: &Part) {
    let channel = part.channel(0);
    (1..=part.numbers[0] as i64).for_each(|number| assert_eq!(channel.write(&int(number), soon()).unwrap() as u8, 0));
}

fn relay(part: &Part) {
    let (from, to) = (part.channel(0), part.channel(1));
    for value in from.iter(soon()) {
        to.write(&value.unwrap(), soon()).unwrap();
    }
}

/// Says that it is there, takes one item and hands it on.
fn take_one(part: &Part) {
    let (from, to) = (part.channel(0), part.channel(1));
    to.write(&Value::Nil, soon()).unwrap();
    to.write(&from.read(soon()).unwrap().item.unwrap(), soon()).unwrap();
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
        question.answer(&value).unwrap();
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
        question.answer(&Value::List(vec![int(number * number), Value::from(vec![number as u8; (number as usize % 5) * 9_000])])).unwrap();
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
    let _ = mutex.barrier(3, syncline_ipc::Deadline::after(std::time::Duration::from_millis(20)));
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
    channel.write(&Value::List(vec![int(4), Channel::new(&part.family).unwrap().handle()]), soon()).unwrap();
    let bulky = |number: i64| Value::List(vec![int(number), Value::from("x".repeat(900))]);
    (5..80).for_each(|number| assert_eq!(channel.write(&bulky(number), soon()).unwrap() as u8, 0));
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
            None => item.answer(&value).unwrap(),
            Some(before) if item.attempts() == 0 => {
                item.give_back().unwrap();
                let value = before.value().clone();
                before.answer(&value).unwrap();
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
        let value = Value::List(vec![crate::deposit::bytes(number as u8, 40_000), channel.handle()]);
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

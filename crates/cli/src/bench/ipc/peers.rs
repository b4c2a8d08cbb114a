//! Other libraries in the same table: what Python finds, the channel of Rust's standard library, and whatever program speaks the
//! harness's small protocol.

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use super::pipe::{Measured, Pipe, WARM, capacity};

/// Queues between Python processes: name, module, and the expression for a new one.
pub(super) const PYTHON: [(&str, &str, &str); 3] = [
    ("mp-queue", "multiprocessing", "multiprocessing.Queue(cap)"),
    ("faster-fifo", "faster_fifo", "faster_fifo.Queue(max(4 * size, 1 << 24))"),
    ("zeromq", "zmq", "Zmq()"),
];

const SCRIPT: &str = r#"
import importlib, multiprocessing, os, sys, time
module, make, p, c, size, secs = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]), float(sys.argv[6])
globals()[module] = importlib.import_module(module)
cap = 16 if size > 65536 else 1024
class Zmq:
    "PUSH to all consumers in turns, by sockets that have no file."
    def __init__(self):
        self.name, self.taken, self.socket = "ipc://@syncline-bench-%d-%%d" % os.getpid(), context.Value("i", 0), None
    def put(self, data):
        if self.socket is None:
            self.socket = zmq.Context().socket(zmq.PUSH)
            self.socket.set_hwm(cap)
            for number in range(c):
                self.socket.connect(self.name % number)
        self.socket.send(data)
    def get(self):
        if self.socket is None:
            self.socket = zmq.Context().socket(zmq.PULL)
            self.socket.set_hwm(cap)
            with self.taken.get_lock():
                self.socket.bind(self.name % self.taken.value)
                self.taken.value += 1
        return self.socket.recv()
def produce(queue):
    data = b"\7" * size
    while True:
        try:
            queue.put(data)
        except Exception:
            pass
def consume(queue, count):
    while True:
        try:
            sum(queue.get()[::64])
            count.value += 1
        except Exception:
            pass
context = multiprocessing.get_context("fork")
queue = eval(make)
counts = [context.Value("q", 0, lock=False) for _ in range(c)]
crew = [context.Process(target=consume, args=(queue, count), daemon=True) for count in counts]
crew += [context.Process(target=produce, args=(queue,), daemon=True) for _ in range(p)]
[one.start() for one in crew]
time.sleep(0.3)
before, began = sum(count.value for count in counts), time.perf_counter()
time.sleep(secs)
print("PB w5 iters=%d elapsed=%.6f" % (sum(count.value for count in counts) - before, time.perf_counter() - began), flush=True)
[one.kill() for one in crew]
"#;

/// A queue of Python's, between processes; an error says why there is no figure.
pub(super) fn python(python: &str, module: &str, make: &str, pipe: Pipe) -> Result<Measured, String> {
    let numbers = [pipe.producers.to_string(), pipe.consumers.to_string(), pipe.size.to_string(), pipe.secs.to_string()];
    run(Command::new(python).args(["-c", SCRIPT, module, make]).args(numbers))
}

/// The channel of Rust's standard library, which is crossbeam's, between threads; it has one consumer.
pub(super) fn standard(pipe: Pipe) -> Result<Measured, String> {
    if pipe.consumers != 1 {
        return Err("it has one consumer".to_owned());
    }
    let (send, receive) = sync_channel::<Vec<u8>>(capacity(pipe.size));
    let (count, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let measured = std::thread::scope(|scope| {
        let (count, over) = (&count, &over);
        for _ in 0..pipe.producers {
            let send = send.clone();
            let source = vec![7_u8; pipe.size];
            scope.spawn(move || while !over.load(Relaxed) && send.send(source.clone()).is_ok() {});
        }
        drop(send);
        scope.spawn(move || {
            let mut sum = 0_u64;
            for message in receive {
                sum = sum.wrapping_add(message.iter().step_by(64).map(|byte| u64::from(*byte)).sum());
                count.store(count.load(Relaxed) + 1, Relaxed);
            }
            std::hint::black_box(sum);
        });
        std::thread::sleep(WARM);
        let (before, began) = (count.load(Relaxed), Instant::now());
        std::thread::sleep(Duration::from_secs_f64(pipe.secs));
        let measured = Measured { messages: count.load(Relaxed) - before, elapsed: began.elapsed().as_secs_f64() };
        over.store(true, Relaxed);
        measured
    });
    Ok(measured)
}

/// A program of the harness, called as `COMMAND w5 p= c= size= secs= where=`.
pub(super) fn program(command: &str, pipe: Pipe) -> Result<Measured, String> {
    let mut words = command.split_whitespace();
    let program = words.next().ok_or("an empty command")?;
    let place = if pipe.processes { "processes" } else { "threads" };
    let settings = [
        format!("p={}", pipe.producers),
        format!("c={}", pipe.consumers),
        format!("size={}", pipe.size),
        format!("secs={}", pipe.secs),
        format!("where={place}"),
    ];
    run(Command::new(program).args(words).args(settings))
}

fn run(command: &mut Command) -> Result<Measured, String> {
    let output = command.output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let field = |name: &str| text.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('=')?.parse::<f64>().ok());
    match (field("iters"), field("elapsed")) {
        (Some(iters), Some(elapsed)) if elapsed > 0.0 => Ok(Measured { messages: iters as u64, elapsed }),
        _ => {
            let why = String::from_utf8_lossy(&output.stderr);
            Err(why.lines().last().unwrap_or("it printed no figure").to_owned())
        }
    }
}

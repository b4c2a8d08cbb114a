//! Other libraries in the same table: what Python finds, and whatever program speaks the harness's small protocol.

use std::process::Command;

use super::pipe::{Measured, Pipe};

/// Queues between Python processes: name, and the expressions for a new queue, a put and a get.
pub(super) const PYTHON: [(&str, &str, &str); 2] = [
    ("mp-queue", "multiprocessing", "multiprocessing.Queue(cap)"),
    ("faster-fifo", "faster_fifo", "faster_fifo.Queue(max(4 * size, 1 << 24))"),
];

const SCRIPT: &str = r#"
import importlib, multiprocessing, sys, time
module, make, p, c, size, secs = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]), float(sys.argv[6])
globals()[module] = importlib.import_module(module)
cap = 16 if size > 65536 else 1024
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

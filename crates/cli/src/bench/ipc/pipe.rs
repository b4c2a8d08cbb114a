//! One measurement of a channel: producers and consumers, as threads of this process or as processes of their own.
//!
//! A producer copies its array into each message, a consumer reads one byte of every cache line of what it received: the
//! same work that the harness gives other libraries.

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use clap::Args;
use syncline::Deadline;
use syncline::ipc::{Channel, ChannelOptions, DType, Error, Family, Handle, HandleKind, Shape, Status, Value};

use crate::bench::samples::Samples;

/// What is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pipe {
    pub(crate) producers: usize,
    pub(crate) consumers: usize,
    pub(crate) size: usize,
    pub(crate) secs: f64,
    pub(crate) processes: bool,
}

/// What came of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measured {
    pub(crate) messages: u64,
    pub(crate) elapsed: f64,
}

/// One process of a measurement: its role, the family and the channels by their numbers.
#[derive(Debug, Args)]
pub(crate) struct RankOptions {
    role: String,
    invitation: String,
    size: usize,
    channels: Vec<u64>,
}

/// Messages in the channel at most, as the other libraries get: few large ones, so that they stay in cache.
pub(super) fn capacity(size: usize) -> usize {
    if size > 65_536 { 16 } else { 1_024 }
}

/// How long everybody runs before the clock does.
pub(super) const WARM: Duration = Duration::from_millis(150);

fn words(error: Error) -> String {
    error.to_string()
}

pub(crate) fn measure(pipe: Pipe) -> Result<Measured, String> {
    let family = Family::alone().map_err(words)?;
    let channel = Channel::with(&family, ChannelOptions { capacity: Some(capacity(pipe.size)), leases: false }).map_err(words)?;
    if pipe.processes { in_processes(pipe, &family, &channel) } else { in_threads(pipe, &channel) }
}

/// A counter alone on its cache lines.
#[repr(align(128))]
#[derive(Default)]
struct Count(AtomicU64);

fn in_threads(pipe: Pipe, channel: &Channel) -> Result<Measured, String> {
    let counts: Vec<Count> = (0..pipe.consumers).map(|_| Count::default()).collect();
    let total = || counts.iter().map(|count| count.0.load(Relaxed)).sum::<u64>();
    std::thread::scope(|scope| {
        let consumers = counts.iter().map(|count| scope.spawn(move || consume(channel, &count.0)));
        let producers = (0..pipe.producers).map(|_| scope.spawn(move || produce(channel, pipe.size)));
        let ends: Vec<_> = consumers.chain(producers).collect();
        std::thread::sleep(WARM);
        let (before, began) = (total(), Instant::now());
        std::thread::sleep(Duration::from_secs_f64(pipe.secs));
        let measured = Measured { messages: total() - before, elapsed: began.elapsed().as_secs_f64() };
        channel.close().map_err(words)?;
        for end in ends {
            end.join().map_err(|_| "a thread of the measurement failed".to_owned())?.map_err(words)?;
        }
        Ok(measured)
    })
}

fn in_processes(pipe: Pipe, family: &Family, channel: &Channel) -> Result<Measured, String> {
    let results = Channel::new(family).map_err(words)?;
    let controls = (0..pipe.consumers).map(|_| Channel::new(family)).collect::<Result<Vec<_>, _>>().map_err(words)?;
    let mut crew = Crew { children: Vec::new() };
    for control in &controls {
        crew.start("consume", family, pipe.size, &[channel, control, &results])?;
    }
    for _ in 0..pipe.producers {
        crew.start("produce", family, pipe.size, &[channel, channel, &results])?;
    }
    let soon = Deadline::after(Duration::from_secs(60) + Duration::from_secs_f64(pipe.secs));
    for _ in 0..pipe.producers + pipe.consumers {
        results.read(soon).map_err(words)?; // Everybody is there.
    }
    std::thread::sleep(WARM);
    let tell = || controls.iter().try_for_each(|control| control.write(&Value::Nil, soon).map(drop)).map_err(words);
    tell()?;
    let began = Instant::now();
    std::thread::sleep(Duration::from_secs_f64(pipe.secs));
    tell()?;
    let elapsed = began.elapsed().as_secs_f64();
    let mut messages = 0;
    for _ in &controls {
        let Some(Value::Int(count)) = results.read(soon).map_err(words)?.item else { return Err("a consumer sent no count".to_owned()) };
        messages += count as u64;
    }
    channel.close().map_err(words)?;
    Ok(Measured { messages, elapsed })
}

/// The processes of a measurement, ended with it.
struct Crew {
    children: Vec<Child>,
}

impl Crew {
    fn start(&mut self, role: &str, family: &Family, size: usize, channels: &[&Channel]) -> Result<(), String> {
        let program = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
        let mut command = Command::new(program);
        command.args(["__bench", "ipc", role, &family.invitation().map_err(words)?, &size.to_string()]).stdout(Stdio::null());
        for channel in channels {
            let Value::Handle(handle) = channel.handle().map_err(words)? else { return Err("a channel without a handle".to_owned()) };
            command.arg(handle.object.to_string());
        }
        self.children.push(command.spawn().map_err(|error| format!("cannot start a process: {error}"))?);
        Ok(())
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

pub(crate) fn run_rank(options: &RankOptions) -> Result<(), String> {
    let family = Family::accept(&options.invitation).map_err(words)?;
    let open = |index: usize| {
        let object = *options.channels.get(index).ok_or("too few channels")?;
        let handle = Handle { kind: HandleKind::Channel, family: family.id(), object, keeper: None };
        Channel::open(&family, &Value::Handle(Box::new(handle))).map_err(words)
    };
    let (channel, second, third) = (open(0)?, open(1)?, open(2)?);
    third.write(&Value::Nil, Deadline::never()).map_err(words)?;
    match options.role.as_str() {
        "produce" => produce(&channel, options.size).map_err(words),
        "echo" => echo(&channel, &second).map_err(words),
        _ => {
            let count = AtomicU64::new(0);
            std::thread::scope(|scope| {
                scope.spawn(|| consume(&channel, &count));
                let began = second.read(Deadline::never()).map(|_| count.load(Relaxed)).map_err(words)?;
                second.read(Deadline::never()).map_err(words)?;
                let messages = count.load(Relaxed) - began;
                third.write(&Value::Int(messages as i64), Deadline::never()).map(drop).map_err(words)
            })
        }
    }
}

fn produce(channel: &Channel, size: usize) -> Result<(), Error> {
    let source = vec![7_u8; size];
    let message = message(&source);
    while channel.write(&message, Deadline::never())? == Status::Open {}
    Ok(())
}

/// Small messages are bytes, large ones arrays.
fn message(source: &[u8]) -> Value<'_> {
    if source.len() < 1_024 {
        return Value::from(source);
    }
    let shape = Shape::new(&[source.len()]).expect("a length is a shape");
    Value::tensor(DType::U8, shape, source).expect("as many bytes as the shape says")
}

fn consume(channel: &Channel, count: &AtomicU64) -> Result<(), Error> {
    let mut sum = 0_u64;
    while let Some(touched) = channel.read_with(Deadline::never(), touch)? {
        sum = sum.wrapping_add(touched);
        count.store(count.load(Relaxed) + 1, Relaxed);
    }
    std::hint::black_box(sum);
    Ok(())
}

fn touch(value: &Value<'_>) -> u64 {
    let bytes: &[u8] = match value {
        Value::Bytes(bytes) => bytes,
        Value::Tensor(tensor) => tensor.data(),
        _ => &[],
    };
    bytes.iter().step_by(64).map(|byte| u64::from(*byte)).sum()
}

/// Round trips of one message between two threads or processes, in microseconds: median and 99th percentile.
pub(crate) fn round_trips(pipe: Pipe) -> Result<(f64, f64), String> {
    let family = Family::alone().map_err(words)?;
    let make = || Channel::new(&family).map_err(words);
    let (there, back, ready) = (make()?, make()?, make()?);
    let mut crew = Crew { children: Vec::new() };
    std::thread::scope(|scope| {
        if pipe.processes {
            crew.start("echo", &family, pipe.size, &[&there, &back, &ready])?;
            ready.read(Deadline::after(Duration::from_secs(60))).map_err(words)?;
        } else {
            scope.spawn(|| echo(&there, &back));
        }
        let source = vec![7_u8; pipe.size];
        let message = message(&source);
        let mut samples = Samples::with_room(1 << 20);
        let began = Instant::now();
        while began.elapsed().as_secs_f64() < pipe.secs && samples.len() < 1 << 20 {
            let since = Instant::now();
            there.write(&message, Deadline::never()).map_err(words)?;
            back.read_with(Deadline::never(), touch).map_err(words)?;
            samples.push(since.elapsed());
        }
        there.close().map_err(words)?;
        Ok((samples.quantile(0.5) * 1e6, samples.quantile(0.99) * 1e6))
    })
}

fn echo(from: &Channel, to: &Channel) -> Result<(), Error> {
    while let Some(Ok(())) = from.read_with(Deadline::never(), |value| to.write(value, Deadline::never()).map(drop))? {}
    Ok(())
}

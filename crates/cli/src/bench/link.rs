//! `syncline bench link`: round trips and streams over every transport, two processes on this host.
//!
//! Each transport is a job of two ranks. Rank 0 sends, rank 1 answers and checks every payload it can afford to look
//! at. Beside the link's bandwidth stands that of a plain loop over the same medium in the same processes.

use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

use clap::Args;
use serde::{Deserialize, Serialize};
use syncline::{Config, Deadline, Lane, Session};
use syncline_transport::{Link, LinkError, OutFrame, inproc};
use syncline_wire::Kind;

use super::fleet::{Crew, Fleet};
use super::limits;
use super::samples::Samples;
use crate::print;

/// Measure links.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// One JSON object per row instead of columns
    #[arg(long)]
    json: bool,
    /// Which transports: inproc, shm, unix, tcp, noise (TCP, encrypted)
    #[arg(long, value_delimiter = ',', default_value = "inproc,shm,unix,tcp,noise")]
    transports: Vec<String>,
    /// Payload sizes in bytes
    #[arg(long, value_delimiter = ',', default_value = "64,4096,65536,1048576,16777216")]
    sizes: Vec<usize>,
    /// Megabytes to stream per size
    #[arg(long, default_value_t = 1024)]
    megabytes: usize,
    /// Runs of each; the median counts
    #[arg(long, default_value_t = 3)]
    runs: usize,
}

/// One process of it.
#[derive(Debug, Args)]
pub(crate) struct RankOptions {
    transport: String,
    megabytes: usize,
    runs: usize,
    #[arg(value_delimiter = ',')]
    sizes: Vec<usize>,
}

/// One line of the table.
#[derive(Debug, Serialize, Deserialize)]
struct Row {
    transport: String,
    size: usize,
    /// Median and 99th percentile of a round trip, microseconds.
    rtt_us: f64,
    rtt_p99_us: f64,
    /// Gigabytes per second of a stream, and its spread over the runs.
    gb_per_s: f64,
    slowest: f64,
    fastest: f64,
    /// The same of a plain loop over the same medium.
    limit_gb_per_s: f64,
    /// Payloads that did not arrive as they were sent.
    wrong: u64,
}

/// What rank 0 prints for the parent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    Measured(Row),
    /// What a link costs while nothing happens on it.
    Idle {
        transport: String,
        idle_cpu_percent: f64,
    },
}

pub(crate) fn run(options: &Options) -> Result<(), String> {
    if !options.json {
        print::line(format!(
            "# two ranks on this host, {} runs each; time is a round trip, algbw a stream, limit the same bytes by a plain loop",
            options.runs
        ));
        print::line(format!(
            "{:>9} {:>10} {:>11} {:>11} {:>9} {:>15} {:>9} {:>8} {:>6}",
            "transport", "size", "time", "p99", "algbw", "spread", "limit", "of limit", "#wrong"
        ));
        print::line(format!(
            "{:>9} {:>10} {:>11} {:>11} {:>9} {:>15} {:>9} {:>8} {:>6}",
            "", "(B)", "(us)", "(us)", "(GB/s)", "(GB/s)", "(GB/s)", "", ""
        ));
    }
    for transport in &options.transports {
        for line in measure(transport, options)? {
            print_line(&line, options.json);
        }
    }
    Ok(())
}

fn print_line(line: &Line, json: bool) {
    if json {
        print::line(serde_json::to_string(line).expect("plain data has a JSON form"));
        return;
    }
    let row = match line {
        Line::Measured(row) => row,
        Line::Idle { transport, idle_cpu_percent } => {
            print::line(format!("# {transport}: {idle_cpu_percent:.2} % of a core while a rank waits for a frame"));
            return;
        }
    };
    let spread = format!("{:.2}..{:.2}", row.slowest, row.fastest);
    print::line(format!(
        "{:>9} {:>10} {:>11.2} {:>11.2} {:>9.2} {:>15} {:>9.2} {:>8.2} {:>6}",
        row.transport,
        row.size,
        row.rtt_us,
        row.rtt_p99_us,
        row.gb_per_s,
        spread,
        row.limit_gb_per_s,
        row.gb_per_s / row.limit_gb_per_s,
        row.wrong
    ));
}

fn measure(transport: &str, options: &Options) -> Result<Vec<Line>, String> {
    if transport == "inproc" {
        return in_process(options);
    }
    let (kind, encrypt) = match transport {
        "shm" | "unix" | "tcp" => (transport, "off"),
        "noise" => ("tcp", "on"),
        other => return Err(format!("there is no transport {other}; choose among inproc, shm, unix, tcp, noise")),
    };
    let sizes = options.sizes.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    let arguments = ["__bench", "link", transport, &options.megabytes.to_string(), &options.runs.to_string(), &sizes].map(str::to_owned);
    let variables = [("SYNCLINE_TRANSPORT", kind.to_owned()), ("SYNCLINE_ENCRYPT", encrypt.to_owned())];
    let lines = Fleet::start(Crew::of(2), &arguments, &variables)?.finish()?;
    lines.iter().flatten().map(|line| serde_json::from_str(line).map_err(|error| format!("{line}: {error}"))).collect()
}

fn in_process(options: &Options) -> Result<Vec<Line>, String> {
    let mut rows = Vec::new();
    for &size in &options.sizes {
        let plan = Plan::new(size, options.megabytes, options.runs);
        let (mut near, mut far) = inproc::pair(0);
        let row = std::thread::scope(|scope| {
            let answering = scope.spawn(|| answer(&mut far, &plan, || Ok(())));
            let row = ask("inproc", &mut near, &plan, || Ok(limits::memory(size, plan.frames)));
            answering.join().map_err(|_| "the answering thread panicked".to_owned())??;
            row
        })?;
        rows.push(Line::Measured(row));
    }
    Ok(rows)
}

/// How often each thing is done, known to both ends.
struct Plan {
    size: usize,
    pings: usize,
    frames: usize,
    runs: usize,
}

impl Plan {
    fn new(size: usize, megabytes: usize, runs: usize) -> Self {
        let within = |budget: usize, most: usize| (budget / size.max(1)).clamp(8, most);
        Plan { size, pings: within(64 << 20, 20_000), frames: within(megabytes << 20, 200_000), runs: runs.max(1) }
    }
}

pub(crate) fn run_rank(options: &RankOptions) -> Result<(), String> {
    let session = Config::from_env().and_then(Session::open).map_err(|error| error.to_string())?;
    let peer = 1 - session.rank();
    let mut link = session.link(peer, Lane::BENCH, soon()).map_err(|error| error.to_string())?;
    let mut raw = RawSocket::meet(&options.transport, &session, &mut link)?;
    for &size in &options.sizes {
        let plan = Plan::new(size, options.megabytes, options.runs);
        session.barrier().map_err(|error| error.to_string())?;
        if session.rank() == 0 {
            let row = ask(&options.transport, &mut link, &plan, || raw.send(&plan))?;
            print_line(&Line::Measured(row), true);
        } else {
            answer(&mut link, &plan, || raw.receive(&plan))?;
        }
    }
    session.barrier().map_err(|error| error.to_string())?;
    let idle_cpu_percent = idle(&mut link);
    if session.rank() == 0 {
        print_line(&Line::Idle { transport: options.transport.clone(), idle_cpu_percent }, true);
    }
    session.shutdown().map_err(|error| error.to_string())
}

/// Waits a second for a frame that does not come; the share of a core that this process used meanwhile.
fn idle(link: &mut Link) -> f64 {
    const WAIT: Duration = Duration::from_secs(1);
    let used = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
    };
    let before = used();
    let _ = link.head(Deadline::after(WAIT));
    100.0 * (used() - before) / WAIT.as_secs_f64()
}

/// The asking end: round trips, then streams, then the limit.
fn ask(transport: &str, link: &mut Link, plan: &Plan, mut limit: impl FnMut() -> Result<f64, String>) -> Result<Row, String> {
    let broken = |error: LinkError| error.to_string();
    let pattern: Vec<u8> = (0..plan.size).map(|index| (index % 251) as u8).collect();
    let mut reply = vec![0u8; plan.size];
    let mut samples = Samples::with_room(plan.pings);
    let mut wrong = 0;
    let deadline = phase(); // One for all round trips: reading the clock would be measured too.
    for round in 0..plan.pings {
        let start = Instant::now();
        link.send(&OutFrame { sequence: round as u64, payload: &[&pattern], ..OutFrame::new(Kind::DATA) }, deadline).map_err(broken)?;
        link.head(deadline).map_err(broken)?;
        link.body_into(&mut reply, deadline).map_err(broken)?;
        samples.push(start.elapsed());
        if round % 64 == 0 && reply != pattern {
            wrong += 1;
        }
    }
    let (mut rates, mut limits) = (Vec::new(), Vec::new());
    for _ in 0..plan.runs {
        let deadline = phase();
        let start = Instant::now();
        for sequence in 0..plan.frames as u64 {
            link.send(&OutFrame { sequence, payload: &[&pattern], ..OutFrame::new(Kind::DATA) }, deadline).map_err(broken)?;
        }
        wrong += link.head(deadline).map_err(broken)?.header.sequence; // The other end counts what it found wrong.
        rates.push((plan.size * plan.frames) as f64 / start.elapsed().as_secs_f64() / 1e9);
        limits.push(limit()? / 1e9); // Turn about, so that a noisy neighbour disturbs both alike.
    }
    rates.sort_by(f64::total_cmp);
    limits.sort_by(f64::total_cmp);
    Ok(Row {
        transport: transport.into(),
        size: plan.size,
        rtt_us: samples.quantile(0.5) * 1e6,
        rtt_p99_us: samples.quantile(0.99) * 1e6,
        gb_per_s: rates[rates.len() / 2],
        slowest: rates[0],
        fastest: rates[rates.len() - 1],
        limit_gb_per_s: limits[limits.len() / 2],
        wrong,
    })
}

/// The answering end.
fn answer(link: &mut Link, plan: &Plan, mut after_stream: impl FnMut() -> Result<(), String>) -> Result<(), String> {
    answer_pings(link, plan).map_err(|error| error.to_string())?;
    for _ in 0..plan.runs {
        answer_stream(link, plan).map_err(|error| error.to_string())?;
        after_stream()?;
    }
    Ok(())
}

fn answer_pings(link: &mut Link, plan: &Plan) -> Result<(), LinkError> {
    let mut body = vec![0u8; plan.size];
    let deadline = phase();
    for sequence in 0..plan.pings as u64 {
        link.head(deadline)?;
        link.body_into(&mut body, deadline)?;
        link.send(&OutFrame { sequence, payload: &[&body], ..OutFrame::new(Kind::DATA) }, deadline)?;
    }
    Ok(())
}

/// Takes a stream and sends back how many of its frames were wrong: both ends of each, and every 256th to the last byte.
fn answer_stream(link: &mut Link, plan: &Plan) -> Result<(), LinkError> {
    let pattern: Vec<u8> = (0..plan.size).map(|index| (index % 251) as u8).collect();
    let mut body = vec![0u8; plan.size];
    let deadline = phase();
    let mut wrong = 0;
    for expected in 0..plan.frames as u64 {
        let head = link.head(deadline)?;
        link.body_into(&mut body, deadline)?;
        let last = plan.size.saturating_sub(1);
        let sound = head.header.sequence == expected && (plan.size == 0 || (body[0] == pattern[0] && body[last] == pattern[last]));
        if !sound || (expected % 256 == 0 && body != pattern) {
            wrong += 1;
        }
    }
    link.send(&OutFrame { sequence: wrong, ..OutFrame::new(Kind::DATA) }, deadline)
}

/// A plain socket of the same kind, or none where memory is the medium.
enum RawSocket {
    Memory,
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl RawSocket {
    fn meet(transport: &str, session: &Session, link: &mut Link) -> Result<RawSocket, String> {
        let failed = |error: std::io::Error| format!("a plain {transport} socket: {error}");
        let asks = session.rank() == 0;
        match transport {
            "unix" => {
                let name = format!("syncline-bench-{}", if asks { std::process::id() } else { 0 });
                let name = tell(link, asks, &name)?;
                let address = UnixAddr::from_abstract_name(&name).map_err(failed)?;
                if asks {
                    let listener = UnixListener::bind_addr(&address).map_err(failed)?;
                    tell(link, true, "ready")?;
                    Ok(RawSocket::Unix(listener.accept().map_err(failed)?.0))
                } else {
                    tell(link, false, "")?;
                    Ok(RawSocket::Unix(UnixStream::connect_addr(&address).map_err(failed)?))
                }
            }
            "tcp" | "noise" => {
                if asks {
                    let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
                    tell(link, true, &listener.local_addr().map_err(failed)?.to_string())?;
                    Ok(RawSocket::Tcp(listener.accept().map_err(failed)?.0))
                } else {
                    Ok(RawSocket::Tcp(TcpStream::connect(tell(link, false, "")?).map_err(failed)?))
                }
            }
            _ => Ok(RawSocket::Memory),
        }
    }

    fn send(&mut self, plan: &Plan) -> Result<f64, String> {
        match self {
            RawSocket::Memory => Ok(limits::memory(plan.size, plan.frames)),
            RawSocket::Unix(socket) => limits::send_raw(socket, plan.size, plan.frames).map_err(|error| error.to_string()),
            RawSocket::Tcp(socket) => limits::send_raw(socket, plan.size, plan.frames).map_err(|error| error.to_string()),
        }
    }

    fn receive(&mut self, plan: &Plan) -> Result<(), String> {
        match self {
            RawSocket::Memory => Ok(()),
            RawSocket::Unix(socket) => limits::receive_raw(socket, plan.size, plan.frames).map_err(|error| error.to_string()),
            RawSocket::Tcp(socket) => limits::receive_raw(socket, plan.size, plan.frames).map_err(|error| error.to_string()),
        }
    }
}

/// Passes a text from the asking to the answering end; both get it.
fn tell(link: &mut Link, asks: bool, text: &str) -> Result<String, String> {
    if asks {
        link.send(&OutFrame { meta: text.as_bytes(), ..OutFrame::new(Kind::DATA) }, soon()).map_err(|error| error.to_string())?;
        return Ok(text.to_owned());
    }
    let head = link.head(soon()).map_err(|error| error.to_string())?;
    Ok(String::from_utf8_lossy(&head.meta).into_owned())
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

/// How long all round trips or one stream of a size may take.
fn phase() -> Deadline {
    Deadline::after(Duration::from_secs(300))
}

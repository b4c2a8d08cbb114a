//! Measures a duplex with two real processes: round trips and bandwidth by message size.
//!
//! The program starts itself as the other side and hands it the descriptor over a Unix socket.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, Instant};

use syncline_shm::duplex::{Duplex, Inlet, Outlet};
use syncline_shm::fdpass::{recv_fd, send_fd};
use syncline_shm::wait::Deadline;

const SIZES: [usize; 9] = [
    0,
    64,
    128,
    4 << 10,
    16 << 10,
    64 << 10,
    1 << 20,
    16 << 20,
    64 << 20,
];
const RUNS: usize = 7;

fn main() {
    if let Some(fd) = std::env::args().nth(1) {
        // SAFETY: the parent left this descriptor open for us and nobody else here knows it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd.parse().expect("a number")) };
        let side = Duplex::open(recv_fd(&UnixStream::from(fd)).expect("a segment"));
        let (outlet, inlet) = side.expect("a duplex").split();
        return echo(outlet, inlet);
    }
    let (here, there) = UnixStream::pair().expect("a socket pair");
    let inherited = rustix::io::dup(&there).expect("a descriptor");
    let mut other = Command::new(std::env::current_exe().expect("this program"))
        .arg(inherited.as_raw_fd().to_string())
        .spawn()
        .expect("the other side");
    let (side, fd) = Duplex::create().expect("a duplex");
    send_fd(&here, fd.as_fd()).expect("the descriptor sent");
    let (mut outlet, mut inlet) = side.split();
    println!(
        "{:>10} {:>14} {:>14}",
        "bytes", "round trip µs", "one way GB/s"
    );
    for size in SIZES {
        let rounds = (64 << 20) / size.max(4096) + 20;
        let trip = median(|| round_trips(&mut outlet, &mut inlet, size, rounds));
        let flow = median(|| stream(&mut outlet, &mut inlet, size, rounds));
        println!("{size:>10} {trip:>14.3} {:>14.2}", size as f64 / flow / 1e3);
    }
    drop((outlet, inlet));
    assert!(other.wait().expect("the other side").success());
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(30))
}

fn median(mut run: impl FnMut() -> f64) -> f64 {
    let mut runs: Vec<f64> = (0..RUNS).map(|_| run()).collect();
    runs.sort_by(f64::total_cmp);
    runs[RUNS / 2]
}

/// Microseconds from a message to its echo.
fn round_trips(outlet: &mut Outlet, inlet: &mut Inlet, size: usize, rounds: usize) -> f64 {
    let body = vec![7; size];
    let mut back = vec![0; size];
    let mut head = Vec::new();
    let mut start = Instant::now();
    for round in 0..=rounds {
        if round == 1 {
            start = Instant::now(); // the first one warms up
        }
        let deadline = Deadline::never();
        outlet
            .send(&[b"echo"], &[&body], deadline, &|| true)
            .expect("sent");
        inlet
            .recv_head(&mut head, deadline, &|| true)
            .expect("a head");
        inlet
            .recv_body(&mut back, deadline, &|| true)
            .expect("a body");
    }
    start.elapsed().as_secs_f64() * 1e6 / rounds as f64
}

/// Microseconds a message when they follow each other, the last one answered.
fn stream(outlet: &mut Outlet, inlet: &mut Inlet, size: usize, rounds: usize) -> f64 {
    let body = vec![7; size];
    let mut head = Vec::new();
    let deadline = soon();
    let start = Instant::now();
    for _ in 0..rounds {
        outlet
            .send(&[b"take"], &[&body], deadline, &|| true)
            .expect("sent");
    }
    outlet
        .send(&[b"echo"], &[], deadline, &|| true)
        .expect("sent");
    inlet
        .recv_head(&mut head, deadline, &|| true)
        .expect("a head");
    start.elapsed().as_secs_f64() * 1e6 / rounds as f64
}

/// The other side: answers what says "echo", takes the rest, until the first side is gone.
fn echo(mut outlet: Outlet, mut inlet: Inlet) {
    let mut head = Vec::new();
    let mut body = Vec::new();
    while let Ok(len) = inlet.recv_head(&mut head, Deadline::never(), &|| true) {
        body.resize(len as usize, 0);
        inlet
            .recv_body(&mut body, soon(), &|| true)
            .expect("a body");
        if head == b"echo" {
            outlet
                .send(&[&head], &[&body], soon(), &|| true)
                .expect("sent");
        }
    }
}

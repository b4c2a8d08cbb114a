//! Rough figures of every transport: `cargo run --release -p syncline-transport --example ping_pong`.
//!
//! Median time of a 64-byte round trip, and bandwidth of 1 MB frames in one direction, beside the same over a bare socket.
//! Threads of one process stand in for two processes. `syncline bench link` is the tool for real measurements.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use syncline_transport::{
    Deadline, DialConfig, Door, DoorConfig, DoorEvent, JobKey, Link, OutFrame, dial, inproc, shm,
    unix,
};
use syncline_wire::Kind;

const MEGABYTE: usize = 1_000_000;
const FRAMES: usize = 2000;

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

fn main() {
    println!("{:<16}{:>14}{:>14}", "", "64 B rtt, µs", "1 MB, GB/s");
    for _ in 0..3 {
        report("inproc", || inproc::pair(1));
        report("shm", || shm::pair(1).unwrap());
        report("unix", || unix::pair(1).unwrap());
        report_raw("unix, bare", || UnixStream::pair().unwrap());
        report("tcp", || over_tcp(false));
        report_raw("tcp, bare", bare_tcp);
        report("tcp, sealed", || over_tcp(true));
    }
}

fn report(name: &str, pair: impl Fn() -> (Link, Link)) {
    println!(
        "{name:<16}{:>14.2}{:>14.2}",
        round_trip(pair()),
        bandwidth(pair())
    );
}

fn median(mut samples: Vec<Duration>) -> f64 {
    samples.sort();
    samples[samples.len() / 2].as_secs_f64() * 1e6
}

fn round_trip((mut zero, mut one): (Link, Link)) -> f64 {
    const ROUNDS: usize = 20_000;
    let echo = thread::spawn(move || {
        let (mut buffer, deadline) = ([0; 64], soon());
        for _ in 0..ROUNDS {
            one.head(deadline).unwrap();
            one.body_into(&mut buffer, deadline).unwrap();
            one.send(
                &OutFrame {
                    payload: &[&buffer],
                    ..OutFrame::new(Kind::DATA)
                },
                deadline,
            )
            .unwrap();
        }
    });
    let deadline = soon();
    let mut buffer = [0; 64];
    let samples = (0..ROUNDS).map(|_| {
        let began = Instant::now();
        zero.send(
            &OutFrame {
                payload: &[&[7; 64]],
                ..OutFrame::new(Kind::DATA)
            },
            deadline,
        )
        .unwrap();
        zero.head(deadline).unwrap();
        zero.body_into(&mut buffer, deadline).unwrap();
        began.elapsed()
    });
    let median = median(samples.collect());
    echo.join().unwrap();
    median
}

fn bandwidth((mut zero, mut one): (Link, Link)) -> f64 {
    let sender = thread::spawn(move || {
        let body = vec![1; MEGABYTE];
        for _ in 0..FRAMES {
            zero.send(
                &OutFrame {
                    payload: &[&body],
                    ..OutFrame::new(Kind::DATA)
                },
                soon(),
            )
            .unwrap();
        }
        zero.head(soon()).unwrap();
    });
    let mut buffer = vec![0; MEGABYTE];
    let mut began = Instant::now();
    for frame in 0..FRAMES {
        if frame == FRAMES / 10 {
            began = Instant::now();
        }
        one.head(soon()).unwrap();
        one.body_into(&mut buffer, soon()).unwrap();
    }
    let rate =
        (FRAMES - FRAMES / 10) as f64 * MEGABYTE as f64 / began.elapsed().as_secs_f64() / 1e9;
    one.send(&OutFrame::new(Kind::GOODBYE), soon()).unwrap();
    sender.join().unwrap();
    rate
}

fn report_raw<S: Read + Write + Send + 'static>(name: &str, pair: impl Fn() -> (S, S)) {
    println!(
        "{name:<16}{:>14.2}{:>14.2}",
        raw_round_trip(pair()),
        raw_bandwidth(pair())
    );
}

fn raw_round_trip<S: Read + Write + Send + 'static>((mut zero, mut one): (S, S)) -> f64 {
    const ROUNDS: usize = 20_000;
    let echo = thread::spawn(move || {
        let mut buffer = [0; 128];
        for _ in 0..ROUNDS {
            one.read_exact(&mut buffer).unwrap();
            one.write_all(&buffer).unwrap();
        }
    });
    let mut buffer = [0; 128];
    let samples = (0..ROUNDS).map(|_| {
        let began = Instant::now();
        zero.write_all(&buffer).unwrap();
        zero.read_exact(&mut buffer).unwrap();
        began.elapsed()
    });
    let median = median(samples.collect());
    echo.join().unwrap();
    median
}

fn raw_bandwidth<S: Read + Write + Send + 'static>((mut zero, mut one): (S, S)) -> f64 {
    let sender = thread::spawn(move || {
        let body = vec![1; MEGABYTE];
        for _ in 0..FRAMES {
            zero.write_all(&body).unwrap();
        }
        zero.read_exact(&mut [0]).unwrap();
    });
    let mut buffer = vec![0; MEGABYTE];
    let mut began = Instant::now();
    for frame in 0..FRAMES {
        if frame == FRAMES / 10 {
            began = Instant::now();
        }
        one.read_exact(&mut buffer).unwrap();
    }
    let rate =
        (FRAMES - FRAMES / 10) as f64 * MEGABYTE as f64 / began.elapsed().as_secs_f64() / 1e9;
    one.write_all(&[0]).unwrap();
    sender.join().unwrap();
    rate
}

fn bare_tcp() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (other, _) = listener.accept().unwrap();
    one.set_nodelay(true).unwrap();
    other.set_nodelay(true).unwrap();
    (one, other)
}

fn over_tcp(encrypt: bool) -> (Link, Link) {
    let key = JobKey::from_token("example");
    let mut door = Door::open(DoorConfig {
        key: key.clone(),
        identity: [0; 16],
        unix: None,
        tcp: vec!["127.0.0.1:0".parse().unwrap()],
        encrypt_tcp: false,
    })
    .unwrap();
    let address = door.addresses().remove(0);
    let caller = thread::spawn(move || {
        let config = DialConfig {
            key,
            expect_identity: None,
            encrypt,
        };
        dial(&address, &config, b"", None, soon())
            .unwrap()
            .into_stream_link(1, 0)
    });
    let Some(DoorEvent::Visitor { connection, .. }) = door.step(soon()).pop() else {
        panic!("no visitor")
    };
    (caller.join().unwrap(), connection.into_stream_link(1, 1))
}

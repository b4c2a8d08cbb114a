//! Priorities over real sockets whose other end reads when it is told to.

use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use syncline_cluster::Deadline;
use syncline_testkit::ranks::eventually;
use syncline_transport::{Link, tcp};
use syncline_wire::Fingerprint;

use super::world::{Hub, soon};
use crate::AddOptions;
use crate::spread::gate::Gates;
use crate::spread::line::Line;
use crate::spread::messages::{Request, Rows};

/// More than the buffers of a socket take: the last byte goes when the other end has begun to read.
const FRAME: usize = 24 << 20;

fn pair() -> (Link, Link) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let dialled = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
    let (accepted, _) = listener.accept().expect("somebody dialled");
    let link = |stream: TcpStream, me, peer: u32| tcp::link(stream.into(), format!("rank {peer}"), 0, me).expect("a socket");
    (link(dialled, 0, 1), link(accepted, 1, 0))
}

fn add(line: &mut Line, hub: &Arc<Hub>, payload: &[u8]) {
    let rows = Rows::Listed(1);
    let request = Request::Add { sequence: 1, rows, options: AddOptions::default(), hold: None, patience: 1000 };
    line.tell(&request, Some(1), &[payload], &*hub.seat(0), soon()).expect("sent");
}

#[test]
fn of_the_frames_that_wait_for_a_server_the_highest_goes_first() {
    let (hub, gates) = (Hub::new(Duration::from_secs(20), false), Gates::default());
    let table = Fingerprint::of("table").finish();
    let arrived = Mutex::new(Vec::new());
    let payload = vec![7; FRAME];
    std::thread::scope(|scope| {
        let mut goes = Vec::new();
        // The first is under way when the others come: one after the other, so that it is known who waits since when.
        for (number, priority) in [0, -2, 5, 0, 5, 1].into_iter().enumerate() {
            let (ours, theirs) = pair();
            let (go, told) = mpsc::channel::<()>();
            goes.push(go);
            let (arrived, hub, payload, gates) = (&arrived, &hub, &payload, &gates);
            scope.spawn(move || {
                told.recv().expect("told to read");
                let (_, mut recv) = theirs.split();
                let head = recv.head(soon()).expect("a frame");
                arrived.lock().unwrap().push((priority, number));
                let mut chunk = vec![0; 1 << 20];
                let mut left = head.header.payload_len;
                while left > 0 {
                    left -= recv.body_chunk(&mut chunk, soon()).expect("the rest") as u64;
                }
            });
            scope.spawn(move || {
                let mut line = Line::new(ours, 1, table, "table `t`", gates.to(1));
                line.set_priority(Some(priority));
                add(&mut line, hub, payload);
            });
            if number == 0 {
                eventually("the first has its turn", Duration::from_secs(20), || !gates.to(1).is_free());
            } else {
                eventually("it waits", Duration::from_secs(20), || gates.to(1).waiting() == number);
            }
        }
        goes.iter().for_each(|go| go.send(()).expect("somebody reads"));
    });
    assert_eq!(arrived.into_inner().unwrap(), [(0, 0), (5, 2), (5, 4), (1, 5), (0, 3), (-2, 1)]);
}

#[test]
fn small_frames_and_those_without_a_priority_wait_for_nobody() {
    let (hub, gates) = (Hub::new(Duration::from_secs(20), false), Gates::default());
    let table = Fingerprint::of("table").finish();
    let gate = gates.to(1);
    let held = gate.enter(100, Deadline::after(Duration::from_secs(20)));
    let started = Instant::now();
    for (priority, bytes) in [(Some(-1), 1000), (None, 64 << 10)] {
        let (ours, _theirs) = pair();
        let mut line = Line::new(ours, 1, table, "table `t`", gates.to(1));
        line.set_priority(priority);
        held.progress();
        add(&mut line, &hub, &vec![1; bytes]);
    }
    assert!(started.elapsed() < Duration::from_millis(400), "{:?}", started.elapsed());
}

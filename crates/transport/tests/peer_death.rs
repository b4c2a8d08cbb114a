//! Real processes, really killed: the survivor knows within a second, whatever it was doing.

#[allow(dead_code, reason = "each test binary uses a part of it")]
mod meeting;

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use meeting::{caller, door, soon, visitor};
use syncline_transport::{
    Address, DoorEvent, Link, LinkError, OutFrame, TransportKind, dial_until,
    shm::{accept_link, dial_link},
};
use syncline_wire::Kind;

const ADDRESS: &str = "SYNCLINE_TEST_ADDRESS";
const TRANSPORT: &str = "SYNCLINE_TEST_TRANSPORT";

/// Not a test of its own: what the other process runs. It sends one frame, then half of a large one, then reads nothing.
#[test]
fn the_other_process() {
    let (Ok(address), Ok(transport)) = (std::env::var(ADDRESS), std::env::var(TRANSPORT)) else {
        return;
    };
    let address: Address = address.parse().unwrap();
    let config = caller(transport == "tcp_encrypted");
    let mut link = match transport.as_str() {
        "shm" => dial_link(&address, &config, b"", 1, 0, soon()).unwrap(),
        _ => dial_until(&address, &config, b"", None, soon()).unwrap().into_stream_link(1, 0),
    };
    link.send(&OutFrame { meta: b"alive", ..OutFrame::new(Kind::DATA) }, soon()).unwrap();
    let body = vec![1; 64 << 20];
    let _ = link.send(&OutFrame { payload: &[&body], ..OutFrame::new(Kind::DATA) }, soon());
    let _ = link.head(soon());
}

/// Starts the other process and returns the link to it, after its first frame.
fn neighbour(transport: &str) -> (Child, Link) {
    let mut door = door(!transport.starts_with("tcp"), false);
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_other_process"])
        .env(ADDRESS, door.addresses()[0].to_string())
        .env(TRANSPORT, transport)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let DoorEvent::Visitor { fd, connection, .. } = visitor(&mut door) else { unreachable!() };
    if connection.transport() == TransportKind::Unix {
        assert_eq!(connection.peer_pid(), Some(child.id()));
    }
    let mut link = match fd {
        Some(fd) => accept_link(connection, fd, 1, 1).unwrap(),
        None => connection.into_stream_link(1, 1),
    };
    assert_eq!(link.head(soon()).unwrap().meta, b"alive");
    (child, link)
}

/// Kills it and returns the moment.
fn kill(mut child: Child) -> Instant {
    child.kill().unwrap(); // SIGKILL
    let killed = Instant::now();
    child.wait().unwrap();
    killed
}

fn assert_noticed(error: &LinkError, killed: Instant) {
    assert!(matches!(error, LinkError::PeerGone { .. }), "{error:?}");
    assert!(killed.elapsed() < Duration::from_secs(1), "noticed after {:?}", killed.elapsed());
}

fn a_reader_waiting_for_the_rest_of_a_frame(transport: &str) {
    let (child, mut link) = neighbour(transport);
    assert_eq!(link.head(soon()).unwrap().header.payload_len, 64 << 20);
    let killed = kill(child);
    let error = loop {
        // What had arrived may still be read.
        match link.receiver().body_chunk(&mut [0; 4096], soon()) {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_noticed(&error, killed);
}

fn a_writer_into_a_full_link(transport: &str) {
    let (child, link) = neighbour(transport);
    let (mut sender, _receiver) = link.split();
    let (writing, writes) = std::sync::mpsc::channel();
    let writer = std::thread::spawn(move || {
        let body = vec![2; 64 << 20];
        writing.send(()).unwrap();
        sender.send(&OutFrame { payload: &[&body], ..OutFrame::new(Kind::DATA) }, soon()).unwrap_err()
    });
    writes.recv().unwrap();
    std::thread::sleep(Duration::from_millis(30)); // either order is right; this lets the writer fill the link first
    let killed = kill(child);
    assert_noticed(&writer.join().unwrap(), killed);
}

macro_rules! deaths {
    ($($transport:ident),*) => { $( mod $transport {
        #[test]
        fn a_reader_in_the_middle_of_a_frame_notices() {
            super::a_reader_waiting_for_the_rest_of_a_frame(stringify!($transport));
        }
        #[test]
        fn a_writer_into_a_full_link_notices() {
            super::a_writer_into_a_full_link(stringify!($transport));
        }
    } )* };
}

deaths!(shm, unix, tcp, tcp_encrypted);

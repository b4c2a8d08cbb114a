//! Strangers leave nothing behind. A binary of its own, because it measures its whole process.

#[allow(dead_code, reason = "each test binary uses a part of it")]
mod meeting;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use meeting::door;
use syncline_transport::Deadline;

#[test]
fn a_thousand_strangers_leave_no_memory_behind() {
    let mut door = door(false, true);
    let address = door.tcp_addresses()[0];
    let waker = door.waker();
    std::thread::scope(|scope| {
        let strangers = scope.spawn(move || {
            let knock = |times| (0..times).for_each(|_| be_refused(address));
            knock(500); // buffers, arenas and whatever else is made once
            let before = resident_kib();
            knock(1000);
            let grown = resident_kib().saturating_sub(before);
            waker.wake();
            grown
        });
        while !strangers.is_finished() {
            door.step(Deadline::after(std::time::Duration::from_millis(100)));
        }
        let grown = strangers.join().unwrap();
        assert!(grown < 1024, "a thousand strangers left {grown} KiB behind");
    });
}

fn be_refused(address: SocketAddr) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .write_all(&[b"SLNDOOR\n\x01\0\0\0\0\0\0\0".as_slice(), &[7; 48]].concat())
        .unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(answer[10], 2, "refused for its token");
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

//! What others say or do costs no memory until they have earned it.
//!
//! A binary of its own, because it measures its whole process, one test at a time.

#[allow(dead_code, reason = "each test binary uses a part of it")]
mod meeting;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use meeting::door;
use syncline_transport::{Deadline, unix};
use syncline_wire::{FrameHeader, Kind};

fn one_at_a_time() -> MutexGuard<'static, ()> {
    static MEASURING: Mutex<()> = Mutex::new(());
    MEASURING.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[test]
fn a_thousand_strangers_leave_no_memory_behind() {
    let _alone = one_at_a_time();
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
            door.step(Deadline::after(Duration::from_millis(100)));
        }
        let grown = strangers.join().unwrap();
        assert!(grown < 1024, "a thousand strangers left {grown} KiB behind");
    });
}

#[test]
fn a_length_alone_allocates_little() {
    let _alone = one_at_a_time();
    let header = FrameHeader { epoch: 1, payload_len: 1 << 40, ..FrameHeader::new(Kind::DATA) };
    let grown_by = |header: FrameHeader| {
        let (mut raw, end) = UnixStream::pair().unwrap();
        let mut link = unix::link(end.into(), "a raw socket", 1, 0).unwrap();
        raw.write_all(&header.encode()).unwrap();
        raw.write_all(&[0; 100]).unwrap();
        let before = resident_kib();
        let error = link.frame(Deadline::after(Duration::ZERO)).unwrap_err();
        assert!(matches!(error, syncline_transport::LinkError::Timeout { .. }), "{error:?}");
        resident_kib().saturating_sub(before)
    };
    let meta = grown_by(FrameHeader { meta_len: 16 << 20, ..header });
    assert!(meta < 1024, "16 MiB of meta were announced, {meta} KiB taken");
    let body = grown_by(header);
    assert!(body < 20 << 10, "1 TiB of payload was announced, {body} KiB taken");
}

fn be_refused(address: SocketAddr) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(&[b"SLNDOOR\n\x01\0\0\0\0\0\0\0".as_slice(), &[7; 48]].concat()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(answer[10], 2, "refused for its token");
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

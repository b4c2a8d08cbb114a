//! Pairs of links of every transport, made the way a job makes them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use syncline_transport::{Address, Connection, Deadline, DialConfig, Door, DoorConfig, DoorEvent, JobKey, Link, dial_until, inproc, shm};

/// Long enough for a busy machine, short enough for a failing test.
pub(crate) fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

pub(crate) fn key() -> JobKey {
    JobKey::from_token("the token of these tests")
}

/// Two connected links, of ranks 0 and 1, each with its epoch.
pub(crate) type MakePair = fn([u32; 2]) -> (Link, Link);

pub(crate) fn inproc(epochs: [u32; 2]) -> (Link, Link) {
    inproc::pair_of([(epochs[0], 0), (epochs[1], 1)])
}

pub(crate) fn shm(epochs: [u32; 2]) -> (Link, Link) {
    let mut door = door(true, false);
    let address = door.addresses().remove(0);
    std::thread::scope(|scope| {
        let caller = scope.spawn(move || shm::dial_link(&address, &caller(false), b"shm", epochs[0], 0, soon()).unwrap());
        let DoorEvent::Visitor { fd, connection, .. } = visitor(&mut door) else { unreachable!() };
        let other = shm::accept_link(connection, fd.expect("a descriptor came along"), epochs[1], 1).unwrap();
        (caller.join().unwrap(), other)
    })
}

pub(crate) fn unix(epochs: [u32; 2]) -> (Link, Link) {
    let (zero, one) = connect(true, false);
    (zero.into_stream_link(epochs[0], 0), one.into_stream_link(epochs[1], 1))
}

pub(crate) fn tcp(epochs: [u32; 2]) -> (Link, Link) {
    let (zero, one) = connect(false, false);
    (zero.into_stream_link(epochs[0], 0), one.into_stream_link(epochs[1], 1))
}

pub(crate) fn tcp_encrypted(epochs: [u32; 2]) -> (Link, Link) {
    let (zero, one) = connect(false, true);
    assert!(zero.encrypted() && one.encrypted());
    (zero.into_stream_link(epochs[0], 0), one.into_stream_link(epochs[1], 1))
}

/// A name that no other test of this machine uses.
pub(crate) fn fresh_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("syncline-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

pub(crate) fn door(unix: bool, encrypt_tcp: bool) -> Door {
    let config = DoorConfig {
        key: key(),
        identity: [9; 16],
        unix: unix.then(fresh_name),
        tcp: if unix { vec![] } else { vec!["127.0.0.1:0".parse().unwrap()] },
        encrypt_tcp,
    };
    Door::open(config).unwrap()
}

pub(crate) fn caller(encrypt: bool) -> DialConfig {
    DialConfig { key: key(), expect_identity: Some([9; 16]), encrypt }
}

/// The next visitor; a refusal is a failure.
pub(crate) fn visitor(door: &mut Door) -> DoorEvent {
    let mut events = door.step(soon());
    assert_eq!(events.len(), 1, "{events:?}");
    let event = events.remove(0);
    assert!(matches!(event, DoorEvent::Visitor { .. }), "{event:?}");
    event
}

fn connect(unix: bool, encrypt: bool) -> (Connection, Connection) {
    let mut door = door(unix, false);
    let address: Address = door.addresses().remove(0);
    std::thread::scope(|scope| {
        let caller = scope.spawn(move || dial_until(&address, &caller(encrypt), b"hi", None, soon()).unwrap());
        let DoorEvent::Visitor { hello, connection, .. } = visitor(&mut door) else { unreachable!() };
        assert_eq!(hello, b"hi");
        (caller.join().unwrap(), connection)
    })
}

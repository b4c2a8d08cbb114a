//! Many clients on one server, and clients that do not keep up.

mod meeting;

use std::thread;
use std::time::{Duration, Instant};

use meeting::*;
use rustix::process::{Resource, getrlimit, setrlimit};
use syncline_ipc::{Client, Deadline, Error, ErrorKind, Value};

/// Both ends of every connection live in this process.
fn allow_descriptors(wanted: u64) -> bool {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
    let allowed = getrlimit(Resource::Nofile).current.is_none_or(|allowed| allowed >= wanted);
    if !allowed {
        eprintln!("skipped: this process may not open {wanted} descriptors");
    }
    allowed
}

#[test]
fn a_thousand_clients_are_served_by_one_thread() {
    const CLIENTS: usize = 1000;
    if !allow_descriptors(2 * CLIENTS as u64 + 100) {
        return;
    }
    let server = loopback();
    let clients: Vec<Client> = (0..CLIENTS).map(|_| client_of(&server)).collect();
    let mut id = 0;
    let served = server.clients::<Error>(CLIENTS, |peer| {
        id += 1;
        peer.set_id(id)?;
        peer.set_tag(Some(if id % 10 == 0 { "tenth" } else { "other" }))
    });
    assert_eq!(served.unwrap(), CLIENTS);
    for (number, client) in clients.iter().enumerate() {
        client.send(&Value::Int(number as i64)).unwrap();
    }
    let mut sum = 0;
    for _ in 0..CLIENTS {
        let (Value::Int(number), _) = server.recv_any(None).unwrap() else { panic!("not what was sent") };
        sum += number;
    }
    assert_eq!(sum, (CLIENTS * (CLIENTS - 1) / 2) as i64);
    assert_eq!(server.broadcast(&Value::from("to all"), None).unwrap(), CLIENTS);
    assert_eq!(server.broadcast(&Value::from("to some"), Some("tenth")).unwrap(), CLIENTS / 10);
    assert!(clients.iter().all(|client| client.recv().unwrap() == Value::from("to all")));
    assert_eq!(clients.iter().filter(|client| client.try_recv().unwrap().is_some()).count(), CLIENTS / 10);
    let threads = std::fs::read_dir("/proc/self/task").unwrap().count();
    assert!(threads < 20, "{threads} threads");
}

#[test]
fn a_client_that_stops_reading_does_not_stop_the_others() {
    for encrypted in [false, true] {
        let options = syncline_ipc::Options { encrypt: Some(encrypted), ..options() };
        let server = syncline_ipc::Server::open(&syncline_ipc::Place::tcp("127.0.0.1", 0), &options).unwrap();
        let mut clients: Vec<Client> = (0..8).map(|_| seated(&server, &options)).collect();
        number(&server);
        let frozen = clients.remove(3);
        let large = Value::from(vec![5u8; 20 << 20]);
        thread::scope(|scope| {
            let others: Vec<_> = clients.iter().map(|client| scope.spawn(|| assert!(client.recv().unwrap() == large))).collect();
            let error = server.broadcast_by(&large, None, Deadline::after(Duration::from_secs(2))).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout);
            let told = error.to_string();
            assert!(told.contains("1 of 8 clients") && told.contains("client 3 from 127.0.0.1"), "{told}");
            assert_eq!(error.whom().and_then(|whom| whom.pid), Some(std::process::id()));
            others.into_iter().for_each(|other| other.join().unwrap()); // all of them have it
        });
        // Nothing new begins before the old has gone: the frozen one costs one message, not one per call.
        let error = server.broadcast_by(&Value::from("second"), None, Deadline::after(Duration::from_millis(20))).unwrap_err();
        assert!(error.to_string().contains("client 3"), "{error}");
        assert!(clients.iter().all(|client| client.recv().unwrap() == Value::from("second")));
        // It wakes up and gets what was begun, whole, although the server makes no call.
        assert!(frozen.recv_by(soon()).unwrap() == large);
        server.clients::<Error>(8, |peer| peer.send(&Value::from("third"))).unwrap();
        assert_eq!(frozen.recv().unwrap(), Value::from("third"));
    }
}

#[test]
fn a_thread_that_waits_for_a_slow_client_keeps_nobody_else_from_the_others() {
    let (server, clients) = company(2);
    thread::scope(|scope| {
        let slow = scope.spawn(|| {
            let large = Value::from(vec![5u8; 20 << 20]);
            server.clients_with::<Error>(None, Default::default(), |peer| if peer.id()? == 0 { peer.send(&large) } else { Ok(()) })
        });
        let until = Instant::now() + PATIENCE;
        while server.net_stats().tx.num_system_calls == 0 {
            assert!(Instant::now() < until);
            thread::yield_now(); // until it has begun
        }
        let started = Instant::now();
        let error = server.broadcast_by(&Value::from("both"), None, Deadline::after(Duration::from_millis(200))).unwrap_err();
        assert!(error.to_string().contains("client 0") && started.elapsed() < Duration::from_secs(5), "{error}");
        assert_eq!(clients[1].recv().unwrap(), Value::from("both"));
        clients[1].send(&Value::from("me")).unwrap();
        assert_eq!(server.recv_any(None).unwrap().0, Value::from("me"));
        assert_eq!(clients[0].recv().unwrap(), Value::from(vec![5u8; 20 << 20]));
        slow.join().unwrap().unwrap();
    });
}

#[test]
fn a_sender_that_stops_in_the_middle_of_a_message_does_not_stop_the_others() {
    let (server, clients) = company(2);
    let large = Value::from(vec![5u8; 20 << 20]);
    clients[0].send_by(&large, Deadline::after(Duration::from_millis(50))).unwrap_err(); // and then it does nothing
    clients[1].send(&Value::from("quick")).unwrap();
    let (value, peer) = server.recv_any(None).unwrap();
    assert_eq!((value, peer.id().unwrap()), (Value::from("quick"), 1));
    let error = server.recv_any_by(None, Deadline::after(Duration::from_millis(20))).unwrap_err();
    assert!(error.kind() == ErrorKind::Timeout && error.to_string().contains("client 0"), "{error}");
    thread::scope(|scope| {
        scope.spawn(|| clients[0].recv().unwrap());
        let (value, peer) = server.recv_any(None).unwrap();
        assert!(value == large);
        peer.send(&Value::Nil).unwrap();
    });
}

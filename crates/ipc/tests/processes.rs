//! Real processes, really killed: the other side hears of it at once and goes on.

mod meeting;

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use meeting::*;
use syncline_ipc::{Client, Deadline, Error, ErrorKind, Options, Place, Server, Value};

const PLACE: &str = "SYNCLINE_TEST_ADDRESS";
const MANNER: &str = "SYNCLINE_TEST_TRANSPORT";

/// Not a test of its own: what the other process runs.
#[test]
fn the_other_process() {
    let (Ok(name), Ok(manner)) = (std::env::var(PLACE), std::env::var(MANNER)) else {
        return;
    };
    let place = if let Ok(address) = name.parse::<std::net::SocketAddr>() { Place::from(address) } else { Place::unix(&name) };
    match manner.as_str() {
        "server" => {
            let server = Server::open(&place, &options()).unwrap();
            server.clients(1, |peer| peer.send(&Value::from("ready"))).unwrap();
            std::thread::park();
        }
        "sender" => {
            let client = Client::connect(&place, &options()).unwrap();
            client.send(&Value::from("ready")).unwrap();
            let _ = client.send(&Value::from(vec![1; 64 << 20])); // nobody reads it: killed in the middle
        }
        _ => {
            let client = Client::connect(&place, &options()).unwrap();
            client.send(&Value::from("ready")).unwrap();
            let _ = client.recv();
        }
    }
}

fn start(place: &str, manner: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_other_process"])
        .env(PLACE, place)
        .env(MANNER, manner)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn kill(child: &mut Child) -> Instant {
    child.kill().unwrap();
    child.wait().unwrap();
    Instant::now()
}

#[test]
fn a_client_that_is_killed_is_named_at_once_and_the_others_go_on() {
    for (manner, place) in
        [("reader", Place::tcp("127.0.0.1", 0)), ("sender", Place::tcp("127.0.0.1", 0)), ("sender", Place::unix(&fresh_name()))]
    {
        let server = Server::open(&place, &options()).unwrap();
        let name = server.place().to_string();
        let mut child = start(name.trim_start_matches("unix:"), manner);
        server.clients(1, |peer| peer.recv().map(|word| assert_eq!(word, Value::from("ready")))).unwrap();
        let good = client_of(&server);
        server.clients::<Error>(2, |_| Ok(())).unwrap();
        let killed = std::thread::scope(|scope| {
            let victim = &mut child;
            let killer = scope.spawn(move || kill(victim));
            let error = server.recv_any(None).unwrap_err();
            let noticed = Instant::now();
            assert_eq!(error.kind(), ErrorKind::PeerLost, "{error}");
            let pid = error.whom().and_then(|whom| whom.pid).expect("it had told");
            assert!(error.to_string().contains(&format!("pid {pid}")), "{error}");
            (killer.join().unwrap(), noticed, pid)
        });
        assert_eq!(killed.2, child.id());
        assert!(killed.1.saturating_duration_since(killed.0) < Duration::from_secs(1));
        good.send(&Value::from("me")).unwrap();
        assert_eq!((server.recv_any(None).unwrap().0, server.len()), (Value::from("me"), 1));
        assert_eq!(server.broadcast(&Value::Nil, None).unwrap(), 1);
    }
}

#[test]
fn a_server_that_is_killed_ends_every_wait_of_its_clients() {
    let name = fresh_name();
    let mut child = start(&name, "server");
    let client = Client::connect(&Place::unix(&name), &options()).unwrap();
    assert_eq!(client.recv().unwrap(), Value::from("ready"));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| client.recv());
        let writer = scope.spawn(|| client.send(&Value::from(vec![1; 64 << 20])));
        kill(&mut child);
        for ended in [reader.join().unwrap().map(drop), writer.join().unwrap()] {
            let error = ended.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PeerLost, "{error}");
            assert!(error.to_string().contains(&name), "{error}");
        }
    });
    assert_eq!(client.recv().unwrap_err().kind(), ErrorKind::PeerLost, "and it stays so");
    // Nothing is left at the name, so another server takes it over.
    let server = Server::open(&Place::unix(&name), &options()).unwrap();
    drop(Client::connect(&server.place(), &options()).unwrap());
}

#[test]
fn a_client_that_is_stopped_is_a_timeout_that_names_it() {
    let server = Server::open(&Place::unix(&fresh_name()), &Options { encrypt: None, ..options() }).unwrap();
    let mut child = start(server.place().to_string().trim_start_matches("unix:"), "reader");
    server.clients(1, |peer| peer.recv().map(drop)).unwrap();
    let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let large = Value::from(vec![0u8; 64 << 20]);
    let error = server.broadcast_by(&large, None, Deadline::after(Duration::from_millis(100))).unwrap_err();
    assert!(error.kind() == ErrorKind::Timeout && error.to_string().contains(&format!("pid {}", child.id())), "{error}");
    kill(&mut child);
    let error = server.broadcast(&Value::Nil, None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PeerLost, "{error}");
}

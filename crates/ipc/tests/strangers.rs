//! Whoever does not hold the token costs nothing and learns nothing; whoever does but talks nonsense harms only itself.

mod meeting;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use meeting::*;
use syncline_ipc::{Client, DType, Deadline, Error, ErrorKind, Options, Place, Server, Shape, Value};
use syncline_transport::{Address, DialConfig, JobKey, Link, OutFrame, dial};
use syncline_wire::Kind;

fn socket_of(server: &Server) -> SocketAddr {
    server.place().to_string().parse().unwrap()
}

/// Somebody who holds the token and speaks the protocol of links, but not that of clients.
fn insider(server: &Server, hello: &[u8]) -> Link {
    let config = DialConfig { key: JobKey::from_token("ipc the token of these tests"), expect_identity: None, encrypt: false };
    dial(&Address::Tcp(socket_of(server)), &config, hello, None, soon()).unwrap().into_stream_link(0, 0)
}

/// The hello of a client, as `hello.rs` writes it.
fn client_hello() -> Vec<u8> {
    let told = Value::List(vec![Value::from("syncline ipc client 1"), Value::from("here"), Value::Int(7)]);
    told.encode(&Default::default()).unwrap().into_meta()
}

#[test]
fn garbage_and_silence_at_the_door_disturb_nobody() {
    let server = loopback();
    let silent: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(socket_of(&server)).unwrap()).collect();
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 5000], &[0xff; 64], b"SLNDOOR\n but then not"] {
        let mut stream = TcpStream::connect(socket_of(&server)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let _ = stream.write_all(garbage);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer); // a reset is an end too
        assert!(answer.len() <= 16, "a stranger learned {} bytes", answer.len());
    }
    let client = client_of(&server);
    server.clients(1, |peer| peer.send(&Value::from("welcome"))).unwrap();
    assert_eq!(client.recv().unwrap(), Value::from("welcome"));
    drop(silent);
}

#[test]
fn another_token_is_refused_at_once_and_nothing_is_told() {
    let server = loopback();
    for wrong in ["another", "the token of these tests ", "ipc the token of these tests"] {
        let given = Options::with_token(wrong);
        let refused = Client::connect_by(&server.place(), &given, soon());
        match wrong.trim() == "the token of these tests" {
            true => assert!(refused.is_ok(), "white space around a token is not part of it"),
            false => assert_eq!(refused.unwrap_err().kind(), ErrorKind::Auth),
        }
    }
}

#[test]
fn a_member_of_a_job_with_the_same_token_is_no_client() {
    let server = loopback();
    let config = DialConfig { key: JobKey::from_token("the token of these tests"), expect_identity: None, encrypt: false };
    assert!(dial(&Address::Tcp(socket_of(&server)), &config, b"", None, soon()).is_err());
    let _impostor = insider(&server, b"rank 3 wants its control link");
    let error = server.clients_by::<Error>(1, Deadline::after(Duration::from_millis(100)), |_| Ok(())).unwrap_err();
    assert!(error.to_string().contains("0 of 1"), "{error}");
}

#[test]
fn a_client_that_sends_nonsense_is_named_and_forgotten() {
    let tensor = |meta_len: usize| {
        let value = Value::tensor(DType::U8, Shape::new(&[4]).unwrap(), &b"ping"[..]).unwrap();
        value.encode(&Default::default()).unwrap().into_meta()[..meta_len].to_vec()
    };
    let frames: [(Kind, Vec<u8>, &[u8]); 5] = [
        (Kind::VALUE, vec![0xff; 24], b""),
        (Kind::VALUE, tensor(8), b"ping"),
        (Kind::VALUE, tensor(16), b"pingpong"),
        (Kind::VALUE, vec![], b""),
        (Kind::CONTROL, vec![1, 2, 3], b""),
    ];
    for (kind, meta, payload) in frames {
        let server = loopback();
        let mut fool = insider(&server, &client_hello());
        let good = client_of(&server);
        server.clients::<Error>(2, |_| Ok(())).unwrap();
        fool.send(&OutFrame { meta: &meta, payload: &[payload], ..OutFrame::new(kind) }, soon()).unwrap();
        let error = server.recv_any(None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PeerLost, "{error}");
        assert!(error.to_string().contains("pid 7 on here") && error.to_string().contains("cannot be read"), "{error}");
        good.send(&Value::Nil).unwrap();
        assert_eq!((server.recv_any(None).unwrap().0, server.len()), (Value::Nil, 1));
        assert!(fool.head(soon()).is_err() || fool.head(soon()).is_err(), "its connection is closed");
    }
}

#[test]
fn an_announced_terabyte_allocates_what_arrives() {
    let server = loopback();
    let mut fool = insider(&server, &client_hello());
    let meta = Value::tensor(DType::U8, Shape::new(&[0]).unwrap(), &b""[..]).unwrap().encode(&Default::default()).unwrap().into_meta();
    let mut huge = meta.clone();
    huge[8..16].copy_from_slice(&(1u64 << 40).to_le_bytes());
    fool.sender().begin(&OutFrame { meta: &huge, payload: &[b"just this"], ..OutFrame::new(Kind::VALUE) }, 1 << 40, soon()).unwrap();
    server
        .clients::<Error>(1, |peer| {
            let error = peer.recv_by(Deadline::after(Duration::from_millis(50))).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout);
            Ok(())
        })
        .unwrap();
    drop(fool);
    let error = server.clients(1, |peer| peer.recv().map(drop)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PeerLost, "{error}");
}

#[test]
fn what_listens_elsewhere_is_not_taken_for_a_server() {
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let place = Place::from(other.local_addr().unwrap());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = other.accept().unwrap();
            let _ = stream.read(&mut [0; 64]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        });
        let error = Client::connect_by(&place, &options(), soon()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Configuration);
        assert!(error.to_string().contains("does not speak Syncline's protocol"), "{error}");
    });
}

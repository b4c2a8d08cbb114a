//! What torch-ipc's own tests of client and server say, and what they should have said.

mod meeting;

use std::thread;
use std::time::{Duration, Instant};

use meeting::*;
use syncline_ipc::{Client, DType, Deadline, Error, ErrorKind, Options, Order, Place, Server, Shape, TensorView, TensorViewMut, Value};

fn shape(dims: &[usize]) -> Shape {
    Shape::new(dims).expect("small")
}

fn text(words: &str) -> Value<'static> {
    Value::from(words.to_owned())
}

#[test]
fn ping_is_answered_by_pong_over_every_kind_of_address() {
    let places = [
        Place::tcp("127.0.0.1", 0),
        Place::tcp("::1", 0),
        Place::tcp("localhost", 0),
        Place::new(&format!("unix:{}", fresh_name()), 0).unwrap(),
        Place::new(&format!("unix:@{}", &fresh_name()[1..]), 0).unwrap(),
    ];
    for place in places {
        for encrypt in [None, Some(true)] {
            let options = Options { encrypt, ..options() };
            let server = match Server::open(&place, &options) {
                Err(Error::System { detail, .. }) if detail.contains("[::1]") => {
                    eprintln!("skipped: this machine has no IPv6");
                    continue;
                }
                server => server.unwrap(),
            };
            let unix = matches!(place, Place::Unix { .. });
            assert_eq!(server.port() == 0, unix);
            let client = Client::connect(&server.place(), &options).unwrap();
            assert_eq!(client.encrypted(), encrypt == Some(true) && !unix, "{place}");
            client.send(&text("ping")).unwrap();
            let served = server.clients(1, |peer| {
                assert_eq!(peer.recv()?, text("ping"));
                let address = peer.address()?;
                assert!(if unix { address.contains("pid") } else { ["127.0.0.1", "::1"].contains(&address.as_str()) }, "{address}");
                peer.send(&text("pong"))
            });
            assert_eq!((served.unwrap(), client.recv().unwrap()), (1, text("pong")));
        }
    }
}

#[test]
fn a_tensor_for_somebody_who_does_not_read_is_sent_until_the_callers_own_deadline() {
    let (server, clients) = company(1);
    let numbers = vec![0_u8; 64 << 20];
    let tensor = TensorView::contiguous(&numbers, DType::U8, shape(&[numbers.len()])).unwrap();
    let called_off = || Deadline::never().with_interrupt(|| true);
    assert_eq!(clients[0].send_tensor_by(&tensor, called_off()).unwrap_err().kind(), ErrorKind::Interrupted);
    let soon = Deadline::after(Duration::from_millis(50));
    assert_eq!(clients[0].send_tensor_by(&tensor, soon).unwrap_err().kind(), ErrorKind::Timeout);
    let served = server.clients(1, |peer| {
        assert_eq!(peer.send_tensor_by(&tensor, called_off()).unwrap_err().kind(), ErrorKind::Interrupted);
        Ok::<_, Error>(())
    });
    served.unwrap();
}

#[test]
fn ids_and_tags_are_kept_and_order_and_choose_the_clients() {
    let (server, _clients) = company(4);
    let order = |order| {
        let mut seen = Vec::new();
        server.clients_with::<Error>(None, order, |peer| peer.id().map(|id| seen.push(id))).unwrap();
        seen
    };
    assert_eq!(order(Order::Ascending), [0, 1, 2, 3]);
    assert_eq!(order(Order::Descending), [3, 2, 1, 0]);
    server
        .clients::<Error>(4, |peer| match peer.id()? {
            2 => {
                assert_eq!(peer.tag()?, None);
                peer.set_tag(Some("hi"))?;
                peer.set_id(42)?;
                assert_eq!((peer.tag()?.as_deref(), peer.id()?), (Some("hi"), 42));
                Ok(())
            }
            _ => Ok(()),
        })
        .unwrap();
    assert_eq!(order(Order::Ascending), [0, 1, 3, 42]);
    let mut tagged = Vec::new();
    assert_eq!(server.clients_with::<Error>(Some("hi"), Order::Ascending, |peer| peer.id().map(|id| tagged.push(id))).unwrap(), 1);
    assert_eq!(tagged, [42]);
    assert_eq!(server.clients_with::<Error>(Some("nobody's"), Order::Ascending, |_| panic!("nobody has it")).unwrap(), 0);
}

#[test]
fn a_message_is_there_without_waiting_or_it_is_told_from_nil() {
    let (server, clients) = company(1);
    let mut empty = 0;
    thread::scope(|scope| {
        let (polled, begin) = std::sync::mpsc::channel();
        let server = &server;
        scope.spawn(move || {
            begin.recv().unwrap(); // the client has seen that nothing is there
            server.clients(1, |peer| peer.send(&Value::Nil)).unwrap();
        });
        let until = Instant::now() + PATIENCE;
        let got = loop {
            match clients[0].try_recv().unwrap() {
                Some(value) => break value,
                None if empty == 0 => polled.send(()).unwrap(),
                None => assert!(Instant::now() < until),
            }
            empty += 1;
        };
        assert_eq!(got, Value::Nil);
    });
    assert!(empty > 0);
}

#[test]
fn a_broadcast_reaches_those_with_the_tag() {
    let (server, clients) = company(10);
    server.clients::<Error>(10, |peer| peer.set_tag(Some(if peer.id()? % 2 == 0 { "even" } else { "odd" }))).unwrap();
    assert_eq!(server.broadcast(&text("to the odd"), Some("odd")).unwrap(), 5);
    assert_eq!(server.broadcast(&text("to all"), None).unwrap(), 10);
    for (id, client) in clients.iter().enumerate() {
        if id % 2 == 1 {
            assert_eq!(client.recv().unwrap(), text("to the odd"));
        }
        assert_eq!(client.recv().unwrap(), text("to all"));
    }
}

#[test]
fn messages_of_any_client_come_with_their_sender_and_everybody_has_a_turn() {
    let (server, clients) = company(10);
    for round in 0..3i64 {
        for (id, client) in clients.iter().enumerate() {
            client.send(&Value::List(vec![text("hi"), Value::Int(id as i64), Value::Int(round)])).unwrap();
        }
    }
    for round in 0..3i64 {
        let mut seen: Vec<i64> = (0..10)
            .map(|_| {
                let (value, peer) = server.recv_any(None).unwrap();
                let id = peer.id().unwrap();
                assert_eq!(value, Value::List(vec![text("hi"), Value::Int(id), Value::Int(round)]));
                peer.send(&text("thanks")).unwrap(); // valid outside of any function
                id
            })
            .collect();
        seen.sort();
        assert_eq!(seen, (0..10).collect::<Vec<_>>(), "one message each before anybody's second");
    }
    assert!(clients.iter().all(|client| client.recv().unwrap() == text("thanks")));
    for number in 0..20 {
        clients[3].send(&Value::Int(number)).unwrap();
    }
    assert_eq!(server.recv_any(None).unwrap().0, Value::Int(0));
    clients[7].send(&text("a word in between")).unwrap();
    assert_eq!(server.recv_any(None).unwrap().0, text("a word in between"), "who talks much is not heard alone");
}

#[test]
fn messages_may_be_of_any_size_and_kind() {
    let (server, clients) = company(1);
    let numbers: Vec<u8> = (0..120u8).collect();
    let everything = Value::Map(vec![
        (text("nil"), Value::Nil),
        (text("flags"), Value::List(vec![Value::Bool(true), Value::Bool(false)])),
        (Value::Int(7), Value::Int(i64::MIN)),
        (text("pi"), Value::Float(3.25)),
        (text("long"), text(&"é".repeat(100_000))), // torch-ipc refused anything above 16 KiB
        (text("bytes"), Value::from(vec![0u8; 3_000_000])),
        (text("tensor"), Value::tensor(DType::F32, shape(&[5, 6]), numbers).unwrap()),
        (text("nested"), Value::List(vec![Value::List(vec![Value::List(vec![])])])),
    ]);
    thread::scope(|scope| {
        scope.spawn(|| clients[0].send(&everything).unwrap());
        server.clients(1, |peer| peer.recv().map(|got| assert_eq!(got, everything))).unwrap();
    });
    let deep = (0..200).fold(Value::Nil, |inside, _| Value::List(vec![inside]));
    let error = clients[0].send(&deep).unwrap_err();
    assert!(matches!(error, Error::Unsendable { .. }), "{error}");
    clients[0].send(&Value::Nil).unwrap(); // and nothing is harmed
    assert_eq!(server.recv_any(None).unwrap().0, Value::Nil);
}

#[test]
fn tensors_arrive_in_memory_that_is_there() {
    let (server, clients) = company(1);
    let numbers: Vec<f32> = (0..5 * 6 * 7).map(|number| number as f32).collect();
    let whole = TensorView::of_slice(&numbers);
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let cube = TensorView::contiguous(&bytes, DType::F32, shape(&[5, 6, 7])).unwrap();
    let part = cube.slice(1, 2, 3, 1).unwrap(); // 5 × 3 × 7, not contiguous
    clients[0].send_tensor(&cube).unwrap();
    clients[0].send_tensor(&part).unwrap();
    clients[0].send_tensor(&part).unwrap();
    clients[0].send_tensor(&whole.slice(0, 0, 0, 1).unwrap()).unwrap();
    server
        .clients::<Error>(1, |peer| {
            let mut target = vec![0u8; bytes.len()];
            peer.recv_into(&mut TensorViewMut::contiguous(&mut target, DType::F32, shape(&[5, 6, 7])).unwrap())?;
            assert_eq!(target, bytes);
            let mut target = vec![0u8; 5 * 3 * 7 * 4];
            peer.recv_into(&mut TensorViewMut::contiguous(&mut target, DType::F32, shape(&[5, 3, 7])).unwrap())?;
            assert_eq!(target, part.to_contiguous().into_owned());
            // A part of something larger, as a target.
            let mut larger = vec![0u8; bytes.len()];
            let strides: Vec<isize> = cube.layout().strides().to_vec();
            let mut hole = TensorViewMut::strided(&mut larger, DType::F32, shape(&[5, 3, 7]), &strides, 2 * 7 * 4).unwrap();
            peer.recv_into(&mut hole)?;
            let filled = TensorView::contiguous(&larger, DType::F32, shape(&[5, 6, 7])).unwrap();
            assert_eq!(filled.slice(1, 2, 3, 1).unwrap().to_contiguous(), part.to_contiguous());
            assert!(filled.slice(1, 0, 2, 1).unwrap().to_contiguous().iter().all(|byte| *byte == 0));
            peer.recv_into(&mut TensorViewMut::contiguous(&mut [], DType::F32, shape(&[0])).unwrap())
        })
        .unwrap();
}

#[test]
fn a_tensor_that_does_not_fit_is_refused_and_stays() {
    let (server, clients) = company(1);
    let bytes = |text: &'static str| TensorView::contiguous(text.as_bytes(), DType::U8, shape(&[text.len()])).unwrap();
    clients[0].send_tensor(&bytes("ping")).unwrap();
    server
        .clients::<Error>(1, |peer| {
            let refuse = |dtype, dims: &[usize], bytes: usize, words: &str| {
                let mut memory = vec![9u8; bytes];
                let error = peer.recv_into(&mut TensorViewMut::contiguous(&mut memory, dtype, shape(dims)).unwrap()).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::ShapeMismatch);
                assert!(error.to_string().contains("uint8 (4)") && error.to_string().contains(words), "{error}");
                assert!(memory.iter().all(|byte| *byte == 9), "not a byte of it was touched");
            };
            refuse(DType::U8, &[3], 3, "uint8 (3)");
            refuse(DType::I8, &[4], 4, "int8 (4)");
            refuse(DType::U8, &[2, 2], 4, "uint8 (2, 2)");
            refuse(DType::F32, &[1], 4, "float32 (1)");
            let mut memory = [0; 4];
            peer.recv_into(&mut TensorViewMut::contiguous(&mut memory, DType::U8, shape(&[4])).unwrap())?;
            assert_eq!(&memory, b"ping");
            peer.send_tensor(&bytes("pong"))?;
            peer.send(&text("no tensor"))
        })
        .unwrap();
    let mut memory = [0; 4];
    let mut target = TensorViewMut::contiguous(&mut memory, DType::U8, shape(&[4])).unwrap();
    clients[0].recv_into(&mut target).unwrap();
    let error = clients[0].recv_into(&mut target).unwrap_err();
    assert!(matches!(error, Error::ShapeMismatch { .. }), "{error}");
    assert_eq!((clients[0].recv().unwrap(), &memory), (text("no tensor"), b"pong"));
}

#[test]
fn a_wait_that_ends_in_the_middle_of_a_message_loses_nothing() {
    for encrypt in [false, true] {
        let options = Options { encrypt: Some(encrypt), ..options() };
        let server = Server::open(&Place::tcp("127.0.0.1", 0), &options).unwrap();
        let client = Client::connect(&server.place(), &options).unwrap();
        let large: Vec<u8> = (0..40 << 20).map(|at: usize| (at * 7) as u8).collect();
        let value = Value::tensor(DType::U8, shape(&[large.len()]), &large[..]).unwrap();
        let error = client.send_by(&value, Deadline::after(Duration::from_millis(50))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        assert!(error.to_string().contains("stays queued") && error.to_string().contains("the server at"), "{error}");
        let error = client.recv_by(Deadline::after(Duration::ZERO)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        server
            .clients::<Error>(1, |peer| {
                let mut memory = vec![0; large.len()];
                let mut target = TensorViewMut::contiguous(&mut memory, DType::U8, shape(&[large.len()])).unwrap();
                let error = peer.recv_into_by(&mut target, Deadline::after(Duration::from_millis(30))).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Timeout);
                assert_eq!(peer.try_recv()?, None);
                thread::scope(|scope| {
                    // Whatever the client does next goes on with what it owes.
                    let waiting = scope.spawn(|| client.recv());
                    peer.recv_into(&mut target).unwrap();
                    peer.send(&text("got it")).unwrap();
                    assert_eq!(waiting.join().unwrap().unwrap(), text("got it"));
                });
                assert!(memory == large, "every byte is where it belongs");
                Ok(())
            })
            .unwrap();
        client.send(&text("next")).unwrap();
        assert_eq!(server.recv_any(None).unwrap().0, text("next"));
    }
}

#[test]
fn a_client_may_be_there_before_its_server() {
    let place = Place::unix(&fresh_name());
    thread::scope(|scope| {
        let early = scope.spawn(|| {
            let client = Client::connect(&place, &options())?;
            client.recv()
        });
        thread::sleep(Duration::from_secs(2)); // what the test is about
        let server = Server::open(&place, &options()).unwrap();
        server.clients(1, |peer| peer.send(&text("at last"))).unwrap();
        assert_eq!(early.join().unwrap().unwrap(), text("at last"));
    });
}

#[test]
fn who_connects_to_nobody_hears_why() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let place = Place::from(listener.local_addr().unwrap());
    drop(listener);
    let error = Client::connect_by(&place, &options(), Deadline::after(Duration::from_millis(500))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.to_string().contains("nobody listens there") && error.to_string().contains(&place.to_string()), "{error}");
}

#[test]
fn a_server_that_misses_clients_says_how_many_and_that_some_were_refused() {
    let server = loopback();
    let _first = client_of(&server);
    let error = Client::connect(&server.place(), &Options::with_token("another")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Auth);
    assert!(error.to_string().contains("SYNCLINE_TOKEN"), "{error}");
    let error = server.clients_by::<Error>(2, Deadline::after(Duration::from_millis(200)), |_| Ok(())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    let told = error.to_string();
    assert!(told.contains("1 of 2") && told.contains("does not hold this job's token"), "{told}");
}

#[test]
fn only_as_many_as_were_asked_for_are_let_in_and_the_rest_later() {
    let server = loopback();
    let clients = [client_of(&server), client_of(&server), client_of(&server)];
    assert_eq!(server.clients::<Error>(2, |_| Ok(())).unwrap(), 2);
    assert_eq!(server.broadcast(&text("early"), None).unwrap(), 2);
    assert_eq!(server.clients::<Error>(3, |_| Ok(())).unwrap(), 3);
    assert_eq!(clients.iter().filter(|client| client.try_recv().unwrap().is_some()).count(), 2);
    assert_eq!(server.clients::<Error>(1, |_| Ok(())).unwrap(), 3, "all that are there, not one");
}

#[test]
fn a_clients_handle_is_valid_inside_its_function_only() {
    let (server, clients) = company(1);
    let mut kept = None;
    let keep = |peer: &syncline_ipc::Peer| {
        kept = Some(peer.handle());
        Ok::<(), Error>(())
    };
    server.clients(1, keep).unwrap();
    let error = kept.unwrap().send(&Value::Nil).unwrap_err();
    assert_eq!(error.to_string(), "server client is invalid, either closed or used outside of server function scope");
    assert_eq!(error.kind(), ErrorKind::Closed);
    server
        .clients::<Error>(1, |peer| {
            peer.close()?;
            assert!(matches!(peer.recv(), Err(Error::InvalidClient)));
            Ok(())
        })
        .unwrap();
    assert!(server.is_empty());
    let error = clients[0].recv().unwrap_err();
    assert!(matches!(&error, Error::Closed { what, .. } if what.contains("the server at")), "{error}");
}

#[test]
fn an_error_of_the_function_ends_the_round() {
    let (server, _clients) = company(3);
    let mut seen = 0;
    let failed: Result<usize, Box<dyn std::error::Error>> = server.clients(3, |_| {
        seen += 1;
        Err("enough".into())
    });
    assert_eq!((failed.unwrap_err().to_string(), seen), ("enough".to_owned(), 1));
}

#[test]
fn closing_is_heard_on_both_sides_and_wakes_who_waits() {
    let (server, mut clients) = company(3);
    let left = clients.pop().unwrap();
    left.send(&text("last words")).unwrap();
    left.close();
    assert!(matches!(left.send(&Value::Nil), Err(Error::Closed { .. })));
    assert_eq!(server.recv_any(None).unwrap().0, text("last words"));
    clients[0].send(&text("still here")).unwrap();
    assert_eq!(server.recv_any(None).unwrap().0, text("still here"));
    assert_eq!(server.recv_any_by(None, Deadline::after(Duration::ZERO)).unwrap_err().kind(), ErrorKind::Timeout);
    assert_eq!(server.len(), 2, "who left is forgotten");
    drop(clients.remove(0));
    let error = server.clients(2, |peer| peer.recv().map(|_| ())).unwrap_err();
    assert!(matches!(&error, Error::Closed { what, .. } if what.contains("client 0")), "{error}");
    thread::scope(|scope| {
        let (ready, waiting) = std::sync::mpsc::channel();
        let client = &clients[0];
        let reader = scope.spawn(move || {
            ready.send(()).unwrap();
            client.recv()
        });
        waiting.recv().unwrap();
        client.close();
        assert!(matches!(reader.join().unwrap(), Err(Error::Closed { .. })));
    });
    let error = server.recv_any(None).unwrap_err();
    assert!(matches!(&error, Error::Closed { what, .. } if what.contains("no client is connected")), "{error}");
    let last = seated(&server, &options());
    let at_the_door = client_of(&server);
    server.close();
    assert!(matches!(last.recv(), Err(Error::Closed { .. })));
    let error = at_the_door.recv().unwrap_err(); // in the lobby or not yet: it does not wait for a server that is closed
    assert!([ErrorKind::Closed, ErrorKind::PeerLost].contains(&error.kind()), "{error}");
    assert!(matches!(server.clients::<Error>(1, |_| Ok(())), Err(Error::Closed { .. })));
    assert!(matches!(server.broadcast(&Value::Nil, None), Err(Error::Closed { .. })));
}

#[test]
fn what_was_sent_before_closing_arrives_although_the_sender_has_not_read_everything() {
    let (server, clients) = company(1);
    server.broadcast(&Value::from(vec![7u8; 100_000]), None).unwrap(); // never read
    thread::scope(|scope| {
        scope.spawn(|| {
            clients[0].send(&Value::from(vec![1u8; 3_000_000])).unwrap();
            clients[0].close();
        });
        assert_eq!(server.recv_any(None).unwrap().0, Value::from(vec![1u8; 3_000_000]));
    });
}

#[test]
fn traffic_is_counted_both_ways() {
    let (server, clients) = company(2);
    server.broadcast(&Value::from(vec![0u8; 5000]), None).unwrap();
    clients.iter().for_each(|client| drop(client.recv().unwrap()));
    let (sent, got) = (server.net_stats().tx, clients[0].net_stats().rx);
    assert_eq!((sent.num_calls, got.num_calls, sent.num_bytes), (2, 1, 2 * got.num_bytes));
    assert!(got.num_bytes > 5000 && got.num_system_calls > 0 && got.total_seconds > 0.0 && got.mb_per_s() > 0.0, "{got:?}");
    assert_eq!(clients[0].net_stats().tx.num_calls, 0);
}

#[test]
fn an_address_that_is_taken_is_named() {
    let server = loopback();
    let error = Server::open(&server.place(), &options()).unwrap_err();
    assert!(error.to_string().contains(&server.place().to_string()), "{error}");
}

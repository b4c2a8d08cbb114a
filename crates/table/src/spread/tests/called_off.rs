//! Calls that are called off in the middle of a frame, over real sockets whose other end moves when it is told to.

use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use syncline_cluster::{Deadline, ErrorKind};
use syncline_transport::{Link, OutFrame, tcp};
use syncline_wire::{Fingerprint, Kind};

use super::world::{Hub, soon};
use crate::AddOptions;
use crate::spread::gate::Gates;
use crate::spread::line::Line;
use crate::spread::messages::{Reply, Request, Rows};

fn pair() -> (Link, Link) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let dialled = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
    let (accepted, _) = listener.accept().expect("somebody dialled");
    let link = |stream: TcpStream, me, peer: u32| tcp::link(stream.into(), format!("rank {peer}"), 0, me).expect("a socket");
    (link(dialled, 0, 1), link(accepted, 1, 0))
}

#[test]
fn what_is_left_of_a_reply_whose_caller_gave_up_is_skipped() {
    const BYTES: usize = 3_000_000;
    let (hub, table) = (Hub::new(Duration::from_secs(20), false), Fingerprint::of("table").finish());
    let ((ours, theirs), reach) = (pair(), hub.seat(0));
    let mut line = Line::new(ours, 1, table, "table `t`", Gates::default().to(1));
    let get = Request::Get { own_adds: 0, rows: Rows::All, patience: 1000, priority: None };
    let (mut send, mut recv) = theirs.split();
    let meta = Reply::Data { rows: 1 }.encode();
    let head = |sequence: u64| OutFrame { sequence, fingerprint: table, meta: &meta, ..OutFrame::new(Kind::TABLE_REPLY) };
    let first = line.ask(&get, &[], &*reach, soon()).expect("asked");
    recv.head(soon()).expect("the first question");
    send.begin(&OutFrame { payload: &[&[7; 1000]], ..head(0) }, BYTES as u64, soon()).expect("half of an answer");
    let mut out = vec![0; BYTES];
    let mut arrival = first.reply("get", &*reach, soon()).expect("it begins");
    let called_off = arrival.read("get", &mut out, &*reach, soon().with_interrupt(|| true)).expect_err("the rest does not come");
    assert_eq!(called_off.kind(), ErrorKind::Interrupted, "{called_off}");
    drop(arrival);
    drop(first);
    let second = line.ask(&get, &[], &*reach, soon()).expect("the line is as good as it was");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            send.piece(&vec![7; BYTES - 1000], soon()).expect("the rest of the first answer");
            send.send(&OutFrame { payload: &[&vec![9; BYTES]], ..head(1) }, soon()).expect("the second answer");
        });
        second.reply("get", &*reach, soon()).expect("the second reply").read("get", &mut out, &*reach, soon()).expect("its bytes");
    });
    assert!(out.iter().all(|byte| *byte == 9));
}

#[test]
fn what_is_left_of_an_add_goes_on_after_a_call_that_came_by_was_called_off() {
    const BYTES: usize = 24 << 20; // more than the buffers of a socket take
    let (hub, table) = (Hub::new(Duration::from_secs(20), false), Fingerprint::of("table").finish());
    let ((ours, theirs), reach) = (pair(), hub.seat(0));
    let mut line = Line::new(ours, 1, table, "table `t`", Gates::default().to(1));
    let add = Request::Add { sequence: 1, rows: Rows::All, options: AddOptions::default(), hold: None, patience: 1000 };
    let large: Vec<u8> = (0..BYTES).map(|at| (at / 1000) as u8).collect();
    let mut gone = line.offer(&add, Some(1), &[], &large, Duration::ZERO, &*reach, soon()).expect("it begins");
    let passers = [(soon().with_interrupt(|| true), ErrorKind::Interrupted), (Deadline::after(Duration::ZERO), ErrorKind::Timeout)];
    for (by, kind) in passers {
        let (more, stopped) = line.more("add", &large[gone..], &*reach, by);
        assert_eq!(stopped.expect_err("nobody reads").kind(), kind);
        gone += more;
    }
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (_, mut recv) = theirs.split();
            recv.head(soon()).expect("the add");
            recv.body(soon()).expect("all of it")
        });
        line.rest("add", &large[gone..], &*reach, soon()).expect("the line is as good as it was");
        assert!(reader.join().expect("no panic") == large);
    });
}

#[test]
fn who_shares_a_link_that_another_thread_left_in_the_middle_of_a_frame_blames_nobody_who_lives() {
    let (hub, table) = (Hub::new(Duration::from_secs(20), false), Fingerprint::of("table").finish());
    let ((ours, theirs), reach) = (pair(), hub.seat(0));
    let mut line = Line::new(ours, 1, table, "table `t`", Gates::default().to(1));
    let get = Request::Get { own_adds: 0, rows: Rows::All, patience: 1000, priority: None };
    let add = Request::Add { sequence: 1, rows: Rows::All, options: AddOptions::default(), hold: None, patience: 1000 };
    let question = line.ask(&get, &[], &*reach, soon()).expect("asked");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| question.reply("get", &*reach, soon()).map(drop));
        let large = vec![1; 24 << 20];
        let called_off = line.tell(&add, Some(1), &[&large], &*reach, soon().with_interrupt(|| true)).expect_err("nobody reads");
        assert_eq!(called_off.kind(), ErrorKind::Interrupted, "{called_off}");
        drop(theirs); // a server that is sent half a frame closes the link
        let told = waiting.join().expect("no panic").expect_err("there is no link any more");
        assert_eq!(told.kind(), ErrorKind::System, "{told}");
    });
    let told = line.ask(&get, &[], &*reach, soon()).map(drop).expect_err("nor later");
    assert_eq!(told.kind(), ErrorKind::System, "{told}");
}

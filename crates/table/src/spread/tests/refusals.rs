//! Refusals of adds that nobody waited for, also from a server that is played by hand.

use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use syncline_cluster::{Error, ErrorKind};
use syncline_transport::{OutFrame, RecvHalf, SendHalf};
use syncline_wire::{Fingerprint, Kind};

use super::world::{FIRST_SERVER, Plan, World, bytes, numbers, soon};
use crate::spread::messages::{Bounds, Refusal, Reply, Request};
use crate::{AddOptions, Consistency};

const PLAIN: AddOptions = AddOptions { learning_rate: None, momentum: None, rho: None, lambda: None };

/// A server that answers what the test wants, when it wants.
struct Played {
    table: Fingerprint,
    send: Box<dyn SendHalf>,
    recv: Box<dyn RecvHalf>,
}

impl Played {
    /// The server of the only share, which the world must believe to be in worker 0's memory.
    fn new(world: &World) -> Played {
        let link = world.hub.seat(FIRST_SERVER).link(0, world.places.lane(0, 0), soon()).expect("worker 0 has asked for it");
        let (send, recv) = link.split();
        Played { table: world.places.table, send, recv }
    }

    /// The number of the next request, and what it is.
    fn hear(&mut self) -> (u64, Request) {
        let head = self.recv.head(soon()).expect("a request");
        let bounds = Bounds { row_bytes: 24, rows: Some(2), floats: false };
        (head.header.sequence, Request::decode(&head.meta, head.header.payload_len, &bounds).expect("a good one"))
    }

    /// The number of the next request, which must be the add of this number.
    fn hear_add(&mut self, wanted: u64) -> u64 {
        match self.hear() {
            (number, Request::Add { sequence, .. }) if sequence == wanted => number,
            (_, other) => panic!("{other:?} instead of add {wanted}"),
        }
    }

    fn answer(&mut self, number: u64, reply: &Reply, payload: &[u8]) {
        let (meta, payload) = (reply.encode(), [payload]);
        let frame =
            OutFrame { sequence: number, fingerprint: self.table, meta: &meta, payload: &payload, ..OutFrame::new(Kind::TABLE_REPLY) };
        self.send.send(&frame, soon()).expect("it reads");
    }

    fn refuse(&mut self, number: u64, why: &str) {
        let error = Error::ContractMismatch { operation: "add".into(), detail: why.into() };
        self.answer(number, &Reply::Refused(Refusal::of(&error)), &[]);
    }
}

#[test]
fn a_refusal_that_an_interrupted_call_came_upon_is_told_by_the_next_and_its_number_is_free() {
    let world = Plan { here: vec![Some(0)], ..Plan::new(&[0..2], 1, Consistency::Async) }.build();
    let table = world.open(0, None);
    let mut server = Played::new(&world);
    let row = bytes(&[1, 1, 1]);
    for _ in 0..2 {
        table.add(&row, Some(&[0]), &PLAIN, false, soon()).expect("on its way");
    }
    let (first, second) = (server.hear_add(1), server.hear_add(2));
    server.refuse(first, "no room");
    let mut out = vec![0; 48];
    // The reply to the second add is missing, so there is something to be interrupted in.
    let interrupted = table.get(&mut out, None, soon().with_interrupt(|| true)).expect_err("it is called off");
    assert_eq!(interrupted.kind(), ErrorKind::Interrupted, "{interrupted}");
    server.refuse(second, "add 1 is missing");
    let told = table.get(&mut out, None, soon()).expect_err("the refusal was not told yet");
    assert!(told.to_string().contains("no room"), "{told}");
    table.add(&row, Some(&[0]), &PLAIN, false, soon()).expect("on its way");
    let _orphan = server.hear();
    let third = server.hear_add(1);
    server.answer(third, &Reply::Done, &[]);
    drop(table);
    world.end();
}

#[test]
fn nobody_waits_for_a_round_with_an_add_that_was_refused() {
    for wait in [false, true] {
        let world = Plan::new(&[0..2], 2, Consistency::Sync).build();
        let (one, two) = (world.open(0, None), world.open(1, None));
        let (mut out, row, started) = (vec![0; 48], bytes(&[1, 1, 1]), Instant::now());
        let mood = &world.naive[0].moods.stages_fail;
        mood.store(true, SeqCst);
        let added = one.add(&row, Some(&[0]), &PLAIN, wait, soon());
        let told = if wait { added } else { added.and_then(|()| one.get(&mut out, None, soon())) };
        let told = told.expect_err("it was refused");
        assert!(told.to_string().contains("there is no room"), "{told}");
        assert!(started.elapsed() < Duration::from_secs(10), "that takes no time: {:?}", started.elapsed());
        mood.store(false, SeqCst);
        for table in [&one, &two] {
            table.add(&row, Some(&[1]), &PLAIN, false, soon()).expect("the number is free");
        }
        one.get(&mut out, None, soon()).expect("a round");
        assert_eq!(numbers(&out), [0, 0, 0, 2, 2, 2]);
        drop((one, two));
        world.end();
    }
}

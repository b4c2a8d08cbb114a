//! Time that was spent waiting for others is not taken from the time that a worker has to send or to read.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use syncline_transport::OutFrame;
use syncline_wire::Kind;

use super::world::{Plan, bytes, numbers, soon};
use crate::spread::messages::{Reply, Request, Rows};
use crate::{AddOptions, Consistency};

const PLAIN: AddOptions = AddOptions { learning_rate: None, momentum: None, rho: None, lambda: None };
/// What anybody may take to read or to send a piece of something.
const LIMIT: Duration = Duration::from_millis(300);
/// Rows of 24 bytes: more than the buffers of a socket take, so that sending them takes a while.
const ROWS: u64 = 600_000;

#[test]
fn a_get_that_waited_long_for_others_is_answered_all_the_same() {
    let world = Plan { timeout: LIMIT, sockets: true, ..Plan::new(&[0..ROWS], 2, Consistency::Sync) }.build();
    let (one, two) = (world.open(0, None), world.open(1, None));
    one.add(&bytes(&[1; 3]), Some(&[0]), &PLAIN, false, soon()).expect("on its way");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let mut out = vec![0; ROWS as usize * 24];
            one.get(&mut out, None, soon()).map(|()| numbers(&out[..24]))
        });
        std::thread::sleep(2 * LIMIT);
        two.add(&bytes(&[2; 3]), Some(&[0]), &PLAIN, false, soon()).expect("on its way");
        assert_eq!(waiting.join().expect("no panic").expect("the server lives"), [3, 3, 3]);
    });
    drop((one, two));
    world.end();
}

#[test]
fn an_add_for_which_room_was_found_late_is_taken_over_all_the_same() {
    let limit = Duration::from_secs(1);
    let world = Plan { timeout: limit, ..Plan::new(&[0..1], 1, Consistency::Async) }.build();
    let link = world.hub.seat(0).link(world.places.server_of(0, 0), world.places.lane(0, 0), soon()).expect("a link");
    let (mut send, mut recv) = link.split();
    let mood = &world.naive[0].moods.stages_wait;
    mood.store(true, SeqCst);
    let meta = Request::Add { sequence: 1, rows: Rows::All, options: PLAIN, hold: None, patience: 60_000 }.encode();
    let (row, table) = (bytes(&[1, 2, 3]), world.places.table);
    let begun = OutFrame { meta: &meta, fingerprint: table, payload: &[&row[..10]], ..OutFrame::new(Kind::TABLE_REQUEST) };
    send.begin(&begun, 24, soon()).expect("it begins");
    std::thread::sleep(limit * 3 / 2);
    mood.store(false, SeqCst);
    std::thread::sleep(limit / 20); // the server waits for the rest, and has only begun to
    send.piece(&row[10..], soon()).expect("the server lives");
    let head = recv.head(soon()).expect("an answer");
    assert_eq!(Reply::decode(&head.meta).expect("a reply"), Reply::Done);
    send.send(&OutFrame::new(Kind::GOODBYE), soon()).expect("the end");
    world.end();
}

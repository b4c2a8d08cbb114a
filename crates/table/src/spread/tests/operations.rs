//! Every operation of a table with parts elsewhere, over links in memory.

use std::time::Duration;

use syncline_cluster::{Deadline, Error, ErrorKind};
use syncline_tensor::DType;
use syncline_testkit::ranks::eventually;
use syncline_testkit::sim::Chance;
use syncline_transport::OutFrame;
use syncline_wire::Kind;

use super::world::{Plan, World, bytes, numbers, soon};
use crate::spread::line::Line;
use crate::spread::messages::{Hold, Reply, Request, Rows};
use crate::{AddOptions, Consistency};

const PLAIN: AddOptions = AddOptions { learning_rate: None, momentum: None, rho: None, lambda: None };

/// One worker's program of random operations against a vector that does the same.
fn one_worker_agrees_with_a_vector(seed: u64, ranges: &[std::ops::Range<u64>], here: Option<usize>, consistency: Consistency) {
    let mut chance = Chance::new(seed);
    let plan = Plan { here: vec![here], ..Plan::new(ranges, 1, consistency) };
    let (world, rows) = (plan.build(), ranges.last().expect("some").end as usize);
    let table = world.open(0, here);
    let mut model = vec![0i64; rows * 3];
    for step in 0..60 {
        let ids: Option<Vec<i64>> =
            (chance.below(2) == 0 && rows > 0).then(|| (0..chance.below(6)).map(|_| chance.below(rows as u64) as i64).collect());
        let places: Vec<usize> = ids.as_ref().map_or_else(|| (0..rows).collect(), |ids| ids.iter().map(|id| *id as usize).collect());
        let delta: Vec<i64> = (0..places.len() * 3).map(|_| chance.below(1000) as i64).collect();
        let mut out = vec![0; delta.len() * 8];
        let what = chance.below(5);
        if what < 3 {
            for (place, row) in places.iter().zip(delta.chunks(3)) {
                model[place * 3..][..3].iter_mut().zip(row).for_each(|(held, new)| *held += new);
            }
        }
        match what {
            0 => table.add(&bytes(&delta), ids.as_deref(), &PLAIN, false, soon()).unwrap(),
            1 => table.add(&bytes(&delta), ids.as_deref(), &PLAIN, true, soon()).unwrap(),
            2 => table.add_get(&bytes(&delta), &mut out, ids.as_deref(), &PLAIN, soon()).unwrap(),
            3 => table.get(&mut out, ids.as_deref(), soon()).unwrap(),
            _ => {
                table.settle(soon()).unwrap();
                let stored: Vec<u8> = world
                    .shares
                    .iter()
                    .flat_map(|share| {
                        let held = share.rows();
                        let mut lane = vec![0; (held.end - held.start) as usize * 24];
                        share.read_lane(0, held.start, &mut lane, soon()).unwrap();
                        lane
                    })
                    .collect();
                assert_eq!(numbers(&stored), model, "seed {seed} step {step}: settled");
            }
        }
        if what == 2 || what == 3 {
            let expected: Vec<i64> = places.iter().flat_map(|place| model[place * 3..][..3].to_vec()).collect();
            assert_eq!(numbers(&out), expected, "seed {seed} step {step}: {ids:?}");
        }
    }
    table.finish(soon()).unwrap();
    drop(table);
    world.end();
}

#[test]
fn one_worker_reads_its_writes_wherever_the_rows_are() {
    let layouts: [&[std::ops::Range<u64>]; 5] = [&[0..7], &[0..4, 4..9], &[0..1, 1..1, 1..12], &[0..0], &[0..5, 5..6, 6..8]];
    for (seed, ranges) in (0..40).zip(layouts.iter().cycle()) {
        let here = [None, Some(0), Some(ranges.len() - 1)][seed as usize % 3];
        let consistency = [Consistency::Async, Consistency::Sync, Consistency::Bounded(1)][seed as usize / 3 % 3];
        one_worker_agrees_with_a_vector(seed, ranges, here, consistency);
    }
}

#[test]
fn large_adds_are_queued_one_at_a_time_and_none_is_lost() {
    for ranges in [&[0..200_000][..], &[0..100_000, 100_000..200_000]] {
        let plan = Plan { cols: 5, sockets: true, ..Plan::new(ranges, 1, Consistency::Async) };
        let world = plan.build();
        let table = world.open(0, None);
        let ones = bytes(&vec![1; 1_000_000]);
        for _ in 0..5 {
            table.add(&ones, None, &PLAIN, false, soon()).unwrap();
        }
        table.add(&bytes(&[1, 2, 3, 4, 5]), Some(&[7]), &PLAIN, false, soon()).unwrap();
        let mut out = vec![0; ones.len()];
        table.get(&mut out, None, soon()).unwrap();
        let got = numbers(&out);
        assert_eq!(got[35..40], [6, 7, 8, 9, 10]);
        assert!(got[..35].iter().chain(&got[40..]).all(|value| *value == 5));
        drop(table);
        world.end();
    }
}

#[test]
fn the_ith_get_of_every_worker_has_the_same_bytes_in_sync_mode() {
    for seed in 0..6 {
        let plan = Plan { dtype: DType::F32, here: vec![None, Some(0), None], ..Plan::new(&[0..5, 5..8], 3, Consistency::Sync) };
        let world = plan.build();
        let seen = syncline_testkit::ranks::threads(3, |worker| {
            let table = world.open(worker as u32, plan.here[worker]);
            let mut chance = Chance::new(seed * 10 + worker as u64);
            let gets: Vec<Vec<u8>> = (0..15)
                .map(|round| {
                    let row = chance.below(8) as i64;
                    let delta: Vec<u8> = (0..3).flat_map(|_| (chance.bits() as f32 / 1e18).to_le_bytes()).collect();
                    table.add(&delta, Some(&[row]), &PLAIN, false, soon()).unwrap();
                    let mut out = vec![0; 8 * 3 * 4];
                    if round % 3 == 0 {
                        table.get(&mut out, Some(&[0, 1, 2, 3, 4, 5, 6, 7]), soon()).unwrap();
                    } else {
                        table.get(&mut out, None, soon()).unwrap();
                    }
                    out
                })
                .collect();
            table.finish(soon()).unwrap();
            gets
        });
        assert_eq!(seen[0], seen[1], "seed {seed}");
        assert_eq!(seen[0], seen[2], "seed {seed}");
        world.end();
    }
}

#[test]
fn only_what_others_changed_comes_back() {
    let world = Plan::new(&[0..3, 3..6], 2, Consistency::Async).build();
    let (one, two) = (world.open(0, None), world.open(1, None));
    let mut view = vec![0; 6 * 24];
    assert_eq!(one.get_changed(&mut view, soon()).unwrap(), [0, 1, 2, 3, 4, 5], "the first call brings everything");
    assert_eq!(one.get_changed(&mut view, soon()).unwrap(), [] as [i64; 0]);
    two.add(&bytes(&[1, 1, 1, 2, 2, 2]), Some(&[4, 1]), &PLAIN, true, soon()).unwrap();
    one.add(&bytes(&[5, 5, 5]), Some(&[0]), &PLAIN, true, soon()).unwrap();
    assert_eq!(one.get_changed(&mut view, soon()).unwrap(), [1, 4]);
    let view = numbers(&view);
    assert_eq!(
        (&view[3..6], &view[12..15], &view[..3]),
        (&[2, 2, 2][..], &[1, 1, 1][..], &[0, 0, 0][..]),
        "its own add does not come back"
    );
    assert_eq!(one.clocks(soon()).unwrap(), [1, 1]);
    drop((one, two));
    world.end();
}

#[test]
fn lanes_are_copied_across_the_borders_of_shares() {
    let world = Plan::new(&[0..3, 3..3, 3..8], 1, Consistency::Async).build();
    let table = world.open(0, None);
    let values: Vec<i64> = (0..24).collect();
    table.write_lane(0, 0, &bytes(&values), soon()).unwrap();
    table.write_lane(0, 2, &bytes(&[-1; 6]), soon()).unwrap();
    let mut out = vec![0; 5 * 24];
    table.read_lane(0, 1, &mut out, soon()).unwrap();
    assert_eq!(numbers(&out), [3, 4, 5, -1, -1, -1, -1, -1, -1, 12, 13, 14, 15, 16, 17]);
    for (lane, first, len) in [(1, 0, 24), (0, 8, 24), (0, 7, 48), (0, 0, 23)] {
        assert!(table.read_lane(lane, first, &mut out[..len], soon()).is_err());
    }
    drop(table);
    world.end();
}

#[test]
fn bad_calls_are_told_at_once_and_change_nothing() {
    let world = Plan::new(&[0..3, 3..6], 1, Consistency::Async).build();
    let table = world.open(0, None);
    let mut out = vec![0; 6 * 24];
    let kind = |result: Result<(), Error>| result.expect_err("a bad call").kind();
    assert_eq!(kind(table.add(&bytes(&[1]), None, &PLAIN, false, soon())), ErrorKind::ShapeMismatch);
    assert_eq!(kind(table.get(&mut out[..9], Some(&[1]), soon())), ErrorKind::ShapeMismatch);
    for bad in [-1, 6, i64::MIN, i64::MAX] {
        assert_eq!(kind(table.add(&bytes(&[1; 6]), Some(&[0, bad]), &PLAIN, false, soon())), ErrorKind::UnknownKey);
        assert_eq!(kind(table.get(&mut out[..48], Some(&[bad, 0]), soon())), ErrorKind::UnknownKey);
    }
    table.get(&mut out, None, soon()).unwrap();
    assert!(out.iter().all(|byte| *byte == 0));
    drop(table);
    world.end();
}

#[test]
fn a_wait_that_ends_names_the_worker_and_leaves_the_table_usable() {
    let world = Plan::new(&[0..3], 2, Consistency::Sync).build();
    let (one, two) = (world.open(0, None), world.open(1, None));
    one.add(&bytes(&[1, 1, 1]), Some(&[0]), &PLAIN, false, soon()).unwrap();
    let mut out = vec![0; 3 * 24];
    let error = one.get(&mut out, None, Deadline::after(Duration::from_millis(50))).expect_err("worker 1 has not come");
    assert_eq!((error.kind(), error.who().map(|who| who.rank)), (ErrorKind::Timeout, Some(1)));
    two.add(&bytes(&[2, 2, 2]), Some(&[0]), &PLAIN, false, soon()).unwrap();
    one.get(&mut out, None, soon()).unwrap();
    assert_eq!(numbers(&out)[..3], [3, 3, 3]);
    drop((one, two));
    world.end();
}

#[test]
fn what_an_interrupted_question_for_changes_had_been_told_is_told_again() {
    let world = Plan::new(&[0..3, 3..6], 2, Consistency::Sync).build();
    let (one, two) = (world.open(0, None), world.open(1, None));
    let mut view = vec![0; 6 * 24];
    assert_eq!(one.get_changed(&mut view, soon()).unwrap().len(), 6);
    one.add(&bytes(&[0, 0, 0]), Some(&[0]), &PLAIN, false, soon()).unwrap();
    one.get_changed(&mut view, soon().with_interrupt(|| true)).expect_err("the round is not complete, and the user is tired of it");
    two.add(&bytes(&[2, 2, 2, 4, 4, 4]), Some(&[1, 4]), &PLAIN, true, soon()).unwrap();
    assert_eq!(one.get_changed(&mut view, soon()).unwrap(), [1, 4], "the servers answered, and nobody listened");
    assert_eq!(one.get_changed(&mut view, soon()).unwrap(), [] as [i64; 0]);
    drop((one, two));
    world.end();
}

/// A worker that speaks the protocol by hand.
pub(super) struct Hand {
    pub(super) lines: Vec<Line>,
}

impl Hand {
    pub(super) fn new(world: &World, worker: u32) -> Hand {
        let reach = world.hub.seat(worker);
        let line = |share: usize| {
            let server = world.places.server_of(share, worker);
            Line::new(
                reach.link(server, world.places.lane(share, worker), soon()).unwrap(),
                server,
                world.places.table,
                &world.places.name,
                Default::default(),
            )
        };
        Hand { lines: (0..world.shares.len()).map(line).collect() }
    }

    pub(super) fn ask(&mut self, world: &World, share: usize, request: &Request, payload: &[u8]) -> Result<Reply, Error> {
        let reach = world.hub.seat(0);
        let question = self.lines[share].ask(request, &[payload], &*reach, soon())?;
        question.reply("test", &*reach, soon()).map(|arrival| arrival.reply.clone())
    }
}

fn held(sequence: u64, primary: u32) -> Request {
    Request::Add { sequence, rows: Rows::Listed(1), options: PLAIN, hold: Some(Hold { primary, sequence: 1 }), patience: 1000 }
}

#[test]
fn an_add_that_a_dead_worker_left_counts_everywhere_or_nowhere() {
    for committed in [false, true] {
        let world = Plan::new(&[0..2, 2..4, 4..6], 2, Consistency::Async).build();
        let mut dying = Hand::new(&world, 0);
        for share in 0..3 {
            let row = bytes(&[share as i64 * 2, 7, 7, 7]);
            assert_eq!(dying.ask(&world, share, &held(1, 1), &row).unwrap(), Reply::Staged);
        }
        if committed {
            assert_eq!(dying.ask(&world, 1, &Request::Commit { sequence: 1 }, &[]).unwrap(), Reply::Done);
        }
        world.hub.lose(0);
        let other = world.open(1, None);
        let mut out = vec![0; 6 * 24];
        let mut sum = || {
            other.get(&mut out, None, soon()).unwrap();
            numbers(&out).iter().sum::<i64>()
        };
        if committed {
            eventually("the verdict", Duration::from_secs(5), || sum() == 63);
        }
        drop(dying);
        let shares = world.shares.clone();
        let final_sum = sum();
        drop(other);
        world.end(); // returns when the estate is settled
        assert_eq!(final_sum, if committed { 63 } else { 0 });
        assert!(shares.iter().all(|share| share.published(0) == u64::from(committed)));
    }
}

#[test]
fn a_worker_that_dies_long_after_its_link_is_buried_all_the_same() {
    let timeout = Duration::from_millis(50);
    let world = Plan { timeout, ..Plan::new(&[0..2], 2, Consistency::Sync) }.build();
    let mut hand = Hand::new(&world, 0);
    assert_eq!(hand.ask(&world, 0, &held(1, 0), &bytes(&[0, 7, 7, 7])).unwrap(), Reply::Staged);
    drop(hand); // without a goodbye
    std::thread::sleep(3 * timeout); // longer than anybody waits for anything here
    assert_eq!(world.shares[0].unfinished(), [0, 1], "it is there, as far as anybody knows");
    world.hub.lose(0);
    eventually("it is buried", Duration::from_secs(20), || world.shares[0].unfinished() == [1]);
    drop(world.open(1, None));
    let share = std::sync::Arc::clone(&world.shares[0]);
    world.end();
    assert_eq!(share.published(0), 0, "what it held counts nowhere");
}

#[test]
fn a_bad_request_is_refused_and_the_next_one_served() {
    let world = Plan::new(&[0..2], 1, Consistency::Async).build();
    let mut hand = Hand::new(&world, 0);
    let refused = |reply: Result<Reply, Error>| assert_eq!(reply.expect_err("refused").kind(), ErrorKind::ContractMismatch);
    refused(hand.ask(&world, 0, &held(3, 0), &bytes(&[0, 1, 1, 1])));
    refused(hand.ask(&world, 0, &held(1, 0), &bytes(&[0, 1, 1])));
    refused(hand.ask(&world, 0, &Request::Commit { sequence: 1 }, &[]));
    refused(hand.ask(&world, 0, &Request::Export, &[]));
    refused(hand.ask(&world, 0, &Request::ReadLane { lane: 9, first_row: 0, rows: 1, patience: 1 }, &[]));
    refused(hand.ask(&world, 0, &Request::ReadLane { lane: 0, first_row: 1, rows: u64::MAX, patience: 1 }, &[]));
    refused(hand.ask(&world, 0, &Request::WriteLane { lane: 0, first_row: 0, patience: 1 }, &[1, 2, 3]));
    let unknown = Request::Add { sequence: 1, rows: Rows::Listed(1), options: PLAIN, hold: None, patience: 1000 };
    assert_eq!(hand.ask(&world, 0, &unknown, &bytes(&[99, 1, 1, 1])).expect_err("no such row").kind(), ErrorKind::UnknownKey);
    assert_eq!(hand.ask(&world, 0, &unknown, &bytes(&[1, 1, 1, 1])).unwrap(), Reply::Done);
    assert_eq!(hand.ask(&world, 0, &unknown, &bytes(&[1, 1, 1, 1])).unwrap(), Reply::Done, "a repeated number is dropped");
    let mut lane = vec![0; 48];
    world.shares[0].read_lane(0, 0, &mut lane, soon()).unwrap();
    assert_eq!(numbers(&lane), [0, 0, 0, 1, 1, 1]);
    hand.lines[0].goodbye();
    world.end();
}

#[test]
fn of_two_held_adds_with_one_number_the_second_counts() {
    let world = Plan::new(&[0..2], 1, Consistency::Async).build();
    let mut hand = Hand::new(&world, 0);
    for value in [1, 5] {
        assert_eq!(hand.ask(&world, 0, &held(1, 0), &bytes(&[0, value, value, value])).unwrap(), Reply::Staged);
    }
    assert_eq!(hand.ask(&world, 0, &Request::Commit { sequence: 1 }, &[]).unwrap(), Reply::Done);
    assert_eq!(hand.ask(&world, 0, &held(2, 0), &bytes(&[1, 9, 9, 9])).unwrap(), Reply::Staged);
    let at_once = Request::Add { sequence: 2, rows: Rows::Listed(1), options: PLAIN, hold: None, patience: 1000 };
    assert_eq!(hand.ask(&world, 0, &at_once, &bytes(&[1, 2, 2, 2])).unwrap(), Reply::Done);
    let mut lane = vec![0; 48];
    world.shares[0].read_lane(0, 0, &mut lane, soon()).unwrap();
    assert_eq!(numbers(&lane), [5, 5, 5, 2, 2, 2]);
    hand.lines[0].goodbye();
    world.end();
}

#[test]
fn garbage_on_the_link_harms_nobody() {
    let world = Plan::new(&[0..2], 1, Consistency::Async).build();
    let reach = world.hub.seat(0);
    let mut link = reach.link(world.places.server_of(0, 0), world.places.lane(0, 0), soon()).unwrap();
    for meta in [&b""[..], &[255; 40], &[3]] {
        let frame = OutFrame { meta, fingerprint: world.places.table, payload: &[b"surplus"], ..OutFrame::new(Kind::TABLE_REQUEST) };
        link.send(&frame, soon()).unwrap();
        let head = link.head(soon()).unwrap();
        assert!(matches!(Reply::decode(&head.meta), Ok(Reply::Refused(_))));
    }
    link.send(&OutFrame::new(Kind::DATA), soon()).unwrap();
    let other_table = OutFrame { meta: &Request::Finish.encode(), ..OutFrame::new(Kind::TABLE_REQUEST) };
    link.send(&other_table, soon()).unwrap();
    assert!(matches!(Reply::decode(&link.head(soon()).unwrap().meta), Ok(Reply::Refused(_))));
    link.send(&OutFrame::new(Kind::GOODBYE), soon()).unwrap();
    world.end();
}

#[test]
fn an_add_that_nobody_waited_for_and_that_failed_is_told_once_and_its_number_used_again() {
    let world = Plan::new(&[0..2], 1, Consistency::Async).build();
    let table = world.open(0, None);
    let row = bytes(&[1, 1, 1]);
    table.add(&row, Some(&[0]), &PLAIN, true, soon()).unwrap();
    // Number 2 is used up behind the client's back, so that the server counts it as a repeat and number 3 is the next.
    world.shares[0].stage(0, 2, crate::share::Selection::Rows(&[]), &PLAIN, &mut |_| Ok(()), soon()).unwrap();
    world.shares[0].publish(0, 2).unwrap();
    for _ in 0..3 {
        table.add(&row, Some(&[1]), &PLAIN, false, soon()).unwrap();
    }
    let mut out = vec![0; 48];
    let error = table.get(&mut out, None, soon()).expect_err("the share refuses number 2");
    assert_eq!(error.kind(), ErrorKind::ContractMismatch);
    table.get(&mut out, None, soon()).expect("told once");
    assert_eq!(numbers(&out), [1, 1, 1, 0, 0, 0], "what came behind the refused add was refused with it");
    drop(table);
    world.end();
}

#[test]
fn a_server_that_is_gone_is_named_again_and_again() {
    let world = Plan::new(&[0..2, 2..4], 1, Consistency::Async).build();
    let table = world.open(0, None);
    world.hub.lose(super::world::FIRST_SERVER + 1);
    let mut out = vec![0; 96];
    for _ in 0..2 {
        let error = table.get(&mut out, None, soon()).expect_err("half of the table is gone");
        assert_eq!((error.kind(), error.who().map(|who| who.rank)), (ErrorKind::PeerLost, Some(super::world::FIRST_SERVER + 1)));
        let added = table.add(&bytes(&[1; 12]), None, &PLAIN, true, soon()).expect_err("nor can it be added to");
        assert_eq!(added.kind(), ErrorKind::PeerLost);
    }
    table.get(&mut out[..24], Some(&[0]), soon()).expect("the other half is there");
    assert!(out[..24].iter().all(|byte| *byte == 0), "the adds that failed changed nothing");
    world.hub.lose(0);
    drop(table);
    world.end();
}

//! Adds over several parts that were given up: their numbers are used again, and nothing of them comes back.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use syncline_cluster::{Deadline, ErrorKind};
use syncline_testkit::ranks::eventually;

use super::world::{Plan, World, bytes, numbers, soon};
use crate::{AddOptions, Consistency};

const PLAIN: AddOptions = AddOptions { learning_rate: None, momentum: None, rho: None, lambda: None };
/// So many rows of 24 bytes fill a queue in memory when its reader has looked at their header: not another word goes.
const FULL: u64 = 180_224;

fn moment() -> Deadline {
    Deadline::after(Duration::from_millis(50))
}

fn stages_wait(world: &World, share: usize, wait: bool) {
    world.naive[share].moods.stages_wait.store(wait, SeqCst);
}

#[test]
fn an_add_is_not_lost_in_the_number_of_one_whose_drop_could_not_be_sent() {
    let world = Plan::new(&[0..1, 1..1 + FULL], 1, Consistency::Async).build();
    let table = world.open(0, None);
    stages_wait(&world, 1, true);
    let all = bytes(&vec![1; 3 * (1 + FULL as usize)]);
    let late = table.add(&all, None, &PLAIN, true, moment()).expect_err("part 1 does not read on");
    assert_eq!(late.kind(), ErrorKind::Timeout, "{late}");
    stages_wait(&world, 1, false);
    table.add(&bytes(&[5; 3]), Some(&[1]), &PLAIN, true, soon()).expect("the number is free again");
    let mut out = vec![0; 3 * 24];
    table.get(&mut out, Some(&[0, 1, 2]), soon()).expect("all is well");
    assert_eq!(numbers(&out), [0, 0, 0, 5, 5, 5, 0, 0, 0]);
    drop(table);
    world.end();
}

#[test]
fn a_number_is_not_used_again_before_everybody_has_dropped_what_it_was_given_to() {
    let world = Plan::new(&[0..1, 1..2], 2, Consistency::Async).build();
    let (table, other) = (world.open(0, None), world.open(1, None));
    stages_wait(&world, 1, true);
    table.add(&bytes(&[1; 6]), None, &PLAIN, true, moment()).expect_err("part 1 is busy");
    let early = table.add(&bytes(&[5; 3]), Some(&[0]), &PLAIN, false, moment()).expect_err("it holds what was given up, or will");
    assert_eq!(early.kind(), ErrorKind::Timeout, "{early}");
    stages_wait(&world, 1, false);
    table.add(&bytes(&[7; 3]), Some(&[0]), &PLAIN, true, soon()).expect("now it is free");
    world.hub.lose(0);
    let mut out = vec![0; 2 * 24];
    eventually("it is buried", Duration::from_secs(20), || {
        let shares = &world.shares;
        shares.iter().all(|share| !share.unfinished().contains(&0))
    });
    other.get(&mut out, None, soon()).expect("the others go on");
    assert_eq!(numbers(&out), [7, 7, 7, 0, 0, 0], "nobody takes the half of one add for that of another");
    drop((table, other));
    world.end();
}

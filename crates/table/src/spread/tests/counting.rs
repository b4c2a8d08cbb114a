//! Adds that count although something went wrong behind them: they count once, everywhere, and nobody takes them for refused.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use syncline_cluster::ErrorKind;

use super::naive::Naive;
use super::world::{Plan, World, bytes, numbers, soon};
use crate::share::Share;
use crate::spread::Spread;
use crate::{AddOptions, Consistency};

const PLAIN: AddOptions = AddOptions { learning_rate: None, momentum: None, rho: None, lambda: None };

#[test]
fn an_add_that_counts_and_cannot_be_applied_yet_is_neither_refused_nor_written_over() {
    for (ranges, here) in [(&[0..4][..], None), (&[0..4], Some(0)), (&[0..2, 2..4], None), (&[0..2, 2..4], Some(0))] {
        let plan = Plan { here: vec![here], ..Plan::new(ranges, 1, Consistency::Async) };
        let world = plan.build();
        let table = world.open(0, here);
        let moods = |fails: bool| world.naive.iter().for_each(|share| share.moods.applying_fails.store(fails, SeqCst));
        moods(true);
        table.add(&bytes(&[1; 12]), None, &PLAIN, false, soon()).expect("it counts");
        table.deliver(soon()).expect("nobody refused it");
        moods(false);
        table.add(&bytes(&[10; 12]), None, &PLAIN, true, soon()).expect("the next number is free");
        let mut out = vec![0; 4 * 24];
        table.get(&mut out, None, soon()).expect("all is well");
        assert_eq!(numbers(&out), vec![11; 12], "{ranges:?}, {here:?}");
        assert_eq!(table.clocks(soon()).expect("the clocks"), [2]);
        drop(table);
        world.end();
    }
}

thread_local! {
    /// The share that decides about this thread's add.
    static PRIMARY: RefCell<Option<Arc<Naive>>> = const { RefCell::new(None) };
}

/// A user who is tired of waiting as soon as the add counts at its first part.
fn counts_at_the_primary() -> bool {
    PRIMARY.with_borrow(|share| share.as_ref().is_some_and(|share| share.published(0) == 1))
}

/// A worker whose add was called off after the first of two parts counted it, and before that part said so.
fn called_off_while_the_primary_decides() -> (World, Spread) {
    let world = Plan::new(&[0..2, 2..4], 1, Consistency::Async).build();
    let table = world.open(0, None);
    PRIMARY.set(Some(Arc::clone(&world.naive[0])));
    world.naive[0].moods.publishes_wait.store(true, SeqCst);
    let called_off = table.add(&bytes(&[1; 12]), None, &PLAIN, true, soon().with_interrupt(counts_at_the_primary));
    let called_off = called_off.expect_err("the first part has not answered");
    assert_eq!(called_off.kind(), ErrorKind::Interrupted, "{called_off}");
    assert_eq!([0, 1].map(|share| world.shares[share].published(0)), [1, 0]);
    world.naive[0].moods.publishes_wait.store(false, SeqCst);
    (world, table)
}

#[test]
fn an_add_that_was_called_off_while_it_was_decided_is_whole_for_whoever_comes_next() {
    let (world, table) = called_off_while_the_primary_decides();
    let mut out = vec![0; 4 * 24];
    table.get(&mut out, None, soon()).expect("the table is as good as it was");
    assert_eq!(numbers(&out), vec![1; 12]);
    table.add(&bytes(&[10; 12]), None, &PLAIN, false, soon()).expect("and goes on");
    table.get(&mut out, None, soon()).expect("as before");
    assert_eq!((numbers(&out), table.issued()), (vec![11; 12], 2));
    drop(table);
    world.end();
}

#[test]
fn who_leaves_after_calling_off_an_add_leaves_no_half_of_it() {
    let (world, table) = called_off_while_the_primary_decides();
    drop(table);
    world.hub.leave(0);
    let naive = world.naive.clone();
    world.end();
    assert!(naive.iter().all(|share| numbers(&share.values()) == vec![1; 6]), "it counted at the first part, so it counts at both");
}

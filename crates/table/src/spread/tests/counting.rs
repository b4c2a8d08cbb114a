//! Adds that count although something went wrong behind them: they count once, everywhere, and nobody takes them for refused.

use std::sync::atomic::Ordering::SeqCst;

use super::world::{Plan, bytes, numbers, soon};
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

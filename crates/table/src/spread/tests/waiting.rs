//! The order in which requests of one worker are answered that wait for others.

use syncline_cluster::Error;

use super::operations::Hand;
use super::world::{Plan, World, bytes, soon};
use crate::spread::Spread;
use crate::spread::messages::{Reply, Request, Rows};
use crate::spread::moving::receive_pairs;
use crate::spread::replies::Question;
use crate::{AddOptions, Consistency};

const PLAIN: AddOptions = AddOptions { learning_rate: None, momentum: None, rho: None, lambda: None };
/// Longer than a test takes, in milliseconds.
const LONG: u32 = 60_000;

/// A sync table of two rows, a worker that speaks by hand and has made so many adds, and another that has made none.
fn table(adds: u64) -> (World, Hand, Spread) {
    let world = Plan::new(&[0..2], 2, Consistency::Sync).build();
    let mut hand = Hand::new(&world, 0);
    for sequence in 1..=adds {
        let add = Request::Add { sequence, rows: Rows::Listed(0), options: PLAIN, hold: None, patience: LONG };
        assert_eq!(hand.ask(&world, 0, &add, &[]).expect("added"), Reply::Done);
    }
    let other = world.open(1, None);
    (world, hand, other)
}

fn asked(hand: &mut Hand, world: &World, request: &Request) -> Question {
    hand.lines[0].ask(request, &[], &*world.hub.seat(0), soon()).expect("asked")
}

fn add(other: &Spread, row: i64) {
    other.add(&bytes(&[1; 3]), Some(&[row]), &PLAIN, false, soon()).expect("on its way");
}

#[test]
fn a_get_does_not_wait_for_more_adds_than_were_made_when_it_was_called() {
    let (world, mut hand, other) = table(3);
    let get = |own_adds: u64| Request::Get { own_adds, rows: Rows::All, patience: LONG, priority: None };
    // Threads of one worker ask in the order in which their turns come.
    let questions = [3, 1, 2, 1].map(|own_adds| (own_adds, asked(&mut hand, &world, &get(own_adds))));
    for round in 1..=3 {
        add(&other, 0); // the other worker's next add depends on what it hears of these
        for (_, question) in questions.iter().filter(|(own_adds, _)| *own_adds == round) {
            let arrival = question.reply("get", &*world.hub.seat(0), soon()).expect("its round is there");
            assert_eq!(arrival.reply, Reply::Data { rows: 2 });
        }
    }
    hand.lines[0].goodbye();
    drop(other);
    world.end();
}

#[test]
fn changes_that_only_a_question_that_was_given_up_heard_of_are_told_again() {
    let (world, mut hand, other) = table(2);
    let reach = world.hub.seat(0);
    let changed = |own_adds: u64, received: u64| Request::Changed { own_adds, received, patience: LONG };
    let told = |question: &Question| receive_pairs(question, "get_changed", 24, &*reach, soon()).map(|(ids, _)| ids);
    add(&other, 0);
    other.deliver(soon()).expect("the first round is there");
    let given_up = asked(&mut hand, &world, &changed(2, 0));
    let again = asked(&mut hand, &world, &changed(1, 0));
    assert_eq!(told(&again).expect("everything is new to it"), [0, 1]);
    add(&other, 1);
    other.deliver(soon()).expect("the second round is there");
    let _: Result<Vec<i64>, Error> = told(&given_up); // whatever it is answered, nobody listens
    let next = asked(&mut hand, &world, &changed(2, 1));
    assert_eq!(told(&next).expect("the second round is there"), [1]);
    hand.lines[0].goodbye();
    drop(other);
    world.end();
}

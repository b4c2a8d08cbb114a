//! Queues: many writers and readers, leases, answers, and heirs of the dead.

use loom::sync::Arc;
use loom::thread;
use syncline_shm::queue::{DeathOver, Hand, Parcel, Pushed, Queue, Record};
use syncline_shm::wait::Deadline;

use crate::explore;

/// Nobody is dead, or everybody who is asked about.
fn hand(me: u32, is_dead: &dyn Fn(u32) -> bool) -> Hand<'_> {
    Hand { me, is_dead, by: Deadline::never() }
}

fn parcel<'a>(pieces: &'a [&'a [u8]]) -> Parcel<'a> {
    Parcel { flags: 0, meta_words: 0, pieces }
}

fn pop_wait(queue: &Queue, me: u32) -> Option<u8> {
    let alive = |_| false;
    let mut record = Record::default();
    loop {
        let closed = queue.is_closed();
        if queue.pop(&mut record, &|_| (), hand(me, &alive)).unwrap() {
            return Some(record.bytes[0]);
        }
        if closed {
            return None;
        }
        queue.wait_until(&|| queue.may_have_items() || queue.is_closed(), hand(me, &alive), &|| true).unwrap();
    }
}

#[test]
fn two_writers_and_a_reader_of_a_queue_lose_and_double_nothing() {
    // Two cells, three records of one cell: a writer has to wait for room, and all of them sleep.
    explore(2, || {
        let queue = Arc::new(Queue::private(1, 0, false));
        let writers: Vec<_> = [1_u8, 2]
            .into_iter()
            .map(|me| {
                let queue = Arc::clone(&queue);
                thread::spawn(move || {
                    let pieces: [&[u8]; 1] = [&[me]];
                    let pushed = queue.push_all(&[parcel(&pieces)], hand(me.into(), &|_| false), &|| true);
                    assert_eq!(pushed.unwrap(), Pushed::Some(1));
                })
            })
            .collect();
        let sum = pop_wait(&queue, 3).unwrap() + pop_wait(&queue, 3).unwrap();
        assert_eq!(sum, 3);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        assert!(queue.is_empty());
    });
}

#[test]
fn one_write_of_two_items_wakes_two_readers() {
    // Each takes one and no more: with one wake-up for both items the other sleeps for ever.
    explore(2, || {
        let queue = Arc::new(Queue::private(1, 0, false));
        let reader = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || pop_wait(&queue, 2).unwrap())
        };
        let writer = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                let (one, two): ([&[u8]; 1], [&[u8]; 1]) = ([&[1]], [&[2]]);
                let pushed = queue.push(&[parcel(&one), parcel(&two)], hand(1, &|_| false));
                assert_eq!(pushed.unwrap(), Pushed::Some(2));
            })
        };
        let mine = pop_wait(&queue, 3).unwrap();
        assert_eq!(mine + reader.join().unwrap(), 3);
        writer.join().unwrap();
    });
}

#[test]
fn a_queue_that_grows_loses_and_doubles_nothing() {
    // Two cells at first, which the second and third record fill again while the first is read.
    explore(2, || {
        let queue = Arc::new(Queue::private_growing(1, 2, 0, false));
        let writer = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                for n in 1..=3_u8 {
                    let pieces: [&[u8]; 1] = [&[n]];
                    assert_eq!(queue.push(&[parcel(&pieces)], hand(1, &|_| false)).unwrap(), Pushed::Some(1), "it grows");
                }
            })
        };
        for n in 1..=3 {
            assert_eq!(pop_wait(&queue, 2), Some(n));
        }
        writer.join().unwrap();
        assert!(queue.is_empty());
    });
}

/// Questions with one item, which member 7 has leased, and the queue of their answers.
fn asked() -> (std::sync::Arc<Queue>, std::sync::Arc<Queue>, u32) {
    let questions = std::sync::Arc::new(Queue::private(1, 0, true));
    let pieces: [&[u8]; 1] = [&[1]];
    questions.push(&[parcel(&pieces)], hand(9, &|_| false)).unwrap();
    let leased = questions.lease(&mut Record::default(), &|_| (), hand(7, &|_| false)).unwrap().unwrap();
    let answers = std::sync::Arc::new(Queue::private(2, 0, false).answering(std::sync::Arc::clone(&questions)));
    (questions, answers, leased.cell)
}

#[test]
fn an_answer_and_the_end_of_its_question_are_seen_together_or_not_at_all() {
    explore(2, || {
        let (questions, answers, cell) = asked();
        let worker = {
            let answers = std::sync::Arc::clone(&answers);
            thread::spawn(move || {
                let pieces: [&[u8]; 1] = [&[5]];
                assert_eq!(answers.answer(cell, &parcel(&pieces), hand(7, &|_| false)).unwrap(), Pushed::Some(1));
            })
        };
        questions.wait_until_finished(hand(9, &|_| false), &|| true).unwrap();
        let mut record = Record::default();
        assert!(answers.pop(&mut record, &|_| (), hand(9, &|_| false)).unwrap(), "an answer is published before its question ends");
        assert_eq!(record.bytes, [5]);
        worker.join().unwrap();
        let again = answers.answer(cell, &parcel(&[&[6]]), hand(7, &|_| false));
        assert!(again.is_err() && answers.is_empty(), "a question is answered once");
    });
}

/// A worker died over its answer. Somebody writes another answer, and inherits its latch, while somebody else buries it.
fn answered_by_the_dead(death: DeathOver) {
    explore(2, move || {
        let (questions, answers, cell) = asked();
        answers.die_over_answer(cell, &parcel(&[&[5]]), hand(7, &|_| false), death);
        let heir = {
            let answers = std::sync::Arc::clone(&answers);
            thread::spawn(move || {
                assert_eq!(answers.push(&[parcel(&[&[9]])], hand(1, &|member| member == 7)).unwrap(), Pushed::Some(1));
            })
        };
        answers.settle_the_dead(hand(2, &|member| member == 7)).unwrap();
        let came_back = questions.recover(7, hand(2, &|member| member == 7)).unwrap();
        heir.join().unwrap();
        let published = death != DeathOver::Intent;
        assert_eq!((came_back, questions.len(), questions.unfinished()), if published { (0, 0, 0) } else { (1, 1, 1) });
        assert_eq!(answers.len(), 1 + usize::from(published));
    });
}

#[test]
fn a_question_whose_answer_was_not_published_comes_back() {
    answered_by_the_dead(DeathOver::Intent);
}

#[test]
fn a_question_whose_answer_was_published_does_not_come_back() {
    answered_by_the_dead(DeathOver::Published);
}

#[test]
fn a_question_that_was_finished_by_the_dead_hinders_nobody() {
    answered_by_the_dead(DeathOver::Finished);
}

#[test]
fn a_writer_of_a_full_queue_is_not_forgotten() {
    explore(2, || {
        let queue = Arc::new(Queue::private(1, 1, false));
        let writer = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                let (one, two): ([&[u8]; 1], [&[u8]; 1]) = ([&[1]], [&[2]]);
                let pushed = queue.push_all(&[parcel(&one), parcel(&two)], hand(1, &|_| false), &|| true);
                assert_eq!(pushed.unwrap(), Pushed::Some(2));
            })
        };
        assert_eq!((pop_wait(&queue, 2), pop_wait(&queue, 2)), (Some(1), Some(2)));
        writer.join().unwrap();
    });
}

#[test]
fn a_closed_queue_wakes_its_reader_and_keeps_what_was_written_before() {
    explore(2, || {
        let queue = Arc::new(Queue::private(1, 0, false));
        let writer = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                let pieces: [&[u8]; 1] = [&[1]];
                queue.push(&[parcel(&pieces)], hand(1, &|_| false)).unwrap();
                queue.close(hand(1, &|_| false)).unwrap();
            })
        };
        assert_eq!((pop_wait(&queue, 2), pop_wait(&queue, 2)), (Some(1), None));
        writer.join().unwrap();
    });
}

#[test]
fn two_readers_of_a_leased_queue_never_have_the_same_item() {
    explore(2, || {
        let queue = Arc::new(Queue::private(2, 0, true));
        let (one, two): ([&[u8]; 1], [&[u8]; 1]) = ([&[1]], [&[2]]);
        queue.push(&[parcel(&one), parcel(&two)], hand(9, &|_| false)).unwrap();
        let reader = |me: u32| {
            let queue = Arc::clone(&queue);
            move || {
                let mut record = Record::default();
                let leased = queue.lease(&mut record, &|_| (), hand(me, &|_| false)).unwrap().expect("one each");
                queue.finish(leased.cell, hand(me, &|_| false)).unwrap();
                record.bytes[0]
            }
        };
        let other = thread::spawn(reader(1));
        let mine = reader(2)();
        assert_eq!(mine + other.join().unwrap(), 3);
        assert_eq!((queue.len(), queue.unfinished()), (0, 0));
    });
}

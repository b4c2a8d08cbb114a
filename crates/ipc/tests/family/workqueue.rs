//! Workqueues between threads; `processes` has the same between processes.

use syncline_ipc::{DType, Error, Family, Shape, Side, Taken, Value, Workqueue};

use crate::{as_int, int, soon};

fn echo(queue: &Workqueue) {
    while let Some(question) = queue.read(soon()).unwrap().item() {
        let value = question.value().clone();
        question.answer(&value, soon()).unwrap();
    }
}

#[test]
fn whatever_is_asked_comes_back_in_order() {
    let queue = Workqueue::new(&Family::alone().unwrap()).unwrap();
    let tensor = Value::tensor(DType::U8, Shape::new(&[100, 1_000]).unwrap(), vec![13; 100_000]).unwrap();
    let values = [
        Value::Nil,
        Value::Bool(true),
        Value::Float(42.13),
        Value::from("text"),
        Value::List(vec![int(1), Value::List(vec![int(2)])]),
        Value::Map(vec![(Value::from("k"), int(2))]),
        tensor,
    ];
    std::thread::scope(|scope| {
        scope.spawn(|| echo(&queue));
        for value in &values {
            queue.write(value, soon()).unwrap();
            let answer = queue.read(soon()).unwrap().item().unwrap();
            assert_eq!(answer.value(), value);
        }
        queue.close().unwrap();
    });
    assert!(matches!(queue.read(soon()).unwrap(), Taken::Over));
}

#[test]
fn an_answer_that_cannot_be_sent_gives_the_question_back() {
    let queue = Workqueue::new(&Family::alone().unwrap()).unwrap();
    let stranger = Workqueue::new(&Family::alone().unwrap()).unwrap();
    let worker = queue.as_worker();
    queue.write(&int(7), soon()).unwrap();
    let question = worker.read(soon()).unwrap().item().unwrap();
    let refused = question.answer(&stranger.handle(), soon());
    assert!(matches!(refused, Err(Error::Configuration { .. })), "{refused:?}");
    let again = worker.read(soon()).unwrap().item().unwrap();
    assert_eq!((as_int(again.value()), again.attempts()), (7, 1));
    again.answer(&int(49), soon()).unwrap();
    queue.drain(soon()).unwrap();
    assert_eq!(as_int(queue.read(soon()).unwrap().item().unwrap().value()), 49);
}

/// T7: items that a worker has taken and not finished are waited for.
#[test]
fn drain_waits_for_what_is_being_worked_on() {
    let queue = Workqueue::new(&Family::alone().unwrap()).unwrap();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..3).map(|_| scope.spawn(|| echo(&queue))).collect();
        for round in 0..50 {
            for number in 1..=13 {
                queue.write(&int(number), soon()).unwrap();
            }
            queue.drain(soon()).unwrap();
            let mut answers: Vec<i64> = (0..13).map(|_| as_int(queue.try_read().unwrap().item().unwrap().value())).collect();
            answers.sort_unstable();
            assert_eq!(answers, (1..=13).collect::<Vec<_>>(), "round {round}");
            assert!(matches!(queue.try_read().unwrap(), Taken::Nothing), "nothing, and that is no nil (T18)");
        }
        queue.close().unwrap();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}

#[test]
fn a_hundred_items_written_at_once_add_up() {
    let queue = Workqueue::new(&Family::alone().unwrap()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| echo(&queue));
        queue.write_all(&(1..=100).map(int).collect::<Vec<_>>(), soon()).unwrap();
        let sum: i64 = (0..100).map(|_| as_int(queue.read(soon()).unwrap().item().unwrap().value())).sum();
        assert_eq!(sum, 5_050);
        queue.close().unwrap();
    });
}

/// T11: handles of a named queue are counted like all others.
#[test]
fn a_name_is_made_once_and_ends_with_its_last_handle() {
    let family = Family::alone().unwrap();
    let (first, made) = Workqueue::named(&family, "work").unwrap();
    assert!(made);
    let (second, made) = Workqueue::named(&family, "work").unwrap();
    assert!(!made);
    let passed: Vec<Value<'_>> = (0..5).map(|_| first.handle()).collect();
    let opened: Vec<Workqueue> = passed.iter().map(|handle| Workqueue::open(&family, handle).unwrap()).collect();
    drop((passed, opened, second));
    first.write(&int(1), soon()).unwrap();
    assert_eq!(first.num_questions(), 1);
    drop(first);
    assert_eq!(family.stats().objects, 0);
    assert!(Workqueue::named(&family, "work").unwrap().1, "a new one");
    assert!(Workqueue::named(&family, "").is_err());
}

#[test]
fn the_thread_that_made_it_owns_it() {
    let queue = Workqueue::new(&Family::alone().unwrap()).unwrap();
    assert_eq!(queue.side(), Side::Owner);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!((queue.side(), queue.as_owner().side()), (Side::Worker, Side::Owner));
            let error = queue.drain(soon()).unwrap_err();
            assert_eq!(error.to_string(), "workqueue drain: workqueue drain is only available on the owner thread");
        });
    });
    queue.close().unwrap();
    assert!(matches!(queue.write(&int(1), soon()), Err(Error::Closed { .. })));
}

#[test]
fn what_a_panicking_worker_had_taken_goes_to_another() {
    let queue = Workqueue::new(&Family::alone().unwrap()).unwrap();
    let large = Value::from(vec![5_u8; 50_000]);
    queue.write(&large, soon()).unwrap();
    let worker = queue.as_worker();
    let kept = std::thread::scope(|scope| {
        let failed = scope.spawn(|| {
            let item = worker.read(soon()).unwrap().item().unwrap();
            std::panic::panic_any((item.attempts(), item.value().clone()).0);
        });
        failed.join().unwrap_err()
    });
    assert_eq!(kept.downcast_ref::<u32>(), Some(&0));
    let item = worker.read(soon()).unwrap().item().unwrap();
    assert!(item.attempts() == 1 && *item.value() == large);
    item.answer(&int(1), soon()).unwrap();
    assert_eq!(queue.read(soon()).unwrap().item().unwrap().id(), 0);
    assert_eq!(queue.family().stats().blocks, 0);
}

#[test]
fn what_another_thread_has_taken_may_come_back_to_a_closed_queue() {
    let queue = Workqueue::new(&Family::alone().unwrap()).unwrap();
    queue.write_all(&[int(1), int(2)], soon()).unwrap();
    queue.close().unwrap();
    let worker = queue.as_worker();
    let first = worker.read(soon()).unwrap().item().unwrap();
    let mine = worker.read(soon()).unwrap().item().unwrap();
    assert!(matches!(worker.try_read().unwrap(), Taken::Over), "what a thread has itself comes from nobody else");
    std::thread::scope(|scope| {
        let early = scope.spawn(|| worker.try_read().unwrap()).join().unwrap();
        assert!(matches!(early, Taken::Nothing), "{early:?}");
        let other = scope.spawn(|| {
            let item = worker.read(soon()).unwrap().item().expect("it came back");
            assert_eq!((as_int(item.value()), item.attempts()), (1, 1));
            item.answer(&int(10), soon()).unwrap();
            worker.read(soon()).unwrap()
        });
        // A thread that goes on without its item, however it does that.
        let failed = scope.spawn(move || {
            let _in_hand = first;
            std::panic::resume_unwind(Box::new(()));
        });
        failed.join().unwrap_err();
        while queue.num_answers() == 0 && !other.is_finished() {
            std::thread::yield_now();
        }
        mine.answer(&int(20), soon()).unwrap();
        assert!(matches!(other.join().unwrap(), Taken::Over));
    });
    queue.drain(soon()).unwrap();
    let answers: Vec<i64> = std::iter::from_fn(|| queue.read(soon()).unwrap().item()).map(|answer| as_int(answer.value())).collect();
    assert_eq!(answers, [10, 20]);
}

#[test]
fn an_answer_carries_the_number_of_its_question() {
    let queue = Workqueue::new(&Family::alone().unwrap()).unwrap();
    queue.write_all(&[int(10), int(20)], soon()).unwrap();
    let worker = queue.as_worker();
    let (first, second) = (worker.read(soon()).unwrap().item().unwrap(), worker.read(soon()).unwrap().item().unwrap());
    second.answer(&int(21), soon()).unwrap();
    first.answer(&int(11), soon()).unwrap();
    let answers: Vec<(u64, i64)> = (0..2)
        .map(|_| {
            let answer = queue.read(soon()).unwrap().item().unwrap();
            (answer.id(), as_int(answer.value()))
        })
        .collect();
    assert_eq!(answers, [(1, 21), (0, 11)]);
    queue.drain(soon()).unwrap();
}

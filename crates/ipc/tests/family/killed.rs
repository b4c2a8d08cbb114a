//! Processes that die: at every numbered moment of an operation, and at random.

use std::time::{Duration, Instant};

use syncline_ipc::{Channel, Deadline, Error, Family, Mutex, SharedTable, Taken, Value, Workqueue};

use crate::child::Kid;
use crate::roles::large;
use crate::{as_int, int, soon};

/// Runs a role that dies at moment 1, 2, 3 … until it comes through alive; `check` looks at what each left.
fn at_every_moment(stride: u64, mut check: impl FnMut(u64) -> bool) {
    let mut step = 1;
    while !check(step) {
        // The first moments are all different, later ones repeat what loops do.
        step += if step < 60 { 1 } else { stride };
        assert!(step < 5_000, "it never comes through");
    }
}

fn first_int(value: &Value<'_>) -> i64 {
    match value {
        Value::List(items) => as_int(&items[0]),
        value => as_int(value),
    }
}

#[test]
#[cfg(debug_assertions)]
fn a_writer_that_dies_anywhere_leaves_whole_items_in_order() {
    at_every_moment(37, |step| {
        let family = Family::alone().unwrap();
        let channel = Channel::new(&family).unwrap();
        let lives = Kid::start("write_until", &family, &[channel.handle().unwrap()], &[step]).ends_well();
        family.bury_the_dead();
        channel.write(&int(1_000), soon()).unwrap();
        let (_, items) = channel.read_many(1_000, soon()).unwrap();
        let numbers: Vec<i64> = items.iter().map(first_int).collect();
        let written = numbers.len() as i64 - 1;
        assert_eq!(numbers[..written as usize], (0..written).collect::<Vec<_>>(), "died at {step}");
        assert_eq!(numbers.last(), Some(&1_000));
        assert!(!lives || written == 80);
        drop(items);
        let left = family.stats();
        assert_eq!(left.blocks, 0, "died at {step}: {left:?}");
        assert_eq!(left.objects, 1, "died at {step}: {left:?}"); // Nor the one whose name was counted and not written.
        lives
    });
}

#[test]
#[cfg(debug_assertions)]
fn a_reader_that_dies_anywhere_takes_at_most_what_it_was_reading() {
    at_every_moment(1, |step| {
        let family = Family::alone().unwrap();
        let channel = Channel::new(&family).unwrap();
        channel.write_all(&[int(0), large(1), large(2), int(3), int(4)], soon()).unwrap();
        let lives = Kid::start("read_until", &family, &[channel.handle().unwrap()], &[step]).ends_well();
        family.bury_the_dead();
        channel.write(&int(5), soon()).unwrap();
        let (_, items) = channel.read_many(10, soon()).unwrap();
        let numbers: Vec<i64> = items.iter().map(first_int).collect();
        assert_eq!(numbers, (6 - numbers.len() as i64..6).collect::<Vec<_>>(), "died at {step}");
        drop(items);
        assert_eq!(family.stats().blocks, 0, "died at {step}");
        lives
    });
}

#[test]
#[cfg(debug_assertions)]
fn who_dies_over_the_end_of_a_channel_leaves_nothing_and_takes_nothing_from_others() {
    at_every_moment(1, |step| {
        let family = Family::alone().unwrap();
        let make = || Channel::new(&family).unwrap();
        let (doomed, said, go, kept) = (make(), make(), make(), make());
        kept.handle().unwrap(); // Only what lies in shared memory needs blocks.
        doomed.write_all(&[large(1), int(2), large(3), Value::List(vec![make().handle().unwrap(), large(4)])], soon()).unwrap();
        let mut kid = Kid::start("end_until", &family, &[doomed.handle().unwrap(), said.handle().unwrap(), go.handle().unwrap()], &[step]);
        said.read(soon()).unwrap();
        drop(doomed);
        go.write(&Value::Nil, soon()).unwrap();
        let lives = kid.ends_well();
        // Blocks that it freed are somebody else's by now.
        kept.write_all(&[large(5), large(6), large(7)], soon()).unwrap();
        family.bury_the_dead();
        let left = family.stats();
        assert_eq!((left.blocks, left.objects), (3, 3), "died at {step}: {left:?}");
        let (_, items) = kept.read_many(3, soon()).unwrap();
        assert!(items == [large(5), large(6), large(7)], "died at {step}");
        lives
    });
}

#[test]
#[cfg(debug_assertions)]
fn a_worker_that_dies_anywhere_leaves_every_question_answered_once() {
    at_every_moment(1, |step| answered_once_after_a_death_at(step, false));
}

#[test]
#[cfg(debug_assertions)]
fn whoever_writes_next_settles_what_a_dead_worker_had_begun() {
    at_every_moment(1, |step| answered_once_after_a_death_at(step, true));
}

/// Whether the worker came through. Its affairs are put in order by a burial, or first by somebody who writes into the same queue.
#[cfg(debug_assertions)]
fn answered_once_after_a_death_at(step: u64, written_before: bool) -> bool {
    const OTHER: i64 = -1;
    let family = Family::alone().unwrap();
    let queue = Workqueue::new(&family).unwrap();
    queue.write_all(&[int(0), large(1), int(2), large(3), int(4)], soon()).unwrap();
    let lives = Kid::start("answer_until", &family, &[queue.handle()], &[step]).ends_well();
    let worker = queue.as_worker();
    if written_before {
        worker.write(&int(OTHER), soon()).unwrap();
    }
    family.bury_the_dead();
    while let Taken::Item(item) = worker.try_read().unwrap() {
        let value = item.value().clone();
        item.answer(&value, soon()).unwrap();
    }
    queue.drain(soon()).unwrap();
    let mut answers = Vec::new();
    while let Taken::Item(answer) = queue.try_read().unwrap() {
        if first_int(answer.value()) != OTHER {
            assert_eq!(first_int(answer.value()), answer.id() as i64, "died at {step}");
            answers.push(answer.id());
        }
    }
    answers.sort_unstable();
    answers.dedup_by(|a, b| {
        assert_ne!(a, b, "died at {step}: answered twice");
        false
    });
    // The role finishes at most one question without an answer.
    assert!(answers.len() >= 4 && answers.len() <= 5, "died at {step}: {answers:?}");
    assert_eq!(family.stats().blocks, 0, "died at {step}");
    lives
}

#[test]
#[cfg(debug_assertions)]
fn a_table_and_a_mutex_survive_whoever_changes_them() {
    at_every_moment(11, |step| {
        let family = Family::alone().unwrap();
        let (mutex, table) = (Mutex::new(&family).unwrap(), SharedTable::new(&family).unwrap());
        let lives = Kid::start("change_until", &family, &[mutex.handle(), table.handle()], &[step]).ends_well();
        let recovered = mutex.lock(soon()).unwrap().recovered();
        assert!(!(lives && recovered));
        let pairs = table.pairs().unwrap();
        assert_eq!(pairs.len(), table.len().unwrap(), "died at {step}");
        let text = Value::from("y".repeat(20));
        assert!(pairs.iter().all(|(key, value)| matches!(key, Value::Str(_)) || *value == text), "died at {step}");
        for (key, value) in &pairs {
            assert_eq!(table.get(key).unwrap().as_ref(), Some(value), "died at {step}");
        }
        table.set(&int(7), &text).unwrap();
        assert_eq!(table.get(&int(7)).unwrap(), Some(text));
        lives
    });
}

#[test]
fn workers_killed_at_random_leave_every_question_answered_once() {
    let family = Family::alone().unwrap();
    let queue = Workqueue::new(&family).unwrap();
    let questions = 20_000_i64;
    let start = || Kid::start("square", &family, &[queue.handle()], &[]);
    let mut kids: Vec<Kid> = (0..3).map(|_| start()).collect();
    let mut seed = 0x9e37_79b9_u64;
    let (mut asked, mut kills) = (0, 0);
    let mut answered = vec![0_u8; questions as usize];
    let mut left = questions;
    let mut last_kill = Instant::now();
    while left > 0 {
        while asked < questions && queue.num_questions() < 500 {
            let value = if asked % 11 == 0 { large(asked) } else { int(asked) };
            queue.write(&value, soon()).unwrap();
            asked += 1;
        }
        let answer = queue.read(soon()).unwrap().item().unwrap();
        let id = answer.id() as usize;
        assert_eq!(first_int(answer.value()), (id * id) as i64);
        answered[id] += 1;
        assert_eq!(answered[id], 1, "question {id} is answered once, after {kills} kills");
        left -= 1;
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        if last_kill.elapsed() > Duration::from_millis(seed >> 58) && kills < 40 {
            let victim = (seed >> 33) as usize % kids.len();
            kids[victim].kill();
            kids[victim] = start();
            (kills, last_kill) = (kills + 1, Instant::now());
        }
    }
    queue.drain(soon()).unwrap();
    let more = queue.try_read().unwrap();
    assert!(matches!(more, Taken::Nothing), "another answer after the last one: {more:?}");
    queue.close().unwrap();
    assert!(kids.iter_mut().all(Kid::ends_well));
    family.bury_the_dead();
    let stats = family.stats();
    assert_eq!((stats.blocks, stats.objects, family.members().len()), (0, 1, 1), "after {kills} kills: {stats:?}");
}

/// Producers and consumers of a channel die at random: nothing arrives twice or out of order, and each death of a consumer costs at most
/// the item that it had taken.
#[test]
fn a_channel_goes_on_whoever_is_killed() {
    const EACH: usize = 200_000;
    let family = Family::alone().unwrap();
    let (numbers, results) = (Channel::new(&family).unwrap(), Channel::new(&family).unwrap());
    let both = [numbers.handle().unwrap(), results.handle().unwrap()];
    let relay = |name: u64| Kid::start("relay", &family, &both, &[name]);
    let mut kids: Vec<Kid> = (0..2).map(relay).collect();
    let mut producers: Vec<Kid> = (0..2).map(|who| Kid::start("produce", &family, &both, &[EACH as u64, who * EACH as u64])).collect();
    let mut arrived = [vec![false; EACH], vec![false; EACH]];
    // What each consumer took last from each producer.
    let mut last = std::collections::HashMap::new();
    let mut note = |item: &Value<'_>| {
        let Value::List(parts) = item else { panic!("{item:?}") };
        let (name, number) = (as_int(&parts[0]), as_int(&parts[1]) as usize - 1);
        let (who, number) = (number / EACH, number % EACH);
        assert!(!std::mem::replace(&mut arrived[who][number], true), "number {number} of producer {who} came twice");
        let before = last.insert((name, who), number);
        assert!(before < Some(number), "{number} after {before:?} from producer {who} through consumer {name}");
    };
    let mut seen = 0;
    for kill in 0..10 {
        let until = seen + 2_000;
        while seen < until {
            note(&results.read(soon()).unwrap().item.unwrap());
            seen += 1;
        }
        let victim = kill % 2;
        kids[victim].kill();
        kids[victim] = relay(2 + kill as u64);
        if kill == 4 {
            producers[0].kill();
        }
    }
    producers.clear();
    numbers.close().unwrap();
    assert!(kids.iter_mut().all(Kid::ends_well));
    results.close().unwrap();
    assert!(numbers.drained());
    results.iter(soon()).for_each(|item| note(&item.unwrap()));
    let lost = |numbers: &Vec<bool>| {
        let written = numbers.iter().rposition(|came| *came).map_or(0, |last| last + 1);
        numbers[..written].iter().filter(|came| !**came).count()
    };
    assert!(arrived.iter().map(lost).sum::<usize>() <= 10, "one for each consumer that was killed");
    family.bury_the_dead();
    assert_eq!(family.members().len(), 1);
}

#[test]
fn who_dies_while_it_waits_at_a_barrier_is_not_counted() {
    let family = Family::alone().unwrap();
    let (mutex, ready) = (Mutex::new(&family).unwrap(), Channel::new(&family).unwrap());
    let mut doomed = Kid::start("meet", &family, &[mutex.handle(), ready.handle().unwrap()], &[3]);
    ready.read(soon()).unwrap();
    // Whoever gives up is told how many are missing: two until it is counted.
    while !mutex.barrier(3, Deadline::after(Duration::from_millis(2))).unwrap_err().to_string().contains(" 1 more of 3") {}
    doomed.kill();
    let two = Deadline::after(Duration::from_millis(300));
    std::thread::scope(|scope| {
        let early: Vec<_> = (0..2).map(|_| scope.spawn(|| mutex.barrier(3, two))).collect();
        for each in early {
            let error = each.join().unwrap().expect_err("two of three cannot pass");
            assert!(matches!(error, Error::Timeout { .. }), "{error}");
            assert_eq!(error.whom().and_then(|whom| whom.pid), Some(doomed.pid()), "{error}");
        }
    });
    std::thread::scope(|scope| (0..3).for_each(|_| drop(scope.spawn(|| mutex.barrier(3, soon()).unwrap()))));
}

#[test]
#[cfg(debug_assertions)]
fn a_barrier_survives_whoever_dies_at_it() {
    at_every_moment(1, |moment| {
        let family = Family::alone().unwrap();
        let mutex = Mutex::new(&family).unwrap();
        let came_through = Kid::start("meet_until", &family, &[mutex.handle()], &[moment]).ends_well();
        family.bury_the_dead();
        let alone = mutex.barrier(2, Deadline::after(Duration::from_millis(1)));
        assert!(matches!(alone, Err(Error::Timeout { .. })), "nobody is left there: {alone:?}");
        std::thread::scope(|scope| (0..3).for_each(|_| drop(scope.spawn(|| mutex.barrier(3, soon()).unwrap()))));
        came_through
    });
}

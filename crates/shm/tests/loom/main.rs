//! Every interleaving of the protocols, explored by loom.
//!
//! A futex sleep has no time-out here, so a wake-up that is lost is a deadlock, which loom
//! reports; payload bytes are tracked cells, so a copy that races with another is reported too.
//! Run by `RUSTFLAGS="--cfg loom" cargo test -p syncline-shm --test loom --release`.
#![cfg(loom)]

mod queue;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;
use syncline_shm::bell::Bell;
use syncline_shm::bulletin::Bulletin;
use syncline_shm::guarded::Guarded;
use syncline_shm::latch::Latch;
use syncline_shm::meeting::{MeetError, Meeting};
use syncline_shm::presence::{Presence, first_to_leave};
use syncline_shm::ring::PushError;
use syncline_shm::stripe::StripeWord;
use syncline_shm::wait::{Deadline, Patience, WaitError, wait_for};
use syncline_shm::{arena, ring};

/// Explores with at most `preemptions` forced switches: bugs need few, the models stay quick.
fn explore(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

fn wait<T>(bell: &Bell, poll: impl FnMut() -> Option<T>) -> T {
    wait_for(poll, bell, Patience::none(), Deadline::never(), &|| true).unwrap()
}

#[test]
fn a_sleeper_is_never_missed() {
    loom::model(|| {
        let bell = Bell::private();
        let flag = Arc::new(AtomicBool::new(false));
        let (theirs, said) = (bell.clone(), Arc::clone(&flag));
        let ringer = thread::spawn(move || {
            said.store(true, Ordering::Release);
            theirs.ring_if_waiting();
        });
        wait(&bell, || flag.load(Ordering::Acquire).then_some(()));
        ringer.join().unwrap();
    });
}

/// Without a fence on the ringer's side: the sleeper's last look is made under the lock that the ringer had.
#[test]
fn a_sleeper_that_looks_under_the_ringers_lock_is_never_missed() {
    explore(2, || {
        let bell = Bell::private();
        let items = Arc::new(Guarded::new(0));
        let (theirs, written) = (bell.clone(), Arc::clone(&items));
        let ringer = thread::spawn(move || {
            *written.lock(Deadline::never()).unwrap() += 1;
            theirs.ring_some_if_waiting_for_published(1);
        });
        wait(&bell, || (*items.lock(Deadline::never()).unwrap() > 0).then_some(()));
        ringer.join().unwrap();
    });
}

#[test]
fn who_hears_of_a_notice_reads_all_of_it() {
    explore(3, || {
        let board = Bulletin::in_private_memory();
        let pin = |board: Bulletin| {
            thread::spawn(move || {
                let number = board.next(false);
                assert!(board.pin(number, &[number.page as u8]));
            })
        };
        let writers = [pin(board.clone()), pin(board.clone())];
        let newest = board.newest();
        if newest.page > 0 {
            assert_eq!(board.read(newest.page), Some((newest, vec![newest.page as u8])));
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        assert_eq!(board.newest().page, 2);
        assert_eq!((board.read(1).unwrap().1, board.read(2).unwrap().1), (vec![1], vec![2]));
    });
}

#[test]
fn two_sleepers_on_one_bell_are_both_woken() {
    explore(3, || {
        let bell = Bell::private();
        let flag = Arc::new(AtomicBool::new(false));
        let sleeper = {
            let (bell, flag) = (bell.clone(), Arc::clone(&flag));
            thread::spawn(move || wait(&bell, || flag.load(Ordering::Acquire).then_some(())))
        };
        let ringer = {
            let (bell, flag) = (bell.clone(), Arc::clone(&flag));
            thread::spawn(move || {
                flag.store(true, Ordering::Release);
                bell.ring_if_waiting();
            })
        };
        wait(&bell, || flag.load(Ordering::Acquire).then_some(()));
        sleeper.join().unwrap();
        ringer.join().unwrap();
    });
}

#[test]
fn a_watcher_ends_a_wait_for_the_dead_but_not_before_its_last_words() {
    loom::model(|| {
        let bell = Bell::private();
        let words = Arc::new(AtomicUsize::new(0));
        let dead = Arc::new(AtomicBool::new(false));
        let watcher = {
            let (bell, words, dead) = (bell.clone(), Arc::clone(&words), Arc::clone(&dead));
            thread::spawn(move || {
                words.store(1, Ordering::Release);
                dead.store(true, Ordering::Release);
                bell.ring_if_waiting();
            })
        };
        let alive = || !dead.load(Ordering::Acquire);
        let heard =
            |least| wait_for(|| (words.load(Ordering::Acquire) >= least).then_some(()), &bell, Patience::none(), Deadline::never(), &alive);
        assert_eq!(heard(1), Ok(()));
        assert_eq!(heard(2), Err(WaitError::Gone));
        watcher.join().unwrap();
    });
}

#[test]
fn records_arrive_in_order_through_a_ring_that_is_too_small() {
    // One record fits, three are sent: the producer has to wait, and both sides sleep.
    explore(3, || {
        let (mut producer, mut consumer) = ring::private(32);
        let (room, data) = (Bell::private(), Bell::private());
        let sender = {
            let (room, data) = (room.clone(), data.clone());
            thread::spawn(move || {
                for n in 1..=3_u8 {
                    wait(&room, || match producer.try_push(&[&[n], &[n, n]]) {
                        Ok(()) => Some(()),
                        Err(PushError::Full) => None,
                        Err(error) => panic!("{error}"),
                    });
                    data.ring_if_waiting();
                }
            })
        };
        let mut record = Vec::new();
        for n in 1..=3_u8 {
            wait(&data, || consumer.try_pop(&mut record).unwrap().then_some(()));
            assert_eq!(record, [n; 3]);
            room.ring_if_waiting();
        }
        sender.join().unwrap();
    });
}

#[test]
fn a_producer_is_not_forgotten_by_a_consumer_that_looks_once_per_quarter() {
    // Seven records fill the ring, nine are sent; a quarter is two of them.
    explore(2, || {
        let (mut producer, mut consumer) = ring::private(128);
        let (room, data) = (Bell::private(), Bell::private());
        let sender = {
            let (room, data) = (room.clone(), data.clone());
            thread::spawn(move || {
                for n in 1..=9_u8 {
                    wait(&room, || match producer.try_push(&[&[n]]) {
                        Ok(()) => Some(()),
                        Err(PushError::Full) => None,
                        Err(error) => panic!("{error}"),
                    });
                    data.ring_if_waiting();
                }
            })
        };
        let mut record = Vec::new();
        for n in 1..=9_u8 {
            let look = wait(&data, || consumer.try_pop_and_look(&mut record).unwrap());
            assert_eq!(record, [n]);
            if look {
                room.ring_if_waiting();
            }
        }
        sender.join().unwrap();
    });
}

#[test]
fn lines_that_are_taken_ahead_are_nobodys() {
    // Large enough for the producer to touch the lines of its next records while the consumer copies.
    explore(2, || {
        let (mut producer, mut consumer) = ring::private(512);
        let sender = thread::spawn(move || {
            for n in 1..=3_u8 {
                producer.try_push(&[&[n; 90]]).unwrap();
            }
        });
        let mut record = Vec::new();
        let mut seen = 0;
        for _ in 0..2 {
            if consumer.try_pop(&mut record).unwrap() {
                seen += 1;
                assert_eq!(record, [seen; 90]);
            }
        }
        sender.join().unwrap();
        while consumer.try_pop(&mut record).unwrap() {
            seen += 1;
            assert_eq!(record, [seen; 90]);
        }
        assert_eq!(seen, 3);
    });
}

#[test]
fn a_record_that_wraps_is_copied_without_a_race() {
    explore(3, || {
        let (mut producer, mut consumer) = ring::private(32);
        producer.try_push(&[b"first"]).unwrap(); // takes 16 bytes; the next needs 24 and a label
        let room = Bell::private();
        let sender = {
            let room = room.clone();
            thread::spawn(move || {
                wait(&room, || producer.try_push(&[b"twelve bytes"]).ok());
            })
        };
        let mut record = Vec::new();
        assert!(consumer.try_pop(&mut record).unwrap());
        assert_eq!(record, b"first");
        room.ring_if_waiting();
        if consumer.try_pop(&mut record).unwrap() {
            assert_eq!(record, b"twelve bytes");
        }
        sender.join().unwrap();
    });
}

#[test]
fn a_slot_is_read_behind_its_writer_and_used_again() {
    explore(2, || {
        let (room, data) = (Bell::private(), Bell::private());
        let (mut writer, mut reader) = arena::private(1, 2, room.clone());
        let (mut producer, mut consumer) = ring::private(32);
        let sender = {
            let data = data.clone();
            thread::spawn(move || {
                for round in 0..2_u8 {
                    let mut filling = wait(&room, || writer.try_claim().unwrap());
                    producer.try_push(&[&[filling.slot() as u8]]).unwrap();
                    data.ring_if_waiting();
                    for n in 0..2 {
                        writer.put(&mut filling, &[10 * round + n]);
                        writer.show(&filling);
                        data.ring_if_waiting();
                    }
                }
            })
        };
        let mut record = Vec::new();
        for round in 0..2_u8 {
            wait(&data, || consumer.try_pop(&mut record).unwrap().then_some(()));
            let mut arrival = reader.accept(record[0].into(), 2).unwrap();
            let mut got = Vec::new();
            while got.len() < 2 {
                let there = wait(&data, || Some(arrival.poll().unwrap()).filter(|&n| n > 0));
                arrival.append_to(there, &mut got);
            }
            assert_eq!(got, [10 * round, 10 * round + 1]);
        }
        sender.join().unwrap();
    });
}

#[test]
fn a_held_slot_is_not_written_until_it_is_dropped() {
    explore(3, || {
        let (room, data) = (Bell::private(), Bell::private());
        let (mut writer, mut reader) = arena::private(1, 1, room.clone());
        let mut filling = writer.try_claim().unwrap().unwrap();
        writer.put(&mut filling, &[7]);
        writer.show(&filling);
        let mut arrival = reader.accept(0, 1).unwrap();
        assert!(arrival.is_filled().unwrap());
        let held = arrival.hold();
        let sender = {
            let data = data.clone();
            thread::spawn(move || {
                let mut filling = wait(&room, || writer.try_claim().unwrap());
                writer.put(&mut filling, &[8]);
                writer.show(&filling);
                data.ring_if_waiting();
            })
        };
        let mut byte = [0];
        held.copy_to(0, &mut byte);
        assert_eq!(byte, [7]);
        drop(held);
        sender.join().unwrap();
    });
}

/// What each rank did before a meeting must be visible to all after it, without any other order.
fn meet(ranks: usize, rounds: u64, preemptions: usize) {
    explore(preemptions, move || {
        let cells: Arc<Vec<_>> = Arc::new((0..ranks).map(|_| loom::cell::UnsafeCell::new(0)).collect());
        let mut members = Vec::new();
        for (me, mut meeting) in Meeting::private(ranks, Patience::none()).into_iter().enumerate() {
            let cells = Arc::clone(&cells);
            let mut run = move || {
                for _ in 0..rounds {
                    // SAFETY: loom fails the model if this write races with a read below.
                    cells[me].with_mut(|cell| unsafe { *cell = meeting.round() + 1 });
                    let round = meeting.arrive();
                    meeting.wait(round, Deadline::never(), &|_| false).unwrap();
                    for cell in cells.iter() {
                        // SAFETY: loom fails the model if this read races with a write above.
                        assert!(cell.with(|cell| unsafe { *cell }) >= round);
                    }
                    // The others still read: writing waits for a second meeting.
                    let round = meeting.arrive();
                    meeting.wait(round, Deadline::never(), &|_| false).unwrap();
                }
            };
            if me + 1 == ranks {
                run();
            } else {
                members.push(thread::spawn(run));
            }
        }
        members.into_iter().for_each(|member| member.join().unwrap());
    });
}

#[test]
fn two_ranks_meet_and_nobody_sleeps_through_it() {
    meet(2, 1, 3);
}

#[test]
fn three_ranks_meet_and_nobody_sleeps_through_it() {
    explore(2, || {
        let mut meetings = Meeting::private(3, Patience::none());
        let mut mine = meetings.pop().unwrap();
        let others: Vec<_> = meetings
            .into_iter()
            .map(|mut meeting| {
                thread::spawn(move || {
                    let round = meeting.arrive();
                    meeting.wait(round, Deadline::never(), &|_| false)
                })
            })
            .collect();
        let round = mine.arrive();
        mine.wait(round, Deadline::never(), &|_| false).unwrap();
        for other in others {
            other.join().unwrap().unwrap();
        }
    });
}

#[test]
fn a_leader_releases_those_who_sleep() {
    explore(3, || {
        let mut meetings = Meeting::private(2, Patience::none());
        let mut member = meetings.pop().unwrap();
        let mut leader = meetings.pop().unwrap();
        let led = thread::spawn(move || {
            let round = leader.arrive();
            leader.wait(round, Deadline::never(), &|_| false).unwrap();
            leader.release(round);
        });
        let round = member.arrive();
        let released: Result<(), MeetError> = member.wait_released(round, 0, Deadline::never(), &|_| false);
        released.unwrap();
        led.join().unwrap();
    });
}

/// Two numbers that always change together, guarded by a stripe's word; they are read without a lock, so they may race.
struct Pair {
    word: StripeWord,
    first: loom::sync::atomic::AtomicU64,
    second: loom::sync::atomic::AtomicU64,
}

fn pair() -> Arc<Pair> {
    let zero = || loom::sync::atomic::AtomicU64::new(0);
    Arc::new(Pair { word: StripeWord::default(), first: zero(), second: zero() })
}

fn add_one(pair: &Pair) {
    pair.first.store(pair.first.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    pair.second.store(pair.second.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

#[test]
fn a_stripe_has_one_hand_at_a_time() {
    explore(3, || {
        let pair = pair();
        let hands: Vec<_> = (0..2)
            .map(|hand| {
                let pair = Arc::clone(&pair);
                thread::spawn(move || {
                    while pair.word.try_take(hand).is_err() {
                        thread::yield_now();
                    }
                    add_one(&pair);
                    pair.word.let_go();
                })
            })
            .collect();
        hands.into_iter().for_each(|hand| hand.join().unwrap());
        assert_eq!((pair.first.load(Ordering::Relaxed), pair.second.load(Ordering::Relaxed)), (2, 2));
        assert_eq!(pair.word.holder(), None);
    });
}

#[test]
fn a_reader_of_a_stripe_never_believes_half_a_change() {
    explore(3, || {
        let pair = pair();
        let writer = {
            let pair = Arc::clone(&pair);
            thread::spawn(move || {
                pair.word.try_take(0).unwrap();
                add_one(&pair);
                pair.word.let_go();
            })
        };
        if let Ok(begun) = pair.word.begin() {
            let (first, second) = (pair.first.load(Ordering::Relaxed), pair.second.load(Ordering::Relaxed));
            if pair.word.unchanged(begun) {
                assert_eq!(first, second);
            }
        }
        writer.join().unwrap();
    });
}

#[test]
fn a_dead_hands_stripe_has_one_heir() {
    explore(3, || {
        let pair = pair();
        pair.word.try_take(7).unwrap(); // and it dies
        let heirs: Vec<_> = (0..2)
            .map(|heir| {
                let pair = Arc::clone(&pair);
                thread::spawn(move || {
                    let inherits = pair.word.inherit(7, heir);
                    if inherits {
                        add_one(&pair);
                        pair.word.let_go();
                    }
                    inherits
                })
            })
            .collect();
        let inherited = heirs.into_iter().map(|heir| heir.join().unwrap()).filter(|inherits| *inherits).count();
        assert_eq!((inherited, pair.first.load(Ordering::Relaxed)), (1, 1));
    });
}

#[test]
fn a_latch_of_a_dead_holder_has_one_heir_at_a_time() {
    loom::model(|| {
        let latch = Arc::new(Latch::default());
        latch.try_take(7).unwrap();
        let inside = Arc::new(AtomicUsize::new(0));
        let heirs: Vec<_> = [1, 2]
            .into_iter()
            .map(|me| {
                let (latch, inside) = (Arc::clone(&latch), Arc::clone(&inside));
                thread::spawn(move || {
                    if latch.inherit(7, me) || latch.try_take(me).is_ok() {
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        latch.let_go();
                    }
                })
            })
            .collect();
        heirs.into_iter().for_each(|heir| heir.join().unwrap());
    });
}

#[test]
fn nobody_holds_a_meeting_that_was_left_while_somebody_was_missing() {
    explore(3, || {
        let members: Arc<[Presence; 3]> = Arc::new(Default::default());
        let holds = |members: &[Presence; 3]| members.iter().all(|member| member.has_come(1)) && first_to_leave(members, 1).is_none();
        let late = |me: usize| {
            let members = Arc::clone(&members);
            thread::spawn(move || {
                members[me].come(1);
                holds(&members)
            })
        };
        members[0].come(1);
        let others = [late(1), late(2)];
        members[0].leave(1, 7);
        let somebody_is_missing = !members.iter().all(|member| member.has_come(1));
        let held = others.map(|other| other.join().unwrap());
        assert!(!(somebody_is_missing && held.contains(&true)), "the array is its owner's again, and yet somebody works on it");
    });
}

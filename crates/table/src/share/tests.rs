//! Two workers that share a table in memory, brought into the very moments that go wrong once in a million calls.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use syncline_cluster::bootstrap::{Arguments, Environment, find};
use syncline_cluster::{Deadline, Error, Job, Settings};
use syncline_shm::mortality;
use syncline_shm::store::Progress;
use syncline_tensor::DType;
use syncline_testkit::ranks::{eventually, threads};

use super::{LocalShare, Selection, Share};
use crate::way::Way;
use crate::{AddOptions, Consistency, Spec, Table, Tables};

/// Bytes of an array: two stripes and a bit.
const SIZE: usize = 150_000;

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

/// Time enough to find that one waits.
fn a_moment() -> Deadline {
    Deadline::after(Duration::from_millis(100))
}

/// One of the two.
struct Member<'a> {
    job: &'a Job,
    table: &'a Table,
    share: &'a LocalShare,
}

impl Member<'_> {
    fn is_first(&self) -> bool {
        self.job.rank() == 0
    }

    /// Both come here. Unlike a barrier of tables, this applies nothing.
    fn meet(&self) {
        self.job.barrier(soon()).expect("both live");
    }

    fn add(&self, wait: bool, by: Deadline) -> Result<(), Error> {
        self.table.add(&vec![1; self.share.bytes()], None, &AddOptions::default(), wait, by)
    }

    fn get(&self) -> u8 {
        let mut out = vec![0; self.share.bytes()];
        self.table.get(&mut out, None, soon()).expect("fetched");
        assert!(out.iter().all(|value| *value == out[0]), "each add is everywhere or nowhere, and once");
        out[0]
    }

    /// Holds stripe `index` between the next two meetings of the two.
    fn hold(&self, index: usize) {
        let mut hand = self.share.hand(soon()).expect("free");
        self.share.store.take(index, &hand).expect("free");
        let hold = hand.hold(&self.share.store, index);
        self.meet();
        self.meet();
        drop(hold);
    }
}

fn two(name: &str, spec: Spec, timeout: Duration, body: impl Fn(Member<'_>) + Sync) {
    let rendezvous = format!("unix:@{name}-{}", std::process::id());
    threads(2, |rank| {
        let rank = rank.to_string();
        let environment = Environment::from_variables([
            ("SYNCLINE_RANK", rank.as_str()),
            ("SYNCLINE_WORLD_SIZE", "2"),
            ("SYNCLINE_RENDEZVOUS", rendezvous.as_str()),
            ("SYNCLINE_TOKEN", "t"),
        ]);
        let launch = find(&environment, &Arguments::default()).expect("a sound environment");
        let settings = Settings { timeout, ..Settings::default() };
        let job = Arc::new(Job::join(&launch, &settings, soon()).expect("both come"));
        let tables = Tables::new(Arc::clone(&job));
        let table = tables.create(spec.clone(), None, "here", soon()).expect("made");
        let Way::Here(share) = &table.inner.way else { panic!("both share memory") };
        body(Member { job: &job, table: &table, share });
        job.barrier(soon()).expect("both live");
        tables.finish(soon()).expect("finished");
        job.leave(soon()).expect("a polite end");
    });
}

const PATIENT: Duration = Duration::from_secs(30);

fn bytes() -> Spec {
    Spec::array(SIZE as u64).with_dtype(DType::U8)
}

#[test]
fn a_merge_that_came_to_its_deadline_halfway_is_finished_before_anything_is_added() {
    mortality::pretend_a_crowd();
    two("half-a-merge", bytes(), PATIENT, |member| {
        if !member.is_first() {
            member.meet();
            member.hold(1);
            return;
        }
        member.add(false, soon()).expect("added");
        member.meet();
        member.meet();
        let late = member.add(true, a_moment());
        assert!(late.is_err(), "the second stripe is in another's hand");
        let outbox = &member.share.outboxes[0];
        assert!(outbox.progress(outbox.published()) > 0, "and the first is done");
        member.meet();
        member.add(false, soon()).expect("added");
        assert_eq!(member.get(), 3);
    });
}

/// A thread has begun a tally and read its base; its add does not count yet. What others read of the table now may be more than the base.
#[test]
fn a_get_beside_a_tally_that_is_being_begun_waits_for_it_and_has_a_deadline() {
    two("being-begun", Spec::matrix(SIZE as u64, 1).with_dtype(DType::U8), PATIENT, |member| {
        if !member.is_first() {
            return;
        }
        let tally = member.share.tally.as_ref().expect("a small async array");
        let state = tally.lock(|| "test".into(), soon()).expect("free");
        tally.moves.fetch_add(1, SeqCst);
        let mut out = vec![0; SIZE];
        let whole = member.table.get(&mut out, None, a_moment()).expect_err("the other thread is not done");
        assert!(whole.to_string().contains("another thread of this process"), "{whole}");
        let some = member.table.get(&mut out[..1], Some(&[3]), a_moment()).expect_err("rows wait too");
        assert!(some.to_string().contains("another thread of this process"), "{some}");
        tally.moves.fetch_add(1, SeqCst);
        drop(state);
        assert_eq!(member.get(), 0);
    });
}

#[test]
fn a_tally_is_brought_to_the_table_though_its_worker_goes_on_adding_now_and_then() {
    mortality::pretend_a_crowd();
    two("now-and-then", bytes(), PATIENT, |member| {
        if member.is_first() {
            let outbox = &member.share.outboxes[0];
            let mut noted = crate::caretaker::Noted::new(&member.table.inner);
            for number in 1..=2 {
                member.add(false, soon()).expect("added");
                assert_eq!((outbox.published(), outbox.applied()), (number, 0));
                assert!(noted.look());
            }
            assert_eq!(outbox.applied(), 2, "of two looks the second found what the first had found");
        }
    });
}

#[test]
fn an_add_that_finds_its_table_noted_is_applied_though_it_is_forgotten_at_that_moment() {
    two("forgotten", Spec::array(3 * SIZE as u64).with_dtype(DType::U8), PATIENT, |member| {
        if member.is_first() {
            let inner = &member.table.inner;
            assert!(inner.note_again(), "as if the caretaker had it");
            let mut noted = crate::caretaker::Noted::new(inner);
            while inner.is_noted() {
                assert!(noted.look(), "it is forgotten first, and let go a look later");
            }
            assert!(inner.note_again(), "what the add sees");
            member.add(false, soon()).expect("added");
            inner.forget_noted();
            assert!(noted.look() && noted.look(), "it is kept an eye on again");
            assert_eq!(member.share.outboxes[0].applied(), 1);
        }
    });
}

#[test]
fn a_question_for_changed_rows_waits_for_who_is_in_the_middle_of_a_change() {
    two("stamps", Spec::matrix(SIZE as u64 / 10, 10).with_dtype(DType::U8), PATIENT, |member| {
        let mut mirror = vec![0; SIZE];
        if !member.is_first() {
            member.meet();
            return member.hold(1);
        }
        assert_eq!(member.table.get_changed(&mut mirror, soon()).expect("told").len(), SIZE / 10, "all rows, the first time");
        member.meet();
        member.meet();
        member.table.get_changed(&mut mirror, a_moment()).expect_err("a row may be stamped just now");
        member.meet();
        assert_eq!(member.table.get_changed(&mut mirror, soon()).expect("told"), Vec::<i64>::new());
    });
}

#[test]
fn an_outbox_stays_open_as_long_as_something_of_it_is_not_applied() {
    two("stays-open", Spec::array(3 * SIZE as u64).with_dtype(DType::U8), Duration::from_secs(2), |member| {
        if !member.is_first() {
            return member.hold(6);
        }
        member.meet();
        let outbox = &member.share.outboxes[0];
        member.add(true, a_moment()).expect_err("its last stripe is in another's hand");
        Share::finish(member.share, 0);
        assert!(!outbox.is_finished() && outbox.applied() == 0);
        member.meet();
        Share::finish(member.share, 0);
        assert!(outbox.is_finished() && outbox.applied() == 1);
    });
}

#[test]
fn nobody_waits_for_a_slow_link_to_take_what_a_worker_gets() {
    two("slow-link", Spec::array(3 * SIZE as u64).with_dtype(DType::U8), PATIENT, |member| {
        if member.is_first() {
            member.add(false, soon()).expect("added");
            let mut taken = 0;
            let mut sink = |bytes: &[u8]| {
                assert!(member.share.hand.try_lock().is_ok(), "a thread that adds for another worker has what it needs");
                assert!(bytes.iter().all(|value| *value == 1));
                taken += bytes.len();
                Ok(())
            };
            Share::read(member.share, 0, 1, Selection::All, &mut sink, soon()).expect("read");
            assert_eq!(taken, 3 * SIZE);
        }
    });
}

#[test]
fn a_get_of_a_bounded_table_contains_an_add_of_its_worker_that_could_not_be_applied_at_once() {
    let spec = Spec::matrix(SIZE as u64 / 10, 10).with_dtype(DType::U8).with_consistency(Consistency::Bounded(5));
    two("bounded-own", spec, PATIENT, |member| {
        if !member.is_first() {
            return member.hold(1);
        }
        member.meet();
        // A row of the stripe that the other has in hand, then one of a stripe that is free.
        let late = member.table.add(&[1; 20], Some(&[SIZE as i64 / 20, 0]), &AddOptions::default(), false, a_moment());
        assert!(late.is_err() && member.share.outboxes[0].published() == 1, "it counts, and its first row waits");
        let mut row = [0; 10];
        let got = member.table.get(&mut row, Some(&[0]), a_moment());
        assert!(got.is_err() || row == [1; 10], "a get without the worker's own add");
        member.meet();
        member.table.get(&mut row, Some(&[0]), soon()).expect("nothing is in the way any more");
        assert_eq!(row, [1; 10]);
    });
}

/// Another thread takes the worker's end of its outbox between the two halves of an add, and keeps it until the add's deadline.
#[test]
fn an_add_that_was_staged_and_never_counted_does_not_take_all_later_ones_with_it() {
    two("between-the-halves", Spec::array(3 * SIZE as u64).with_dtype(DType::U8), PATIENT, |member| {
        if !member.is_first() {
            return;
        }
        let outbox = &member.share.outboxes[0];
        for _ in 0..250 {
            let next = outbox.published() + 1;
            let (ready, over) = (AtomicBool::new(false), AtomicBool::new(false));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    ready.store(true, SeqCst);
                    while !over.load(SeqCst) {
                        if outbox.entry(next).is_some()
                            && let Some(Ok(post)) = member.share.posts[0].as_ref().map(Mutex::try_lock)
                        {
                            while outbox.published() < next && !over.load(SeqCst) {
                                std::thread::yield_now();
                            }
                            return drop(post);
                        }
                    }
                });
                while !ready.load(SeqCst) {
                    std::hint::spin_loop();
                }
                let added = member.add(false, Deadline::after(Duration::from_millis(20)));
                over.store(true, SeqCst);
                assert!(added.is_err() || outbox.published() == next);
            });
            if outbox.published() < next {
                break; // as wanted
            }
        }
        let before = member.get();
        assert_eq!(u64::from(before), outbox.published());
        member.add(true, soon()).expect("added");
        assert_eq!(member.get(), before + 1, "an add that was acknowledged is in the table");
    });
}

fn small_sync() -> Spec {
    Spec::array(100).with_dtype(DType::U8).with_consistency(Consistency::Sync)
}

/// Whether a thread of this worker has its replica in hand.
fn follows(share: &LocalShare) -> bool {
    share.replica.as_ref().expect("a small sync array").state().is_none()
}

/// One thread waits for the stripe to read the state after round 1; by the time it may, the store is one round further, because another has made the next add.
#[test]
fn a_replica_read_from_the_store_beside_the_next_add_of_another_thread_counts_no_round_twice() {
    two("next-add", small_sync(), PATIENT, |member| {
        member.add(false, soon()).expect("added");
        if !member.is_first() {
            member.share.settle_adds(1, 1, soon()).expect("the store has the first round");
            let mut hand = member.share.hand(soon()).expect("free");
            member.share.store.take(0, &hand).expect("free");
            let mut hold = hand.hold(&member.share.store, 0);
            member.meet();
            member.meet();
            member.add(false, soon()).expect("added");
            hold.change_values(0..100, Progress::Rounds(2), |old, new| {
                assert_eq!(old, [2; 100]);
                new.fill(4); // as one does who brings up the store
            });
            drop(hold);
            drop(hand);
            member.meet();
            return member.add(false, soon()).expect("added");
        }
        member.meet();
        std::thread::scope(|scope| {
            let first = scope.spawn(|| member.get());
            while !follows(member.share) {
                std::thread::yield_now();
            }
            member.add(false, soon()).expect("added");
            member.meet();
            assert!([2, 4].contains(&first.join().expect("no panic")), "it was called after one add, and another was made meanwhile");
        });
        member.meet();
        assert_eq!(member.get(), 4);
        member.add(false, soon()).expect("added");
        assert_eq!(member.get(), 6);
    });
}

#[test]
fn a_get_beside_one_that_waits_for_a_round_with_the_replica_in_hand_hears_ctrl_c() {
    two("deaf-get", small_sync(), PATIENT, |member| {
        if !member.is_first() {
            member.meet();
            return member.add(false, soon()).expect("added");
        }
        member.add(false, soon()).expect("added");
        std::thread::scope(|scope| {
            let first = scope.spawn(|| member.get());
            while !follows(member.share) {
                std::thread::yield_now();
            }
            let mut out = vec![0; 100];
            let interrupted = member.table.get(&mut out, None, soon().with_interrupt(|| true)).expect_err("the other has not added");
            assert!(matches!(interrupted, Error::Interrupted { .. }), "{interrupted}");
            let late = member.table.get(&mut out, None, a_moment()).expect_err("the other has not added");
            assert!(matches!(late, Error::Timeout { .. }) && late.to_string().contains("rank 1"), "{late}");
            assert!(!first.is_finished(), "the first waits all the while");
            member.meet();
            assert_eq!(first.join().expect("no panic"), 2);
        });
    });
}

/// Somebody began a round while nobody asked for changed rows, and died; by the time another goes on with it, somebody asks for them.
#[test]
fn a_round_that_was_begun_before_changed_rows_were_asked_for_is_ended_as_it_was_begun() {
    let spec = Spec::matrix(SIZE as u64 / 10, 10).with_dtype(DType::U8).with_consistency(Consistency::Sync);
    two("begun-before", spec, PATIENT, |member| {
        member.add(false, soon()).expect("added");
        member.meet();
        if member.is_first() {
            let share = member.share;
            let adds = share.adds_of(1).expect("sound").expect("not done");
            let mut hand = share.hand(soon()).expect("free");
            share.store.take(0, &hand).expect("free");
            let mut hold = hand.hold(&share.store, 0);
            share.apply_round(&mut hold, 0..share.block, 1, 0, &adds, None);
            drop(hold);
            drop(hand);
            share.store.header().epoch().advance();
        }
        member.meet();
        assert_eq!(member.get(), 2);
    });
}

#[test]
fn a_lent_add_whose_get_came_too_late_is_applied_though_its_worker_calls_no_more() {
    two("lent-and-left", Spec::array(3 * SIZE as u64).with_dtype(DType::U8), PATIENT, |member| {
        if !member.is_first() {
            return member.hold(1);
        }
        let mut delta = member.share.place.arrays.make(3 * SIZE).expect("memory");
        delta.bytes_mut().fill(1);
        member.meet();
        let mut out = vec![0; 3 * SIZE];
        member.table.add_get(delta.bytes(), &mut out, None, &AddOptions::default(), a_moment()).expect_err("a stripe is in another's hand");
        let outbox = &member.share.outboxes[0];
        assert_eq!((outbox.published(), outbox.applied()), (1, 0), "it counts");
        member.meet();
        eventually("somebody looks after it", Duration::from_secs(10), || outbox.applied() == 1);
    });
}

/// Tables of one block, of several and a bit, and of a whole stripe; far more rounds than there are slots, and now and then two adds before a get.
#[test]
fn replicas_of_every_size_have_the_bits_of_the_left_fold() {
    for (index, elements) in [1, 1024, 1500, 15_001, 16_384].into_iter().enumerate() {
        let spec = Spec::array(elements).with_consistency(Consistency::Sync);
        two(&format!("fold-{index}"), spec, PATIENT, |member| {
            assert!(member.share.replica.is_some());
            let delta = |worker: u32, round: u32| -> Vec<f32> {
                let scale = 1.0 + 0.1 * (round % 7) as f32 + worker as f32 / 3.0;
                (0..elements as u32).map(|at| scale * ((at % 13) as f32 - 5.7)).collect()
            };
            let mut expected = vec![0f32; elements as usize];
            let mut out = vec![0; 4 * elements as usize];
            for round in 1..=450 {
                let mine = delta(u32::from(!member.is_first()), round);
                let bytes: Vec<u8> = mine.iter().flat_map(|value| value.to_ne_bytes()).collect();
                member.table.add(&bytes, None, &AddOptions::default(), false, soon()).expect("added");
                for worker in 0..2 {
                    expected.iter_mut().zip(delta(worker, round)).for_each(|(value, delta)| *value += delta);
                }
                if round % 50 != 0 {
                    member.table.get(&mut out, None, soon()).expect("both add");
                    let wrong = out.chunks_exact(4).zip(&expected).position(|(got, value)| got != value.to_ne_bytes());
                    assert_eq!(wrong, None, "{elements} numbers after round {round}");
                }
            }
        });
    }
}

//! Changes, readers and heirs of a store, in one process.

use std::sync::Arc;
use std::thread;

use super::*;

fn layout() -> Layout {
    Layout { hands: 3, elements: 1000, lanes: vec![4, 8], stripe: 256, stamps: 1000, ahead: 2, measures: 0 }
}

fn store() -> Arc<Store> {
    let layout = layout();
    Arc::new(Store::new(Segment::create("test", layout.bytes()).unwrap(), layout))
}

fn held<'a>(store: &'a Store, hand: &'a mut Hand, index: usize) -> Hold<'a> {
    store.take(index, hand).unwrap();
    hand.hold(store, index)
}

fn add_one(hold: &mut Hold<'_>, elements: Range<u64>, word: &AtomicWord, value: u64) {
    hold.change(elements, &[0, 1], Progress::Outbox { worker: 0, word, value }, |old, new| {
        for (new, old) in new[0].chunks_exact_mut(4).zip(old[0].chunks_exact(4)) {
            new.copy_from_slice(&(u32::from_ne_bytes(old.try_into().unwrap()) + 1).to_ne_bytes());
        }
        new[1].copy_from_slice(old[1]);
    });
}

#[test]
fn a_change_is_read_back_and_counted() {
    let store = store();
    let mut hand = store.hand(0);
    let word = AtomicWord::default();
    let mut hold = held(&store, &mut hand, 3);
    add_one(&mut hold, 768..1000, &word, 7);
    assert_eq!(store.try_read(0, 768..769, &mut [0; 4]), Err(Busy { hand: 0 }));
    drop(hold);
    let mut out = [0; 8];
    store.try_read(0, 998..1000, &mut out).unwrap();
    assert_eq!((out, word.get()), ([1, 0, 0, 0, 1, 0, 0, 0], 7));
}

#[test]
fn a_taken_stripe_names_its_hand() {
    let store = store();
    let (mut first, second) = (store.hand(0), store.hand(1));
    let hold = held(&store, &mut first, 0);
    assert_eq!(store.take(0, &second), Err(Busy { hand: 0 }));
    assert_eq!(store.take(1, &second), Ok(()));
    drop(hold);
    assert_eq!(store.take(0, &second), Ok(()));
}

#[test]
fn readers_never_see_half_of_a_change() {
    let store = store();
    let (writer, word) = (Arc::clone(&store), AtomicWord::default());
    let writing = thread::spawn(move || {
        let mut hand = writer.hand(1);
        for round in 0..3000 {
            add_one(&mut held(&writer, &mut hand, 0), 0..256, &word, round);
        }
    });
    let mut out = [0; 1024];
    while !writing.is_finished() {
        if store.try_read(0, 0..256, &mut out).is_ok() {
            assert!(out.chunks_exact(4).all(|value| value == &out[..4]), "{out:?}");
        }
    }
    writing.join().unwrap();
}

#[test]
fn an_heir_finishes_what_a_dead_hand_armed() {
    let store = store();
    let (mut dead, mut heir) = (store.hand(0), store.hand(2));
    let word = AtomicWord::default();
    // The dead hand computed new contents and armed its record, but copied nothing.
    {
        let hold = held(&store, &mut dead, 1);
        let record = &store.records[0];
        // SAFETY: the scratch of hand 0 is this test's own.
        unsafe { std::slice::from_raw_parts_mut(hold.hand.scratch.as_ptr(), 8) }.copy_from_slice(&[9; 8]);
        record.copy[0].to.store((store.layout.lane_at(0) + 256 * 4) as u64, Ordering::Relaxed);
        record.copy[0].len.store(8, Ordering::Relaxed);
        record.copies.store(1, Ordering::Relaxed);
        record.progress_of.store(1, Ordering::Relaxed);
        record.progress.store(42, Ordering::Relaxed);
        record.armed.store(2, Ordering::Relaxed);
        std::mem::forget(hold);
    }
    assert!(!store.inherit(1, 1, &heir, &|hand| hand == 0, &|_, _| ()), "hand 1 does not hold it");
    let say = |of: u64, value: u64| {
        assert_eq!(of, 1);
        word.set(value);
    };
    assert_eq!(store.under_change(0), Some(1));
    assert!(store.inherit(1, 0, &heir, &|hand| hand == 0, &say));
    drop(heir.hold(&store, 1));
    let mut out = [0; 8];
    store.try_read(0, 256..258, &mut out).unwrap();
    assert_eq!((out, word.get()), ([9; 8], 42));
    assert!(!store.inherit(1, 0, &heir, &|_| true, &say), "it is free now");
}

#[test]
fn a_record_full_of_garbage_changes_nothing_outside_the_lanes() {
    let store = store();
    let (mut dead, mut heir) = (store.hand(0), store.hand(1));
    std::mem::forget(held(&store, &mut dead, 0));
    let record = &store.records[0];
    for (index, (to, len, from)) in [(0, 8, 0), (u64::MAX, 8, 0), (store.layout.lane_at(0) as u64, u64::MAX, 0)].into_iter().enumerate() {
        record.copy[index].to.store(to, Ordering::Relaxed);
        record.copy[index].len.store(len, Ordering::Relaxed);
        record.copy[index].from.store(from, Ordering::Relaxed);
    }
    record.copies.store(u64::MAX, Ordering::Relaxed);
    record.armed.store(1, Ordering::Relaxed);
    assert!(store.inherit(0, 0, &heir, &|_| true, &|_, _| ()));
    drop(heir.hold(&store, 0));
    assert!(!store.is_ready(), "the header was not written");
}

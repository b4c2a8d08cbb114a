//! A hostile neighbour, and neighbours that died or do not move: whatever stands in shared words, calls end with a result or an error.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::*;
use crate::queue::{Leased, Parcel, Record, WITH_BLOCK};

fn estate() -> Arc<Estate> {
    Estate::open(Arc::new(Heap::private("test").unwrap()), 1).unwrap()
}

/// Numbers that look random and are the same in every run.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let word = self.0 ^ self.0 >> 29;
        match word % 5 {
            0 => word % 64,
            1 => u64::MAX - word % 64,
            2 => 1 << ((word >> 8) % 64),
            _ => word,
        }
    }
}

fn hand(estate: &Estate) -> Hand<'_> {
    Hand { me: estate.me(), is_dead: &|_| true, by: Deadline::after(Duration::ZERO) }
}

#[test]
fn garbage_in_the_words_of_a_queue_is_an_error_and_no_crash() {
    let mut noise = Noise(7);
    for round in 0..300 {
        let estate = estate();
        let leased = round % 2 == 1;
        let held = estate.make_channel(0, leased, 1).unwrap();
        let queue = held.queue(0, 1);
        let body = [3_u8; 100];
        let pieces: [&[u8]; 1] = [&body];
        let parcel = || Parcel { flags: (round % 4) as u8, meta_words: 2, pieces: &pieces };
        for _ in 0..5 {
            queue.push(&[parcel()], hand(&estate)).unwrap();
        }
        // The words of the queue, and the heads of its records.
        let words = estate.segment.region(estate.layout.pages() + held.slot() * layout::OBJECT_PAGE + objects::OWN_WORDS, 1024);
        let ring = estate.segment.region(estate.layout.object_area(held.slot()), 4096);
        for _ in 0..=round % 3 {
            words.word((noise.next() % 128) as usize * 8).store(noise.next(), Ordering::Relaxed);
            ring.word((noise.next() % 512) as usize * 8).store(noise.next(), Ordering::Relaxed);
        }
        let mut record = Record::default();
        for _ in 0..8 {
            let _ = queue.push(&[parcel()], hand(&estate));
            let _ = queue.pop(&mut record, &|_| (), hand(&estate));
            let _ = (record.block(), record.objects().count(), record.body().len());
            if let Ok(Some(leased)) = queue.lease(&mut record, &|_| (), hand(&estate)) {
                let _ = queue.finish(leased.cell, hand(&estate));
            }
            let _ = (queue.recover(5, hand(&estate)), queue.others_work(&|_| true, hand(&estate)), queue.len(), queue.unfinished());
            if let Some((block, len)) = record.block() {
                drop(estate.received(block, len).inspect(|block| block.leave()));
            }
        }
        drop((queue, held));
        estate.bury_the_dead();
    }
}

#[test]
fn garbage_in_the_words_of_a_table_is_an_error_and_no_crash() {
    let mut noise = Noise(11);
    let mut slowest = Duration::ZERO;
    for round in 0..300 {
        let estate = estate();
        let table = TableStore::make(&estate, 1).unwrap();
        let keys: Vec<[u8; 12]> = (0..20_u8).map(|number| [number; 12]).collect();
        let value: [&[u8]; 1] = [&[4; 200]];
        let entry = |number: usize| NewEntry { key: &keys[number], key_meta: 1, value: &value, value_meta: 1, objects: &[] };
        (0..20).for_each(|number| drop(table.set(&entry(number)).unwrap()));
        // The words of the table but its latch (a word that names somebody who lives is waited for), its index and its first entries.
        let slot = table.held().slot();
        let words = estate.segment.region(estate.layout.pages() + slot * layout::OBJECT_PAGE + objects::OWN_WORDS, 512);
        let area = estate.segment.region(estate.layout.object_area(slot), 8192);
        for _ in 0..=round % 3 {
            words.word(128 + (noise.next() % 48) as usize * 8).store(noise.next(), Ordering::Relaxed);
            area.word((noise.next() % 1024) as usize * 8).store(noise.next(), Ordering::Relaxed);
        }
        let began = Instant::now();
        for number in 0..20 {
            let _ = (table.get(&keys[number]), table.len(), table.bytes());
            let _ = table.set(&entry(number));
            let _ = table.remove(&keys[(number * 7) % 20]);
        }
        let _ = (table.entries(), table.is_empty());
        drop(table);
        estate.bury_the_dead();
        slowest = slowest.max(began.elapsed());
    }
    assert!(slowest < Duration::from_secs(10), "a neighbour made somebody busy for {slowest:?}");
}

#[test]
fn a_free_block_is_used_again_and_memory_beyond_the_idle_limit_goes_back() {
    let estate = estate();
    let first = estate.block(100_000).unwrap();
    let id = first.id();
    drop(first);
    let again = estate.block(70_000).unwrap();
    assert_eq!(again.id(), id);
    let others: Vec<Block> = (0..50).map(|_| estate.block(8 << 20).unwrap()).collect();
    assert_eq!(estate.blocks_in_use(), 51);
    drop((again, others));
    assert_eq!(estate.blocks_in_use(), 0);
    let mut fresh = estate.block(8 << 20).unwrap();
    fresh.bytes_mut().fill(1);
    assert!(estate.block(estate.largest_block() + 1).is_err());
}

#[test]
fn an_object_ends_with_its_last_holder_and_its_number_is_never_used_again() {
    let estate = estate();
    let mut numbers = std::collections::HashSet::new();
    for _ in 0..100 {
        let held = estate.make_channel(0, false, 1).unwrap();
        assert!(numbers.insert(held.number()));
        let number = held.number();
        assert_eq!(estate.hold(number).unwrap().number(), number);
        drop(held);
        assert!(matches!(estate.hold(number), Err(EstateError::NoObject { .. })));
    }
    assert!(estate.hold(u64::MAX).is_err() && estate.hold(0).is_err());
    assert_eq!(estate.objects(), 0);
}

/// A member whose process has ended: the first one of the machine did not begin then.
fn somebody_dead(estate: &Estate) -> u32 {
    estate.members.seat(1, u64::MAX).unwrap()
}

/// Writes a record that speaks of a block, which belongs to `writer`.
fn push_block(estate: &Estate, queue: &Queue, writer: u32) {
    let block = estate.blocks.claim(40_000, writer).unwrap();
    let words: [&[u8]; 2] = [&block.to_le_bytes(), &40_000_u64.to_le_bytes()];
    queue.push(&[Parcel { flags: WITH_BLOCK, meta_words: 0, pieces: &words }], estate.hand()).unwrap();
}

#[test]
fn who_does_not_move_delays_a_burial_and_spoils_nothing() {
    for leased in [false, true] {
        let estate = estate();
        let held = estate.make_channel(0, leased, 1).unwrap();
        let (queue, dead) = (held.queue(0, 1), somebody_dead(&estate));
        push_block(&estate, &queue, dead);
        let mut record = Record::default();
        if leased {
            let hand = Hand { me: dead, ..estate.hand() };
            assert!(queue.lease(&mut record, &|_| (), hand).unwrap().is_some());
        }
        let (inside, is_inside) = std::sync::mpsc::channel();
        let (go_on, may_go_on) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let (queue, estate) = (&queue, &estate);
            scope.spawn(move || {
                let stand_still = &mut |_: &Record| {
                    inside.send(()).unwrap();
                    may_go_on.recv().is_err()
                };
                queue.look_through(stand_still, estate.hand()).unwrap();
            });
            is_inside.recv().unwrap();
            assert_eq!(estate.bury_the_dead(), 0, "the readers' latch cannot be had");
            assert!(estate.members().contains(&dead), "and somebody has to try again");
            assert_eq!(estate.blocks_in_use(), 1, "what the record speaks of is still there");
            drop(go_on);
        });
        assert_eq!(estate.bury_the_dead(), 1);
        assert!(!estate.members().contains(&dead));
        assert_eq!((estate.blocks_in_use(), queue.len()), (1, 1));
        if leased {
            let again = queue.lease(&mut record, &|_| (), estate.hand()).unwrap();
            assert!(matches!(again, Some(Leased { returns: 1, .. })), "{again:?}");
        }
    }
}

#[test]
fn a_block_is_freed_once_although_two_died_over_the_end_of_its_queue() {
    let estate = estate();
    let (writer, ender) = (somebody_dead(&estate), somebody_dead(&estate));
    let held = estate.make_channel(0, false, 1).unwrap();
    push_block(&estate, &held.queue(0, 1), writer);
    let entry = estate.entry(held.slot());
    entry.busy.store(ender.into(), Ordering::Relaxed);
    entry.state.store(entry.state.load(Ordering::Relaxed) >> 8 << 8 | objects::DYING, Ordering::Release);
    drop(held);
    assert_eq!(estate.bury(writer, true), Burial::Done);
    let other = estate.block(40_000).unwrap();
    assert_eq!(estate.bury(ender, true), Burial::Done);
    assert_eq!(estate.blocks_in_use(), 1, "only what somebody has since");
    drop(other);
    assert_eq!((estate.blocks_in_use(), estate.objects()), (0, 0));
}

//! What may be believed of an outbox, and until when.

use super::*;

fn outbox(body: usize) -> Arc<Outbox> {
    Arc::new(Outbox::new(Segment::create("test", Outbox::bytes(body)).unwrap()))
}

#[test]
fn an_add_counts_only_when_published() {
    let outbox = outbox(4096);
    let mut post = outbox.post();
    let room = post.room(1, 0, Some(2), 16, 1024).unwrap();
    room.ids.copy_from_slice(&[5, -1]);
    room.delta.copy_from_slice(&[7; 16]);
    let end = room.end;
    post.stage(1, [1, 2, 3, 4], end);
    assert_eq!(outbox.published(), 0);
    assert!(!post.publish(2) && post.publish(1) && !post.publish(1), "once, and only the staged one");
    let entry = outbox.entry(1).unwrap();
    assert_eq!((outbox.ids(entry.ids.unwrap()), outbox.delta(entry.delta), entry.options), (&[5, -1][..], &[7; 16][..], [1, 2, 3, 4]));
    assert!(outbox.entry(2).is_none());
}

#[test]
fn a_full_outbox_waits_and_then_begins_anew() {
    let outbox = outbox(1 << 20);
    let mut post = outbox.post();
    for sequence in 1..=2 {
        let end = post.room(sequence, 0, None, 500, 1024).unwrap().end;
        post.stage(sequence, [0; 4], end);
        assert!(post.publish(sequence));
    }
    assert_eq!(post.room(3, 1, None, 500, 1024).err(), Some(Full::Wait));
    assert_eq!(post.room(3, 2, None, 1 << 30, 1024).err(), Some(Full::Never { room: 1 << 20 }));
    let end = post.room(3, 2, None, 500, 1024).unwrap().end;
    post.stage(3, [0; 4], end);
    assert_eq!(outbox.entry(3).unwrap().delta.start, 0);
}

#[test]
fn a_slot_is_read_until_it_is_needed_again() {
    let outbox = outbox(1 << 20);
    const SLOTS: u64 = slots(100);
    let mut post = outbox.post();
    post.set_slots(100);
    let mut add = |sequence: u64, applied: u64| {
        let room = post.room(sequence, applied, None, 100, 1024)?;
        room.delta.fill(sequence as u8);
        let end = room.end;
        post.stage(sequence, [0; 4], end);
        assert!(post.publish(sequence));
        Ok::<(), Full>(())
    };
    let mut copy = [0; 100];
    assert!(!outbox.copy_slot(1, 100, 0, &mut copy), "nothing stands there yet");
    (1..SLOTS).for_each(|sequence| add(sequence, sequence - 1).unwrap());
    assert!(outbox.copy_slot(1, 100, 0, &mut copy) && copy == [1; 100], "it is applied, and still there");
    add(SLOTS, 0).unwrap();
    assert!(!outbox.copy_slot(1, 100, 0, &mut copy), "its owner may be writing there");
    assert!(outbox.copy_slot(2, 100, 0, &mut copy) && copy == [2; 100]);
    assert!(outbox.copy_slot(3, 100, 60, &mut copy[60..]) && copy[59..61] == [2, 3], "some of it");
    assert!(!outbox.copy_slot(3, 100, 61, &mut copy[60..]) && !outbox.copy_slot(3, 99, 0, &mut copy[..99]), "no more than there is");
    add(SLOTS + 1, 0).unwrap();
    assert!(!outbox.copy_slot(SLOTS + 1, 100, 0, &mut copy), "the slot is taken by one that is not applied: it stands elsewhere");
    assert_eq!(outbox.delta(outbox.entry(1).unwrap().delta), [1; 100]);
    let ids = post.room(SLOTS + 2, SLOTS + 1, Some(2), 100, 1024).unwrap();
    ids.delta.fill(0xee);
    let end = ids.end;
    post.stage(SLOTS + 2, [0; 4], end);
    assert!(post.publish(SLOTS + 2) && !outbox.copy_slot(SLOTS + 2, 100, 0, &mut copy), "so do rows");
    assert!(outbox.copy_slot(4, 100, 0, &mut copy) && copy == [4; 100], "and disturb no slot");
}

#[test]
fn a_tally_stands_for_all_adds_that_are_not_applied() {
    let outbox = outbox(1 << 20);
    let mut post = outbox.post();
    post.set_sides(100);
    let mut add = |sequence: u64, what: u8| {
        post.add_to_tally(sequence, [0; 4], |sum, new| match sum {
            Some(sum) => new.iter_mut().zip(sum).for_each(|(new, sum)| *new = sum + what),
            None => new.fill(what),
        });
        outbox.tally().map(|entry| (entry.sequence, outbox.delta(entry.delta)[99]))
    };
    assert_eq!((add(1, 5), add(2, 1), add(3, 1)), (Some((1, 5)), Some((2, 6)), Some((3, 7))));
    outbox.set_applied(3);
    assert!(outbox.tally().is_none());
    assert_eq!((add(4, 9), add(5, 1)), (Some((4, 9)), Some((5, 10))), "a new one begins with nothing");
    assert_eq!(post.room(6, 3, None, 100, 1024).err(), Some(Full::Wait), "others come when it is applied");
    outbox.set_applied(5);
    let end = post.room(6, 5, None, 100, 1024).unwrap().end;
    post.stage(6, [0; 4], end);
    assert!(post.publish(6) && outbox.tally().is_none());
    assert_eq!(outbox.delta(side_of(5, 100)), [10; 100], "and disturb no side");
    outbox.words.tally.bytes.set(u64::MAX);
    outbox.set_applied(4);
    outbox.words.owner.published.set(5);
    assert!(outbox.tally().is_none(), "sides that do not fit are not believed");
}

#[test]
fn a_lent_delta_stays_where_it_is_until_it_is_taken_over() {
    let outbox = outbox(4096);
    let mut post = outbox.post();
    let end = post.room(1, 0, None, 100, 1024).unwrap().end;
    let lent = LentDelta { array: 0, offset: 77 };
    post.stage_lent(1, [0; 4], lent, end);
    assert!(post.publish(1));
    assert_eq!(outbox.entry(1).unwrap().lent, Some(lent));
    post.take_over(1, &[5; 100]);
    let entry = outbox.entry(1).unwrap();
    assert_eq!((entry.lent, outbox.delta(entry.delta)), (None, &[5; 100][..]));
    let end = post.room(257, 256, None, 8, 1024).unwrap().end;
    post.stage(257, [0; 4], end);
    assert_eq!(outbox.entry(257).unwrap().lent, None);
}

#[test]
fn progress_of_an_earlier_add_is_not_taken_for_this_ones() {
    let outbox = outbox(64);
    outbox.progress_word().set(Outbox::progress_value(7, 4096));
    assert_eq!((outbox.progress(7), outbox.progress(8)), (4096, 0));
}

#[test]
fn progress_of_an_add_with_the_same_low_bits_is_not_taken_for_this_ones() {
    let outbox = outbox(4096);
    let mut post = outbox.post();
    post.pass(65_542); // Many adds that left no progress.
    outbox.progress_word().set(Outbox::progress_value(7, 100));
    let again = 7 + 65_536;
    let end = post.room(again, again - 1, None, 100, 1024).unwrap().end;
    post.stage(again, [0; 4], end);
    assert!(post.publish(again));
    assert_eq!(outbox.progress(again), 0, "nothing of it is applied yet");
}

#[test]
fn entries_that_point_outside_are_not_believed() {
    let outbox = outbox(4096);
    let words = &outbox.entries[1];
    words.sequence.set(1);
    words.rows.set(WHOLE);
    words.delta_at.set(u64::MAX);
    words.delta_len.set(8);
    assert!(outbox.entry(1).is_none());
    words.delta_at.set(0);
    assert!(outbox.entry(1).is_some());
    words.rows.set(1 << 61);
    assert!(outbox.entry(1).is_none());
}

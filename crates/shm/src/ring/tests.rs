//! The ring against the simplest queue there is, and against a peer that writes garbage.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Push(Vec<Vec<u8>>),
    Pop,
}

fn step() -> impl Strategy<Value = Step> {
    let part = prop::collection::vec(any::<u8>(), 0..40);
    prop_oneof![
        prop::collection::vec(part, 0..4).prop_map(Step::Push),
        Just(Step::Pop),
    ]
}

proptest! {
    #[test]
    fn a_ring_behaves_like_a_queue_with_little_room(steps in prop::collection::vec(step(), 0..200)) {
        let (mut producer, mut consumer) = private(128);
        let mut model: VecDeque<Vec<u8>> = VecDeque::new();
        let mut record = Vec::new();
        for step in steps {
            match step {
                Step::Push(parts) => {
                    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
                    let whole = parts.concat();
                    let used: u64 = model.iter().map(|record| footprint(record.len())).sum();
                    let expected = if whole.len() > 112 {
                        Err(PushError::TooLarge { len: whole.len(), most: 112 })
                    } else if used + footprint(whole.len()) + LABEL as u64 > 128 {
                        Err(PushError::Full)
                    } else {
                        model.push_back(whole);
                        Ok(())
                    };
                    prop_assert_eq!(producer.try_push(&parts), expected);
                }
                Step::Pop => {
                    let popped = consumer.try_pop(&mut record).unwrap();
                    prop_assert_eq!(popped.then(|| record.clone()), model.pop_front());
                }
            }
        }
    }

    #[test]
    fn garbage_in_every_word_is_refused_and_never_leads_outside(
        scribbles in prop::collection::vec((0_usize..10, any::<u64>(), 0_usize..3), 1..60),
    ) {
        let control = Shared::in_private_memory(RingControl::default());
        let data = Region::in_private_memory(64);
        let mut producer = Producer::new(control.clone(), data.clone());
        let mut consumer = Consumer::new(control.clone(), data.clone());
        let mut record = Vec::new();
        for (word, value, small) in scribbles {
            // Small values and sound stamps reach further into the code than random ones.
            let value = match small {
                0 => value,
                1 => value % 80,
                _ => stamp(consumer.head) | (value % 80),
            };
            match word {
                0..8 => data.word(word * 8).store(value, Ordering::Relaxed),
                _ => control.head.store(value, Ordering::Relaxed),
            }
            let _ = producer.try_push(&[&[7; 9]]);
            // What is read is bounded, whatever the labels say.
            if let Ok(true) = consumer.try_pop(&mut record) {
                prop_assert!(record.len() <= 48);
            }
        }
    }
}

#[test]
fn a_head_that_runs_back_or_ahead_is_reported() {
    let control = Shared::in_private_memory(RingControl::default());
    let mut producer = Producer::new(control.clone(), Region::in_private_memory(32));
    producer.try_push(&[&[1; 8]]).unwrap();
    for head in [24, 4, u64::MAX] {
        control.head.store(head, Ordering::Relaxed);
        let error = producer.try_push(&[&[1; 8]]).unwrap_err();
        assert!(matches!(error, PushError::Corrupt(_)), "{head}: {error}");
    }
    control.head.store(16, Ordering::Relaxed);
    producer.try_push(&[&[1; 8]]).unwrap();
    control.head.store(0, Ordering::Relaxed);
    let error = producer.try_push(&[&[1; 8]]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the other side wrote 0x0 as ring head, which must lie in 0x10..=0x20"
    );
}

#[test]
fn a_record_that_was_never_published_does_not_exist() {
    let (mut producer, mut consumer) = private(64);
    producer.begin(3).unwrap().put(b"abc"); // and never published, as by a process that dies
    let mut record = Vec::new();
    assert!(!consumer.try_pop(&mut record).unwrap());
    producer.try_push(&[b"whole"]).unwrap();
    assert!(consumer.try_pop(&mut record).unwrap());
    assert_eq!(record, b"whole");
}

#[test]
fn positions_far_beyond_four_gigabytes_keep_their_stamps_apart() {
    let near = [0, 8, 1 << 34, (1 << 35) + 8, !7];
    for position in near {
        assert_ne!(label(position, 0), 0);
        assert_ne!(stamp(position), stamp(position.wrapping_add(8)));
    }
}

//! Damaged files are errors that name the file, never a panic and never wrong numbers.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::folder::MANIFEST;
use super::*;

/// Reads all there is, so that a panic or an endless loop anywhere would show.
fn read_all(checkpoint: &Checkpoint) -> Result<(), Error> {
    for (number, table) in checkpoint.tables().iter().enumerate() {
        if table.shape == Shape::Keys {
            checkpoint.keys(number)?.try_for_each(|block| block.map(drop))?;
            continue;
        }
        for (lane, saved) in table.lanes.iter().enumerate() {
            let bytes = saved.row_bytes().and_then(|row| row.checked_mul(table.rows())).filter(|bytes| *bytes < 1 << 20).unwrap_or(0);
            let _ = checkpoint.read_rows(number, lane, 0..table.rows(), &mut vec![0; bytes as usize]);
        }
    }
    Ok(())
}

#[test]
fn a_flipped_bit_anywhere_in_a_shard_is_found_and_the_file_named() {
    let scratch = tempfile::tempdir().unwrap();
    let tables = vec![SavedTable::new(&Spec::matrix(20, 3).named("w"), "w", 0, [])];
    save(scratch.path(), 2, &tables, 1);
    let name = "shard-0001-of-0002.1.safetensors";
    let file = scratch.path().join(name);
    let sound = std::fs::read(&file).unwrap();
    for at in 0..sound.len() {
        let mut damaged = sound.clone();
        damaged[at] ^= 1 << (at % 8);
        std::fs::write(&file, &damaged).unwrap();
        let error = Checkpoint::open(scratch.path(), Verify::Checksums).expect_err("damage");
        assert!(error.to_string().contains(name), "byte {at}: {error}");
        if let Ok(checkpoint) = Checkpoint::open(scratch.path(), Verify::Sizes) {
            read_all(&checkpoint).unwrap();
            assert!(checkpoint.verify(0, 2).is_ok() && checkpoint.verify(1, 2).is_err(), "shard 1 belongs to the second of two");
        }
    }
}

#[test]
fn a_shard_that_is_short_long_or_gone_is_named() {
    let scratch = tempfile::tempdir().unwrap();
    save(scratch.path(), 2, &some_tables(), 1);
    let name = "shard-0000-of-0002.1.safetensors";
    let file = scratch.path().join(name);
    let sound = std::fs::read(&file).unwrap();
    let refused = || {
        let error = Checkpoint::open(scratch.path(), Verify::Sizes).unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
    };
    for bytes in [&[][..], &sound[..5], &sound[..sound.len() - 1], &[&sound[..], b"x"].concat()] {
        std::fs::write(&file, bytes).unwrap();
        refused();
    }
    std::fs::remove_file(&file).unwrap();
    refused();
    std::fs::create_dir(&file).unwrap();
    refused();
}

#[test]
fn a_changed_manifest_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    save(scratch.path(), 2, &some_tables(), 1);
    let file = scratch.path().join(MANIFEST);
    let sound = std::fs::read_to_string(&file).unwrap();
    for (from, to) in
        [("\"first_row\": 5", "\"first_row\": 4"), ("float32", "float64"), ("\"name\": \"w\"", "\"name\": \"v\""), ("momentum_sgd", "sgd")]
    {
        assert!(sound.contains(from), "{from} in {sound}");
        std::fs::write(&file, sound.replacen(from, to, 1)).unwrap();
        let error = Checkpoint::open(scratch.path(), Verify::Sizes).unwrap_err();
        assert!(error.to_string().contains(MANIFEST), "{error}");
    }
    // White space is not content.
    std::fs::write(&file, sound.replace('\n', "")).unwrap();
    Checkpoint::open(scratch.path(), Verify::Sizes).unwrap();
}

/// Puts a number, a word or nothing in the place of one of the manifest's, and lets the checksum fit again.
fn alter(manifest: &serde_json::Value, place: usize, with: &serde_json::Value) -> serde_json::Value {
    fn walk(value: &mut serde_json::Value, left: &mut usize, with: &serde_json::Value) {
        match value {
            serde_json::Value::Array(items) => items.iter_mut().for_each(|item| walk(item, left, with)),
            serde_json::Value::Object(fields) => fields.values_mut().for_each(|field| walk(field, left, with)),
            leaf => {
                if *left == 0 {
                    *leaf = with.clone();
                }
                *left = left.wrapping_sub(1);
            }
        }
    }
    let mut altered = manifest.clone();
    walk(&mut altered, &mut { place }, with);
    altered
}

fn strange_value() -> impl Strategy<Value = serde_json::Value> {
    let numbers = prop_oneof![Just(0), Just(1), Just(2), Just(u64::MAX), Just(u64::MAX / 8 + 1), Just(1 << 62), any::<u64>(), 0u64..20];
    let words = prop_oneof![Just("w"), Just("../x"), Just("float64"), Just("adagrad"), Just(""), Just("shard-0001-of-0002.1.safetensors")];
    prop_oneof![
        numbers.prop_map(|number| number.into()),
        words.prop_map(|word| word.into()),
        Just(serde_json::Value::Null),
        Just(true.into())
    ]
}

/// Runs `body` with so many values; one folder serves them all, for the disk is slow and they come one by one.
fn for_many<S: Strategy>(cases: u32, strategy: &S, body: impl Fn(S::Value)) {
    let mut runner = TestRunner::new(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) });
    let ran = runner.run(strategy, |value| {
        body(value);
        Ok(())
    });
    ran.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn no_manifest_makes_a_reader_panic() {
    let scratch = tempfile::tempdir().unwrap();
    save(scratch.path(), 2, &some_tables(), 1);
    let file = scratch.path().join(MANIFEST);
    let sound: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    for_many(500, &(0usize..180, strange_value()), |(place, with)| {
        let altered = alter(&sound, place, &with);
        // A checksum that fits gets past the first gate, where the types still make sense.
        let text = match serde_json::from_value::<Manifest>(altered.clone()) {
            Ok(manifest) => serde_json::to_vec(&manifest.resealed()).unwrap(),
            Err(_) => serde_json::to_vec(&altered).unwrap(),
        };
        std::fs::write(&file, text).unwrap();
        if let Ok(checkpoint) = Checkpoint::open(scratch.path(), Verify::Sizes) {
            read_all(&checkpoint).unwrap();
        }
    });
}

#[test]
fn no_bytes_make_the_parsers_panic() {
    let scratch = tempfile::tempdir().unwrap();
    let tables = vec![SavedTable::new(&Spec::array(4).named("w"), "w", 0, [])];
    save(scratch.path(), 1, &tables, 1);
    let file = scratch.path().join("shard-0000-of-0001.1.safetensors");
    let sound = std::fs::read(&file).unwrap();
    for_many(500, &(proptest::collection::vec(any::<u8>(), 0..300), 0..sound.len()), |(bytes, from)| {
        let _ = Manifest::parse(&bytes);
        let mut damaged = sound.clone();
        damaged.iter_mut().skip(from).zip(bytes).for_each(|(old, new)| *old = new);
        std::fs::write(&file, damaged).unwrap();
        if let Ok(checkpoint) = Checkpoint::open(scratch.path(), Verify::Sizes) {
            read_all(&checkpoint).unwrap();
        }
    });
}

//! What was saved is what is loaded, however many wrote it and whichever rows are asked for.

use proptest::prelude::*;
use syncline_cluster::ErrorKind;

use super::*;

#[test]
fn any_number_of_writers_give_the_same_tables() {
    let scratch = tempfile::tempdir().unwrap();
    let tables = some_tables();
    for writers in [1, 2, 3, 16] {
        let path = scratch.path().join(writers.to_string());
        save(&path, writers, &tables, 5);
        let checkpoint = Checkpoint::open(&path, Verify::Checksums).unwrap();
        assert_eq!(checkpoint.tables(), tables);
        assert_holds(&checkpoint, &tables, 5);
    }
}

#[test]
fn every_dtype_and_a_table_beyond_the_buffer() {
    let scratch = tempfile::tempdir().unwrap();
    let spec = |dtype: DType| Spec::matrix(1001, 17).with_dtype(dtype).named(dtype.name());
    let mut tables: Vec<SavedTable> =
        DType::ALL.iter().enumerate().map(|(order, dtype)| SavedTable::new(&spec(*dtype), dtype.name(), order as u32, [])).collect();
    tables.push(SavedTable::new(&Spec::array(3_000_000).with_dtype(DType::F64).named("large"), "large", 9, []));
    tables.push(SavedTable::new(&Spec::matrix(2, 2_000_000).named("wide"), "wide", 10, []));
    save(scratch.path(), 3, &tables, 1);
    assert_holds(&Checkpoint::open(scratch.path(), Verify::Checksums).unwrap(), &tables, 1);
}

#[test]
fn a_checkpoint_stays_readable_when_the_next_replaces_it() {
    let scratch = tempfile::tempdir().unwrap();
    let tables = some_tables();
    assert_eq!(save(scratch.path(), 3, &tables, 1), 1);
    let old = Checkpoint::open(scratch.path(), Verify::Sizes).unwrap();
    assert_eq!(save(scratch.path(), 2, &tables, 2), 2);
    assert_holds(&old, &tables, 1);
    let new = Checkpoint::open(scratch.path(), Verify::Checksums).unwrap();
    assert_holds(&new, &tables, 2);
    assert_eq!(new.generation(), 2);
    assert_eq!(files(scratch.path()), ["manifest.json", "shard-0000-of-0002.2.safetensors", "shard-0001-of-0002.2.safetensors"]);
}

#[test]
fn a_path_that_is_not_ours_is_refused_and_left_alone() {
    let scratch = tempfile::tempdir().unwrap();
    let refused = |path: &Path, why: &str| {
        let error = prepare(path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Configuration);
        assert!(error.to_string().contains(why) && error.to_string().contains(path.to_str().unwrap()), "{error}");
    };
    let file = scratch.path().join("file");
    std::fs::write(&file, "words").unwrap();
    refused(&file, "a file of that name");
    refused(scratch.path(), "`file`");
    let foreign = scratch.path().join("foreign");
    std::fs::create_dir(&foreign).unwrap();
    std::fs::write(foreign.join("manifest.json"), "{\"name\": \"an app\"}").unwrap();
    refused(&foreign, "not ours to replace");
    std::fs::write(foreign.join("manifest.json"), "{\"format\": \"syncline checkpoint\", \"version\": 2}").unwrap();
    refused(&foreign, "version 2");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "words");

    // What somebody put beside a checkpoint of ours stays; folders on the way are made.
    let ours = scratch.path().join("new/and/deep");
    save(&ours, 1, &some_tables(), 1);
    std::fs::write(ours.join("notes.txt"), "good run").unwrap();
    save(&ours, 1, &some_tables(), 2);
    assert_eq!(files(&ours), ["manifest.json", "notes.txt", "shard-0000-of-0001.2.safetensors"]);
}

#[test]
fn a_failed_shard_leaves_no_file_and_its_error_passes_through() {
    let scratch = tempfile::tempdir().unwrap();
    let tables = vec![SavedTable::new(&Spec::array(4).named("w"), "w", 0, [])];
    let mut shard = ShardWriter::create(scratch.path(), 1, 0, 1, &tables).unwrap();
    let twice = ShardWriter::create(scratch.path(), 1, 0, 1, &tables).unwrap_err();
    assert!(twice.to_string().contains("another job"), "{twice}");
    shard.rows(0, 0, 0..4, |_, _| Err(Error::Closed { operation: "get".into() })).unwrap();
    assert_eq!(shard.finish().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(files(scratch.path()), [""; 0]);
    let gone = ShardWriter::create(&scratch.path().join("elsewhere"), 1, 0, 1, &tables).unwrap_err();
    assert!(gone.to_string().contains("storage that all hosts share"), "{gone}");
}

#[test]
fn a_manifest_whose_shards_do_not_hold_every_row_once_is_not_committed() {
    let scratch = tempfile::tempdir().unwrap();
    let tables = vec![SavedTable::new(&Spec::array(4).named("w"), "w", 0, [])];
    let generation = prepare(scratch.path()).unwrap();
    let record = |writer, rows: Range<u64>| {
        let mut shard = ShardWriter::create(scratch.path(), generation, writer, 3, &tables).unwrap();
        shard.rows(0, 0, rows, |_, _| Ok(())).unwrap();
        shard.finish().unwrap()
    };
    let (low, high, both) = (record(0, 0..2), record(1, 2..4), record(2, 1..4));
    for records in [vec![low.clone()], vec![low.clone(), both.clone()], vec![low.clone(), high.clone(), both]] {
        let error = Manifest::new(generation, tables.clone(), records).commit(scratch.path()).unwrap_err();
        assert!(error.to_string().contains("`w` (value) has 4 rows"), "{error}");
    }
    std::fs::remove_file(scratch.path().join(&high.file)).unwrap();
    let error = Manifest::new(generation, tables.clone(), vec![low, high.clone()]).commit(scratch.path()).unwrap_err();
    assert!(error.to_string().contains(&high.file), "{error}");
    assert!(Checkpoint::open(scratch.path(), Verify::Sizes).is_err());
}

#[test]
fn what_was_not_asked_rightly_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let tables = some_tables();
    save(scratch.path(), 2, &tables, 1);
    let checkpoint = Checkpoint::open(scratch.path(), Verify::Sizes).unwrap();
    let mut out = [0; 12];
    for (table, lane, rows) in [(9, 0, 0..1), (0, 2, 0..1), (0, 0, 10..11), (0, 0, 0..2), (2, 0, 0..1), (0, 0, u64::MAX - 1..u64::MAX)] {
        let error = checkpoint.read_rows(table, lane, rows, &mut out).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ShapeMismatch, "{error}");
    }
    assert!(checkpoint.keys(0).is_err());
    checkpoint.read_rows(0, 1, 9..10, &mut out).unwrap();
    let missing = Checkpoint::open(&scratch.path().join("nowhere"), Verify::Sizes).unwrap_err();
    assert!(missing.to_string().contains("there is no checkpoint"), "{missing}");
}

#[test]
fn a_writer_may_hold_rows_from_several_places() {
    let scratch = tempfile::tempdir().unwrap();
    let tables = vec![
        SavedTable::new(&Spec::array(10).named("w"), "w", 0, []),
        SavedTable::new(&Spec::array(1).named("w.from.6"), "w.from.6", 1, []),
    ];
    let generation = prepare(scratch.path()).unwrap();
    let mut records = Vec::new();
    for (writer, ranges) in [(0, &[(0, 0..2), (0, 6..8), (0, 4..6)][..]), (1, &[(0, 8..10), (1, 0..1), (0, 2..4)])] {
        let mut shard = ShardWriter::create(scratch.path(), generation, writer, 2, &tables).unwrap();
        for (table, rows) in ranges.iter().cloned() {
            shard
                .rows(table, 0, rows, move |first, out| {
                    fill(4, table, 0, first * 4, out);
                    Ok(())
                })
                .unwrap();
        }
        records.push(shard.finish().unwrap());
    }
    Manifest::new(generation, tables.clone(), records).commit(scratch.path()).unwrap();
    assert_holds(&Checkpoint::open(scratch.path(), Verify::Checksums).unwrap(), &tables, 4);
}

#[test]
fn records_travel_as_messages() {
    let scratch = tempfile::tempdir().unwrap();
    let tables = some_tables();
    let record = write_shard(scratch.path(), 1, 0, 2, &tables, 1, &|| ()).unwrap();
    let bytes = postcard::to_allocvec(&(&record, &tables)).unwrap();
    assert_eq!(postcard::from_bytes::<(ShardRecord, Vec<SavedTable>)>(&bytes).unwrap(), (record, tables));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_rows_come_from_whatever_files_hold_them(rows in 0u64..40, cols in 0u64..5, writers in 1u32..6, from in 0u64..40, to in 0u64..40) {
        let scratch = tempfile::tempdir().unwrap();
        let tables = vec![SavedTable::new(&Spec::matrix(rows, cols).named("w"), "w", 0, [])];
        save(scratch.path(), writers, &tables, 3);
        let checkpoint = Checkpoint::open(scratch.path(), Verify::Checksums).unwrap();
        let (from, to) = (from.min(to).min(rows), to.max(from).min(rows));
        let mut found = vec![0; ((to - from) * cols * 4) as usize];
        let mut expected = found.clone();
        checkpoint.read_rows(0, 0, from..to, &mut found).unwrap();
        fill(3, 0, 0, from * cols * 4, &mut expected);
        prop_assert_eq!(found, expected);
    }
}

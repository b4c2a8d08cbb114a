//! Whoever dies while saving leaves the old checkpoint or the new one, and the next save tidies up.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use syncline_testkit::sim::Chance;

use super::manifest::Step;
use super::*;

/// What a crash leaves is what is in the folder at that moment: here the folder is copied at every moment that counts.
#[test]
fn a_crash_at_any_step_leaves_the_old_checkpoint_or_the_new_one() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("model");
    let tables = some_tables();
    save(&path, 3, &tables, 1);

    let count = Cell::new(0);
    let moments: RefCell<Vec<(PathBuf, Option<Step>)>> = RefCell::default();
    let look = |step| {
        let copy = scratch.path().join(format!("moment-{}", count.replace(count.get() + 1)));
        copy_folder(&path, &copy);
        moments.borrow_mut().push((copy, step));
    };
    let generation = prepare(&path).unwrap();
    look(None);
    let records = (0..2).map(|writer| {
        let record = write_shard(&path, generation, writer, 2, &tables, 2, &|| look(None)).unwrap();
        // A shard of which only the first half reached the disk.
        let (copy, file) = (scratch.path().join(format!("half-{writer}")), path.join(&record.file));
        copy_folder(&path, &copy);
        let half = std::fs::read(file).unwrap();
        std::fs::write(copy.join(&record.file), &half[..half.len() / 2]).unwrap();
        moments.borrow_mut().push((copy, None));
        look(None);
        record
    });
    let manifest = Manifest::new(generation, tables.clone(), records.collect());
    manifest
        .commit_in_steps(&path, &mut |step| {
            look(Some(step));
            Ok(())
        })
        .unwrap();

    let moments = moments.into_inner();
    assert_eq!(moments.iter().filter(|(_, step)| *step == Some(Step::Removed)).count(), 3, "the three old shards go one by one");
    assert!(moments.len() > 20, "{} moments", moments.len());
    for (copy, step) in moments {
        let new = matches!(step, Some(Step::Renamed | Step::Removed));
        let checkpoint = Checkpoint::open(&copy, Verify::Checksums).unwrap_or_else(|error| panic!("{step:?}: {error}"));
        assert_eq!(checkpoint.generation(), if new { 2 } else { 1 }, "{step:?}");
        assert_holds(&checkpoint, &tables, if new { 2 } else { 1 });
        let next = save(&copy, 1, &tables, 3);
        assert_eq!(files(&copy), ["manifest.json".to_owned(), format!("shard-0000-of-0001.{next}.safetensors")], "{step:?}");
        assert_holds(&Checkpoint::open(&copy, Verify::Checksums).unwrap(), &tables, 3);
    }
}

const PATH: &str = "CHECKPOINT_TEST_PATH";

/// Not a test of its own: saves for ever, when this binary is started again by the next test.
#[test]
fn as_a_saver() {
    let Some(path) = std::env::var_os(PATH) else { return };
    for _ in 0.. {
        let generation = prepare(Path::new(&path)).unwrap();
        let tables = some_tables();
        let records = (0..2).map(|writer| write_shard(Path::new(&path), generation, writer, 2, &tables, generation, &|| ()).unwrap());
        Manifest::new(generation, tables.to_vec(), records.collect()).commit(Path::new(&path)).unwrap();
    }
}

#[test]
fn killed_savers_leave_a_whole_checkpoint_every_time() {
    let scratch = tempfile::tempdir().unwrap();
    let tables = some_tables();
    let mut last = save(scratch.path(), 1, &tables, 1);
    for seed in 0..10 {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "checkpoint::tests::crash::as_a_saver"]).env(PATH, scratch.path()).stdout(Stdio::null());
        let mut saver = command.spawn().unwrap();
        // The moment of the kill is the point of this test; each seed has its own.
        std::thread::sleep(Chance::new(seed).duration(Duration::from_millis(5), Duration::from_millis(60)));
        saver.kill().unwrap();
        saver.wait().unwrap();
        let checkpoint = Checkpoint::open(scratch.path(), Verify::Checksums).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(checkpoint.generation() >= last, "seed {seed}");
        last = checkpoint.generation();
        assert_holds(&checkpoint, &tables, last);
    }
    assert!(last > 1, "the savers came to save");
}

//! Checkpoints as a job writes them: several writers, several readers, crashes and damage.

mod crash;
mod damage;
mod python;
mod roundtrip;

use std::ops::Range;
use std::path::Path;

use syncline_cluster::Error;
use syncline_tensor::DType;

use super::*;
use crate::{Shape, Spec, Updater};

/// A matrix with a state, an array, a key-value table, and tables without a row or without a column.
fn some_tables() -> Vec<SavedTable> {
    let momentum = Spec::matrix(10, 3).named("w").with_updater(Updater::MomentumSgd);
    vec![
        SavedTable::new(&momentum, "w", 0, [SavedLane::new("momentum", DType::F32, 3)]),
        SavedTable::new(&Spec::array(7).with_dtype(DType::BF16), "table 1", 1, []),
        SavedTable::new(&Spec::keys().named("seen").with_dtype(DType::F64), "seen", 2, []),
        SavedTable::new(&Spec::array(0).named("none"), "none", 3, []),
        SavedTable::new(&Spec::matrix(5, 0).named("thin"), "thin", 4, []),
    ]
}

/// Byte number `index` of a lane in save number `salt`.
fn byte(salt: u64, table: usize, lane: usize, index: u64) -> u8 {
    (index.wrapping_mul(31) ^ (index >> 8)).wrapping_add(salt * 101 + table as u64 * 17 + lane as u64 * 7) as u8
}

fn fill(salt: u64, table: usize, lane: usize, first_byte: u64, out: &mut [u8]) {
    out.iter_mut().zip(first_byte..).for_each(|(out, index)| *out = byte(salt, table, lane, index));
}

/// The part of `rows` that writer `writer` of `writers` holds.
fn part(rows: u64, writer: u32, writers: u32) -> Range<u64> {
    rows * u64::from(writer) / u64::from(writers)..rows * u64::from(writer + 1) / u64::from(writers)
}

/// The keys of every key-value table of these tests.
fn all_keys() -> impl Iterator<Item = i64> {
    [i64::MIN, -1, 0, 1, i64::MAX].into_iter().chain((2..40_000).map(|key| key * 1_000_003))
}

fn value_of(salt: u64, key: i64) -> [u8; 8] {
    ((key as f64) + salt as f64).to_le_bytes()
}

fn keys_of(writer: u32, writers: u32) -> Vec<i64> {
    all_keys().filter(|key| key.rem_euclid(i64::from(writers)) == i64::from(writer)).collect()
}

/// One writer's shard of save number `salt`; `glance` is called whenever bytes are asked for.
fn write_shard(
    path: &Path,
    generation: u64,
    writer: u32,
    writers: u32,
    tables: &[SavedTable],
    salt: u64,
    glance: &dyn Fn(),
) -> Result<ShardRecord, Error> {
    let keys = keys_of(writer, writers);
    let mut shard = ShardWriter::create(path, generation, writer, writers, tables)?;
    for (number, table) in tables.iter().enumerate() {
        if table.shape == Shape::Keys {
            let each = |sink: &mut Sink, bytes: &dyn Fn(i64) -> [u8; 8]| {
                glance();
                keys.iter().try_for_each(|key| sink.write(&bytes(*key)))
            };
            shard.keys(
                number,
                keys.len() as u64,
                move |sink| each(sink, &i64::to_le_bytes),
                move |sink| each(sink, &|key| value_of(salt, key)),
            )?;
            continue;
        }
        for (lane, saved) in table.lanes.iter().enumerate() {
            let row_bytes = saved.row_bytes().unwrap();
            shard.rows(number, lane, part(table.rows(), writer, writers), move |first, out| {
                glance();
                fill(salt, number, lane, first * row_bytes, out);
                Ok(())
            })?;
        }
    }
    shard.finish()
}

/// A whole save by `writers`, as a job would do it.
fn save(path: &Path, writers: u32, tables: &[SavedTable], salt: u64) -> u64 {
    let generation = prepare(path).unwrap();
    let records = (0..writers).map(|writer| write_shard(path, generation, writer, writers, tables, salt, &|| ()).unwrap());
    Manifest::new(generation, tables.to_vec(), records.collect()).commit(path).unwrap();
    generation
}

/// Every number of the checkpoint is the one that save number `salt` wrote.
fn assert_holds(checkpoint: &Checkpoint, tables: &[SavedTable], salt: u64) {
    for (number, place) in checkpoint.counterparts(tables).unwrap().into_iter().enumerate() {
        let table = &tables[number];
        if table.shape == Shape::Keys {
            let mut found = Vec::new();
            for block in checkpoint.keys(place).unwrap() {
                let block = block.unwrap();
                assert!(block.keys.iter().zip(block.values.chunks_exact(8)).all(|(key, value)| value == value_of(salt, *key)));
                found.extend(block.keys);
            }
            found.sort_unstable();
            let mut expected: Vec<i64> = all_keys().collect();
            expected.sort_unstable();
            assert!(found == expected, "each key once");
            continue;
        }
        for (lane, saved) in table.lanes.iter().enumerate() {
            let row_bytes = saved.row_bytes().unwrap();
            let (mut found, mut expected) = (vec![0; (table.rows() * row_bytes) as usize], vec![0; (table.rows() * row_bytes) as usize]);
            checkpoint.read_rows(place, lane, 0..table.rows(), &mut found).unwrap();
            fill(salt, number, lane, 0, &mut expected);
            assert!(found == expected, "{table}, lane {lane}");
        }
    }
}

fn files(path: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for name in files(from) {
        std::fs::copy(from.join(&name), to.join(&name)).unwrap();
    }
}

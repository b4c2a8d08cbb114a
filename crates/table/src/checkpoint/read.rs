//! Opens a checkpoint and reads any rows of it, whoever wrote them.

use std::fs::File;
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use safetensors::tensor::Metadata;
use syncline_cluster::Error;

use super::folder::MANIFEST;
use super::manifest::Manifest;
use super::matching::{Mismatch, counterparts};
use super::pieces::{Piece, Pieces};
use super::shard::{Part, ShardRecord, TensorRecord, format_name};
use super::{SavedTable, loading, system};
use crate::Shape;

/// Read at once where all of a file is read.
const BUFFER: usize = 4 << 20;
/// Keys handed out at once.
const KEYS: u64 = 1 << 14;
/// The format's own limit.
const LONGEST_HEADER: u64 = 100_000_000;

/// How much of a checkpoint is looked at before it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Verify {
    /// Every byte: what was written is what is read.
    #[default]
    Checksums,
    /// Names, sizes and headers. Whoever shares the work of checksums with others calls [`Checkpoint::verify`].
    Sizes,
}

/// A checkpoint that is open for reading. It stays readable when a later save replaces it.
#[derive(Debug)]
pub struct Checkpoint {
    path: PathBuf,
    manifest: Manifest,
    pieces: Pieces,
    shards: Vec<Shard>,
}

#[derive(Debug)]
struct Shard {
    file: File,
    /// For each tensor of its record, where its bytes begin.
    begins: Vec<u64>,
}

/// Some keys of a key-value table and their values, one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyBlock {
    /// The keys.
    pub keys: Vec<i64>,
    /// One value of the table's dtype for each.
    pub values: Vec<u8>,
}

impl Checkpoint {
    /// Opens the checkpoint at `path`. Whatever is wrong with it is an error that names the file.
    pub fn open(path: &Path, verify: Verify) -> Result<Checkpoint, Error> {
        let mut checkpoint = Checkpoint::open_once(path);
        // A save that ends between our look at the manifest and at the shards takes them away; the new ones are there.
        while let (Err(_), Ok(before)) = (&checkpoint, Manifest::read(path, &loading(path))) {
            checkpoint = Checkpoint::open_once(path);
            let after = Manifest::read(path, &loading(path));
            if after.is_ok_and(|after| after.generation == before.generation) {
                break;
            }
        }
        let checkpoint = checkpoint?;
        if verify == Verify::Checksums {
            checkpoint.verify(0, 1)?;
        }
        Ok(checkpoint)
    }

    fn open_once(path: &Path) -> Result<Checkpoint, Error> {
        let operation = loading(path);
        if let Err(error) = std::fs::metadata(path.join(MANIFEST)) {
            let hint = match error.kind() {
                ErrorKind::NotFound => "there is no checkpoint",
                ErrorKind::NotADirectory => "a file is not a checkpoint, which is a folder",
                _ => "the checkpoint cannot be read",
            };
            return Err(system(&operation, format_args!("{hint}: {MANIFEST}: {error}")));
        }
        let manifest = Manifest::read(path, &operation)?;
        let pieces = Pieces::of(&manifest).map_err(|detail| system(&operation, detail))?;
        let shards = manifest.shards.iter().map(|record| {
            let file = record.check_size(path, &operation)?;
            let begins = tensors_of(&file, record, &manifest.tables);
            let begins = begins.map_err(|detail| system(&operation, format_args!("{}: {detail}", path.join(&record.file).display())))?;
            Ok(Shard { file, begins })
        });
        let shards = shards.collect::<Result<_, Error>>()?;
        Ok(Checkpoint { path: path.to_owned(), manifest, pieces, shards })
    }

    /// Counts the saves to this path.
    pub fn generation(&self) -> u64 {
        self.manifest.generation
    }

    /// The tables that were saved, in order of creation.
    pub fn tables(&self) -> &[SavedTable] {
        &self.manifest.tables
    }

    /// For each of a job's tables its place in [`tables`](Self::tables): by name, else by order.
    ///
    /// A table without counterpart, or with one of another shape, dtype or updater, is an error; saved tables that the
    /// job does not have are not. Lanes are not compared: a job with more workers has more of some.
    pub fn counterparts(&self, wanted: &[SavedTable]) -> Result<Vec<usize>, Error> {
        counterparts(self.tables(), wanted).map_err(|mismatch| match mismatch {
            Mismatch::Absent(detail) => Error::UnknownKey { operation: loading(&self.path), detail },
            Mismatch::Different(detail) => Error::ShapeMismatch { operation: loading(&self.path), detail },
        })
    }

    /// Reads rows of a lane into `out`, which has room for exactly them. `table` and `lane` are places in
    /// [`tables`](Self::tables) and [`SavedTable::lanes`].
    pub fn read_rows(&self, table: usize, lane: usize, rows: Range<u64>, out: &mut [u8]) -> Result<(), Error> {
        let its = self.table(table)?;
        let Some(saved) = its.lanes.get(lane).filter(|_| its.shape != Shape::Keys && rows.start <= rows.end && rows.end <= its.rows())
        else {
            return self.refused(format!("{its} has no rows {rows:?} of a lane {lane}"));
        };
        let row_bytes = saved.row_bytes().unwrap_or(u64::MAX);
        if (rows.end - rows.start).checked_mul(row_bytes) != Some(out.len() as u64) {
            return self.refused(format!("{} bytes for rows {rows:?} of {its}", out.len()));
        }
        let pieces = self.pieces.lane(table, lane);
        let first = pieces.partition_point(|piece| piece.first_row + piece.rows <= rows.start);
        for piece in pieces[first..].iter().take_while(|piece| piece.first_row < rows.end) {
            let (from, to) = (rows.start.max(piece.first_row), rows.end.min(piece.first_row + piece.rows));
            let part = ((from - rows.start) * row_bytes) as usize..((to - rows.start) * row_bytes) as usize;
            self.read(piece, (from - piece.first_row) * row_bytes, &mut out[part])?;
        }
        Ok(())
    }

    /// All keys of a key-value table in blocks, in no order.
    pub fn keys(&self, table: usize) -> Result<impl Iterator<Item = Result<KeyBlock, Error>> + '_, Error> {
        let its = self.table(table)?;
        if its.shape != Shape::Keys {
            return self.refused(format!("{its} has no keys"));
        }
        let width = its.lanes[0].row_bytes().unwrap_or(u64::MAX);
        let blocks =
            self.pieces.keys(table).iter().flat_map(|pieces| (0..pieces.0.rows).step_by(KEYS as usize).map(move |first| (pieces, first)));
        Ok(blocks.map(move |((keys, values), first)| {
            let count = KEYS.min(keys.rows - first);
            let mut block = KeyBlock { keys: vec![0; count as usize], values: vec![0; (count * width) as usize] };
            let mut raw = vec![0; block.keys.len() * 8];
            self.read(keys, first * 8, &mut raw)?;
            self.read(values, first * width, &mut block.values)?;
            for (key, eight) in block.keys.iter_mut().zip(raw.chunks_exact(8)) {
                *key = i64::from_le_bytes(eight.try_into().expect("eight bytes"));
            }
            Ok(block)
        }))
    }

    /// Compares the checksums of every `parts`-th file from `part` on, so that several processes can share the work.
    pub fn verify(&self, part: usize, parts: usize) -> Result<(), Error> {
        let mut buffer = vec![0; BUFFER];
        for (shard, record) in self.shards.iter().zip(&self.manifest.shards).skip(part).step_by(parts.max(1)) {
            let mut crc = crc32fast::Hasher::new();
            let mut at = 0;
            while at < record.bytes {
                let room = &mut buffer[..(record.bytes - at).min(BUFFER as u64) as usize];
                shard.file.read_exact_at(room, at).map_err(|error| self.failed(record, error))?;
                crc.update(room);
                at += room.len() as u64;
            }
            let found = crc.finalize();
            if found != record.crc32 {
                let wanted = record.crc32;
                return Err(self.failed(record, format_args!("damaged: its checksum is {found:08x}, it was written as {wanted:08x}")));
            }
        }
        Ok(())
    }

    fn read(&self, piece: &Piece, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        let shard = &self.shards[piece.shard];
        let at = shard.begins[piece.tensor] + offset;
        shard.file.read_exact_at(out, at).map_err(|error| self.failed(&self.manifest.shards[piece.shard], error))
    }

    fn table(&self, table: usize) -> Result<&SavedTable, Error> {
        self.tables().get(table).map_or_else(|| self.refused(format!("there is no table {table}")), Ok)
    }

    fn failed(&self, record: &ShardRecord, detail: impl std::fmt::Display) -> Error {
        system(&loading(&self.path), format_args!("{}: {detail}", self.path.join(&record.file).display()))
    }

    fn refused<T>(&self, detail: String) -> Result<T, Error> {
        Err(Error::ShapeMismatch { operation: loading(&self.path), detail })
    }
}

/// Where each tensor of the record begins in the file, if the file's own header agrees with the record.
fn tensors_of(file: &File, record: &ShardRecord, tables: &[SavedTable]) -> Result<Vec<u64>, String> {
    let mut length = [0; 8];
    file.read_exact_at(&mut length, 0).map_err(|error| format!("no header: {error}"))?;
    let length = u64::from_le_bytes(length);
    if length > LONGEST_HEADER || length.saturating_add(8) > record.bytes {
        return Err(format!("damaged: a header of {length} bytes"));
    }
    let mut text = vec![0; length as usize];
    file.read_exact_at(&mut text, 8).map_err(|error| format!("no header: {error}"))?;
    // The crate checks that the tensors lie one after the other without a gap and have the bytes their shapes need.
    let header: Metadata = serde_json::from_slice(&text).map_err(|error| format!("damaged header: {error}"))?;
    if (header.data_len() as u64).checked_add(8 + length) != Some(record.bytes) {
        return Err(format!("damaged: the header describes {} bytes of data", header.data_len()));
    }
    let begin = |tensor: &TensorRecord| {
        let info = header.info(&tensor.name).ok_or_else(|| format!("tensor `{}` is not in it", tensor.name))?;
        let table = tables.get(tensor.table as usize).ok_or("a tensor of no table")?;
        let (dtype, shape) = match tensor.part {
            Part::Keys => ("I64", vec![tensor.rows]),
            Part::Lane(_) | Part::Values => {
                let lane = if let Part::Lane(lane) = tensor.part { lane as usize } else { 0 };
                let lane = table.lanes.get(lane).ok_or("a tensor of no lane")?;
                (format_name(lane.dtype), table.tensor_shape(lane, tensor.rows))
            }
        };
        let found: Vec<u64> = info.shape.iter().map(|side| *side as u64).collect();
        if (info.dtype.to_string().as_str(), &found) != (dtype, &shape) {
            return Err(format!("tensor `{}` is {} {found:?} in the file and {dtype} {shape:?} in the manifest", tensor.name, info.dtype));
        }
        Ok(8 + length + info.data_offsets.0 as u64)
    };
    record.tensors.iter().map(begin).collect()
}

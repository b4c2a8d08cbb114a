//! Writes one server's part of a checkpoint as a safetensors file, in one pass and without holding it.
//!
//! The header of such a file says where every tensor lies, so it comes first and all tensors must be known by then: they
//! are announced with the calls that will read them, and [`ShardWriter::finish`] does the work. Wide numbers go first,
//! which leaves every tensor aligned to its own size.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use syncline_cluster::Error;
use syncline_tensor::DType;

use super::folder::{open_file, shard_name, sync_folder};
use super::saved::tensor_names;
use super::{SavedTable, saving, system};
use crate::Shape;

/// Read and written at once; large enough for the disk, small beside a table.
const BUFFER: usize = 4 << 20;

/// What a writer tells the one who commits: its file, and what is in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShardRecord {
    /// The number of the writer.
    pub writer: u32,
    /// The file's name in the folder.
    pub file: String,
    /// Its size.
    pub bytes: u64,
    /// Its checksum.
    pub crc32: u32,
    /// What it holds, in the order in which it was announced.
    pub tensors: Vec<TensorRecord>,
}

/// One tensor in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorRecord {
    /// Its name in the file.
    pub name: String,
    /// The place of its table among all.
    pub table: u32,
    pub(super) part: Part,
    /// The table's row that is its first.
    pub first_row: u64,
    /// How many rows, or keys.
    pub rows: u64,
}

/// What of its table a tensor holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Part {
    /// Rows of this lane.
    Lane(u32),
    /// The keys of a key-value table.
    Keys,
    /// One value for each of them.
    Values,
}

/// A shard that is being written. Dropped unfinished, it takes its file along.
pub struct ShardWriter<'a> {
    folder: PathBuf,
    tables: &'a [SavedTable],
    names: Vec<Vec<String>>,
    about: BTreeMap<String, String>,
    writer: u32,
    tensors: Vec<Announced<'a>>,
    sink: Sink,
}

type Source<'a> = Box<dyn FnMut(&mut Sink) -> Result<(), Error> + 'a>;

struct Announced<'a> {
    record: TensorRecord,
    dtype: DType,
    shape: Vec<u64>,
    source: Source<'a>,
}

impl<'a> ShardWriter<'a> {
    /// Begins the shard of `writer` in a folder that [`prepare`](super::prepare) got ready for `generation`.
    ///
    /// `tables` are all tables of the checkpoint, the same for every writer.
    pub fn create(folder: &Path, generation: u64, writer: u32, writers: u32, tables: &'a [SavedTable]) -> Result<ShardWriter<'a>, Error> {
        let operation = saving(folder);
        let names = tensor_names(tables)?;
        let file = shard_name(writer, writers, generation);
        let path = folder.join(&file);
        // A file of that name is of another save that is still going on: two must not write one.
        let opened = OpenOptions::new().write(true).create_new(true).open(&path).map_err(|error| {
            let hint = match error.kind() {
                ErrorKind::NotFound => "\nhint: the folder made for this save is not here; is it on storage that all hosts share?",
                ErrorKind::AlreadyExists => "\nhint: is another job saving to the same path?",
                _ => "",
            };
            system(&operation, format_args!("cannot make {}: {error}{hint}", path.display()))
        })?;
        let about =
            [("syncline", "checkpoint 1".to_owned()), ("generation", generation.to_string()), ("writer", format!("{writer} of {writers}"))];
        Ok(ShardWriter {
            folder: folder.to_owned(),
            tables,
            names,
            about: about.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
            writer,
            tensors: Vec::new(),
            sink: Sink {
                file: opened,
                path,
                name: file,
                operation,
                buffer: Vec::new(),
                written: 0,
                crc: crc32fast::Hasher::new(),
                kept: false,
            },
        })
    }

    /// Announces rows of a lane: `read` is called with the first row and room for whole rows, until all are written.
    /// A writer may announce several ranges of one lane.
    pub fn rows(
        &mut self,
        table: usize,
        lane: usize,
        rows: Range<u64>,
        mut read: impl FnMut(u64, &mut [u8]) -> Result<(), Error> + 'a,
    ) -> Result<(), Error> {
        let its = self.table(table)?;
        let Some(saved) = its.lanes.get(lane).filter(|_| its.shape != Shape::Keys && rows.start <= rows.end && rows.end <= its.rows())
        else {
            return self.refused(format!("{its} has no rows {rows:?} of a lane {lane}"));
        };
        let (first_row, count) = (rows.start, rows.end - rows.start);
        let row_bytes = saved.row_bytes().expect("a table in memory") as usize;
        let name = self.free_name(&self.names[table][lane], first_row);
        self.about.insert(format!("{name}.rows"), format!("{}..{} of {}", rows.start, rows.end, its.rows()));
        let record = TensorRecord { name: name.clone(), table: table as u32, part: Part::Lane(lane as u32), first_row, rows: count };
        let source = move |sink: &mut Sink| {
            let at_once = (BUFFER / row_bytes.max(1)).max(1) as u64;
            let mut next = first_row;
            while row_bytes > 0 && next < first_row + count {
                let take = at_once.min(first_row + count - next);
                sink.fill(take as usize * row_bytes, |room| read(next, room))?;
                next += take;
            }
            Ok(())
        };
        self.tensors.push(Announced { record, dtype: saved.dtype, shape: its.tensor_shape(saved, count), source: Box::new(source) });
        Ok(())
    }

    /// Announces what this writer holds of a key-value table: `count` keys, and their values in the same order.
    pub fn keys(
        &mut self,
        table: usize,
        count: u64,
        keys: impl FnMut(&mut Sink) -> Result<(), Error> + 'a,
        values: impl FnMut(&mut Sink) -> Result<(), Error> + 'a,
    ) -> Result<(), Error> {
        let its = self.table(table)?;
        if its.shape != Shape::Keys {
            return self.refused(format!("{its} has no keys"));
        }
        let lane = &its.lanes[0];
        let parts: [(Part, DType, Vec<u64>, Source<'a>); 2] = [
            (Part::Keys, DType::I64, vec![count], Box::new(keys)),
            (Part::Values, lane.dtype, its.tensor_shape(lane, count), Box::new(values)),
        ];
        for ((part, dtype, shape, source), name) in parts.into_iter().zip(&self.names[table]) {
            let record = TensorRecord { name: name.clone(), table: table as u32, part, first_row: 0, rows: count };
            self.tensors.push(Announced { record, dtype, shape, source });
        }
        Ok(())
    }

    /// Writes all that was announced and makes it durable. On an error nothing of the file is left.
    pub fn finish(mut self) -> Result<ShardRecord, Error> {
        let tensors: Vec<TensorRecord> = self.tensors.iter().map(|tensor| tensor.record.clone()).collect();
        // A stable sort: who announced first lies first among numbers of one width.
        self.tensors.sort_by_key(|tensor| std::cmp::Reverse(tensor.dtype.size()));
        let header = self.header()?;
        let sink = &mut self.sink;
        sink.write(&(header.len() as u64).to_le_bytes())?;
        sink.write(&header)?;
        for tensor in &mut self.tensors {
            let before = sink.written;
            (tensor.source)(sink)?;
            let (got, wanted) = (sink.written - before, tensor.bytes());
            if got != wanted {
                return Err(system(
                    &sink.operation,
                    format_args!("{} bytes were given for `{}`, which has {wanted}", got, tensor.record.name),
                ));
            }
        }
        let (bytes, crc32) = sink.close()?;
        sync_folder(&self.folder, &sink.operation)?;
        sink.kept = true;
        Ok(ShardRecord { writer: self.writer, file: sink.name.clone(), bytes, crc32, tensors })
    }

    /// Rows from two places of one table have a tensor each; the second carries its first row in its name.
    fn free_name(&self, name: &str, first_row: u64) -> String {
        let is_taken = |name: &String| self.tensors.iter().any(|tensor| tensor.record.name == *name);
        let is_another = |name: &String| is_taken(name) || self.names.iter().flatten().any(|other| other == name);
        let mut free = name.to_owned();
        if is_taken(&free) {
            while is_another(&free) {
                free += &format!(".from.{first_row}");
            }
        }
        free
    }

    fn header(&self) -> Result<Vec<u8>, Error> {
        let mut header = Map::from_iter([("__metadata__".to_owned(), json!(self.about))]);
        let mut begin = 0;
        for tensor in &self.tensors {
            let end = begin + tensor.bytes();
            let entry = json!({ "dtype": format_name(tensor.dtype), "shape": tensor.shape, "data_offsets": [begin, end] });
            if header.insert(tensor.record.name.clone(), entry).is_some() {
                return self.refused(format!("`{}` was announced twice", tensor.record.name));
            }
            begin = end;
        }
        let mut text = Value::Object(header).to_string().into_bytes();
        // Spaces are allowed here, and the data after them is aligned.
        text.resize(text.len().next_multiple_of(8), b' ');
        Ok(text)
    }

    fn table(&self, table: usize) -> Result<&'a SavedTable, Error> {
        self.tables.get(table).map_or_else(|| self.refused(format!("there is no table {table}")), Ok)
    }

    fn refused<T>(&self, detail: String) -> Result<T, Error> {
        Err(Error::ShapeMismatch { operation: self.sink.operation.clone(), detail })
    }
}

impl fmt::Debug for ShardWriter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardWriter").field("file", &self.sink.path).field("tensors", &self.tensors.len()).finish()
    }
}

impl Announced<'_> {
    fn bytes(&self) -> u64 {
        self.shape.iter().product::<u64>() * self.dtype.size() as u64
    }
}

/// Where a tensor's bytes go, in order.
#[derive(Debug)]
pub struct Sink {
    file: File,
    path: PathBuf,
    name: String,
    operation: String,
    buffer: Vec<u8>,
    written: u64,
    crc: crc32fast::Hasher,
    /// Whether the file stays.
    kept: bool,
}

impl Sink {
    /// Takes these bytes; few at a time are fine.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.fill(bytes.len(), |room| {
            room.copy_from_slice(bytes);
            Ok(())
        })
    }

    /// Takes the `len` bytes that `put` writes in place.
    pub fn fill(&mut self, len: usize, put: impl FnOnce(&mut [u8]) -> Result<(), Error>) -> Result<(), Error> {
        let begin = self.buffer.len();
        self.buffer.resize(begin + len, 0);
        put(&mut self.buffer[begin..])?;
        self.written += len as u64;
        if self.buffer.len() >= BUFFER { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.crc.update(&self.buffer);
        self.file.write_all(&self.buffer).map_err(|error| self.failed(&error))?;
        self.buffer.clear();
        Ok(())
    }

    /// Everything is on the disk; returns size and checksum.
    fn close(&mut self) -> Result<(u64, u32), Error> {
        self.flush()?;
        self.file.sync_all().map_err(|error| self.failed(&error))?;
        Ok((self.written, self.crc.clone().finalize()))
    }

    fn failed(&self, error: &std::io::Error) -> Error {
        system(&self.operation, format_args!("cannot write {}: {error}", self.path.display()))
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        if !self.kept {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl ShardRecord {
    /// The file, if it is there in its full size.
    pub(super) fn check_size(&self, folder: &Path, operation: &str) -> Result<File, Error> {
        let path = folder.join(&self.file);
        let failed = |detail: String| system(operation, format_args!("{}: {detail}", path.display()));
        let file = open_file(&path).map_err(|error| failed(error.to_string()))?;
        let found = file.metadata().map_err(|error| failed(error.to_string()))?.len();
        if found != self.bytes {
            return Err(failed(format!("{found} bytes are there, {} were written", self.bytes)));
        }
        Ok(file)
    }
}

/// How safetensors calls a dtype.
pub(super) fn format_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "F32",
        DType::F64 => "F64",
        DType::F16 => "F16",
        DType::BF16 => "BF16",
        DType::I8 => "I8",
        DType::I16 => "I16",
        DType::I32 => "I32",
        DType::I64 => "I64",
        DType::U8 => "U8",
    }
}

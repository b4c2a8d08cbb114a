//! Writes and reads the file of a save: tensors in one pass, none of them held longer than it takes.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use safetensors::tensor::Metadata;
use serde_json::{Map, Value, json};
use syncline_cluster::Error;
use syncline_tensor::{DType, Shape};

use super::About;

const FORMAT: &str = "kvstore states 1";
/// The format's own limit.
const LONGEST_HEADER: u64 = 100_000_000;

/// A file that is being written. Dropped unfinished, it leaves nothing.
#[derive(Debug)]
pub(crate) struct StateWriter {
    file: File,
    draft: PathBuf,
    path: PathBuf,
    operation: String,
    /// Bytes kept free for the header, which is known last and stands first.
    room: usize,
    header: Map<String, Value>,
    written: usize,
    finished: bool,
}

impl StateWriter {
    /// Begins a file that will replace the one at `path`; `names` are those of all tensors there may be.
    pub(crate) fn create(path: &Path, names: impl Iterator<Item = String>, keys: usize) -> Result<StateWriter, Error> {
        let operation = format!("save_optimizer_states {}", path.display());
        let Some(name) = path.file_name() else {
            return Err(Error::System { operation, detail: "this is no name of a file".into() });
        };
        // An entry is its name, escaped, and at most 19 digits for each extent and offset; a key is named again in the metadata, escaped twice.
        let entries: usize = names.map(|name| 14 * name.len() + 400).sum();
        let room = (entries + 600 * keys + 4096).next_multiple_of(8);
        let draft = path.with_file_name(format!(".{}.{}.draft", name.to_string_lossy(), std::process::id()));
        let failed = |error: std::io::Error| system(&operation, &draft, &error);
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(&draft).map_err(failed)?;
        file.set_len(8 + room as u64).map_err(failed)?;
        Ok(StateWriter { file, draft, path: path.to_owned(), operation, room, header: Map::new(), written: 0, finished: false })
    }

    /// Adds a tensor.
    pub(crate) fn tensor(&mut self, name: String, dtype: DType, shape: &[usize], bytes: &[u8]) -> Result<(), Error> {
        let begin = self.written;
        self.file.write_all_at(bytes, (8 + self.room + begin) as u64).map_err(|error| system(&self.operation, &self.draft, &error))?;
        self.written += bytes.len();
        let entry = json!({ "dtype": format_name(dtype), "shape": shape, "data_offsets": [begin, self.written] });
        self.header.insert(name, entry);
        Ok(())
    }

    /// Writes the header, makes all of it durable and puts it in its place.
    pub(crate) fn finish(mut self, about: &About) -> Result<(), Error> {
        let told =
            serde_json::to_string(about).map_err(|error| Error::System { operation: self.operation.clone(), detail: error.to_string() })?;
        self.header.insert("__metadata__".into(), json!({ "syncline": FORMAT, "about": told }));
        let mut text = Value::Object(std::mem::take(&mut self.header)).to_string().into_bytes();
        if text.len() > self.room {
            let detail = format!("the header needs {} bytes, {} were kept for it", text.len(), self.room);
            return Err(Error::System { operation: self.operation.clone(), detail });
        }
        text.resize(self.room, b' ');
        let written = (|| {
            self.file.write_all_at(&(self.room as u64).to_le_bytes(), 0)?;
            self.file.write_all_at(&text, 8)?;
            self.file.flush()?;
            self.file.sync_all()?;
            fs::rename(&self.draft, &self.path)?;
            self.finished = true;
            let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            File::open(folder)?.sync_all()
        })();
        written.map_err(|error: std::io::Error| system(&self.operation, &self.path, &error))
    }
}

impl Drop for StateWriter {
    fn drop(&mut self) {
        if !self.finished {
            let _ = fs::remove_file(&self.draft);
        }
    }
}

/// A file that is open, its header checked.
#[derive(Debug)]
pub(crate) struct StateReader {
    file: File,
    path: PathBuf,
    operation: String,
    metadata: Metadata,
    begin: u64,
    pub(crate) about: About,
}

impl StateReader {
    /// Opens what [`StateWriter`] wrote; anything else is an error that names the file.
    pub(crate) fn open(path: &Path) -> Result<StateReader, Error> {
        let operation = format!("load_optimizer_states {}", path.display());
        let failed = |error: std::io::Error| system(&operation, path, &error);
        let refused = |detail: String| Error::System { operation: operation.clone(), detail };
        let file = File::open(path).map_err(failed)?;
        let size = file.metadata().map_err(failed)?.len();
        let mut length = [0; 8];
        file.read_exact_at(&mut length, 0).map_err(|_| refused("this is no file of optimizer states: it is too short".into()))?;
        let length = u64::from_le_bytes(length);
        if length > LONGEST_HEADER || length + 8 > size {
            return Err(refused("this is no file of optimizer states: its header cannot be".into()));
        }
        let mut text = vec![0; length as usize];
        file.read_exact_at(&mut text, 8).map_err(failed)?;
        let metadata: Metadata = serde_json::from_slice(&text).map_err(|error| refused(format!("its header is damaged: {error}")))?;
        let held = metadata.data_len() as u64;
        if held != size - 8 - length {
            return Err(refused(format!("{} bytes of numbers are there, the header speaks of {held}", size - 8 - length)));
        }
        let words = metadata.metadata().clone().unwrap_or_default();
        if words.get("syncline").map(String::as_str) != Some(FORMAT) {
            return Err(refused(format!("it is {:?}, not {FORMAT:?}", words.get("syncline").map_or("something else", String::as_str))));
        }
        let about = words.get("about").and_then(|about| serde_json::from_str(about).ok());
        let about = about.ok_or_else(|| refused("its header says nothing of its keys".into()))?;
        Ok(StateReader { file, path: path.to_owned(), operation, metadata, begin: 8 + length, about })
    }

    /// What errors call this load.
    pub(crate) fn operation(&self) -> &str {
        &self.operation
    }

    /// The bytes of a tensor that must be of this dtype and shape.
    pub(crate) fn tensor(&self, name: &str, dtype: DType, shape: &[usize]) -> Result<Vec<u8>, Error> {
        let (begin, length) = self.place(name, dtype, shape)?;
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, self.begin + begin as u64).map_err(|error| system(&self.operation, &self.path, &error))?;
        Ok(bytes)
    }

    /// Whether a tensor is there and of this dtype and shape.
    pub(crate) fn check(&self, name: &str, dtype: DType, shape: &[usize]) -> Result<(), Error> {
        self.place(name, dtype, shape).map(drop)
    }

    /// Where a tensor begins, and its length.
    fn place(&self, name: &str, dtype: DType, shape: &[usize]) -> Result<(usize, usize), Error> {
        let refused = |detail: String| Error::ShapeMismatch { operation: self.operation.clone(), detail };
        let Some(info) = self.metadata.info(name) else { return Err(refused(format!("the file has no `{name}`"))) };
        let found = serde_json::to_value(info.dtype).unwrap_or_default();
        if found != format_name(dtype) || info.shape != shape {
            return Err(refused(format!("`{name}` is {found} of {:?} in the file, {dtype} of {shape:?} here", info.shape)));
        }
        let (begin, end) = info.data_offsets;
        let expected = Shape::new(shape).map(|shape| shape.byte_len(dtype)).unwrap_or(usize::MAX);
        if end.checked_sub(begin) != Some(expected) {
            return Err(refused(format!("`{name}` has {begin}..{end} bytes in the file, {expected} are needed")));
        }
        Ok((begin, expected))
    }

    /// The shape that a tensor has in the file.
    pub(crate) fn shape(&self, name: &str) -> Option<&[usize]> {
        self.metadata.info(name).map(|info| &info.shape[..])
    }
}

fn system(operation: &str, path: &Path, error: &std::io::Error) -> Error {
    Error::System { operation: operation.to_owned(), detail: format!("{}: {error}", path.display()) }
}

/// How safetensors calls a dtype.
fn format_name(dtype: DType) -> &'static str {
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

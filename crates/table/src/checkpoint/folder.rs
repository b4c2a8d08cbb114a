//! The folder of a checkpoint: what its files are called, whose it is, and what may be removed from it.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use syncline_cluster::Error;

use super::manifest::Manifest;
use super::{saving, system};

pub(super) const MANIFEST: &str = "manifest.json";

/// What a name in the folder of a checkpoint stands for.
#[derive(Debug, PartialEq, Eq)]
enum Entry {
    Manifest,
    /// A manifest that was never put in place, or what was to become part of one.
    Draft {
        generation: u64,
    },
    Shard {
        generation: u64,
    },
    /// Nothing of ours.
    Foreign,
}

/// Gets `path` ready for a save and returns the number of the new generation, above all that ever left a file there.
///
/// One process calls it before anybody writes. A missing folder is made. A path that holds something else is refused:
/// a file, a folder of other things, or the checkpoint of a newer version.
pub fn prepare(path: &Path) -> Result<u64, Error> {
    let operation = saving(path);
    let refused = |detail: String| Err(Error::Configuration { detail: format!("{operation}: {detail}") });
    match fs::metadata(path) {
        Ok(there) if !there.is_dir() => {
            return refused("a file of that name is in the way\nhint: a checkpoint is a folder; choose another path".into());
        }
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {
            fs::create_dir_all(path).map_err(|error| system(&operation, format_args!("cannot make the folder: {error}")))?;
            // The folder's own name must be as durable as what will be in it.
            if let Some(parent) = path.parent() {
                sync_folder(if parent.as_os_str().is_empty() { Path::new(".") } else { parent }, &operation)?;
            }
        }
        Err(error) => return Err(system(&operation, error)),
    }
    let (mut newest, mut has_manifest, mut foreign) = (0, false, None);
    for (name, entry) in entries(path, &operation)? {
        match entry {
            Entry::Manifest => has_manifest = true,
            Entry::Draft { generation } | Entry::Shard { generation } => newest = newest.max(generation),
            Entry::Foreign => foreign = foreign.or(Some(name)),
        }
    }
    if has_manifest {
        match Manifest::read(path, &operation) {
            Ok(manifest) => newest = newest.max(manifest.generation),
            Err(error) => {
                return refused(format!(
                    "there is a {MANIFEST} that is not ours to replace: {error}\nhint: choose another path, or remove it"
                ));
            }
        }
    } else if let Some(name) = foreign {
        return refused(format!("the folder holds other things, such as `{name}`\nhint: choose a path that does not exist yet"));
    }
    match newest.checked_add(1) {
        Some(generation) => Ok(generation),
        None => refused(format!("generation {newest} is the last there can be\nhint: choose another path")),
    }
}

/// Removes the shards and drafts of every generation but `current`. What cannot be removed is left, with a warning: the
/// checkpoint is good, and the next save tries again.
pub(super) fn remove_others(path: &Path, current: u64, removed: &mut dyn FnMut() -> Result<(), Error>) -> Result<(), Error> {
    for (name, entry) in entries(path, &saving(path))? {
        let (Entry::Draft { generation } | Entry::Shard { generation }) = entry else { continue };
        if generation != current {
            if let Err(error) = fs::remove_file(path.join(&name)) {
                tracing::warn!("save {}: cannot remove {name}, which is no longer needed: {error}", path.display());
            }
            removed()?;
        }
    }
    Ok(())
}

pub(super) fn shard_name(writer: u32, writers: u32, generation: u64) -> String {
    format!("shard-{writer:04}-of-{writers:04}.{generation}.safetensors")
}

pub(super) fn record_name(writer: u32, generation: u64) -> String {
    format!("shard-{writer:04}.{generation}.record")
}

pub(super) fn draft_path(path: &Path, generation: u64) -> PathBuf {
    path.join(format!("{MANIFEST}.{generation}.tmp"))
}

/// Whether a manifest may point at this name: one of ours, directly in the folder.
pub(super) fn is_shard_of(name: &str, generation: u64) -> bool {
    entry(name) == Entry::Shard { generation }
}

/// Opens what must be a plain file: a pipe of that name would hold us up for ever.
pub(super) fn open_file(path: &Path) -> io::Result<File> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("not a plain file"));
    }
    File::open(path)
}

/// Makes names in the folder survive a power cut.
pub(super) fn sync_folder(path: &Path, operation: &str) -> Result<(), Error> {
    let synced = File::open(path).and_then(|folder| folder.sync_all());
    synced.map_err(|error| system(operation, format_args!("cannot sync the folder {}: {error}", path.display())))
}

fn entries(path: &Path, operation: &str) -> Result<Vec<(String, Entry)>, Error> {
    let failed = |error| system(operation, format_args!("cannot list the folder: {error}"));
    let mut found = Vec::new();
    for item in fs::read_dir(path).map_err(failed)? {
        let name = item.map_err(failed)?.file_name().to_string_lossy().into_owned();
        // NFS keeps a file that is removed while somebody reads it under such a name for a while.
        if !name.starts_with(".nfs") {
            found.push((name.clone(), entry(&name)));
        }
    }
    Ok(found)
}

fn entry(name: &str) -> Entry {
    if name == MANIFEST {
        return Entry::Manifest;
    }
    let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u64>().ok()).flatten();
    let draft = || number(name.strip_prefix(MANIFEST)?.strip_prefix('.')?.strip_suffix(".tmp")?);
    let shard = || {
        let (place, generation) = name.strip_prefix("shard-")?.strip_suffix(".safetensors")?.split_once('.')?;
        let (writer, writers) = place.split_once("-of-")?;
        number(writer).and(number(writers)).and(number(generation))
    };
    let record = || {
        let (writer, generation) = name.strip_prefix("shard-")?.strip_suffix(".record")?.split_once('.')?;
        number(writer).and(number(generation))
    };
    match (draft().or_else(record), shard()) {
        (Some(generation), _) => Entry::Draft { generation },
        (_, Some(generation)) => Entry::Shard { generation },
        _ => Entry::Foreign,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_they_are() {
        assert_eq!(shard_name(3, 12, 7), "shard-0003-of-0012.7.safetensors");
        assert_eq!(entry(&shard_name(3, 12, 7)), Entry::Shard { generation: 7 });
        assert_eq!(entry(&shard_name(12345, 99999, u64::MAX)), Entry::Shard { generation: u64::MAX });
        assert_eq!(entry("manifest.json"), Entry::Manifest);
        assert_eq!(entry("manifest.json.7.tmp"), Entry::Draft { generation: 7 });
        let others = ["", "notes.txt", "shard-0-of-2.safetensors", "shard-+1-of-2.3.safetensors", "shard-0-of-2.-1.safetensors"];
        for other in others.into_iter().chain(["../shard-0-of-2.3.safetensors", "manifest.json.tmp", "model-00001-of-00002.safetensors"]) {
            assert_eq!(entry(other), Entry::Foreign, "{other}");
        }
    }
}

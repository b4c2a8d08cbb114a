//! `--log-dir`: each rank's output in files of its own, complete and unchanged.

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;

/// The folder, with a folder in it for each restart.
pub(in crate::run) struct LogDir {
    root: PathBuf,
}

/// Where one rank's output goes.
pub(in crate::run) struct Files {
    pub(super) out: File,
    pub(super) err: File,
}

impl LogDir {
    pub(in crate::run) fn new(root: PathBuf) -> LogDir {
        LogDir { root }
    }

    /// Makes the files of a rank; those of an earlier job are written over.
    pub(in crate::run) fn files(&self, epoch: u32, rank: u32) -> io::Result<Files> {
        let make = |ending| -> io::Result<File> {
            let path = self.path(epoch, rank, ending);
            fs::create_dir_all(path.parent().unwrap_or(&self.root))
                .and_then(|()| File::create(&path))
                .map_err(|error| io::Error::new(error.kind(), format!("cannot write {}: {error}", path.display())))
        };
        Ok(Files { out: make("out")?, err: make("err")? })
    }

    pub(in crate::run) fn path(&self, epoch: u32, rank: u32, ending: &str) -> PathBuf {
        let folder = match epoch {
            0 => self.root.clone(),
            _ => self.root.join(format!("restart-{epoch}")),
        };
        folder.join(format!("rank-{rank}.{ending}"))
    }
}

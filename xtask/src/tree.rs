//! The project's files as the rules see them: path and text, read once.
//!
//! What git tracks or would track counts; build output and virtual environments do not. Rules take a `Tree`
//! and no path, so that a test hands them a project of three lines.

use std::path::{Path, PathBuf};
use std::process::Command;

/// One text file: its path from the project's root, with forward slashes, and its contents.
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

impl File {
    /// The last part of the path.
    pub(crate) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }
}

/// Every text file of the project, sorted by path.
pub(crate) struct Tree {
    pub(crate) files: Vec<File>,
}

impl Tree {
    /// Reads the project at `root`. Files that are not text are left out: no rule speaks of them.
    pub(crate) fn read(root: &Path) -> std::io::Result<Tree> {
        let listed =
            Command::new("git").args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(root).output()?;
        if !listed.status.success() {
            return Err(std::io::Error::other(format!(
                "git ls-files failed in {}: {}",
                root.display(),
                String::from_utf8_lossy(&listed.stderr).trim()
            )));
        }
        let mut files: Vec<File> = String::from_utf8_lossy(&listed.stdout)
            .split('\0')
            .filter(|path| !path.is_empty())
            // A file that is listed but deleted in the work tree cannot be read and needs no check.
            .filter_map(|path| {
                let text = std::fs::read_to_string(root.join(path)).ok()?;
                Some(File { path: path.to_owned(), text })
            })
            .collect();
        files.sort_by(|a, b| a.path.cmp(&b.path));
        files.dedup_by(|a, b| a.path == b.path);
        Ok(Tree { files })
    }

    pub(crate) fn get(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Is there a file, or a folder with a file in it, at `path`?
    pub(crate) fn exists(&self, path: &str) -> bool {
        let folder = format!("{}/", path.trim_end_matches('/'));
        self.files.iter().any(|file| file.path == path || file.path.starts_with(&folder))
    }

    /// A made-up project for a rule's tests.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Tree {
        let files = files.iter().map(|(path, text)| File { path: (*path).to_owned(), text: (*text).to_owned() }).collect();
        Tree { files }
    }
}

/// The project's root: the folder above this crate's own.
///
/// Asked when it runs and not when it is compiled: with a shared target folder the program may have been built in
/// another checkout.
pub(crate) fn root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from("xtask"), PathBuf::from);
    here.parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_exists_when_a_file_lies_in_it() {
        let tree = Tree::of(&[("crates/shm/src/lib.rs", "")]);
        assert!(tree.exists("crates/shm"));
        assert!(tree.exists("crates/shm/"));
        assert!(tree.exists("crates/shm/src/lib.rs"));
        assert!(!tree.exists("crates/sh"));
    }

    #[test]
    fn the_real_project_is_found_and_read() {
        let tree = Tree::read(&root()).expect("the project is a git work tree");
        assert!(tree.get("xtask/src/tree.rs").is_some());
        assert!(tree.files.iter().all(|file| !file.path.starts_with("target/")));
    }
}

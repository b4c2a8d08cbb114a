//! Files that only their owner can read and that appear whole or not at all.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags};

/// Makes the folder of `path` (mode 0700) if it is not there yet.
pub(super) fn make_folder(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) => DirBuilder::new().recursive(true).mode(0o700).create(folder),
        None => Ok(()),
    }
}

/// Creates `path` with these bytes and mode 0600. `Ok(false)` when somebody else created it first.
///
/// The bytes are written into a file without a name, which then gets its name: a reader sees all or nothing, and a process
/// killed halfway leaves nothing. Where the file system cannot do that (NFS), the unfinished file has a name of its own.
pub(super) fn create(path: &Path, bytes: &[u8]) -> io::Result<bool> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    match rustix::fs::openat(CWD, folder, OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR) {
        Ok(nameless) => {
            let mut file = File::from(nameless);
            write_through(&mut file, bytes)?;
            use std::os::fd::AsRawFd;
            let handle = format!("/proc/self/fd/{}", file.as_raw_fd());
            match rustix::fs::linkat(CWD, handle.as_str(), CWD, path, AtFlags::SYMLINK_FOLLOW) {
                Ok(()) => Ok(true),
                Err(rustix::io::Errno::EXIST) => Ok(false),
                Err(_) => create_by_name(path, folder, bytes),
            }
        }
        Err(_) => create_by_name(path, folder, bytes),
    }
}

fn create_by_name(path: &Path, folder: &Path, bytes: &[u8]) -> io::Result<bool> {
    let mut random = [0u8; 8];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    let unfinished = folder.join(format!(".unfinished-{:016x}", u64::from_le_bytes(random)));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
    let linked = write_through(&mut file, bytes).and_then(|()| match fs::hard_link(&unfinished, path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        // No hard links here: rename without replacing gives the same promise.
        Err(_) => match rustix::fs::renameat_with(CWD, &unfinished, CWD, path, rustix::fs::RenameFlags::NOREPLACE) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::EXIST) => Ok(false),
            Err(error) => Err(error.into()),
        },
    });
    // After a rename the name is gone already; after anything else it has to go.
    let _ = fs::remove_file(&unfinished);
    linked
}

fn write_through(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    // A strict umask may have cleared bits, a default ACL may have added some.
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// What was found under a name.
#[derive(Debug)]
pub(super) enum Found {
    Private(Vec<u8>),
    /// Why it is not to be trusted, and what repairs it.
    Unsafe {
        problem: String,
        hint: String,
    },
    Nothing,
}

/// Reads a file if it belongs to us and nobody else can read or write it; never more than `longest` bytes.
pub(super) fn read(path: &Path, longest: u64) -> io::Result<Found> {
    // Non-blocking, so that a pipe put there cannot hold us; no symbolic links, they may lead to another user's file.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = match rustix::fs::openat(CWD, path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::NOENT) => return Ok(Found::Nothing),
        Err(rustix::io::Errno::LOOP) => {
            let (problem, hint) = ("is a symbolic link".into(), "replace it by a file".into());
            return Ok(Found::Unsafe { problem, hint });
        }
        Err(error) => return Err(error.into()),
    };
    let facts = file.metadata()?;
    let me = rustix::process::geteuid().as_raw();
    if !facts.is_file() {
        return Ok(Found::Unsafe { problem: "is not a file".into(), hint: "remove it".into() });
    }
    if facts.uid() != me {
        let problem = format!("belongs to user {}, not to user {me} who runs this", facts.uid());
        return Ok(Found::Unsafe { problem, hint: "set HOME to a folder of your own".into() });
    }
    if facts.mode() & 0o077 != 0 {
        let problem = format!("can be read or written by others (mode {:03o})", facts.mode() & 0o777);
        return Ok(Found::Unsafe { problem, hint: format!("remove it, or `chmod 600 {}`", path.display()) });
    }
    let mut bytes = Vec::new();
    file.take(longest + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > longest {
        let problem = format!("is longer than {longest} bytes");
        return Ok(Found::Unsafe { problem, hint: "remove it".into() });
    }
    Ok(Found::Private(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_private(path: &Path, expected: &[u8]) -> bool {
        matches!(read(path, 64).unwrap(), Found::Private(bytes) if bytes == expected)
    }

    #[test]
    fn both_ways_to_create_keep_the_first_and_leave_no_other_name() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..2 {
            let way = |path: &Path, bytes: &[u8]| match number {
                0 => create(path, bytes),
                _ => create_by_name(path, folder.path(), bytes),
            };
            let path = folder.path().join(number.to_string());
            assert!(way(&path, b"first").unwrap());
            assert!(!way(&path, b"second").unwrap());
            assert!(is_private(&path, b"first"));
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn what_others_may_have_touched_is_not_trusted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        create(&path, b"bytes").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(read(&path, 64).unwrap(), Found::Unsafe { problem, .. } if problem.contains("mode 640")));
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(matches!(read(&link, 64).unwrap(), Found::Unsafe { problem, .. } if problem.contains("symbolic link")));
        assert!(matches!(read(folder.path(), 64).unwrap(), Found::Unsafe { problem, .. } if problem.contains("not a file")));
        assert!(matches!(read(&folder.path().join("none"), 64).unwrap(), Found::Nothing));
    }

    #[test]
    fn a_huge_file_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        create(&path, &[7; 65]).unwrap();
        assert!(matches!(read(&path, 64).unwrap(), Found::Unsafe { .. }));
    }
}

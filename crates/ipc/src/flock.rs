//! An exclusive advisory lock on a file: torch-ipc's `flock`.
//!
//! The kernel lets go of it when its holder dies, whatever it was doing. A blocking `flock` hears no deadline and no
//! interrupt, so a wait asks again, at first after a millisecond, then more seldom, at most every 20 ms.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use syncline_cluster::ErrorKind;
use syncline_transport::Deadline;

/// A file that is locked until this is dropped.
///
/// ```
/// use syncline_ipc::{Deadline, Flock};
///
/// # let path = std::env::temp_dir().join(format!("syncline-doc-flock-{}", std::process::id()));
/// let lock = Flock::lock(&path, Deadline::never())?; // made if it is not there
/// assert!(Flock::try_lock(&path)?.is_none(), "held");
/// drop(lock);
/// assert!(Flock::try_lock(&path)?.is_some());
/// # std::fs::remove_file(&path).ok();
/// # Ok::<(), syncline_ipc::FlockError>(())
/// ```
#[derive(Debug)]
pub struct Flock {
    _file: File,
    path: PathBuf,
}

impl Flock {
    /// Waits until nobody else holds it. A file that is not there is made, readable and writable by this user only.
    pub fn lock(path: impl AsRef<Path>, by: Deadline) -> Result<Flock, FlockError> {
        const SHORTEST: Duration = Duration::from_millis(1);
        const LONGEST: Duration = Duration::from_millis(20);
        let path = path.as_ref().to_owned();
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = file.map_err(|source| FlockError::Open { path: path.clone(), source })?;
        let mut pause = SHORTEST;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Flock { _file: file, path }),
                Err(Errno::WOULDBLOCK) => {}
                Err(Errno::INTR) => continue,
                Err(error) => return Err(FlockError::Open { path, source: error.into() }),
            }
            if by.interrupted() {
                return Err(FlockError::Interrupted { path, waited: by.waited() });
            }
            if by.expired() {
                return Err(FlockError::Timeout { path, waited: by.waited() });
            }
            std::thread::sleep(by.slice(pause));
            pause = (pause * 2).min(LONGEST);
        }
    }

    /// Takes it if that is possible at once; none if somebody holds it, if it is not there, or may not be opened.
    pub fn try_lock(path: impl AsRef<Path>) -> Result<Option<Flock>, FlockError> {
        let path = path.as_ref().to_owned();
        // Reading is enough to lock: a file of somebody else's may be readable only.
        let file = OpenOptions::new().read(true).write(true).open(&path).or_else(|_| File::open(&path));
        let Ok(file) = file else { return Ok(None) };
        loop {
            return match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => Ok(Some(Flock { _file: file, path })),
                Err(Errno::WOULDBLOCK) => Ok(None),
                Err(Errno::INTR) => continue,
                Err(error) => Err(FlockError::Open { path, source: error.into() }),
            };
        }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Why a file could not be locked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FlockError {
    /// It cannot be opened or made, or its file system knows no locks.
    #[error("flock: {}: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Somebody held it for too long.
    #[error("flock: waited {:.1} s for {}, which another holds\nhint: `lsof` or /proc/locks tells who", waited.as_secs_f64(), path.display())]
    Timeout {
        /// The file.
        path: PathBuf,
        /// How long was waited.
        waited: Duration,
    },
    /// The user interrupted the wait.
    #[error("flock: interrupted after {:.1} s of waiting for {}", waited.as_secs_f64(), path.display())]
    Interrupted {
        /// The file.
        path: PathBuf,
        /// How long was waited.
        waited: Duration,
    },
}

impl FlockError {
    /// The stable family of this error; bindings map it to their exceptions.
    pub fn kind(&self) -> ErrorKind {
        match self {
            FlockError::Open { .. } => ErrorKind::System,
            FlockError::Timeout { .. } => ErrorKind::Timeout,
            FlockError::Interrupted { .. } => ErrorKind::Interrupted,
        }
    }
}

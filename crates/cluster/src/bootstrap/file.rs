//! Meeting through a file on storage that all hosts share.
//!
//! Rank 0 listens, then publishes an [`Invitation`]; the file appears whole, readable by its owner only, and goes when the
//! returned guard does. The others wait for a file that names their job and their life of it: what an earlier job left is ignored.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::private_file::{self, Found};
use super::{Invitation, InvitationError};
use syncline_shm::wait::Deadline;

/// How often a waiting rank looks: often at first, then seldom enough for a file server with a thousand ranks.
const FIRST_LOOK: Duration = Duration::from_millis(5);
const LATER_LOOK: Duration = Duration::from_millis(100);

/// A file of another host that is so old was left by a job all of whose ranks were killed while they gathered: nobody waits a day for rank 0.
const LEFT_OVER: Duration = Duration::from_secs(24 * 60 * 60);

/// How the names begin that we give to such files ourselves; a name that a user gave is the user's.
const OUR_NAMES: [&str; 4] = ["slurm-", "openmpi-", "pmix-", super::tree::LOCALHOST_NAMES];

/// Why ranks could not meet through a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileMeetingError {
    /// The file or its folder cannot be used.
    #[error("cannot {action} the rendezvous file {}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system answered.
        source: io::Error,
    },
    /// Somebody else owns or can read the file.
    #[error("the rendezvous file {} {problem}; {hint}", path.display())]
    Unsafe {
        /// The file.
        path: PathBuf,
        /// Why it is not trusted.
        problem: String,
        /// How to repair it.
        hint: String,
    },
    /// The file holds something else.
    #[error("the rendezvous file {} is damaged: {source}; remove it", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: InvitationError,
    },
    /// Rank 0 published nothing in time.
    #[error("rank 0 published no rendezvous file {} within {waited:.1?}{detail}; is rank 0 running, and do all hosts see this folder?", path.display())]
    Timeout {
        /// The file.
        path: PathBuf,
        /// How long this rank waited.
        waited: Duration,
        /// What was seen instead, such as the file of another job.
        detail: String,
    },
    /// The user interrupted the wait.
    #[error("interrupted while waiting for the rendezvous file {}", path.display())]
    Interrupted {
        /// The file.
        path: PathBuf,
    },
}

/// A published invitation. Dropping it removes the file, if it is still this one.
#[derive(Debug)]
#[must_use = "the file is removed as soon as this is dropped"]
pub struct Published {
    path: PathBuf,
    text: String,
}

impl Drop for Published {
    fn drop(&mut self) {
        remove_if_same(&self.path, &self.text);
    }
}

/// Rank 0: publishes where the coordinator listens, replacing what an earlier job left.
pub fn publish(path: &Path, invitation: &Invitation) -> Result<Published, FileMeetingError> {
    let io = |action| move |source| FileMeetingError::Io { action, path: path.to_owned(), source };
    private_file::make_folder(path).map_err(io("make a folder for"))?;
    sweep(path);
    let text = invitation.to_text();
    // A name can be given once, so a stale file goes first. A second rank 0 may publish in between: try again, not for ever.
    for _ in 0..16 {
        if private_file::create(path, text.as_bytes()).map_err(io("create"))? {
            return Ok(Published { path: path.to_owned(), text });
        }
        match fs::remove_file(path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(io("replace")(error)),
        }
    }
    Err(io("replace")(io::Error::other("another process keeps writing it; are there two ranks 0?")))
}

/// Removes from the same folder what jobs left long ago. Whatever cannot be read or removed stays: this is a courtesy.
fn sweep(path: &Path) {
    const MOST: usize = 10_000;
    for entry in path.parent().and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten().flatten().take(MOST) {
        let ours = entry.file_name().to_str().is_some_and(|name| OUR_NAMES.iter().any(|begin| name.starts_with(begin)));
        let Some(invitation) = ours.then(|| look(&entry.path()).ok().flatten()).flatten() else { continue };
        let age = || entry.metadata().ok()?.modified().ok()?.elapsed().ok();
        if is_deserted(&invitation) || age().is_some_and(|age| age > LEFT_OVER) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Whether the coordinator ran on this host and listens no more. From elsewhere one cannot tell.
fn is_deserted(invitation: &Invitation) -> bool {
    let Some(door) = invitation.local.as_ref().filter(|door| door.host == super::address::host_identity()) else { return false };
    let name = format!("@{}", door.name);
    // Looking does not disturb the listener, as calling would.
    fs::read_to_string("/proc/net/unix").is_ok_and(|sockets| !sockets.lines().any(|line| line.split(' ').next_back() == Some(&name)))
}

/// The others: waits until rank 0 of this job, in this life, has published.
pub fn wait(path: &Path, job: &str, epoch: u32, deadline: Deadline) -> Result<Invitation, FileMeetingError> {
    let began = Instant::now();
    let mut pause = FIRST_LOOK;
    let mut detail = String::new();
    loop {
        match look(path)? {
            Some(invitation) if invitation.is_for(job, epoch) => return Ok(invitation),
            Some(other) => detail = format!(" (there is one of job {:?}, epoch {}, left by another run)", other.job, other.epoch),
            None => detail.clear(),
        }
        if deadline.interrupted() {
            return Err(FileMeetingError::Interrupted { path: path.to_owned() });
        }
        if deadline.expired() {
            return Err(FileMeetingError::Timeout { path: path.to_owned(), waited: began.elapsed(), detail });
        }
        std::thread::sleep(deadline.slice(pause));
        pause = (pause * 2).min(LATER_LOOK);
    }
}

/// The others, later: what the file says now, if it is this job's.
pub fn read(path: &Path, job: &str, epoch: u32) -> Option<Invitation> {
    look(path).ok().flatten().filter(|invitation| invitation.is_for(job, epoch))
}

/// Any member: removes the file that holds this invitation if rank 0 could not, because it was killed between publishing and the
/// last arrival. What a later life of the job wrote stays.
pub fn remove_leftover(path: &Path, invitation: &Invitation) {
    remove_if_same(path, &invitation.to_text());
}

fn look(path: &Path) -> Result<Option<Invitation>, FileMeetingError> {
    // NFS remembers that a name did not exist for half a minute. Opening its folder makes the client ask the server again.
    if let Some(folder) = path.parent() {
        let _ = fs::read_dir(folder).map(|mut entries| entries.next());
    }
    let found = match private_file::read(path, Invitation::LONGEST as u64) {
        Ok(found) => found,
        // NFS: the file was replaced while we read it.
        Err(error) if error.kind() == io::ErrorKind::StaleNetworkFileHandle => return Ok(None),
        Err(source) => return Err(FileMeetingError::Io { action: "read", path: path.to_owned(), source }),
    };
    match found {
        Found::Nothing => Ok(None),
        Found::Unsafe { problem, hint } => Err(FileMeetingError::Unsafe { path: path.to_owned(), problem, hint }),
        Found::Private(bytes) => Invitation::from_text(&String::from_utf8_lossy(&bytes))
            .map(Some)
            .map_err(|source| FileMeetingError::Damaged { path: path.to_owned(), source }),
    }
}

/// Removes the file if it still says what we think it says. Between the look and the removal a new job may publish under the same
/// name only if it has the same job key, which means it is ours.
fn remove_if_same(path: &Path, text: &str) {
    if let Ok(Found::Private(bytes)) = private_file::read(path, Invitation::LONGEST as u64)
        && bytes == text.as_bytes()
    {
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::Token;
    use super::*;

    fn invitation(job: &str) -> Invitation {
        let addresses = vec!["10.0.0.7:41235".parse().unwrap()];
        Invitation { job: job.into(), epoch: 1, addresses, local: None, token: Token::from_text("secret") }
    }

    fn soon() -> Deadline {
        Deadline::after(Duration::from_secs(10))
    }

    #[test]
    fn ranks_that_come_first_wait_for_rank_0_and_the_file_goes_with_its_guard() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/er/job-7");
        std::thread::scope(|scope| {
            let early = scope.spawn(|| wait(&path, "7", 1, soon()).unwrap());
            let published = publish(&path, &invitation("7")).unwrap();
            assert_eq!(early.join().unwrap(), invitation("7"));
            assert_eq!(wait(&path, "7", 1, soon()).unwrap(), invitation("7"));
            drop(published);
        });
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 0);
    }

    #[test]
    fn the_file_of_another_job_is_waited_out_and_named_in_the_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("job");
        std::mem::forget(publish(&path, &invitation("yesterday")).unwrap());
        let error = wait(&path, "today", 1, Deadline::after(Duration::from_millis(20))).unwrap_err().to_string();
        assert!(error.contains("yesterday") && error.contains("rank 0"), "{error}");
        let error = wait(&path, "yesterday", 2, Deadline::after(Duration::ZERO)).unwrap_err();
        assert!(matches!(error, FileMeetingError::Timeout { .. }), "an earlier life of the job is stale too: {error}");
        let _published = publish(&path, &invitation("today")).unwrap();
        assert_eq!(wait(&path, "today", 1, soon()).unwrap(), invitation("today"));
    }

    #[test]
    fn a_guard_does_not_remove_what_a_later_job_wrote() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("job");
        let old = publish(&path, &invitation("old")).unwrap();
        let _new = publish(&path, &invitation("new")).unwrap();
        drop(old);
        remove_leftover(&path, &invitation("old"));
        assert!(wait(&path, "new", 1, soon()).is_ok());
        remove_leftover(&path, &invitation("new"));
        assert!(!path.exists());
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("job");
        let _published = publish(&path, &invitation("7")).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        let error = wait(&path, "7", 1, soon()).unwrap_err().to_string();
        assert!(error.contains("mode 666"), "{error}");
    }

    #[test]
    fn what_killed_jobs_left_long_ago_goes_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["slurm-7.0-restart0-aa", "slurm-8.0-restart0-bb", "openmpi-9-cc", "mine"] {
            std::mem::forget(publish(&path(name), &invitation(name)).unwrap());
        }
        fs::write(path("slurm-notes"), "of a user").unwrap();
        let yesterday = std::time::SystemTime::now() - LEFT_OVER - Duration::from_secs(60);
        for name in ["slurm-7.0-restart0-aa", "openmpi-9-cc", "mine", "slurm-notes"] {
            fs::File::options().write(true).open(path(name)).unwrap().set_modified(yesterday).unwrap();
        }
        // Of this host one can tell at once whether somebody still waits there.
        use std::os::linux::net::SocketAddrExt;
        let name = |word: &str| format!("syncline-test-{word}-{}", std::process::id());
        let address = std::os::unix::net::SocketAddr::from_abstract_name(name("alive")).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind_addr(&address).unwrap();
        for word in ["alive", "dead"] {
            let local = Some(super::super::LocalDoor { host: super::super::address::host_identity(), name: name(word) });
            let here = Invitation { local, ..invitation(word) };
            std::mem::forget(publish(&path(&format!("slurm-{word}")), &here).unwrap());
        }
        let _published = publish(&path("slurm-10.0-restart0-dd"), &invitation("10")).unwrap();
        let mut left: Vec<String> =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        left.sort();
        assert_eq!(left, ["mine", "slurm-10.0-restart0-dd", "slurm-8.0-restart0-bb", "slurm-alive", "slurm-notes"]);
    }

    #[test]
    fn an_interrupt_ends_the_wait() {
        let folder = tempfile::tempdir().unwrap();
        let deadline = soon().with_interrupt(|| true);
        let error = wait(&folder.path().join("job"), "7", 1, deadline).unwrap_err();
        assert!(matches!(error, FileMeetingError::Interrupted { .. }));
    }
}

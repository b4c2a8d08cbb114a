//! The processes that share objects, and how one gets among them.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use syncline_cluster::Job;
use syncline_shm::estate::{Estate, EstateError};
use syncline_shm::heap::Heap;

use crate::Error;

/// This process's membership in a family. Clones are the same membership; it ends with the last of them and the last object.
///
/// ```
/// use syncline_ipc::Family;
///
/// let family = Family::alone()?;
/// let invitation = family.invitation()?; // for a child, in its arguments or its environment
/// let child = Family::accept(&invitation)?; // stands for another process
/// assert_eq!(child.id(), family.id());
/// # Ok::<(), syncline_ipc::Error>(())
/// ```
#[derive(Clone)]
pub struct Family {
    estate: Arc<Estate>,
}

/// A member of a family, as [`Family::members`] tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its number, which nobody else ever has.
    pub number: u32,
    /// Its process.
    pub pid: u32,
    /// Whether that still runs.
    pub alive: bool,
}

impl Family {
    /// A new family, of this process alone until it invites others.
    pub fn alone() -> Result<Family, Error> {
        let heap = Heap::private("syncline-family").map_err(|error| memory("family", &error))?;
        Self::open(Arc::new(heap), "family")
    }

    /// The family of all ranks of `job` on this host.
    pub fn of_job(job: &Job) -> Result<Family, Error> {
        Self::open(Arc::clone(job.heap()), "family of a job")
    }

    fn open(heap: Arc<Heap>, operation: &'static str) -> Result<Family, Error> {
        let mut id = [0; 8];
        getrandom::fill(&mut id).map_err(|error| memory(operation, &error))?;
        let estate = Estate::open(heap, u64::from_le_bytes(id)).map_err(|error| Error::of_estate(operation, error))?;
        Ok(Family { estate })
    }

    /// A line that lets a process of the same user join while this process lives: where the family's memory is, and a number that
    /// proves it is that family's.
    pub fn invitation(&self) -> Result<String, Error> {
        let (descriptor, prefix) = self.estate.heap().descriptor();
        Ok(format!("syncline-family:{}:{}:{prefix:x}:{:x}", std::process::id(), descriptor.as_raw_fd(), self.id()))
    }

    /// Joins the family that an invitation leads to.
    pub fn accept(invitation: &str) -> Result<Family, Error> {
        const OPERATION: &str = "joining a family";
        let wrong = |detail: String| Error::Configuration { operation: OPERATION, detail };
        let parts: Vec<&str> = invitation.trim().split(':').collect();
        let ["syncline-family", pid, descriptor, prefix, id] = parts[..] else {
            return Err(wrong(format!("`{invitation}` is no invitation")));
        };
        let number = |text: &str, radix| u64::from_str_radix(text, radix).map_err(|_| wrong(format!("`{invitation}` is no invitation")));
        let (pid, descriptor, prefix, id) = (number(pid, 10)?, number(descriptor, 10)?, number(prefix, 16)?, number(id, 16)?);
        let path = format!("/proc/{pid}/fd/{descriptor}");
        let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).map_err(|error| Error::System {
            operation: OPERATION,
            detail: format!("process {pid}, which invited this one, cannot be reached ({error}); is it alive, and of the same user?"),
        })?;
        let heap = Heap::join(OwnedFd::from(file), prefix).map_err(|error| memory(OPERATION, &error))?;
        let family = Self::open(Arc::new(heap), OPERATION)?;
        if family.id() != id {
            return Err(wrong(format!("the memory that `{invitation}` leads to belongs to another family")));
        }
        Ok(family)
    }

    /// The family's name, the same in all of its processes.
    pub fn id(&self) -> u64 {
        self.estate.id()
    }

    /// This process's number.
    pub fn me(&self) -> u32 {
        self.estate.me()
    }

    /// Everybody who has joined and whose affairs are not settled yet.
    pub fn members(&self) -> Vec<Member> {
        let member = |number| Some(Member { number, pid: self.estate.pid_of(number)?, alive: !self.estate.is_dead(number) });
        self.estate.members().into_iter().filter_map(member).collect()
    }

    /// Looks now who has died: leases go back, what the dead held alone is freed. Whoever waits does this anyway.
    pub fn bury_the_dead(&self) -> usize {
        self.estate.bury_the_dead()
    }

    /// How much of the family's memory is in use, and how many of its members have died.
    pub fn stats(&self) -> FamilyStats {
        // The kernel counts the pages of the file in units of 512 bytes.
        let memory = rustix::fs::fstat(self.estate.heap().descriptor().0).map_or(0, |file| file.st_blocks as u64 * 512);
        FamilyStats { objects: self.estate.objects(), blocks: self.estate.blocks_in_use(), deaths: self.estate.deaths(), memory }
    }

    pub(crate) fn estate(&self) -> &Arc<Estate> {
        &self.estate
    }

    /// Refuses to go on in a forked child, which is no member.
    pub(crate) fn check(&self, operation: &'static str) -> Result<(), Error> {
        if self.estate.is_original() { Ok(()) } else { Err(Error::Forked { operation }) }
    }
}

/// What a family holds, see [`Family::stats`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FamilyStats {
    /// Channels, queues and other objects that live.
    pub objects: usize,
    /// Blocks of large values, in queues and in hands.
    pub blocks: usize,
    /// Members whose death was noticed.
    pub deaths: u64,
    /// Bytes of memory behind all of it; in a job, behind everything that the ranks of this host share.
    pub memory: u64,
}

impl std::fmt::Debug for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Family({:x}, member {:x})", self.id(), self.me())
    }
}

fn memory(operation: &'static str, error: &dyn std::fmt::Display) -> Error {
    Error::System { operation, detail: error.to_string() }
}

impl Error {
    pub(crate) fn of_estate(operation: &'static str, error: EstateError) -> Error {
        match error {
            EstateError::Queue(error) => Error::of_queue(operation, error, "a latch", std::time::Duration::ZERO),
            EstateError::NoObject { .. } => Error::Closed { operation, what: error.to_string() },
            EstateError::Name { .. } => Error::Configuration { operation, detail: error.to_string() },
            other => Error::System { operation, detail: other.to_string() },
        }
    }
}

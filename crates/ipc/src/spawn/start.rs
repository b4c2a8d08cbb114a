//! Starting a program so that it ends with us.
//!
//! The kernel ties a child to the thread that started it, not to the process. So each program has a thread here that starts it and
//! then sleeps until it has ended: what may end meanwhile is only the whole process.

use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::mpsc::sync_channel;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use syncline_transport::Deadline;

use super::SpawnError;
use super::pipes::ready;

/// The thread calls two functions.
const STACK: usize = 64 << 10;

/// The program, and what is readable once it has ended; `file` names it in errors.
pub(super) fn started(file: &str, mut command: Command) -> Result<(Child, OwnedFd), SpawnError> {
    let (tell, told) = sync_channel(1);
    let name = file.to_owned();
    let tend = move || {
        syncline_shm::kin::ends_with_this_thread(&mut command);
        let child = command.spawn().map_err(|source| SpawnError::NotStarted { file: name.clone(), source });
        let child = child.and_then(|child| watched(child).map_err(|error| unwatched(&name, error)));
        let watch = match &child {
            Ok((_, watch)) => fcntl_dupfd_cloexec(watch, 0).map_err(io::Error::from),
            Err(_) => return drop(tell.send(child)),
        };
        match watch {
            Ok(watch) => {
                let _ = tell.send(child);
                let _ = ready(None, None, Some(&watch), Deadline::never());
            }
            Err(error) => drop(tell.send(Err(unwatched(&name, error)))), // this thread ends, and with it the program
        }
    };
    let thread = std::thread::Builder::new().name("syncline spawn".to_owned()).stack_size(STACK).spawn(tend);
    thread.map_err(|error| unwatched(file, error))?;
    told.recv().unwrap_or_else(|_| Err(unwatched(file, io::Error::other("the thread that starts programs ended"))))
}

/// The program is not at fault, but could not be tended.
fn unwatched(file: &str, error: io::Error) -> SpawnError {
    SpawnError::system("spawn", file, error)
}

fn watched(mut child: Child) -> io::Result<(Child, OwnedFd)> {
    match pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
        Ok(watch) => Ok((child, watch)),
        Err(error) => {
            let _ = child.kill().and_then(|()| child.wait()); // nobody could watch it: nobody will know of it
            Err(error.into())
        }
    }
}

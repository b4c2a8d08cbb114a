//! Locked files: between handles, between processes, and after the death of a holder.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use syncline_ipc::{ErrorKind, Flock, Signal, Spawn};

use crate::{at_once, soon};

/// A name of its own, and nothing left of it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        Scratch(std::env::temp_dir().join(format!("syncline-flock-{name}-{}", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// T14: locks are tested, and what is tested exists.
#[test]
fn the_blocking_form_makes_the_file_for_this_user_and_the_other_does_not() {
    let file = Scratch::new("made");
    assert!(Flock::try_lock(&file.0).expect("no error").is_none());
    assert!(!file.0.exists());
    let lock = Flock::lock(&file.0, soon()).expect("locked");
    let mode = std::fs::metadata(&file.0).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(Flock::try_lock(&file.0).expect("no error").is_none(), "held");
    drop(lock);
    assert!(Flock::try_lock(&file.0).expect("no error").is_some());
}

#[test]
fn a_wait_for_a_lock_ends_by_deadline_interrupt_or_release() {
    let file = Scratch::new("wait");
    let lock = Flock::lock(&file.0, soon()).expect("locked");
    assert_eq!(Flock::lock(&file.0, at_once()).expect_err("held").kind(), ErrorKind::Timeout);
    assert_eq!(Flock::lock(&file.0, soon().with_interrupt(|| true)).expect_err("held").kind(), ErrorKind::Interrupted);
    std::thread::scope(|scope| {
        let second = scope.spawn(|| Flock::lock(&file.0, soon()).map(drop));
        drop(lock);
        second.join().expect("no panic").expect("locked after it was released");
    });
}

const LOCKED: &str = "SYNCLINE_TEST_LOCKED";

/// Not a test of its own: what the process does that is killed with its lock.
#[test]
fn hold_a_lock() {
    let Some(path) = std::env::var_os(LOCKED) else { return };
    let _held = Flock::lock(path, soon()).expect("locked");
    println!("held");
    std::io::stdin().read_line(&mut String::new()).expect("read"); // until its parent ends, should that not kill it
}

#[test]
fn a_lock_dies_with_the_process_that_holds_it() {
    let file = Scratch::new("death");
    let program = std::env::current_exe().expect("this program");
    let holder = Spawn::new(program).args(["--exact", "flock::hold_a_lock", "--nocapture"]).env(LOCKED, &file.0).start().expect("started");
    while !holder.read_line(soon()).expect("read").expect("it says so").ends_with(b"held") {}
    assert!(Flock::try_lock(&file.0).expect("no error").is_none());
    holder.wait(Some(Signal::Kill), soon()).expect("killed");
    Flock::lock(&file.0, soon()).expect("free again");
}

#[test]
fn a_folder_that_is_not_there_is_an_error_with_its_name() {
    let error = Flock::lock("/no/such/folder/lock", soon()).expect_err("no folder");
    assert!(error.to_string().contains("/no/such/folder/lock"), "{error}");
}

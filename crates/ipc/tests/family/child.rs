//! Other processes of the family: this very program, started again with a role in its environment.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};

use syncline_ipc::{Channel, Family, Handle, HandleKind, Value, Workqueue};

use crate::roles;

const ROLE: &str = "SYNCLINE_TEST_ROLE";

/// A process of the family, killed when the test ends, however it ends.
pub(crate) struct Kid {
    child: Child,
}

impl Kid {
    /// Starts a process in a role, with handles and numbers that the role knows how to use.
    pub(crate) fn start(role: &str, family: &Family, handles: &[Value<'_>], numbers: &[u64]) -> Kid {
        let mut line = format!("{role} {}", family.invitation().unwrap());
        for handle in handles {
            let Value::Handle(handle) = handle else { panic!("a handle") };
            line += &format!(" {}={:x}", handle.kind as u8, handle.object);
        }
        numbers.iter().for_each(|number| line += &format!(" {number}"));
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child::play_a_role", "--nocapture", "--test-threads=1"])
            .env(ROLE, line)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Kid { child }
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Stops it wherever it is; returns when it stands still.
    pub(crate) fn stop(&self) {
        self.signal(rustix::process::Signal::STOP);
        let state = || std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        while !state().rsplit_once(") ").unwrap().1.starts_with('T') {
            std::thread::yield_now();
        }
    }

    pub(crate) fn go_on(&self) {
        self.signal(rustix::process::Signal::CONT);
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits for its end; true if it came through, false if it was killed.
    pub(crate) fn ends_well(&mut self) -> bool {
        let status: ExitStatus = self.child.wait().unwrap();
        assert!(status.success() || status.signal() == Some(9), "{status}");
        status.success()
    }
}

impl Drop for Kid {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What a started process was given.
pub(crate) struct Part {
    pub(crate) family: Family,
    pub(crate) handles: Vec<Value<'static>>,
    pub(crate) numbers: Vec<u64>,
}

impl Part {
    pub(crate) fn channel(&self, index: usize) -> Channel {
        Channel::open(&self.family, &self.handles[index]).unwrap()
    }

    pub(crate) fn queue(&self, index: usize) -> Workqueue {
        Workqueue::open(&self.family, &self.handles[index]).unwrap()
    }
}

/// Not a test of its own: what a started process does.
#[test]
fn play_a_role() {
    let Ok(line) = std::env::var(ROLE) else { return };
    let mut words = line.split(' ');
    let role = words.next().unwrap().to_owned();
    let family = Family::accept(words.next().unwrap()).unwrap();
    let (mut handles, mut numbers) = (Vec::new(), Vec::new());
    for word in words {
        match word.split_once('=') {
            Some((kind, object)) => handles.push(Value::Handle(Box::new(Handle {
                kind: HandleKind::from_code(kind.parse().unwrap()).unwrap(),
                family: family.id(),
                object: u64::from_str_radix(object, 16).unwrap(),
                keeper: None,
            }))),
            None => numbers.push(word.parse().unwrap()),
        }
    }
    let part = Part { family, handles, numbers };
    roles::play(&role, &part);
}

//! Ranks as threads of one process, and as real processes that may be killed.

use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Runs `body(rank)` on `world` threads and returns the results by rank. A panic in one is a panic here, after all ended.
pub fn threads<T: Send>(world: usize, body: impl Fn(usize) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let body = &body;
        let handles: Vec<_> = (0..world).map(|rank| scope.spawn(move || body(rank))).collect();
        handles.into_iter().map(|handle| handle.join().expect("a rank panicked")).collect()
    })
}

/// A real process of a test. Dropping it kills it, so that a failing test leaves nothing behind.
#[derive(Debug)]
pub struct Process {
    child: Child,
    name: String,
}

/// What a process left.
#[derive(Debug)]
pub struct Ending {
    /// How it ended.
    pub status: ExitStatus,
    /// All it wrote to standard output.
    pub stdout: String,
    /// All it wrote to standard error.
    pub stderr: String,
}

impl Process {
    /// Starts `command` with its output captured.
    pub fn start(name: impl Into<String>, command: &mut Command) -> Self {
        let name = name.into();
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{name}: cannot start {command:?}: {error}"));
        Process { child, name }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it ends by itself; panics, and kills it, when that takes longer than `limit`.
    pub fn finish_within(mut self, limit: Duration) -> Ending {
        let readers = [
            self.child.stdout.take().map(|pipe| thread::spawn(move || read_all(pipe))),
            self.child.stderr.take().map(|pipe| thread::spawn(move || read_all(pipe))),
        ];
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                break status;
            }
            if start.elapsed() > limit {
                let _ = self.child.kill();
                let _ = self.child.wait();
                let [stdout, stderr] = readers.map(|reader| reader.map(|thread| thread.join().unwrap_or_default()).unwrap_or_default());
                panic!("{} did not end within {limit:?}\n--- stdout\n{stdout}\n--- stderr\n{stderr}", self.name);
            }
            thread::park_timeout(Duration::from_millis(2));
        };
        let [stdout, stderr] = readers.map(|reader| reader.map(|thread| thread.join().unwrap_or_default()).unwrap_or_default());
        Ending { status, stdout, stderr }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_all(mut pipe: impl Read) -> String {
    let mut bytes = Vec::new();
    let _ = pipe.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Asks `condition` again and again until it holds; panics with `what` when it does not within `limit`.
pub fn eventually(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < limit, "{what}: not within {limit:?}");
        thread::park_timeout(Duration::from_millis(2));
    }
}

//! A `syncline run` under test: started for real, watched while it runs, and searched for remains afterwards.
#![allow(dead_code, reason = "each test file uses its part")]

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use syncline_testkit::ranks::eventually;

/// Far longer than anything here takes; only a failing test waits for it.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

const MARK_VARIABLE: &str = "SYNCLINE_TEST_MARK";

/// A launcher that is running.
pub(crate) struct Launcher {
    child: Child,
    stdout: Arc<Mutex<Vec<u8>>>,
    stderr: Arc<Mutex<Vec<u8>>>,
    readers: Vec<JoinHandle<()>>,
    mark: String,
    ended: bool,
}

/// What a launcher left.
#[derive(Debug)]
pub(crate) struct Ending {
    /// The exit code, or 1000 + signal: not what a shell shows, so that the two cannot be mixed up.
    pub(crate) code: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// `syncline` with the given words, in an environment without surprises.
pub(crate) fn syncline(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_syncline"));
    command.args(words);
    for name in ["NO_COLOR", "CI", "COLUMNS", "PYTHONUNBUFFERED", "SYNCLINE_TOKEN", "SYNCLINE_ROLE", "SYNCLINE_TIMEOUT", "VIRTUAL_ENV"] {
        command.env_remove(name);
    }
    command
}

/// Runs `syncline run` with the given words to its end.
pub(crate) fn run(words: &[&str]) -> Ending {
    start(words).end()
}

/// Starts `syncline run` with the given words.
pub(crate) fn start(words: &[&str]) -> Launcher {
    Launcher::of(syncline(&[&["run"], words].concat()))
}

impl Launcher {
    pub(crate) fn of(mut command: Command) -> Launcher {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let mark = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        command.env(MARK_VARIABLE, &mark).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (stdout, out_reader) = collect(child.stdout.take().unwrap());
        let (stderr, err_reader) = collect(child.stderr.take().unwrap());
        Launcher { child, stdout, stderr, readers: vec![out_reader, err_reader], mark, ended: false }
    }

    pub(crate) fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout.lock().unwrap()).into_owned()
    }

    pub(crate) fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr.lock().unwrap()).into_owned()
    }

    /// Waits until the ranks have said `text` on stdout so many times.
    pub(crate) fn wait_for(&self, text: &str, times: usize) {
        eventually(&format!("{times} × {text:?}"), LIMIT, || self.out().matches(text).count() >= times);
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Ending {
        let mut status = None;
        let err = Arc::clone(&self.stderr);
        eventually("the end of syncline run", LIMIT, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        let status = status.unwrap();
        self.ended = true;
        self.readers.drain(..).for_each(|reader| reader.join().unwrap());
        let stdout = std::mem::take(&mut *self.stdout.lock().unwrap());
        Ending {
            code: status.code().unwrap_or_else(|| 1000 + status.signal().unwrap_or(0)),
            out: String::from_utf8_lossy(&stdout).into_owned(),
            err: String::from_utf8_lossy(&err.lock().unwrap()).into_owned(),
            stdout,
        }
    }

    /// What every process of this test carries in its environment.
    pub(crate) fn mark(&self) -> String {
        self.mark.clone()
    }
}

impl Drop for Launcher {
    /// A failing test leaves nothing behind either. After [`Launcher::end`] nothing is done: the job must clean up by itself.
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        for pid in marked(&self.mark) {
            let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
        }
    }
}

impl Ending {
    /// The lines of one rank on stdout, without its prefix.
    pub(crate) fn lines_of(&self, rank: u32) -> Vec<&str> {
        let prefix = format!("[rank {rank}] ");
        self.out.lines().filter_map(|line| line.strip_prefix(&prefix)).collect()
    }

    #[track_caller]
    pub(crate) fn assert_code(&self, expected: i32) {
        assert_eq!(self.code, expected, "\n--- stdout\n{:.2000}\n--- stderr\n{}", self.out, self.err);
    }

    #[track_caller]
    pub(crate) fn assert_says(&self, expected: &str) {
        assert!(self.err.contains(expected), "{expected:?} is not in\n{}", self.err);
    }
}

/// Waits until no living process carries the mark.
pub(crate) fn wait_until_gone(mark: &str) {
    let start = Instant::now();
    while !marked(mark).is_empty() {
        let status = |pid| std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        assert!(start.elapsed() < LIMIT, "left after {LIMIT:?}:\n{}", marked(mark).into_iter().map(status).collect::<String>());
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// Living processes that carry the mark in their environment or on their command line. Zombies have neither.
pub(crate) fn marked(mark: &str) -> Vec<i32> {
    let entry = format!("{MARK_VARIABLE}={mark}");
    let holds = |path: String, wanted: &str| {
        let bytes = std::fs::read(path).unwrap_or_default();
        bytes.split(|byte| *byte == 0).any(|part| part == wanted.as_bytes())
    };
    let processes = std::fs::read_dir("/proc").unwrap();
    let numbers = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    numbers.filter(|pid| holds(format!("/proc/{pid}/environ"), &entry) || holds(format!("/proc/{pid}/cmdline"), mark)).collect()
}

fn collect(mut pipe: impl Read + Send + 'static) -> (Arc<Mutex<Vec<u8>>>, JoinHandle<()>) {
    let collected = Arc::new(Mutex::new(Vec::new()));
    let shared = Arc::clone(&collected);
    let reader = std::thread::spawn(move || {
        let mut chunk = vec![0; 1 << 16];
        while let Ok(count @ 1..) = pipe.read(&mut chunk) {
            shared.lock().unwrap().extend_from_slice(&chunk[..count]);
        }
    });
    (collected, reader)
}

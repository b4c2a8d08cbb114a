//! A process under test and every line it said, with the moment it came.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use syncline_testkit::ranks::eventually;

use super::rank::{MARK, PLAY};

/// Whatever started the test must not leak into the jobs it starts.
const LAUNCHERS: [&str; 10] =
    ["SYNCLINE_", "OMPI_", "PMIX_", "PMI_", "MPI_", "SLURM_", "DMLC_", "TORCHELASTIC_", "JOB_COMPLETION_", "PET_"];
const TORCHRUN: [&str; 7] = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT"];

/// A line and when it was read.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) at: Instant,
    pub(crate) text: String,
}

type Lines = Arc<Mutex<Vec<Line>>>;

/// A process that runs beside the test. Dropping it kills it.
pub(crate) struct Program {
    child: Child,
    name: String,
    out: Lines,
    err: Lines,
    readers: Vec<JoinHandle<()>>,
}

/// The words that start this test binary as a rank that plays `part`.
pub(crate) fn rank_words() -> Vec<String> {
    let exe = std::env::current_exe().expect("a running test knows its own file");
    [exe.to_str().expect("a plain path"), "--exact", "as_a_rank", "--nocapture"].map(str::to_owned).to_vec()
}

/// A command for `words` in an environment without launchers, but with `part` and `env`.
pub(crate) fn command(words: &[String], part: &str, env: &[(&str, &str)]) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    for (name, _) in std::env::vars() {
        if LAUNCHERS.iter().any(|start| name.starts_with(start)) || TORCHRUN.contains(&name.as_str()) {
            command.env_remove(name);
        }
    }
    command.env(PLAY, part).env("RUST_BACKTRACE", "0").envs(env.iter().copied());
    command
}

impl Program {
    pub(crate) fn start(name: impl Into<String>, mut command: Command) -> Program {
        let name = name.into();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{name}: cannot start {command:?}: {error}"));
        let (out, out_reader) = collect(child.stdout.take().expect("piped"));
        let (err, err_reader) = collect(child.stderr.take().expect("piped"));
        Program { child, name, out, err, readers: vec![out_reader, err_reader] }
    }

    /// Its process id, which is that of the rank: every program on the way there replaces itself.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap_or_else(|error| panic!("{}: {error}", self.name));
    }

    /// Tells a rank that listens for it to come to an end.
    pub(crate) fn close_stdin(&mut self) {
        drop(self.child.stdin.take());
    }

    /// What the rank (or the ranks, under a launcher) said with this first word so far, without the mark.
    pub(crate) fn said(&self, word: &str) -> Vec<Line> {
        let lines = self.out.lock().expect("no panic while held");
        let spoken = lines.iter().filter_map(|line| {
            let text = line.text.split_once(MARK)?.1;
            (text.split(' ').next() == Some(word)).then(|| Line { at: line.at, text: text.to_owned() })
        });
        spoken.collect()
    }

    /// Waits until it says something with this first word.
    pub(crate) fn wait_for(&mut self, word: &str, limit: Duration) -> Line {
        let start = Instant::now();
        loop {
            if let Some(line) = self.said(word).into_iter().next() {
                return line;
            }
            let over =
                self.child.try_wait().expect("a child can be waited for").is_some() && self.readers.iter().all(JoinHandle::is_finished);
            if (over && self.said(word).is_empty()) || start.elapsed() > limit {
                panic!("{} did not say {word:?} within {:.1?}{}", self.name, start.elapsed(), self.transcript());
            }
            thread::park_timeout(Duration::from_millis(2));
        }
    }

    /// Waits for its end.
    pub(crate) fn end(&mut self, limit: Duration) -> ExitStatus {
        let mut status = None;
        let start = Instant::now();
        while status.is_none() {
            status = self.child.try_wait().expect("a child can be waited for");
            assert!(status.is_some() || start.elapsed() < limit, "{} did not end within {limit:?}{}", self.name, self.transcript());
            thread::park_timeout(Duration::from_millis(2));
        }
        eventually("the end of its output", limit, || self.readers.iter().all(JoinHandle::is_finished));
        status.expect("the loop ended")
    }

    /// Waits for its end, which must be a success.
    pub(crate) fn succeed(&mut self, limit: Duration) {
        let status = self.end(limit);
        assert!(status.success(), "{} ended with {status}{}", self.name, self.transcript());
    }

    /// All it wrote to stderr so far.
    pub(crate) fn log(&self) -> String {
        text(&self.err)
    }

    /// All it wrote, for the message of a failed test.
    pub(crate) fn transcript(&self) -> String {
        format!("\n--- {} stdout\n{}--- {} stderr\n{}", self.name, text(&self.out), self.name, text(&self.err))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn text(lines: &Lines) -> String {
    lines.lock().expect("no panic while held").iter().map(|line| line.text.clone() + "\n").collect()
}

fn collect(pipe: impl Read + Send + 'static) -> (Lines, JoinHandle<()>) {
    let lines = Lines::default();
    let kept = Arc::clone(&lines);
    let reader = thread::spawn(move || {
        for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
            let text = String::from_utf8_lossy(&line).into_owned();
            kept.lock().expect("no panic while held").push(Line { at: Instant::now(), text });
        }
    });
    (lines, reader)
}

/// The value of `name=value` in a line.
pub(crate) fn fact<'a>(line: &'a str, name: &str) -> &'a str {
    line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('=')).unwrap_or_else(|| panic!("no {name} in: {line}"))
}

//! Whoever tells the launcher to end ends the job, politely first.

mod support;

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use support::{LIMIT, Launcher, start, syncline, wait_until_gone};
use syncline_testkit::ranks::eventually;

const POLITE: &str = r#"
    trap 'echo got INT; exit 3' INT
    trap 'echo got TERM; exit 0' TERM
    echo ready
    while :; do sleep 0.01; done"#;

const STUBBORN: &str = r#"
    trap '' INT TERM
    echo ready
    while :; do sleep 0.01; done"#;

#[test]
fn ctrl_c_is_passed_on_and_gives_130() {
    let job = start(&["-n", "4", "--max-restarts", "3", "sh", "-c", POLITE]);
    job.wait_for("ready", 4);
    job.signal(Signal::INT);
    let end = job.end();
    end.assert_code(130);
    assert_eq!(end.out.matches("got INT").count(), 4);
    end.assert_says("syncline: stopped by SIGINT: ranks 0-3 exited with code 3\n");
    assert!(!end.err.contains("starting the job again"));
}

#[test]
fn sigterm_and_sighup_are_passed_on_as_sigterm() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129)] {
        let job = start(&["-n", "2", "sh", "-c", POLITE]);
        job.wait_for("ready", 2);
        job.signal(signal);
        let end = job.end();
        end.assert_code(code);
        assert_eq!(end.out.matches("got TERM").count(), 2);
    }
}

#[test]
fn who_does_not_listen_is_killed_after_the_grace() {
    let job = start(&["-n", "2", "--grace", "0.2", "sh", "-c", STUBBORN]);
    job.wait_for("ready", 2);
    job.signal(Signal::INT);
    let end = job.end();
    end.assert_code(130);
    end.assert_says("syncline: stopped by SIGINT: ranks 0-1 stopped by the launcher (SIGKILL)\n");
}

#[test]
fn a_second_ctrl_c_kills_at_once() {
    let job = start(&["-n", "2", "--grace", "3600", "sh", "-c", STUBBORN]);
    let mark = job.mark();
    job.wait_for("ready", 2);
    job.signal(Signal::INT);
    eventually("the answer to the first", LIMIT, || job.err().contains("once more kills them now"));
    let second = Instant::now();
    job.signal(Signal::INT);
    job.end().assert_code(130);
    assert!(second.elapsed() < Duration::from_secs(10));
    wait_until_gone(&mark);
}

#[test]
fn ctrl_c_typed_at_a_terminal_ends_the_job_and_its_grandchildren() {
    // Types Ctrl-C once both ranks are ready, and returns the exit code of the launcher.
    let typist = r#"
import os, pty, sys
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:])
seen, typed = b"", False
while True:
    try:
        part = os.read(terminal, 4096)
    except OSError:
        break
    if not part:
        break
    seen += part
    sys.stdout.buffer.write(part)
    if not typed and seen.count(b"ready") == 2:
        typed = True
        os.write(terminal, b"\x03")
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"#;
    let mut command = Command::new("python3");
    let rank = "sleep 3600 & echo ready; wait";
    command.args(["-c", typist, env!("CARGO_BIN_EXE_syncline"), "run", "-n", "2", "sh", "-c", rank]);
    let job = Launcher::of(command);
    let mark = job.mark();
    job.end().assert_code(130);
    wait_until_gone(&mark);
}

#[test]
fn sigusr1_reaches_every_rank_and_ends_nothing() {
    let script = r#"trap 'echo checkpoint; exit 0' USR1; echo ready; while :; do sleep 0.01; done"#;
    let job = start(&["-n", "3", "sh", "-c", script]);
    job.wait_for("ready", 3);
    job.signal(Signal::USR1);
    let end = job.end();
    end.assert_code(0);
    assert_eq!(end.out.matches("checkpoint").count(), 3);
}

#[test]
fn under_nohup_the_end_of_the_terminal_is_not_the_end_of_the_job() {
    let mut command = Command::new("nohup");
    let script = "echo ready; trap 'exit 0' TERM; while :; do sleep 0.01; done";
    command.args([env!("CARGO_BIN_EXE_syncline"), "run", "sh", "-c", script]);
    let job = Launcher::of(command);
    job.wait_for("ready", 1);
    job.signal(Signal::HUP);
    job.signal(Signal::TERM);
    let end = job.end();
    end.assert_code(143);
    assert!(!end.err.contains("SIGHUP"), "{}", end.err);
}

#[test]
fn a_reader_that_does_not_read_does_not_hold_up_ctrl_c() {
    let mut child = syncline(&["run", "-n", "2", "--grace", "0.2", "yes"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut unread = child.stdout.take().unwrap();
    unread.read_exact(&mut [0; 9]).unwrap(); // It runs; now the pipe fills up.
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let mut code = None;
    eventually("the end", LIMIT, || {
        code = child.try_wait().unwrap().map(|status| status.code());
        code.is_some()
    });
    assert_eq!(code.unwrap(), Some(130));
}

#[test]
fn a_failure_before_the_signal_stays_the_verdict() {
    let job = start(&["-n", "2", "--grace", "3600", "sh", "-c", "[ $SYNCLINE_RANK = 0 ] && exit 6; exec sleep 3600"]);
    eventually("the failure", LIMIT, || job.err().contains("exited with code 6"));
    job.signal(Signal::INT);
    let end = job.end();
    end.assert_code(6);
    end.assert_says("it wrote nothing to stderr");
}

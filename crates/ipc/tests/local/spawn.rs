//! Programs that are started, talked to and ended.

use std::time::{Duration, Instant};

use syncline_ipc::{Deadline, ErrorKind, Exit, Signal, Spawn, SpawnError};

use crate::{at_once, soon};

/// Tells a program that is this one, started again, what it is to do.
const ROLE: &str = "SYNCLINE_TEST_ROLE";

const DONE: Exit = Exit { code: Some(0), signal: None };

#[test]
fn echo_says_its_arguments_by_line_and_all_at_once() {
    let echo = Spawn::new("echo").args(["what", "up", "dawg"]).start().expect("starts");
    assert_eq!(echo.read_line(soon()).expect("read").as_deref(), Some(&b"what up dawg"[..]));
    assert_eq!(echo.read_line(soon()).expect("read"), None);
    assert_eq!(echo.wait(None, soon()).expect("ends"), DONE);

    let echo = Spawn::new("echo").args(["what up dawg"]).start().expect("starts");
    assert_eq!(echo.read_all(soon()).expect("read").as_deref(), Some(&b"what up dawg\n"[..]));
    assert_eq!(echo.read_all(soon()).expect("read"), None);
    assert_eq!(echo.wait(None, soon()).expect("ends"), DONE);
}

#[test]
fn tee_gives_back_line_by_line_what_it_is_told() {
    let tee = Spawn::new("tee").start().expect("starts");
    for word in ["a", "b", "c", "d"] {
        tee.write(format!("{word}\n").as_bytes(), soon()).expect("written");
        assert_eq!(tee.read_line(soon()).expect("read"), Some(word.as_bytes().to_vec()));
    }
    tee.close_stdin(soon()).expect("closed");
    assert_eq!(tee.read_line(soon()).expect("read"), None);
    assert!(matches!(tee.write(b"e", soon()), Err(SpawnError::Closed { .. })));
    assert_eq!(tee.wait(None, soon()).expect("ends"), DONE);
}

#[test]
fn bytes_come_in_pieces_of_at_most_what_was_asked_for() {
    let printf = Spawn::new("printf").args(["abcdefg"]).start().expect("starts");
    let mut all = Vec::new();
    while let Some(piece) = printf.read_some(3, soon()).expect("read") {
        assert!((1..=3).contains(&piece.len()), "{piece:?}");
        all.extend(piece);
    }
    assert_eq!(all, b"abcdefg");
    assert_eq!(printf.wait(None, soon()).expect("ends"), DONE);
}

#[test]
fn a_last_line_without_newline_and_empty_lines_are_lines() {
    let printf = Spawn::new("printf").args([r"\n\nlast"]).start().expect("starts");
    let lines: Vec<_> = std::iter::from_fn(|| printf.read_line(soon()).expect("read")).collect();
    assert_eq!(lines, [&b""[..], b"", b"last"]);
}

#[test]
fn the_environment_is_inherited_unless_one_is_given() {
    let printenv = Spawn::new("/usr/bin/env").env("SOME_VAR", "42").start().expect("starts");
    assert_eq!(printenv.read_all(soon()).expect("read").as_deref(), Some(&b"SOME_VAR=42\n"[..]));
    let printenv = Spawn::new("printenv").args(["PATH"]).start().expect("starts");
    assert!(printenv.read_line(soon()).expect("read").is_some());
    assert_eq!(printenv.wait(None, soon()).expect("ends"), DONE);
}

/// T15: the signal is told, and the old call still says 0.
#[test]
fn a_signalled_child_tells_its_signal_and_counts_as_zero_for_torch() {
    for (signal, number) in [(Signal::Term, 15), (Signal::Kill, 9)] {
        let sleep = Spawn::new("sleep").args(["100"]).start().expect("starts");
        assert!(sleep.running());
        let exit = sleep.wait(Some(signal), soon()).expect("ends");
        assert_eq!((exit, exit.torch_code()), (Exit { code: None, signal: Some(number) }, 0));
        assert!(!sleep.running());
        assert!(matches!(sleep.wait(None, soon()), Err(SpawnError::Closed { what: "spawn was already closed", .. })));
        assert!(matches!(sleep.read_line(soon()), Err(SpawnError::Closed { .. })));
    }
    assert_eq!("TERM".parse::<Signal>().expect("known"), Signal::Term);
    assert!(matches!("HUP".parse::<Signal>(), Err(SpawnError::UnknownSignal { .. })));
}

/// T15.
#[test]
fn the_code_of_a_program_is_its_own_and_not_the_last_errno() {
    let failing = Spawn::new("sh").args(["-c", "exit 7"]).start().expect("starts");
    assert_eq!(failing.wait(None, soon()).expect("ends").code, Some(7));
    let missing = Spawn::new("cat").args(["/no/such/file"]).start().expect("starts");
    assert_ne!(missing.wait(None, soon()).expect("ends").torch_code(), 0);
}

#[test]
fn a_program_that_is_not_there_is_an_error_with_its_name() {
    let error = Spawn::new("no-such-program-anywhere").start().expect_err("there is none");
    assert_eq!(error.kind(), ErrorKind::Configuration);
    assert!(error.to_string().contains("no-such-program-anywhere"), "{error}");
}

#[test]
fn megabytes_through_a_child_that_answers_at_once_lock_nobody_up() {
    let cat = Spawn::new("cat").start().expect("starts");
    let sent: Vec<u8> = (0..4 << 20).map(|i: u32| (i % 251) as u8).collect();
    cat.write(&sent, soon()).expect("written, though nobody reads yet");
    cat.close_stdin(soon()).expect("closed");
    assert_eq!(cat.read_all(soon()).expect("read").expect("all of it"), sent);
    assert_eq!(cat.wait(None, soon()).expect("ends"), DONE);
}

#[test]
fn waits_end_at_their_deadline_and_on_an_interrupt_and_lose_nothing() {
    let cat = Spawn::new("cat").start().expect("starts");
    let late = cat.read_line(at_once()).expect_err("it says nothing");
    assert!(matches!(late, SpawnError::Timeout { pid, .. } if pid == cat.pid()), "{late}");
    let interrupted = cat.read_line(soon().with_interrupt(|| true)).expect_err("called off");
    assert_eq!(interrupted.kind(), ErrorKind::Interrupted);
    cat.write(b"half ", soon()).expect("written");
    cat.read_line(at_once()).expect_err("no newline yet");
    cat.write(b"a line\n", soon()).expect("written");
    assert_eq!(cat.read_line(soon()).expect("read").as_deref(), Some(&b"half a line"[..]));
    let sleep = Spawn::new("sleep").args(["100"]).start().expect("starts");
    assert_eq!(sleep.wait(None, at_once()).expect_err("it sleeps").kind(), ErrorKind::Timeout);
    assert_eq!(sleep.wait(Some(Signal::Kill), soon()).expect("ends").signal, Some(9));
}

#[test]
fn a_child_that_has_ended_no_longer_reads_and_says_how_it_ended() {
    let gone = Spawn::new("sh").args(["-c", "exit 3"]).start().expect("starts");
    while gone.running() {
        std::thread::yield_now();
    }
    let error = gone.write(&[0; 1 << 20], soon()).expect_err("nobody reads");
    assert!(matches!(error, SpawnError::Gone { exit: Some(Exit { code: Some(3), .. }), .. }), "{error}");
    assert_eq!(gone.wait(None, soon()).expect("ends").code, Some(3));
}

#[test]
fn a_child_that_nobody_waited_for_is_ended_and_reaped() {
    let started = Instant::now();
    let stubborn = Spawn::new("sh").args(["-c", "trap '' TERM; echo ready; while true; do sleep 0.1; done"]).start().expect("starts");
    assert_eq!(stubborn.read_line(soon()).expect("read").as_deref(), Some(&b"ready"[..]));
    let pid = stubborn.pid();
    drop(stubborn);
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    assert!(started.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_wait_does_not_wait_for_a_grandchild_that_holds_the_pipe() {
    let parent = Spawn::new("sh").args(["-c", "sleep 20 2>/dev/null & echo $!; exit 4"]).start().expect("starts");
    let grandchild = parent.read_line(soon()).expect("read").expect("its number");
    let started = Instant::now();
    assert_eq!(parent.wait(None, Deadline::never()).expect("ends").code, Some(4));
    assert!(started.elapsed() < Duration::from_secs(10));
    let killed = std::process::Command::new("kill").arg(String::from_utf8(grandchild).expect("a number")).status();
    assert!(killed.expect("kill runs").success(), "it outlives its parent");
}

/// Not a test of its own: a program that starts another one from a thread that ends, says its number, and waits to be killed.
#[test]
fn play_a_parent() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let child = std::thread::spawn(|| Spawn::new("sleep").args(["600"]).start().expect("starts")).join().expect("no panic");
    println!("\nchild {}", child.pid());
    loop {
        std::thread::park();
    }
}

#[test]
fn no_program_outlives_the_process_that_started_it() {
    let program = std::env::current_exe().expect("this program");
    let play = Spawn::new(program).args(["--exact", "spawn::play_a_parent", "--nocapture", "--test-threads=1"]);
    let parent = play.env(ROLE, "parent").start().expect("starts");
    let lines = std::iter::from_fn(|| parent.read_line(soon()).expect("read"));
    let words =
        lines.map(|line| String::from_utf8_lossy(&line).into_owned()).find_map(|line| line.strip_prefix("child ").map(str::to_owned));
    let child = rustix::process::Pid::from_raw(words.expect("its number").parse().expect("a number")).expect("not 0");
    let watch =
        rustix::process::pidfd_open(child, rustix::process::PidfdFlags::empty()).expect("it lives, and not only as long as its thread");
    assert_eq!(parent.wait(Some(Signal::Kill), soon()).expect("killed").signal, Some(9));
    let mut ended = [rustix::event::PollFd::new(&watch, rustix::event::PollFlags::IN)];
    let within = rustix::event::Timespec { tv_sec: 20, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut ended, Some(&within)).expect("waits"), 1, "it outlives its parent");
}

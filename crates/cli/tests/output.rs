//! What ranks say arrives: complete, in order, told apart, and in time.

mod support;

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::{LIMIT, Launcher, marked, run, start, syncline};
use syncline_testkit::ranks::eventually;

#[test]
fn each_line_carries_its_rank_on_the_stream_it_was_said_on() {
    let end = run(&["-n", "3", "sh", "-c", "echo out $SYNCLINE_RANK; echo err $SYNCLINE_RANK >&2"]);
    end.assert_code(0);
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&end.out), ["[rank 0] out 0", "[rank 1] out 1", "[rank 2] out 2"]);
    assert_eq!(sorted(&end.err), ["[rank 0] err 0", "[rank 1] err 1", "[rank 2] err 2"], "and nothing of our own");
}

#[test]
fn prefixes_are_coloured_when_asked_and_absent_when_asked() {
    assert_eq!(run(&["--color", "always", "echo", "x"]).out, "\x1b[36m[rank 0]\x1b[0m x\n");
    assert_eq!(run(&["--no-prefix", "echo", "x"]).out, "x\n");
}

#[test]
fn a_terminal_gets_colour_unless_no_color_is_set() {
    let script = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)";
    let on_terminal = |variable: Option<&str>| {
        let mut command = Command::new("python3");
        command.args(["-c", script, env!("CARGO_BIN_EXE_syncline"), "run", "echo", "x"]);
        command.env("TERM", "xterm").env_remove("NO_COLOR").env_remove("CI");
        variable.map(|name| command.env(name, "1"));
        Launcher::of(command).end().out
    };
    assert_eq!(on_terminal(None), "\x1b[36m[rank 0]\x1b[0m x\r\n");
    assert_eq!(on_terminal(Some("NO_COLOR")), "[rank 0] x\r\n");
    assert_eq!(on_terminal(Some("CI")), "[rank 0] x\r\n");
}

#[test]
fn a_missing_last_newline_is_added_and_every_other_byte_stays() {
    let end = run(&["printf", r"a\r\n\000\377b\rc\n\nend"]);
    assert_eq!(end.stdout, b"[rank 0] a\r\n[rank 0] \0\xffb\rc\n[rank 0] \n[rank 0] end\n");
}

#[test]
fn an_unfinished_line_appears_while_its_rank_waits() {
    let scratch = tempfile::tempdir().unwrap();
    let go = scratch.path().join("go");
    let script = r#"printf 'name? '; until [ -e "$1" ]; do sleep 0.01; done; echo Ada"#;
    let job = start(&["sh", "-c", script, "sh", go.to_str().unwrap()]);
    job.wait_for("[rank 0] name? ", 1);
    fs::write(go, "").unwrap();
    assert_eq!(job.end().out, "[rank 0] name? Ada\n");
}

#[test]
fn a_very_long_line_stays_one_line() {
    let end = run(&["python3", "-c", "print('x' * 3_000_000, end='y\\n')"]);
    assert_eq!(end.out.lines().count(), 1);
    assert_eq!(end.out.len(), "[rank 0] ".len() + 3_000_000 + 2);
    assert!(end.out.ends_with("xy\n"));
}

#[test]
fn lines_of_a_flood_stay_whole_and_in_order() {
    let per_rank = 100_000;
    let padding = "x".repeat(90);
    let scratch = tempfile::tempdir().unwrap();
    let logs = scratch.path().to_str().unwrap();
    let script = format!("seq -f '%.0f {padding}' 1 {per_rank}");
    let end = run(&["-n", "4", "--log-dir", logs, "sh", "-c", &script]);
    end.assert_code(0);
    assert_eq!(end.out.lines().count(), 4 * per_rank);
    let expected: Vec<String> = (1..=per_rank).map(|number| format!("{number} {padding}")).collect();
    assert!(expected.iter().map(|line| line.len() + 1).sum::<usize>() > 9_000_000);
    for rank in 0..4 {
        assert!(end.lines_of(rank) == expected, "rank {rank} on stdout");
        let log = fs::read_to_string(scratch.path().join(format!("rank-{rank}.out"))).unwrap();
        assert!(log.lines().eq(&expected), "rank {rank} in its log");
    }
}

#[test]
fn logs_hold_what_was_said_without_prefix_in_a_folder_per_restart() {
    let scratch = tempfile::tempdir().unwrap();
    let logs = scratch.path().join("new/folder");
    let script = "printf 'out %s\\n\\r50%%' $SYNCLINE_EPOCH; echo err >&2; exit 3";
    let end = run(&["-n", "2", "--max-restarts", "1", "--log-dir", logs.to_str().unwrap(), "sh", "-c", script]);
    end.assert_code(3);
    for rank in 0..2 {
        let read = |name: &str| fs::read(logs.join(name.replace('N', &rank.to_string()))).unwrap();
        assert_eq!(read("rank-N.out"), b"out 0\n\r50%");
        assert_eq!(read("rank-N.err"), b"err\n");
        assert_eq!(read("restart-1/rank-N.out"), b"out 1\n\r50%");
    }
    end.assert_says("restart-1/rank-");
}

#[test]
fn a_log_that_cannot_be_written_is_told_before_anything_starts() {
    let end = run(&["--log-dir", "/proc/no/logs", "sh", "-c", "echo started"]);
    end.assert_code(125);
    assert_eq!(end.out, "");
    end.assert_says("syncline: cannot write /proc/no/logs/rank-0.out");
}

#[test]
fn a_stranger_that_holds_the_pipe_does_not_hold_up_the_end() {
    // It left the process group and has no environment: nothing ties it to the job but the pipe.
    let script = r#"env -i setsid sh -c 'while sleep 0.01; do echo still here; done' stranger-$SYNCLINE_TEST_MARK & echo bye"#;
    let job = start(&["sh", "-c", script]);
    let stranger = format!("stranger-{}", job.mark());
    job.wait_for("still here", 1);
    let started = Instant::now();
    let end = job.end();
    let took = started.elapsed();
    end.assert_code(0);
    assert!(end.out.contains("[rank 0] bye\n"));
    assert!(took < Duration::from_secs(10), "{took:?}");
    // It writes into a broken pipe now, and ends of it.
    eventually("the end of the stranger", LIMIT, || marked(&stranger).is_empty());
}

#[test]
fn ranks_feel_that_nobody_reads_their_output() {
    let mut child = syncline(&["run", "-n", "2", "yes"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    drop(child.stdout.take());
    let mut code = None;
    eventually("the end", LIMIT, || {
        code = child.try_wait().unwrap().map(|status| status.code());
        code.is_some()
    });
    assert_eq!(code.unwrap(), Some(128 + 13), "SIGPIPE, as without a launcher");
}

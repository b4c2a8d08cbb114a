//! A job that fails says who failed first and how, ends the others, and passes the failure on.

mod support;

use std::time::{Duration, Instant};

use support::{run, start, syncline};

#[test]
fn the_exit_code_is_that_of_the_first_failure() {
    let end = run(&["-n", "3", "--grace", "0.1", "sh", "-c", "[ $SYNCLINE_RANK = 1 ] && exit 42; exec sleep 3600", "--grace"]);
    end.assert_code(42);
    assert!(end.err.contains("rank 1 (pid "), "{}", end.err);
}

#[test]
fn success_is_silent() {
    let end = run(&["-n", "4", "--servers", "0", "true"]);
    assert_eq!((end.code, end.out.as_str(), end.err.as_str()), (0, "", ""));
}

#[test]
fn the_first_failure_is_repeated_at_the_end_with_its_last_words() {
    let script = r#"
        if [ $SYNCLINE_RANK = 2 ]; then
            until [ -e 0 ] && [ -e 1 ] && [ -e 3 ]; do sleep 0.01; done
            for i in $(seq 1 30); do echo "line $i" >&2; done
            kill -9 $$
        fi
        trap 'echo leaving; exit 7' TERM
        : > $SYNCLINE_RANK
        while :; do sleep 0.01; done"#;
    let scratch = tempfile::tempdir().unwrap();
    let mut command = syncline(&["run", "-n", "4", "--grace", "0.1", "sh", "-c", script]);
    command.current_dir(scratch.path());
    let end = support::Launcher::of(command).end();
    end.assert_code(128 + 9);
    end.assert_says(" after the start; the others have 0.1 s to end\n");
    let verdict = end.err.rsplit("syncline: rank 2 (pid ").next().unwrap();
    let (first, rest) = verdict.split_once('\n').unwrap();
    assert!(first.contains(") was killed by signal 9 (SIGKILL) "), "{verdict}");
    assert!(first.ends_with(" after the start; it said last:"), "{verdict}");
    let expected: String = (11..=30).map(|line| format!("  | line {line}\n")).collect();
    let rest = rest.strip_prefix(&expected).unwrap_or_else(|| panic!("{verdict}"));
    assert_eq!(
        rest,
        "syncline: after it: ranks 0-1, 3 exited with code 7\n\
         hint: SIGKILL comes from a person or, when memory ran out, from the kernel: `dmesg` tells which\n"
    );
    assert_eq!(end.out.matches("leaving").count(), 3);
}

#[test]
fn the_others_may_report_and_end_by_themselves() {
    let script = r#"[ $SYNCLINE_RANK = 0 ] && exit 5; trap '' TERM; sleep 0.2; echo "rank 0 is lost" >&2; exit 1"#;
    let end = run(&["-n", "3", "sh", "-c", script]);
    end.assert_code(5);
    assert_eq!(end.err.matches("] rank 0 is lost").count(), 2);
    end.assert_says("after it: ranks 1-2 exited with code 1");
}

#[test]
fn a_rank_that_ignores_sigterm_is_killed_two_seconds_later() {
    let script = r#"
        trap '' TERM
        if [ $SYNCLINE_RANK = 0 ]; then read -r _ < "$1"; exit 1; fi
        echo ready > "$1"
        while :; do sleep 0.05; done"#;
    let scratch = tempfile::tempdir().unwrap();
    let fifo = scratch.path().join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let started = Instant::now();
    let end = run(&["-n", "2", "--grace", "0.1", "sh", "-c", script, "sh", fifo.to_str().unwrap()]);
    end.assert_code(1);
    assert!(started.elapsed() >= Duration::from_millis(2100), "{:?}", started.elapsed());
    end.assert_says("after it: rank 1 stopped by the launcher (SIGKILL)");
}

#[test]
fn a_stopped_rank_is_brought_down_too() {
    let script = r#"
        if [ $SYNCLINE_RANK = 1 ]; then echo $$ > new && mv new pid; kill -STOP $$; exec sleep 3600; fi
        until [ -e pid ] && grep -q '^State:.T' /proc/$(cat pid)/status; do sleep 0.01; done
        exit 1"#;
    let scratch = tempfile::tempdir().unwrap();
    let mut command = syncline(&["run", "-n", "2", "--grace", "0.1", "sh", "-c", script]);
    command.current_dir(scratch.path());
    let end = support::Launcher::of(command).end();
    end.assert_code(1);
    end.assert_says("after it: rank 1 stopped by the launcher (SIGTERM)");
}

#[test]
fn a_missing_command_is_told_once_with_code_127() {
    let end = run(&["-n", "4", "no-such-command-here"]);
    end.assert_code(127);
    assert_eq!(
        end.err,
        "syncline: there is no command `no-such-command-here`\n\
         hint: it is in none of the folders of PATH; is its virtual environment active?\n"
    );
    let end = run(&["-n", "4", "no_such_script.py"]);
    end.assert_code(127);
    end.assert_says("syncline: there is no script `no_such_script.py`\nhint: ");
    let end = run(&["-n", "4", "/etc/passwd"]);
    end.assert_code(126);
    end.assert_says("chmod +x");
}

#[test]
fn a_command_that_turns_out_not_to_be_one_is_a_failure_of_its_rank() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = tempfile::tempdir().unwrap();
    let program = scratch.path().join("program");
    std::fs::write(&program, "#!/no/such/interpreter\n").unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let end = run(&[program.to_str().unwrap()]);
    end.assert_code(127);
    end.assert_says("cannot start `");
}

#[test]
fn unknown_options_are_usage_errors() {
    let end = run(&["--sevrers", "2", "true"]);
    end.assert_code(2);
    end.assert_says("--servers");
}

#[test]
fn a_failed_job_is_started_again_with_a_new_epoch_and_meeting_point() {
    let script = r#"echo "epoch $SYNCLINE_EPOCH at $SYNCLINE_RENDEZVOUS token $SYNCLINE_TOKEN"
        [ $SYNCLINE_EPOCH = 2 ] || [ $SYNCLINE_RANK = 0 ] || exit 9"#;
    let end = run(&["-n", "2", "--max-restarts", "3", "sh", "-c", script]);
    end.assert_code(0);
    end.assert_says("syncline: starting the job again, restart 1 of 3\n");
    end.assert_says("syncline: starting the job again, restart 2 of 3\n");
    assert!(!end.err.contains("restart 3"));
    let mut meetings: Vec<&str> = end.lines_of(0).iter().map(|line| line.split(' ').nth(3).unwrap()).collect();
    let tokens: Vec<&str> = end.lines_of(0).iter().map(|line| line.split(' ').nth(5).unwrap()).collect();
    meetings.dedup();
    assert_eq!(meetings.len(), 3);
    assert!(tokens[0].len() == 64 && tokens.iter().all(|token| token == &tokens[0]));
}

#[test]
fn restarts_are_counted() {
    let end = run(&["--max-restarts", "2", "sh", "-c", "echo go; exit 4"]);
    end.assert_code(4);
    assert_eq!(end.lines_of(0), ["go"; 3]);
}

#[test]
fn each_rank_knows_its_place() {
    let print = r#"echo "$SYNCLINE_LAUNCHER $SYNCLINE_RANK/$SYNCLINE_WORLD_SIZE local $SYNCLINE_LOCAL_RANK role ${SYNCLINE_ROLE-none} \
epoch $SYNCLINE_EPOCH timeout ${SYNCLINE_TIMEOUT-none} token $SYNCLINE_TOKEN unbuffered $PYTHONUNBUFFERED""#;
    let mut command = syncline(&["run", "-n", "2", "--timeout", "2.5", "sh", "-c", print]);
    command.env("SYNCLINE_TOKEN", "given").env("SYNCLINE_ROLE", "server").env("SYNCLINE_RANK", "77");
    let end = support::Launcher::of(command).end();
    assert_eq!(end.lines_of(1), ["run 1/2 local 1 role none epoch 0 timeout 2.5 token given unbuffered 1"]);
}

#[test]
fn servers_are_ranks_after_the_workers_and_leave_when_these_have() {
    let job = start(&["-n", "2", "--servers", "2", "--grace", "0.1", "sh", "-c", "echo $SYNCLINE_ROLE of $SYNCLINE_WORLD_SIZE"]);
    let end = job.end();
    end.assert_code(0);
    assert_eq!(end.lines_of(0), ["worker of 4"]);
    assert_eq!(end.lines_of(1), ["worker of 4"]);
    assert_eq!(end.out.lines().count(), 2);
}

#[test]
fn scripts_and_modules_run_with_python() {
    let scratch = tempfile::tempdir().unwrap();
    std::fs::write(scratch.path().join("shout.py"), "import sys; print(*sys.argv[1:])").unwrap();
    for words in [&["run", "-n", "2", "shout.py", "-n", "3"][..], &["run", "-n", "2", "-m", "shout", "-n", "3"]] {
        let mut command = syncline(words);
        command.current_dir(scratch.path());
        let end = support::Launcher::of(command).end();
        end.assert_code(0);
        assert_eq!(end.lines_of(1), ["-n 3"]);
    }
}

#[test]
fn a_server_without_a_job_or_with_a_workers_role_says_so() {
    let said = |env: &[(&str, &str)]| {
        let output = syncline(&["server"]).envs(env.iter().copied()).output().expect("it starts");
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).expect("plain words")
    };
    let alone = said(&[]);
    assert!(alone.contains("in no job") && alone.contains("hint: "), "{alone}");
    let job =
        [("SYNCLINE_RANK", "0"), ("SYNCLINE_WORLD_SIZE", "2"), ("SYNCLINE_RENDEZVOUS", "unix:@nobody-comes"), ("SYNCLINE_TOKEN", "t")];
    let worker = said(&[&job[..], &[("SYNCLINE_ROLE", "worker")]].concat());
    assert!(worker.contains("SYNCLINE_ROLE"), "{worker}");
}

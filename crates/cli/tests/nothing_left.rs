//! However a job ends, no process of it remains: no rank, nothing that a rank started, no guard.

mod support;

use std::time::Duration;

use rustix::process::Signal;
use support::{LIMIT, marked, run, start, wait_until_gone};
use syncline_testkit::ranks::eventually;

/// A rank with children of every kind: in its group, in a session of its own, orphaned, deaf to signals.
const FAMILY: &str = r#"
    trap '' TERM INT HUP
    sleep 3600 &
    setsid sleep 3600 &
    (setsid sh -c 'sleep 3600 & sleep 3600' &)
    (sh -c "trap '' TERM; while :; do sleep 0.05; done" &)
    echo ready
    while :; do sleep 0.05; done"#;

#[test]
fn kill_9_of_the_launcher_ends_the_whole_job() {
    let job = start(&["-n", "4", "sh", "-c", FAMILY]);
    let mark = job.mark();
    job.wait_for("ready", 4);
    assert!(marked(&mark).len() > 4 * 4);
    job.signal(Signal::KILL);
    job.end().assert_code(1000 + 9);
    wait_until_gone(&mark);
}

#[test]
fn kill_9_of_the_launcher_at_any_moment_of_its_start_leaves_nothing() {
    for step in 0..40 {
        let job = start(&["-n", "4", "sh", "-c", FAMILY]);
        let mark = job.mark();
        // Not luck but the point: whenever it comes, the same must hold.
        std::thread::park_timeout(Duration::from_micros(400 * step));
        job.signal(Signal::KILL);
        job.end();
        wait_until_gone(&mark);
    }
}

#[test]
fn a_failure_ends_what_the_others_started() {
    let script = format!("[ $SYNCLINE_RANK = 0 ] && exit 1; {FAMILY}");
    let job = start(&["-n", "3", "--grace", "0.1", "sh", "-c", &script]);
    let mark = job.mark();
    let end = job.end();
    end.assert_code(1);
    assert_eq!(marked(&mark), [], "at once, not eventually");
}

#[test]
fn after_a_normal_end_what_ranks_left_behind_is_stopped_and_named() {
    let job = start(&["-n", "2", "sh", "-c", "setsid sleep 3600 & sleep 3600 & echo done"]);
    let mark = job.mark();
    let end = job.end();
    end.assert_code(0);
    assert_eq!(marked(&mark), []);
    end.assert_says("left processes behind, which were stopped: ");
    end.assert_says("sleep (pid ");
}

#[test]
fn what_ends_by_itself_shortly_after_its_rank_is_left_in_peace() {
    let end = run(&["sh", "-c", "(sleep 0.05; echo last) & echo done"]);
    end.assert_code(0);
    assert_eq!(end.lines_of(0), ["done", "last"]);
    assert_eq!(end.err, "");
}

#[test]
fn a_normal_end_leaves_no_guard() {
    let job = start(&["-n", "2", "true"]);
    let mark = job.mark();
    job.end().assert_code(0);
    assert_eq!(marked(&mark), []);
}

#[test]
fn the_job_goes_on_when_somebody_kills_the_guard() {
    let scratch = tempfile::tempdir().unwrap();
    let go = scratch.path().join("go");
    let job = start(&["sh", "-c", r#"echo ready; until [ -e "$1" ]; do sleep 0.01; done"#, "sh", go.to_str().unwrap()]);
    job.wait_for("ready", 1);
    let guards = || -> Vec<i32> {
        let is_guard = |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sl-guard\n");
        marked(&job.mark()).into_iter().filter(is_guard).collect()
    };
    let guard = guards()[0];
    rustix::process::kill_process(rustix::process::Pid::from_raw(guard).unwrap(), Signal::KILL).unwrap();
    eventually("the end of the guard", LIMIT, || guards().is_empty());
    std::fs::write(go, "").unwrap();
    job.end().assert_code(0);
}

#[test]
fn a_launcher_inside_a_job_is_ended_with_all_it_started() {
    let inner = format!("exec {} run -n 2 sh -c \"$1\"", env!("CARGO_BIN_EXE_syncline"));
    let job = start(&["-n", "2", "sh", "-c", &inner, "sh", FAMILY]);
    let mark = job.mark();
    job.wait_for("ready", 4);
    job.signal(Signal::KILL);
    job.end();
    wait_until_gone(&mark);
}

//! Jobs with dedicated servers, and jobs that go on when a worker is killed, as real processes under `syncline run`.

mod support;

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use support::{Launcher, syncline};
use syncline::{Config, Deadline, Error, OnPeerLoss, Session};
use syncline_cluster::Job;
use syncline_shm::wait::{Patience, wait_for};

/// Not a test of its own: the body of each rank, when this binary is started again by `syncline run`.
#[test]
fn as_a_rank() {
    let Ok(part) = std::env::var("PEER_LOSS_PART") else { return };
    if let Err(error) = play(&part) {
        say(&format!("FAILED {:?} who={:?} {}", error.kind(), error.who().map(|who| who.rank), error.to_string().replace('\n', " | ")));
        std::process::exit(3);
    }
    std::process::exit(0);
}

fn play(part: &str) -> Result<(), Error> {
    if part == "watch" {
        return Ok(watch()?);
    }
    let config = Config::from_env()?;
    let config = if part == "lose one, as the workers say" { config.on_peer_loss(OnPeerLoss::Continue) } else { config };
    let session = Session::open(config)?;
    for _ in 0..50 {
        session.barrier()?;
    }
    match part {
        "meet" => {}
        "lose one" | "lose one, as the workers say" => {
            say(&format!("PID {} of rank {}", std::process::id(), session.rank()));
            meet_until_told(&session)?;
        }
        "fail" if session.worker_id() == Some(1) => std::process::exit(7),
        "fail" => {
            for _ in 0..500 {
                session.barrier()?;
            }
        }
        other => panic!("there is no part {other:?}"),
    }
    say("DONE");
    session.shutdown()
}

/// Shares memory with the neighbours, and says when the end of rank 1 is certain.
fn watch() -> Result<(), syncline_cluster::Error> {
    let config = Config::from_env().expect("a sound environment");
    let soon = || Deadline::after(Duration::from_secs(20));
    let job = Job::join(config.launch(), config.settings(), soon())?;
    assert_eq!(job.neighbourhoods(), [[0, 1, 2]]);
    if job.rank() == 2 {
        job.heap().claim([7, 7], 100_000).expect("memory");
    }
    job.barrier(soon())?;
    let found = job.heap().find([7, 7]).expect("rank 2 claimed it before the barrier").expect("it can be mapped");
    assert_eq!(found.len(), 100_000);
    let vigil = job.vigil();
    assert!(vigil.bell(1).is_some() && vigil.deaths() == 0 && !vigil.has_ended(1));
    say(&format!("PID {} of rank {}", std::process::id(), job.rank()));
    let certain = || (vigil.has_ended(1)).then_some(());
    let waited = wait_for(certain, &vigil.my_bell(), Patience::none(), soon(), &|| !vigil.orphaned_or_leaving());
    assert_eq!(waited, Ok(()), "rank {}", job.rank());
    assert!(vigil.is_over(1) && vigil.any_down() && vigil.deaths() > 0 && !vigil.hopeless());
    say("DONE");
    job.leave(soon())
}

/// Barriers until the test says that it is enough. Worker 0 reads that and sets the last round, ahead of all: before it
/// arrives at one round it writes the number of the next, so whoever has passed the first knows.
fn meet_until_told(session: &Session) -> Result<(), Error> {
    let enough = PathBuf::from(std::env::var("PEER_LOSS_STOP").expect("the test sets it"));
    let last = enough.with_extension("last");
    for round in 1u64.. {
        if session.worker_id() == Some(0) && enough.exists() && !last.exists() {
            let draft = enough.with_extension("draft");
            std::fs::write(&draft, (round + 500).to_string()).and_then(|()| std::fs::rename(&draft, &last)).expect("a scratch file");
        }
        session.barrier()?;
        if std::fs::read_to_string(&last).is_ok_and(|text| text == round.to_string()) {
            break;
        }
    }
    Ok(())
}

/// A line of its own: the test harness may have left half of one.
fn say(line: &str) {
    let _ = std::io::stdout().write_all(format!("\n{line}\n").as_bytes());
}

fn start(part: &str, options: &[&str], env: &[(&str, &str)]) -> Launcher {
    let this = std::env::current_exe().expect("this binary");
    let words = ["--exact", "as_a_rank", "--nocapture"];
    let mut command = syncline(&[&["run"], options, &[this.to_str().expect("a plain path")], &words[..]].concat());
    command.env("PEER_LOSS_PART", part).envs(env.iter().copied());
    Launcher::of(command)
}

fn pid_of(job: &Launcher, rank: u32) -> Pid {
    let out = job.out();
    let line = out.lines().find(|line| line.ends_with(&format!("of rank {rank}"))).expect("it said so");
    let number = line.split("PID ").nth(1).and_then(|rest| rest.split(' ').next()).and_then(|text| text.parse().ok());
    Pid::from_raw(number.expect("a number")).expect("a process id")
}

#[test]
fn workers_meet_while_the_servers_wait_for_them_to_leave() {
    let end = start("meet", &["-n", "2", "--servers", "2"], &[]).end();
    end.assert_code(0);
    assert_eq!((end.out.matches("DONE").count(), end.err.as_str()), (2, ""), "{}", end.out);
}

#[test]
fn the_neighbours_share_memory_and_know_for_certain_that_a_process_is_gone() {
    let job = start("watch", &["-n", "3"], &[("SYNCLINE_ON_PEER_LOSS", "continue")]);
    job.wait_for("PID ", 3);
    kill_process(pid_of(&job, 1), Signal::KILL).expect("the victim can be killed");
    let end = job.end();
    end.assert_code(0);
    assert_eq!(end.out.matches("DONE").count(), 2, "{}\n{}", end.out, end.err);
}

/// Kills rank 1 while all meet again and again, then lets the others come to an end.
fn lose_one(part: &str, options: &[&str], env: &[(&str, &str)]) -> support::Ending {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let stop = scratch.path().join("stop");
    let env = [env, &[("PEER_LOSS_STOP", stop.to_str().expect("a plain path"))]].concat();
    let job = start(part, options, &env);
    job.wait_for("PID ", 3);
    kill_process(pid_of(&job, 1), Signal::KILL).expect("the victim can be killed");
    std::fs::write(&stop, "").expect("a scratch file");
    job.end()
}

#[test]
fn the_others_go_on_without_a_worker_that_was_killed() {
    // Told by the environment, which servers find there too, or by the program, of which they know nothing.
    let (told, says) = (("lose one", &[("SYNCLINE_ON_PEER_LOSS", "continue")][..]), ("lose one, as the workers say", &[][..]));
    for ((part, env), options) in
        [told, says].into_iter().flat_map(|how| [&["-n", "3"][..], &["-n", "3", "--servers", "1"]].map(|words| (how, words)))
    {
        let end = lose_one(part, options, env);
        end.assert_code(0);
        assert_eq!(end.out.matches("DONE").count(), 2, "{}\n{}", end.out, end.err);
        let lines: Vec<&str> = end.err.lines().collect();
        assert!(lines[0].starts_with("syncline: rank 1 (pid ") && lines[0].ends_with("; the others go on without it"), "{}", end.err);
        assert_eq!(lines[1..], ["syncline: the others have finished; rank 1 was killed by signal 9 (SIGKILL)"], "{}", end.err);
    }
}

#[test]
fn without_being_told_to_go_on_they_fail_and_name_it() {
    let end = lose_one("lose one", &["-n", "3"], &[]);
    end.assert_code(128 + 9);
    assert_eq!(end.out.matches("FAILED PeerLost who=Some(1)").count(), 2, "{}", end.out);
}

#[test]
fn a_worker_that_fails_by_itself_still_fails_the_job_when_the_others_are_done() {
    let end = start("fail", &["-n", "3"], &[("SYNCLINE_ON_PEER_LOSS", "continue")]).end();
    end.assert_code(7);
    assert_eq!(end.out.matches("DONE").count(), 2, "{}\n{}", end.out, end.err);
    end.assert_says("the others go on without it");
}

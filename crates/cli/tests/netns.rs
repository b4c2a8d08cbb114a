//! Jobs on several hosts: the same ranks in network namespaces that only a bridge joins.
//!
//! What has to hold there and nowhere else: who sits where, which interface leads to whom, what carries a link, and
//! how a death or a pulled cable on one host is told on all others. Needs root; elsewhere each test says `skipped`.

mod field;

use std::time::{Duration, Instant};

use field::LIMIT;
use field::hosts::{Addresses, Field, Plan, ready};
use field::program::{Program, command, fact, rank_words};
use syncline_testkit::ranks::eventually;

/// Two ranks on the first host, one on the second, two on the third.
const UNEVEN: [usize; 5] = [1, 1, 2, 3, 3];

/// What a peer on another host counts as silent after, in the tests that pull a cable.
const TIMEOUT: Duration = Duration::from_secs(3);

#[test]
fn as_a_rank() {
    field::rank::play_if_asked();
}

#[test]
fn uneven_hosts_are_told_apart_and_linked_by_what_is_fastest_and_safe() {
    if !ready() {
        return;
    }
    let field = Field::new(3, Addresses::V4);
    let plan = Plan::new(&field, &UNEVEN, &[]);
    let mut ranks = plan.start_all("exchange");
    let links = [
        "1:shm,2:tcp+sealed,3:tcp+sealed,4:tcp+sealed",
        "0:shm,2:tcp+sealed,3:tcp+sealed,4:tcp+sealed",
        "0:tcp+sealed,1:tcp+sealed,3:tcp+sealed,4:tcp+sealed",
        "0:tcp+sealed,1:tcp+sealed,2:tcp+sealed,4:shm",
        "0:tcp+sealed,1:tcp+sealed,2:tcp+sealed,3:shm",
    ];
    let seats = ["0/2", "1/2", "0/1", "0/2", "1/2"];
    for (rank, program) in ranks.iter_mut().enumerate() {
        program.succeed(LIMIT);
        let joined = &program.said("joined")[0].text;
        assert_eq!((fact(joined, "rank"), fact(joined, "size")), (rank.to_string().as_str(), "5"), "{joined}");
        assert_eq!((fact(joined, "hosts"), fact(joined, "local")), ("h1:0,1|h2:2|h3:3,4", seats[rank]), "{joined}");
        assert_eq!(fact(&program.said("done")[0].text, "links"), links[rank]);
    }
}

#[test]
fn encryption_between_hosts_can_be_turned_off() {
    if !ready() {
        return;
    }
    let field = Field::new(2, Addresses::V4);
    let plan = Plan::new(&field, &[1, 2], &[("SYNCLINE_ENCRYPT", "off")]);
    let mut ranks = plan.start_all("exchange");
    ranks.iter_mut().for_each(|rank| rank.succeed(LIMIT));
    assert_eq!(fact(&ranks[0].said("done")[0].text, "links"), "1:tcp");
    assert_eq!(fact(&ranks[1].said("done")[0].text, "links"), "0:tcp");
}

#[test]
fn hosts_whose_own_names_mean_loopback_meet_by_name() {
    if !ready() {
        return;
    }
    let field = Field::new(3, Addresses::V4);
    let plan = Plan::new(&field, &UNEVEN, &[("SYNCLINE_RENDEZVOUS", "h1:5005")]);
    let mut ranks = plan.start_all("exchange");
    ranks.iter_mut().for_each(|rank| rank.succeed(LIMIT));
    assert_eq!(fact(&ranks[4].said("joined")[0].text, "hosts"), "h1:0,1|h2:2|h3:3,4");
}

#[test]
fn interfaces_that_lead_nowhere_hold_nobody_up() {
    if !ready() {
        return;
    }
    let field = Field::new(3, Addresses::V4);
    field.add_dead_interfaces();
    let plan = Plan::new(&field, &UNEVEN, &[]);
    let mut ranks = plan.start_all("exchange");
    for program in &mut ranks {
        program.succeed(LIMIT);
        let (joined, done) = (&program.said("joined")[0], &program.said("done")[0]);
        let millis: u64 = fact(&joined.text, "after").parse().expect("a number");
        assert!(millis < 5000, "joining took {millis} ms{}", program.transcript());
        assert!(done.at - joined.at < Duration::from_secs(5), "links and barriers took {:?}", done.at - joined.at);
    }
}

#[test]
fn hosts_without_ipv4_are_enough() {
    if !ready() {
        return;
    }
    let field = Field::new(3, Addresses::V6);
    let plan = Plan::new(&field, &UNEVEN, &[]);
    let mut ranks = plan.start_all("exchange");
    ranks.iter_mut().for_each(|rank| rank.succeed(LIMIT));
    assert_eq!(fact(&ranks[2].said("done")[0].text, "links"), "0:tcp+sealed,1:tcp+sealed,3:tcp+sealed,4:tcp+sealed");
}

#[test]
fn a_rank_killed_on_another_host_is_named_by_everybody() {
    if !ready() {
        return;
    }
    let field = Field::new(3, Addresses::V4);
    // The first rank of a host with neighbours, one that is alone on its host, the one that hosts the coordinator, and its neighbour.
    for victim in [3, 2, 0, 1] {
        let plan = Plan::new(&field, &UNEVEN, &[]);
        let mut ranks = plan.start_all("linger");
        ranks.iter_mut().for_each(|rank| drop(rank.wait_for("in", LIMIT)));
        let killed = Instant::now();
        ranks[victim].kill();
        let host = format!("h{}", UNEVEN[victim]);
        for (rank, program) in ranks.iter_mut().enumerate().filter(|(rank, _)| *rank != victim) {
            let lost = program.wait_for("lost", LIMIT);
            let after = lost.at - killed;
            assert_eq!(
                (fact(&lost.text, "kind"), fact(&lost.text, "rank")),
                ("PeerLost", victim.to_string().as_str()),
                "rank {rank}: {}",
                lost.text
            );
            assert!(lost.text.contains(&format!("({host}, pid ")), "rank {rank} does not say where: {}", lost.text);
            assert!(after < Duration::from_secs(2), "rank {rank} noticed after {after:?}: {}", lost.text);
        }
        for program in &mut ranks {
            program.end(LIMIT);
        }
    }
}

#[test]
fn a_host_of_one_rank_that_is_cut_off_is_named_by_the_others() {
    a_host_is_cut_off(&UNEVEN, 2);
}

#[test]
fn the_coordinators_host_cut_off_is_named_by_the_others() {
    a_host_is_cut_off(&UNEVEN, 1);
}

/// With more hosts most ranks wait for somebody who waits too.
#[test]
fn among_many_hosts_the_one_that_is_cut_off_is_named_by_the_others() {
    a_host_is_cut_off(&[1, 1, 2, 2, 3, 4, 4, 5], 4);
}

fn a_host_is_cut_off(layout: &[usize], victim: usize) {
    if !ready() {
        return;
    }
    let field = Field::new(*layout.iter().max().expect("some hosts"), Addresses::V4);
    let seconds = TIMEOUT.as_secs().to_string();
    let plan = Plan::new(&field, layout, &[("SYNCLINE_TIMEOUT", &seconds)]);
    let mut ranks = plan.start_all("linger");
    ranks.iter_mut().for_each(|rank| drop(rank.wait_for("in", LIMIT)));
    let cut = Instant::now();
    field.cut(victim);
    let lost: Vec<_> = ranks.iter_mut().map(|rank| rank.wait_for("lost", LIMIT)).collect();
    for (rank, lost) in lost.iter().enumerate() {
        let (text, after) = (&lost.text, lost.at - cut);
        assert!(after < TIMEOUT + Duration::from_secs(2), "rank {rank} noticed after {after:?}: {text}");
        assert!(["Timeout", "PeerLost"].contains(&fact(text, "kind")), "rank {rank}: {text}");
        let named: usize = fact(text, "rank").parse().expect("a rank");
        // From inside, everybody else is gone; from outside, only this host is.
        assert_eq!(layout[named] == victim, layout[rank] != victim, "rank {rank} names rank {named}: {text}");
    }
    for program in &mut ranks {
        program.end(LIMIT);
    }
}

#[test]
fn a_rank_that_starts_late_is_waited_for() {
    if !ready() {
        return;
    }
    let field = Field::new(2, Addresses::V4);
    // The one that hosts the coordinator comes last: the others must keep looking for it.
    let plan = Plan::new(&field, &[1, 2, 2], &[("SYNCLINE_TIMEOUT", "10")]);
    let mut ranks = vec![plan.start(1, "exchange"), plan.start(2, "exchange")];
    let start = Instant::now();
    eventually("the moment to start late", LIMIT, || start.elapsed() >= Duration::from_secs(2));
    ranks.push(plan.start(0, "exchange"));
    ranks.iter_mut().for_each(|rank| rank.succeed(LIMIT));
    let waited: u64 = fact(&ranks[0].said("joined")[0].text, "after").parse().expect("a number");
    assert!((1900..6000).contains(&waited), "rank 1 waited {waited} ms");
}

#[test]
fn a_rank_that_never_starts_is_told_from_those_that_did() {
    if !ready() {
        return;
    }
    let field = Field::new(3, Addresses::V4);
    let plan = Plan::new(&field, &[1, 2, 3, 3], &[("SYNCLINE_TIMEOUT", "2")]);
    let mut ranks: Vec<Program> = [0, 1, 2].into_iter().map(|rank| plan.start(rank, "exchange")).collect();
    for program in &mut ranks {
        let refused = program.wait_for("refused", LIMIT).text;
        assert_eq!((fact(&refused, "kind"), fact(&refused, "rank")), ("Timeout", "3"), "{refused}");
        for part in [
            "3 of 4 ranks are here",
            "rank 0 (h1, pid ",
            "rank 1 (h2, pid ",
            "rank 2 (h3, pid ",
            "missing: rank 3",
            "SYNCLINE_RANK=3 SYNCLINE_WORLD_SIZE=4 SYNCLINE_RENDEZVOUS=tcp://10.77.0.1:5005",
        ] {
            assert!(refused.contains(part), "no {part:?} in: {refused}");
        }
    }
}

#[test]
fn an_interface_that_a_host_does_not_have_is_told_at_the_start() {
    if !ready() {
        return;
    }
    let field = Field::new(2, Addresses::V4);
    let plan = Plan::new(&field, &[1, 2], &[("SYNCLINE_INTERFACE", "ib0")]);
    let mut ranks: Vec<Program> = [0, 1].into_iter().map(|rank| plan.start(rank, "exchange")).collect();
    let refused = ranks[0].wait_for("refused", LIMIT).text;
    assert_eq!(fact(&refused, "kind"), "Configuration", "{refused}");
    assert!(refused.contains("SYNCLINE_INTERFACE=ib0") && refused.contains("could reach h1"), "{refused}");
    // It took the coordinator along; whether the other had been welcomed by then is a matter of luck.
    ranks[1].wait_for("refused", LIMIT);
}

#[test]
fn a_coordinator_that_never_starts_is_named_with_its_address() {
    if !ready() {
        return;
    }
    let field = Field::new(2, Addresses::V4);
    let plan = Plan::new(&field, &[1, 2], &[("SYNCLINE_TIMEOUT", "2")]);
    let mut alone = plan.start(1, "exchange");
    let refused = alone.wait_for("refused", LIMIT).text;
    assert_eq!((fact(&refused, "kind"), fact(&refused, "rank")), ("Timeout", "0"), "{refused}");
    for part in ["rank 1 (h2, pid ", "missing: rank 0", "tcp://10.77.0.1:5005", "SYNCLINE_RANK=0"] {
        assert!(refused.contains(part), "no {part:?} in: {refused}");
    }
}

/// An agent that MPI launchers use instead of ssh: enters the namespace of the host that they name by address.
fn remote_shell(field: &Field, folder: &std::path::Path) -> String {
    use std::os::unix::fs::PermissionsExt;
    let path = folder.join("nsrsh");
    let cases: String =
        (1..=3).map(|host| format!("{}|h{host}) space={} name=h{host} ;;\n", field.address(host), field.namespace(host))).collect();
    let text = format!(
        "#!/bin/sh\nwhile [ \"${{1#-}}\" != \"$1\" ]; do shift; done\ncase $1 in\n{cases}esac\nshift\nexec nsenter --net=/run/netns/$space unshare --uts sh -c \"hostname $name; exec sh -c '$*'\"\n"
    );
    std::fs::write(&path, text)
        .and_then(|()| std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)))
        .expect("a script in a scratch folder");
    path.to_str().expect("a plain path").to_owned()
}

fn has(program: &str) -> bool {
    let there = std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(program).exists()));
    if !there {
        println!("skipped: {program} is not installed");
    }
    there
}

/// Runs the exchange under an MPI launcher that is itself on h1; returns what its ranks said.
fn under_mpi(launcher: &str, words: &dyn Fn(&str) -> Vec<String>, home: &std::path::Path) -> Vec<String> {
    let field = Field::new(3, Addresses::V4);
    let agent = remote_shell(&field, home);
    let words = field.on(1, &[words(&agent), rank_words()].concat());
    let home = home.to_str().expect("a plain path");
    let mut job = Program::start(
        launcher,
        command(
            &words,
            "exchange",
            &[("HOME", home), ("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"), ("SYNCLINE_TIMEOUT", "20")],
        ),
    );
    job.close_stdin();
    job.succeed(LIMIT);
    let joined: Vec<String> = job.said("joined").into_iter().map(|line| line.text).collect();
    assert_eq!((joined.len(), job.said("done").len()), (5, 5), "{}", job.transcript());
    for line in &joined {
        assert_eq!((fact(line, "size"), fact(line, "hosts")), ("5", "h1:0,1|h2:2|h3:3,4"), "{line}");
    }
    joined
}

#[test]
fn open_mpi_ranks_of_several_hosts_meet_through_a_file_and_leave_none() {
    if !ready() || !has("mpirun.openmpi") {
        return;
    }
    let home = tempfile::tempdir().expect("a scratch folder");
    let words = |agent: &str| {
        let words = "mpirun.openmpi --oversubscribe --mca oob_tcp_if_include eth0 --mca plm_rsh_no_tree_spawn 1 -H 10.77.0.1:2,10.77.0.2:1,10.77.0.3:2 -np 5 --mca plm_rsh_agent";
        words.split(' ').chain([agent]).map(str::to_owned).collect()
    };
    let joined = under_mpi("mpirun.openmpi", &words, home.path());
    assert!(joined.iter().all(|line| fact(line, "launcher") == "openmpi" && fact(line, "meeting").starts_with("file:")), "{joined:?}");
    let left: Vec<_> = std::fs::read_dir(home.path().join(".syncline")).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}

#[test]
fn hydra_ranks_of_several_hosts_meet_through_pmi() {
    if !ready() || !has("mpiexec.hydra") {
        return;
    }
    let home = tempfile::tempdir().expect("a scratch folder");
    let words = |agent: &str| {
        let words = "mpiexec.hydra -launcher rsh -iface eth0 -hosts 10.77.0.1:2,10.77.0.2:1,10.77.0.3:2 -n 5 -launcher-exec";
        words.split(' ').chain([agent]).map(str::to_owned).collect()
    };
    let joined = under_mpi("mpiexec.hydra", &words, home.path());
    assert!(joined.iter().all(|line| fact(line, "launcher") == "hydra" && fact(line, "meeting").starts_with("pmi:")), "{joined:?}");
}

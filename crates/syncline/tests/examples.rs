//! The examples of this crate, run as their users do: alone and as jobs of several processes. They lie beside the tests, for
//! `cargo test` builds both.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use syncline_testkit::ranks::Process;

/// Far longer than any of them takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

fn built(example: &str) -> PathBuf {
    let tests = std::env::current_exe().expect("a running test knows its own file");
    let file = tests.ancestors().nth(2).expect("target/PROFILE/deps/TEST").join("examples").join(example);
    assert!(file.exists(), "{} is not there; `cargo build --examples` builds it", file.display());
    file
}

/// What an example prints as a job of so many processes, rank 0 first.
fn run(example: &str, ranks: usize, words: &[&str]) -> String {
    let meeting = format!("unix:@example-{}-{example}-{ranks}-{}", std::process::id(), words.join("-"));
    let start = |rank: usize| {
        let mut command = Command::new(built(example));
        command.args(words);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SYNCLINE_")) {
            command.env_remove(name);
        }
        if ranks > 1 {
            command.env("SYNCLINE_RANK", rank.to_string()).env("SYNCLINE_WORLD_SIZE", ranks.to_string());
            command.env("SYNCLINE_RENDEZVOUS", &meeting).env("SYNCLINE_TOKEN", "of the examples");
        }
        Process::start(format!("{example}, rank {rank} of {ranks}"), &mut command)
    };
    let processes: Vec<Process> = (0..ranks).map(start).collect();
    let mut said = String::new();
    for (rank, process) in processes.into_iter().enumerate() {
        let ending = process.finish_within(LIMIT);
        assert!(ending.status.success(), "{example}, rank {rank}: {}\n{}\n{}", ending.status, ending.stdout, ending.stderr);
        said += &ending.stdout;
    }
    said
}

/// The number that follows `words` in what was printed.
fn after(words: &str, said: &str) -> f64 {
    let rest = said.split_once(words).unwrap_or_else(|| panic!("no {words:?} in:\n{said}")).1.trim_start();
    let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(rest.len());
    rest[..end].parse().unwrap_or_else(|_| panic!("no number after {words:?} in:\n{said}"))
}

#[test]
fn hello_tells_who_is_there() {
    assert!(run("hello", 1, &[]).starts_with("rank 0 of 1\n"));
    let said = run("hello", 3, &[]);
    assert!((0..3).all(|rank| said.contains(&format!("rank {rank} of 3\n"))), "{said}");
}

#[test]
fn tree_average_counts_those_that_still_have_data() {
    for ranks in [1, 4] {
        let said = run("tree_average", ranks, &[]);
        for line in ["4 nodes have data, mean 2.5", "3 nodes have data, mean 3", "2 nodes have data, mean 3.5", "1 nodes have data, mean 4"]
        {
            assert!(said.lines().any(|found| found == line), "no {line:?} in:\n{said}");
        }
        assert!(said.contains("sums seen by each node: [10.0, 19.0, 26.0, 30.0]"), "{said}");
    }
}

#[test]
fn client_server_sums_every_row() {
    assert_eq!(run("client_server", 1, &[]), "48 rows summed by 3 clients\n");
}

#[test]
fn digits_softmax_learns_to_read_in_step_and_not() {
    for (ranks, words, who) in [(1, &[][..], "1 workers, sync"), (2, &[], "2 workers, sync"), (2, &["--async"], "2 workers, async")] {
        let said = run("digits_softmax", ranks, words);
        assert!(after(&format!("{who}: test accuracy"), &said) >= 0.93, "{said}");
        assert!(after("epoch 80: mean loss", &said) < 0.7 * after("epoch 10: mean loss", &said), "{said}");
    }
}

#[test]
fn steps_of_digits_softmax_in_sync_are_the_same_in_every_run() {
    let without_time = |said: String| said.replace(&said[said.rfind(" in ").expect("the time")..], "");
    assert_eq!(without_time(run("digits_softmax", 3, &[])), without_time(run("digits_softmax", 3, &[])));
}

#[test]
fn digits_kvstore_learns_to_read_in_every_setting() {
    // In two bits a gradient below the threshold waits until enough has gathered: it takes longer to get there. Adam at this rate
    // leaps now and then where workers race, so the loss of one epoch is only asked to be far below that of a guess, ln 10.
    for (ranks, words, who, least) in [
        (1, &[][..], "1 workers, dist_sync", 0.93),
        (2, &["dist_sync"], "2 workers, dist_sync", 0.93),
        (2, &["dist_async"], "2 workers, dist_async", 0.9),
        (2, &["dist_sync", "2bit"], "2 workers, dist_sync", 0.7),
    ] {
        let said = run("digits_kvstore", ranks, words);
        assert!(after(&format!("{who}: test accuracy"), &said) >= least, "{words:?}: {said}");
        assert!(after("epoch 30: mean loss", &said) < 0.6, "{words:?}: {said}");
    }
}

#[test]
fn matrix_factorisation_guesses_better_than_the_mean() {
    for (ranks, words) in [(2, &[][..]), (2, &["--sync"])] {
        let said = run("matrix_factorisation", ranks, words);
        let (error, plain) = (after("never seen:", &said), after("guessing the mean:", &said));
        assert!(error < 0.9 * plain, "{words:?}: {said}");
        assert!(after("cells, ", &said) == 2.0 && said.contains("near `alice`: "), "{words:?}: {said}");
    }
}

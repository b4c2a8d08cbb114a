//! Programs in C: compiled with the system's compiler against the committed header, run alone, as a job and under valgrind.

mod compiled;
mod header;
mod installed;

use std::process::Command;

use compiled::{Program, skipped_without};

#[test]
fn calls_answer_as_the_header_says() {
    Program::compile("calls").alone().assert_fine();
}

#[test]
fn nonsense_gives_statuses_and_never_a_crash() {
    Program::compile("nonsense").alone().assert_fine();
}

#[test]
fn each_thread_reads_its_own_last_error() {
    Program::compile("threads").alone().assert_fine();
}

#[test]
fn a_job_of_three_agrees_on_its_tables_and_trees() {
    Program::compile("job").in_a_job_of(3).assert_fine();
}

#[test]
fn a_family_passes_items_and_outlives_the_death_of_a_worker() {
    Program::compile("family").alone().assert_fine();
}

#[test]
fn strange_arguments_to_what_a_family_shares_give_statuses_and_never_a_crash() {
    Program::compile("strangers").alone().assert_fine();
}

#[test]
fn a_lost_peer_is_named_with_rank_and_pid() {
    let output = Program::compile("lost").in_a_job_of(2);
    assert!(output.text().contains("PeerLost of rank 1 seen"), "{}", output.text());
}

#[test]
fn stores_answer_alone_and_in_jobs_of_two_and_three() {
    let program = Program::compile("store");
    program.alone().assert_fine();
    program.in_a_job_of(2).assert_fine();
    program.in_a_job_of(3).assert_fine();
}

#[test]
fn programs_of_multiverso_run_as_they_are() {
    let program = Program::compile("multiverso");
    program.alone().assert_fine();
    program.in_a_job_of(3).assert_fine();
}

#[test]
fn valgrind_finds_neither_a_leak_nor_an_error() {
    if skipped_without("valgrind") {
        return;
    }
    for name in ["calls", "store", "nonsense", "multiverso", "family", "strangers", "threads"] {
        let mut valgrind = Command::new(VALGRIND[0]);
        Program::compile(name).under(valgrind.args(&VALGRIND[1..])).assert_fine();
    }
}

/// Ranks that valgrind runs one thread at a time, without calls that it does not know (`pidfd_open`), still meet, share a queue and part.
#[test]
fn valgrind_finds_nothing_in_the_ranks_of_a_job_either() {
    if skipped_without("valgrind") {
        return;
    }
    Program::compile("job").in_a_job_under(2, &VALGRIND).assert_fine();
}

/// The library starts threads that end with the process; what they hold is reachable and no leak.
const VALGRIND: [&str; 7] = [
    "valgrind",
    "--quiet",
    "--leak-check=full",
    "--errors-for-leak-kinds=definite,indirect",
    "--show-leak-kinds=definite,indirect",
    "--error-exitcode=9",
    "--fair-sched=yes",
];

#[test]
fn a_hundred_thousand_calls_leave_nothing_behind() {
    Program::compile("many").alone().assert_fine();
}

#[test]
fn the_static_library_links_alone() {
    Program::compile_static("calls").alone().assert_fine();
}

#[test]
fn the_example_runs_alone_and_as_a_job() {
    let program = Program::compile_file(&compiled::root().join("examples/c/average.c"));
    program.alone().assert_fine();
    let output = program.in_a_job_of(3);
    output.assert_fine();
    assert!(output.text().contains("3 workers"), "{}", output.text());
}

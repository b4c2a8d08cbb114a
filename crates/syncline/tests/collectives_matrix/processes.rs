//! The same sums by ranks that are processes: this test binary again, which opens one session after the other, one for each plan.

use std::process::Command;
use std::time::Duration;

use syncline::DType;
use syncline_testkit::ranks::Process;

use super::{Case, LONG, PLANS, add_up, awkward, every_dtype};

/// What a rank is told: `job rank ranks`.
const ORDER: &str = "MATRIX_ORDER";

#[test]
fn as_a_rank() {
    let Ok(order) = std::env::var(ORDER) else { return };
    let words: Vec<&str> = order.split(' ').collect();
    let number = |index: usize| words[index].parse::<usize>().expect("the test wrote it");
    let (rank, ranks) = (number(1), number(2));
    let mut cases = every_dtype(&awkward(ranks));
    cases.push(Case { dtype: DType::F32, length: LONG });
    for plan in PLANS {
        add_up(words[0], rank, ranks, plan, &cases);
    }
    println!("added up {} arrays by {} plans", cases.len(), PLANS.len());
}

fn sums_of_processes_are_right(ranks: usize) {
    let job = format!("processes-{}", std::process::id());
    let start = |rank: usize| {
        let mut command = Command::new(std::env::current_exe().expect("this binary"));
        command.args(["--exact", "processes::as_a_rank", "--nocapture"]).env(ORDER, format!("{job} {rank} {ranks}"));
        Process::start(format!("rank {rank} of {ranks}"), &mut command)
    };
    let processes: Vec<Process> = (0..ranks).map(start).collect();
    let expected = format!("added up {} arrays by {} plans", DType::ALL.len() * awkward(ranks).len() + 1, PLANS.len());
    for (rank, process) in processes.into_iter().enumerate() {
        let ending = process.finish_within(Duration::from_secs(100));
        let whole = ending.status.success() && ending.stdout.contains(&expected);
        assert!(whole, "rank {rank} of {ranks}: {}\n{}\n{}", ending.status, ending.stdout, ending.stderr);
    }
}

#[test]
fn one_process() {
    sums_of_processes_are_right(1);
}

#[test]
fn two_processes() {
    sums_of_processes_are_right(2);
}

#[test]
fn four_processes() {
    sums_of_processes_are_right(4);
}

#[test]
fn eight_processes() {
    sums_of_processes_are_right(8);
}

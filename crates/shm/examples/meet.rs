//! Measures the barrier with real processes: `meet [ranks…]` (default 2 and 4).
//!
//! The program starts itself once per further rank; the board's descriptor is inherited by
//! number, so nothing but this file is needed. Prints the median of eleven runs a line.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Child, Command};
use std::time::Instant;

use syncline_shm::board::Board;
use syncline_shm::meeting::Meeting;
use syncline_shm::wait::{Deadline, Patience};

const JOB: [u8; 16] = *b"meet-example-job";
const RUNS: usize = 11;
const BARRIERS: u32 = 20_000;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|arg| arg == "--member") {
        let number = |at: usize| args[at].parse::<usize>().expect("a number");
        return member(number(1) as i32, number(2), number(3));
    }
    let worlds: Vec<usize> = match args.as_slice() {
        [] => vec![2, 4],
        some => some.iter().map(|n| n.parse().expect("ranks")).collect(),
    };
    for ranks in worlds {
        println!("{ranks} processes: {:.3} µs a barrier", measure(ranks));
    }
}

fn measure(ranks: usize) -> f64 {
    let board = Board::create(ranks, JOB).expect("a board");
    // The children inherit it: only this program, only here.
    let inherited = rustix::io::dup(board.fd()).expect("a descriptor");
    let mut members: Vec<Child> = (1..ranks)
        .map(|me| {
            Command::new(std::env::current_exe().expect("this program"))
                .args(["--member", &inherited.as_raw_fd().to_string()])
                .args([ranks.to_string(), me.to_string()])
                .spawn()
                .expect("a member")
        })
        .collect();
    drop(inherited);
    let mut runs = run(&board, ranks, 0);
    for member in &mut members {
        assert!(member.wait().expect("a member").success());
    }
    runs.sort_by(f64::total_cmp);
    runs[RUNS / 2]
}

fn member(fd: i32, ranks: usize, me: usize) {
    // SAFETY: the parent left this descriptor open for us and nobody else here knows it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let board = Board::open(fd, ranks, JOB).expect("the parent's board");
    run(&board, ranks, me);
}

/// Microseconds a barrier, in each run.
fn run(board: &Board, ranks: usize, me: usize) -> Vec<f64> {
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let mut meeting = board.meeting(me, Patience::new(ranks, cores));
    (0..RUNS)
        .map(|_| {
            meet(&mut meeting);
            let start = Instant::now();
            (0..BARRIERS).for_each(|_| meet(&mut meeting));
            start.elapsed().as_secs_f64() * 1e6 / f64::from(BARRIERS)
        })
        .collect()
}

fn meet(meeting: &mut Meeting) {
    let round = meeting.arrive();
    meeting
        .wait(round, Deadline::never(), &|_| false)
        .expect("everyone came");
}

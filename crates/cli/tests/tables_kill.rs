//! Workers killed at random moments while they add to tables: whoever goes on finds every acknowledged add and at most
//! one whole add more, and whoever does not go on is told who died, at once.
//!
//! Each run is decided by its seed, which a failure prints. `SYNCLINE_KILL_RUNS=200` (`make soak`) makes it a hundred seeds per mode.

mod tables;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use syncline_testkit::ranks::{Ending, Process};
use syncline_testkit::sim::Chance;
use tables::verdict::{InFlight, assert_exact, assert_told};
use tables::{KEYS, Mode, ORDER, Order, Victim};

const STEPS: u64 = 12;

#[test]
fn as_a_rank() {
    tables::worker::work_if_asked();
}

/// The judge of all others: what it must not let pass.
#[test]
fn the_verdict_sees_torn_lost_and_doubled_adds() {
    use tables::{ARRAY, COLS, ROWS, rows_of, unit};
    let judge = |array_add: usize, matrix_rows: usize, lost: bool, odd: Option<usize>| {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let order = Order {
            mode: Mode::Async,
            steps: 2,
            victim: Some(Victim { worker: 1, step: 2, target: 0, thousandths: 0 }),
            endless: false,
            folder: folder.path().to_owned(),
        };
        // Rank 1 died in its second add to the array, or, where that was acknowledged, to the matrix.
        let died = if array_add == ARRAY { "ack array 2\ntry matrix 2\n" } else { "" };
        let all = "ready 0\ntry array 2\nack array 2\ntry matrix 2\nack matrix 2\ndone\n";
        let diaries = [all.to_owned(), format!("ready 1\nack array 1\ntry matrix 1\nack matrix 1\ntry array 2\n{died}dies 1\n")];
        let mut array = vec![2 * unit(0) + unit(1); ARRAY];
        array[..array_add].iter_mut().for_each(|number| *number += unit(1));
        let mut matrix = vec![0; ROWS * COLS];
        let mut add = |worker, step, rows: usize| {
            for row in rows_of(worker, step).into_iter().take(rows) {
                matrix[row as usize * COLS..][..COLS].iter_mut().for_each(|number| *number += unit(worker));
            }
        };
        [(0, 1, usize::MAX), (0, 2, if lost { 0 } else { usize::MAX }), (1, 1, usize::MAX), (1, 2, matrix_rows)]
            .into_iter()
            .for_each(|(worker, step, rows)| add(worker, step, rows));
        odd.into_iter().for_each(|place| array[place] += unit(0));
        for (rank, diary) in diaries.iter().enumerate() {
            std::fs::write(folder.path().join(format!("diary-{rank}")), diary).expect("a scratch folder");
        }
        for (name, numbers) in [("array-0", array), ("matrix-0", matrix)] {
            let bytes: Vec<u8> = numbers.iter().flat_map(|number: &i64| number.to_le_bytes()).collect();
            std::fs::write(folder.path().join(name), bytes).expect("a scratch folder");
        }
        std::panic::catch_unwind(|| assert_exact(&order, 2, "")).ok()
    };
    assert_eq!(judge(0, 0, false, None), Some(InFlight::Forgotten));
    assert_eq!(judge(ARRAY, 0, false, None), Some(InFlight::Forgotten));
    assert_eq!(judge(ARRAY, usize::MAX, false, None), Some(InFlight::Counted));
    assert_eq!(judge(ARRAY - 1, 0, false, None), None, "half an add to the array");
    assert_eq!(judge(ARRAY, 7, false, None), None, "half an add to the matrix");
    assert_eq!(judge(0, 0, true, None), None, "a lost add");
    assert_eq!(judge(0, 0, false, Some(77)), None, "an add that counted twice somewhere");
}

/// Who takes part and how they reach the tables.
#[derive(Debug, Clone, Copy)]
enum Layout {
    /// Every process worker and server, in shared memory.
    AllInOne,
    /// A server of its own beside the workers, in shared memory.
    Dedicated,
    /// Two servers that are reached by messages only.
    Messages,
}

impl Layout {
    fn workers(self) -> u32 {
        if matches!(self, Layout::AllInOne) { 4 } else { 3 }
    }

    fn words(self) -> &'static [&'static str] {
        match self {
            Layout::AllInOne => &["-n", "4"],
            Layout::Dedicated => &["-n", "3", "--servers", "1"],
            Layout::Messages => &["-n", "3", "--servers", "2"],
        }
    }
}

macro_rules! for_each_mode_and_layout {
    ($($name:ident: $mode:ident $layout:ident),* $(,)?) => {
        $(mod $name {
            #[test]
            fn every_add_counts_once() {
                super::every_add_counts_once(super::Mode::$mode, super::Layout::$layout);
            }

            #[test]
            fn survivors_go_on_with_whole_adds() {
                super::survivors_go_on_with_whole_adds(super::Mode::$mode, super::Layout::$layout);
            }

            #[test]
            fn survivors_are_told_who_died() {
                super::survivors_are_told_who_died(super::Mode::$mode, super::Layout::$layout);
            }
        })*
    };
}

for_each_mode_and_layout! {
    async_all_in_one: Async AllInOne,
    async_dedicated: Async Dedicated,
    async_messages: Async Messages,
    sync_all_in_one: Sync AllInOne,
    sync_dedicated: Sync Dedicated,
    sync_messages: Sync Messages,
    bounded_all_in_one: Bounded AllInOne,
    bounded_dedicated: Bounded Dedicated,
    bounded_messages: Bounded Messages,
}

fn every_add_counts_once(mode: Mode, layout: Layout) {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let order = Order { mode, steps: STEPS, victim: None, endless: false, folder: folder.path().to_owned() };
    let ending = run(&order, layout, &[]);
    assert_exact(&order, layout.workers(), &ending.stderr);
    assert!(ending.status.success(), "{}", ending.stderr);
}

fn survivors_go_on_with_whole_adds(mode: Mode, layout: Layout) {
    let mut fates = Vec::new();
    // Kills come at random moments: a few more when none of the first ones hit an add.
    for seed in 0..10 * runs() {
        if seed >= runs() && fates.iter().any(|fate| *fate != InFlight::None) {
            break;
        }
        let folder = tempfile::tempdir().expect("a scratch folder");
        let order = order(mode, layout, seed, false, folder.path());
        let ending = run(&order, layout, &[("SYNCLINE_ON_PEER_LOSS", "continue")]);
        fates.push(assert_exact(&order, layout.workers(), &about(&order, seed, &ending)));
    }
    let (kills, counted) = (fates.len(), fates.iter().filter(|fate| **fate == InFlight::Counted).count());
    let inside = kills - fates.iter().filter(|fate| **fate == InFlight::None).count();
    println!("{mode}, {layout:?}: {kills} kills, {inside} of them inside an add, {counted} of which counted");
    assert!(inside > 0, "{mode}, {layout:?}: {kills} kills, and none inside an add");
}

fn survivors_are_told_who_died(mode: Mode, layout: Layout) {
    for seed in 1000..1000 + runs() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let order = order(mode, layout, seed, true, folder.path());
        let ending = run(&order, layout, &[]);
        assert_told(&order, layout.workers(), Duration::from_secs(1), &about(&order, seed, &ending));
    }
}

/// What happens in the run of this seed.
fn order(mode: Mode, layout: Layout, seed: u64, endless: bool, folder: &Path) -> Order {
    let victim = Victim::by_chance(&mut Chance::new(seed), 0..layout.workers(), STEPS);
    Order { mode, steps: STEPS, victim: Some(victim), endless, folder: folder.to_owned() }
}

fn about(order: &Order, seed: u64, ending: &Ending) -> String {
    format!("seed {seed}, {:?}, {}\n{}\n", order.victim, ending.status, ending.stderr)
}

fn run(order: &Order, layout: Layout, env: &[(&str, &str)]) -> Ending {
    let mut command = Command::new(env!("CARGO_BIN_EXE_syncline"));
    // The launcher must not end the survivors before they have ended themselves.
    command.arg("run").args(layout.words()).args(["--grace", "40", "--timeout", "20", "--"]);
    command.arg(std::env::current_exe().expect("this binary")).args(["--exact", "as_a_rank", "--nocapture"]);
    command.env_remove("SYNCLINE_TRANSPORT").env_remove("SYNCLINE_ON_PEER_LOSS");
    if matches!(layout, Layout::Messages) {
        command.env("SYNCLINE_TRANSPORT", "tcp");
    }
    if !matches!(layout, Layout::AllInOne) {
        command.env(KEYS, "1");
    }
    command.env(ORDER, order.to_string()).envs(env.iter().copied());
    Process::start("syncline run", &mut command).finish_within(Duration::from_secs(60))
}

/// Seeds of each mode and layout; three layouts make nine per mode, and a hundred in the long form.
fn runs() -> u64 {
    std::env::var("SYNCLINE_KILL_RUNS").ok().and_then(|text| text.parse::<u64>().ok()).map_or(3, |runs| runs.div_ceil(6))
}

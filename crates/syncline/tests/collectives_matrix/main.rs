//! Every number of ranks from 1 to 33, every plan, every dtype, every awkward length: sums that are whole in any order, so that
//! each plan must give them exactly. Ranks are threads, and for some numbers processes. The bits of sums that do depend on the
//! order are tested elsewhere.
//!
//! ```text
//!            plans  dtypes  lengths                                ranks
//! threads    all    all     0, 1, n−1, n, n+1, 1023                1 to 9
//!            all    all     n−1, n, n+1                            10 to 33
//!            all    f32     1 000 003                              3, 7
//! processes  all    all     0, 1, n−1, n, n+1, 1023                1, 2, 4, 8
//!            all    f32     1 000 003                              1, 2, 4, 8
//! `make soak`: all lengths for 1 to 33 threads, 1 000 003 of one dtype too
//! ```

mod processes;

use syncline::bootstrap::{Arguments, Environment};
use syncline::collective::How;
use syncline::{Config, DType, Deadline, ReduceOp, Session};
use syncline_tensor::kernels::cast;
use syncline_testkit::ranks::threads;

/// Without a plan of their own ranks share memory; the others go over links.
const PLANS: [Option<&str>; 8] =
    [None, Some("tree"), Some("tree:3"), Some("tree:8"), Some("ring"), Some("halving"), Some("chain"), Some("doubling")];

const LONG: usize = 1_000_003;

/// After how many places the numbers of all ranks repeat.
const PERIOD: usize = 20;

/// From 0 to 3, so that the sum over 33 ranks fits into every dtype, and a half keeps it exactly.
fn number(rank: usize, place: usize) -> usize {
    (rank * 31 + place * 7 + place / 5) % 4
}

fn bytes_of(dtype: DType, numbers: impl Iterator<Item = usize>) -> Vec<u8> {
    let wide: Vec<u8> = numbers.flat_map(|number| (number as f64).to_ne_bytes()).collect();
    let mut bytes = vec![0; wide.len() / 8 * dtype.size()];
    cast(DType::F64, &wide, dtype, &mut bytes).expect("numbers can be cast");
    bytes
}

/// One array that is added up.
#[derive(Clone, Copy)]
struct Case {
    dtype: DType,
    length: usize,
}

fn every_dtype(lengths: &[usize]) -> Vec<Case> {
    DType::ALL.into_iter().flat_map(|dtype| lengths.iter().map(move |&length| Case { dtype, length })).collect()
}

/// Lengths at which parts are empty, alike, or one of them larger, and one of several cache lines.
fn awkward(ranks: usize) -> [usize; 6] {
    [0, 1, ranks - 1, ranks, ranks + 1, 1023]
}

/// Joins as `rank` by a plan and adds up every case; `job` is a name that no other job of this machine has.
fn add_up(job: &str, rank: usize, ranks: usize, plan: Option<&str>, cases: &[Case]) {
    let session = session(job, rank, ranks, plan);
    let all = session.collectives().expect("a worker");
    let sums: Vec<usize> = (0..PERIOD).map(|place| (0..ranks).map(|rank| number(rank, place)).sum()).collect();
    for &Case { dtype, length } in cases {
        let mut array = bytes_of(dtype, (0..length).map(|place| number(rank, place)));
        let how = How { site: "", by: Deadline::after(session.timeout()) };
        let contributors = all.all_reduce(&mut array, dtype, ReduceOp::Sum, true, how).expect("all agree");
        assert_eq!(contributors as usize, ranks);
        let expected = bytes_of(dtype, (0..length).map(|place| sums[place % PERIOD]));
        assert!(array == expected, "rank {rank} of {ranks}, plan {plan:?}: {length} {dtype}");
    }
    session.shutdown().expect("a polite end");
}

fn session(job: &str, rank: usize, ranks: usize, plan: Option<&str>) -> Session {
    let name = format!("unix:@matrix-{job}-{ranks}-{}", plan.unwrap_or("free"));
    let (rank, world) = (rank.to_string(), ranks.to_string());
    let mut variables = vec![
        ("SYNCLINE_RANK", rank.as_str()),
        ("SYNCLINE_WORLD_SIZE", &world),
        ("SYNCLINE_RENDEZVOUS", &name),
        ("SYNCLINE_TOKEN", "t"),
        ("SYNCLINE_TIMEOUT", "120"),
    ];
    variables.extend(plan.map(|plan| ("SYNCLINE_PLAN", plan)));
    let config = Config::from_environment(&Environment::from_variables(variables), &Arguments::default()).expect("sound");
    Session::open(config).expect("everybody comes")
}

fn sums_of_threads_are_right(ranks: usize, cases: &[Case]) {
    let began = std::time::Instant::now();
    for plan in PLANS {
        let job = std::process::id().to_string();
        threads(ranks, |rank| add_up(&job, rank, ranks, plan, cases));
    }
    println!("{ranks} ranks: {} plans × {} arrays in {:.2} s", PLANS.len(), cases.len(), began.elapsed().as_secs_f64());
}

/// A test for some numbers of ranks each, so that they run beside each other.
macro_rules! threads_from_to {
    ($($name:ident $numbers:expr, $lengths:expr;)*) => {$(
        #[test]
        fn $name() {
            for ranks in $numbers {
                sums_of_threads_are_right(ranks, &every_dtype(&$lengths(ranks)));
            }
        }
    )*};
}

threads_from_to! {
    from_1_to_5_ranks 1..=5, awkward;
    from_6_to_9_ranks 6..=9, awkward;
    from_10_to_17_ranks 10..=17, around;
    from_18_to_23_ranks 18..=23, around;
    from_24_to_28_ranks 24..=28, around;
    from_29_to_33_ranks 29..=33, around;
}

/// Many ranks: where their number itself makes the difference.
fn around(ranks: usize) -> [usize; 3] {
    [ranks - 1, ranks, ranks + 1]
}

/// Arrays of many segments; with 1, 2, 4 and 8 ranks processes have them.
#[test]
fn odd_numbers_of_ranks_and_long_arrays() {
    for ranks in [3, 7] {
        sums_of_threads_are_right(ranks, &[Case { dtype: DType::F32, length: LONG }]);
    }
}

#[test]
#[ignore = "minutes: `make soak` runs it"]
fn every_number_of_ranks_by_every_plan() {
    for ranks in 1..=33 {
        let mut cases = every_dtype(&awkward(ranks));
        cases.push(Case { dtype: if ranks <= 8 { DType::F32 } else { DType::U8 }, length: LONG });
        sums_of_threads_are_right(ranks, &cases);
    }
}

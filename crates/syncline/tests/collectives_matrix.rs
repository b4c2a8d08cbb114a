//! Every number of ranks from 1 to 33, every plan, every dtype, every awkward length: sums that are whole in any order, so that
//! each plan must give them exactly. A long run for `make soak`; the bits of sums that do depend on the order are tested elsewhere.

use syncline::bootstrap::{Arguments, Environment};
use syncline::collective::How;
use syncline::{Config, DType, Deadline, ReduceOp, Session};
use syncline_tensor::kernels::cast;
use syncline_testkit::ranks::threads;

/// Without a plan of their own ranks share memory; the others go over links.
const PLANS: [Option<&str>; 8] =
    [None, Some("tree"), Some("tree:3"), Some("tree:8"), Some("ring"), Some("halving"), Some("chain"), Some("doubling")];

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

fn session(rank: usize, ranks: usize, plan: Option<&str>) -> Session {
    let name = format!("unix:@matrix-{}-{ranks}-{}", std::process::id(), plan.unwrap_or("free"));
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

fn sums_are_right(ranks: usize, plan: Option<&str>) {
    let lengths = [0, 1, ranks - 1, ranks, ranks + 1, 1023];
    let small = DType::ALL.into_iter().flat_map(|dtype| lengths.map(|length| (dtype, length)));
    let large = if ranks <= 8 { DType::F32 } else { DType::U8 };
    let cases: Vec<(DType, usize)> = small.chain([(large, 1_000_003)]).collect();
    threads(ranks, |rank| {
        let session = session(rank, ranks, plan);
        let all = session.collectives().expect("a worker");
        for &(dtype, length) in &cases {
            let mut array = bytes_of(dtype, (0..length).map(|place| number(rank, place)));
            let how = How { site: "", by: Deadline::after(session.timeout()) };
            let contributors = all.all_reduce(&mut array, dtype, ReduceOp::Sum, true, how).expect("all agree");
            assert_eq!(contributors as usize, ranks);
            let expected = bytes_of(dtype, (0..length).map(|place| (0..ranks).map(|rank| number(rank, place)).sum()));
            assert!(array == expected, "rank {rank} of {ranks}, plan {plan:?}: {length} {dtype}");
        }
        session.shutdown().expect("a polite end");
    });
}

/// The corners, in every run.
#[test]
fn few_ranks_by_every_plan() {
    for ranks in [1, 2, 3, 7] {
        PLANS.into_iter().for_each(|plan| sums_are_right(ranks, plan));
    }
}

#[test]
#[ignore = "minutes: `make soak` runs it"]
fn every_number_of_ranks_by_every_plan() {
    for ranks in 1..=33 {
        let began = std::time::Instant::now();
        PLANS.into_iter().for_each(|plan| sums_are_right(ranks, plan));
        println!("{ranks} ranks: {} plans in {:.1} s", PLANS.len(), began.elapsed().as_secs_f64());
    }
}

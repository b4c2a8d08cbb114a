//! What the suites share: jobs whose ranks are threads, numbers whose sums show the order, and the left fold of them.

use std::time::Duration;

use syncline_cluster::bootstrap::{Arguments, Environment, find};
use syncline_cluster::{Deadline, Job, Settings};
use syncline_tensor::DType;
use syncline_tensor::kernels::{ReduceOp, cast, divide, reduce_many_into};
use syncline_testkit::ranks::threads;

pub(crate) fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

/// Runs `body` on every rank of a job, by rank; no other test of this process has a job of this `name`.
pub(crate) fn job<T: Send>(name: &str, ranks: usize, settings: &Settings, body: impl Fn(usize, Job) -> T + Sync) -> Vec<T> {
    let rendezvous = format!("unix:@{name}-{}-{ranks}-{}", std::process::id(), settings.transport);
    threads(ranks, |me| {
        let (number, world) = (me.to_string(), ranks.to_string());
        let environment = Environment::from_variables([
            ("SYNCLINE_RANK", number.as_str()),
            ("SYNCLINE_WORLD_SIZE", world.as_str()),
            ("SYNCLINE_RENDEZVOUS", rendezvous.as_str()),
            ("SYNCLINE_TOKEN", "t"),
        ]);
        let launch = find(&environment, &Arguments::default()).expect("a sound environment");
        body(me, Job::join(&launch, settings, soon()).expect("everybody comes"))
    })
}

/// Numbers whose sums depend on the order of the additions.
pub(crate) fn numbers(position: usize, count: usize, dtype: DType) -> Vec<u8> {
    let value = |index: usize| {
        let mixed = (index as u64 * 0x9e37_79b9 + position as u64 * 0x85eb_ca6b).wrapping_mul(0xc2b2_ae3d_27d4_eb4f) >> 40;
        (mixed as f32 / (1 << 20) as f32 - 8.0) * if index.is_multiple_of(3) { 100.0 } else { 1.0 }
    };
    let floats: Vec<u8> = (0..count).flat_map(|index| value(index).to_le_bytes()).collect();
    let mut bytes = vec![0; count * dtype.size()];
    cast(DType::F32, &floats, dtype, &mut bytes).expect("as many");
    bytes
}

/// The numbers of all positions, put together in this order.
pub(crate) fn folded(order: impl IntoIterator<Item = usize>, count: usize, dtype: DType, op: ReduceOp) -> Vec<u8> {
    let all: Vec<Vec<u8>> = order.into_iter().map(|position| numbers(position, count, dtype)).collect();
    let sources: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
    let mut out = vec![0; count * dtype.size()];
    reduce_many_into(op, dtype, &mut out, &sources).expect("of one length");
    if op == ReduceOp::Mean {
        divide(dtype, &mut out, all.len() as u32).expect("whole numbers");
    }
    out
}

/// The same in order of position: what every default plan promises.
pub(crate) fn left_fold(ranks: usize, count: usize, dtype: DType, op: ReduceOp) -> Vec<u8> {
    folded(0..ranks, count, dtype, op)
}

//! The calls of `bindings/perl/speed.pl` from Rust, to compare with: microseconds of processor time per call, the best of five turns.
//! With IN_TURNS set, one short turn for each line `go` of its input, another call after any other line: see `bindings/call-costs`.

use rustix::time::{ClockId, clock_gettime};
use syncline::kvstore::{Dense, DenseMut, KvStore, Optimizer};
use syncline::{Error, Session};

fn seconds() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
}

fn timed(times: u32, call: &mut impl FnMut() -> Result<(), Error>) -> Result<f64, Error> {
    let began = seconds();
    for _ in 0..times {
        call()?;
    }
    Ok((seconds() - began) / f64::from(times) * 1e6)
}

fn cost(name: String, times: u32, mut call: impl FnMut() -> Result<(), Error>) -> Result<(), Error> {
    timed((times / 10).max(10), &mut call)?;
    if std::env::var_os("IN_TURNS").is_some() {
        println!("{name}");
        // A few milliseconds, large calls included: what it costs to wake up is then little.
        let times = if times > 1000 { times / 50 } else { times / 2 };
        for line in std::io::stdin().lines().map_while(Result::ok).take_while(|line| line == "go") {
            println!("{line} {:.3}", timed(times, &mut call)?);
        }
        return Ok(());
    }
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        best = best.min(timed(times, &mut call)?);
    }
    println!("{name:<36} {best:>10.2} us");
    Ok(())
}

fn store(kind: &str, store: &KvStore, count: usize, times: u32) -> Result<(), Error> {
    let key = format!("{count}");
    let (shape, gradient, mut out) = ([count], vec![1f32; count], vec![0f32; count]);
    store.init(key.as_str(), Dense::of(&shape, &gradient)?)?;
    cost(format!("{kind} push {count} floats"), times, || store.push(key.as_str(), Dense::of(&shape, &gradient)?))?;
    cost(format!("{kind} pull {count} floats"), times, || store.pull_into(key.as_str(), DenseMut::of(&shape, &mut out)?))
}

fn main() -> Result<(), Error> {
    let session = Session::open(syncline::Config::from_env()?)?;
    let local = KvStore::local("local")?;
    let apart = session.kvstore("dist_async")?;
    apart.set_optimizer(Optimizer::create("test", &[]).map_err(|error| Error::of_function("create", error.to_string()))?)?;
    let given: Vec<usize> = std::env::args().skip(1).filter_map(|size| size.parse().ok()).collect();
    for count in if given.is_empty() { vec![1, 16, 1024, 262_144, 4_194_304] } else { given } {
        let times = if count <= 1024 {
            100_000
        } else if count <= 262_144 {
            500
        } else {
            20
        };
        store("local", &local, count, times)?;
        store("dist_async", &apart, count, times)?;
        let table = session.array::<f32>(count as u64).create()?;
        let (delta, mut out) = (vec![1f32; count], vec![0f32; count]);
        cost(format!("table add {count} floats"), times, || table.add(&delta))?;
        cost(format!("table get {count} floats"), times, || table.get_into(&mut out))?;
    }
    session.shutdown()
}

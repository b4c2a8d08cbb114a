//! The calls of `tests/speed.lua` from Rust, to compare with: microseconds of processor time per call, the best of many turns. With
//! IN_TURNS set, one short turn for each line `go` of its input, another call after any other line: see `bindings/call-costs`.
//! Sizes may be given as arguments.

use rustix::time::{ClockId, clock_gettime};
use syncline::{DType, Error, Session};
use syncline_tensor::{Shape, Tensor};

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
    for _ in 0..20 {
        best = best.min(timed(times, &mut call)?);
    }
    println!("{name:<28} {best:>10.2} us");
    Ok(())
}

fn shape(count: usize) -> Shape {
    Shape::new(&[count]).expect("a size that memory has")
}

fn numbers(tensor: &mut Tensor) -> &mut [f32] {
    tensor.as_slice_mut().expect("a tensor of float32")
}

fn main() -> Result<(), Error> {
    let session = Session::open(syncline::Config::from_env()?)?;
    let mut sizes: Vec<usize> = std::env::args().skip(1).filter_map(|size| size.parse().ok()).collect();
    if sizes.is_empty() {
        sizes = vec![1, 16, 1024, 262_144, 4_194_304];
    }
    for count in sizes {
        let times = match count {
            0..=1024 => 20_000,
            1025..=262_144 => 200,
            _ => 10,
        };
        let table = session.array::<f32>(count as u64).create()?;
        // In memory of the same kind as Lua's tensors, so that only the call differs.
        let mut delta = Tensor::zeros(DType::F32, shape(count));
        numbers(&mut delta).fill(1.0);
        let mut out = Tensor::zeros(DType::F32, shape(count));
        cost(format!("get {count} floats"), times, || table.get_into(numbers(&mut out)))?;
        cost(format!("add {count} floats"), times, || table.add(numbers(&mut delta)))?;
    }
    session.shutdown()
}

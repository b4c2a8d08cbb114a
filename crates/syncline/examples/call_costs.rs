//! The calls of a table and of stores from Rust, which other languages are measured against; so many at a time as `bindings/costs/measure` says.
//!
//! `call_costs aligned 1 16 262144`: numbers lie where a line of the cache begins, as Lua's do; without the word they lie where `malloc` puts them.

use std::io::stdin;

use rustix::time::{ClockId, clock_gettime};
use syncline::kvstore::{Dense, DenseMut, KvStore, Optimizer};
use syncline::{DType, Error, Session};
use syncline_tensor::{Shape, Tensor};

fn microseconds() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 * 1e6 + now.tv_nsec as f64 * 1e-3
}

/// Says what the calls are; then, for every number that comes, makes so many and says how long one took, in microseconds of processor time.
fn play(name: &str, size: usize, mut call: impl FnMut() -> Result<(), Error>) -> Result<(), Error> {
    println!("{name} {size}");
    for times in stdin().lines().map_while(|line| line.ok()?.parse::<u32>().ok()) {
        let began = microseconds();
        for _ in 0..times {
            call()?;
        }
        println!("{:.4}", (microseconds() - began) / f64::from(times));
    }
    Ok(())
}

/// Memory of either kind.
enum Numbers {
    Aligned(Tensor),
    Plain(Vec<f32>),
}

impl Numbers {
    fn filled(with: f32, size: usize, aligned: bool) -> Numbers {
        if !aligned {
            return Numbers::Plain(vec![with; size]);
        }
        let mut tensor = Tensor::zeros(DType::F32, Shape::new(&[size]).expect("a size that memory has"));
        tensor.as_slice_mut::<f32>().expect("floats").fill(with);
        Numbers::Aligned(tensor)
    }

    fn all(&mut self) -> &mut [f32] {
        match self {
            Numbers::Aligned(tensor) => tensor.as_slice_mut().expect("floats"),
            Numbers::Plain(numbers) => numbers,
        }
    }
}

fn main() -> Result<(), Error> {
    let session = Session::open(syncline::Config::from_env()?)?;
    let (local, costumed) = (KvStore::local("local")?, KvStore::local("local")?);
    let distributed = session.kvstore("dist_async")?;
    distributed.set_optimizer(Optimizer::create("test", &[]).map_err(|error| Error::of_function("create", error.to_string()))?)?;
    let aligned = std::env::args().any(|word| word == "aligned");
    for size in std::env::args().filter_map(|word| word.parse().ok()) {
        let (mut delta, mut out) = (Numbers::filled(1.0, size, aligned), Numbers::filled(0.0, size, aligned));
        let (delta, out) = (delta.all(), out.all());
        let table = session.array::<f32>(size as u64).create()?;
        play("table add", size, || table.add(delta))?;
        play("table get", size, || table.get_into(out))?;
        play("table get new", size, || table.get().map(drop))?;
        let (key, shape) = (size.to_string(), [size]);
        for (kind, store) in [("dist_async", &distributed), ("local", &local), ("AI::MXNet", &costumed)] {
            store.init(key.as_str(), Dense::of(&shape, delta)?)?;
            play(&format!("{kind} push"), size, || store.push(key.as_str(), Dense::of(&shape, delta)?))?;
            play(&format!("{kind} pull"), size, || store.pull_into(key.as_str(), DenseMut::of(&shape, out)?))?;
        }
    }
    session.shutdown()
}

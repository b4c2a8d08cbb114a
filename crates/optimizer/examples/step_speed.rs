//! How fast steps are here: GB of memory traffic per second (all arrays read, all but the gradient written), best of several runs.
//!
//! `cargo run --release -p syncline-optimizer --example step_speed`

use std::time::Instant;

use syncline_optimizer::{Block, Key, KeyState, Optimizer, OptionValue, Progress};
use syncline_tensor::DType;
use syncline_tensor::kernels::simd_level;

fn main() {
    println!("level {}; f32 on one core", simd_level());
    println!("{:<10} {:>9} {:>12} {:>14}", "optimizer", "numbers", "traffic GB/s", "numbers M/s");
    for count in [1usize << 12, 1 << 24] {
        let (mut to, from) = (vec![0.0f32; count], vec![1.0f32; count]);
        let seconds = best(count, || {
            to.copy_from_slice(&from);
            std::hint::black_box(&mut to); // or nothing would be copied
        });
        println!("{:<10} {count:>9} {:>12.2} {:>14.0}", "copy", (8 * count) as f64 / seconds / 1e9, count as f64 / seconds / 1e6);
        let custom = "m = 0.9*m + 0.1*g; v = 0.999*v + 0.001*g*g; w -= lr*m/(sqrt(v) + 0.00000001)";
        let kinds: [(&str, &[(&str, OptionValue)]); 6] = [
            ("sgd", &[]),
            ("sgd", &[("momentum", OptionValue::Number(0.9))]),
            ("adam", &[]),
            ("rmsprop", &[]),
            ("lamb", &[]),
            ("custom", &[("update", OptionValue::Nothing)]),
        ];
        for (name, options) in kinds {
            let mut options = options.to_vec();
            if name == "custom" {
                options.push(("update", custom.into()));
            }
            measure(&Optimizer::create(name, &options).expect("these exist"), count);
        }
    }
}

fn measure(optimizer: &Optimizer, count: usize) {
    let lanes = optimizer.lanes(DType::F32).expect("f32 is fine").len();
    let (mut weight, grad) = (vec![1.0f32; count], vec![0.01f32; count]);
    let mut states = vec![vec![0.0f32; count]; lanes];
    let (mut progress, mut state) = (Progress::default(), KeyState::default());
    let seconds = best(count, || {
        let mut step = optimizer.begin(&Key::Int(0), &mut progress, &mut state);
        let mut lanes: Vec<&mut [u8]> = states.iter_mut().map(|lane| bytemuck::cast_slice_mut(&mut lane[..])).collect();
        if step.needs_norms() {
            let block = Block::whole(DType::F32, bytemuck::cast_slice_mut(&mut weight), bytemuck::cast_slice(&grad), &mut lanes);
            step = step.with_norms(&step.measure(&block).expect("it fits"));
        }
        step.apply(Block::whole(DType::F32, bytemuck::cast_slice_mut(&mut weight), bytemuck::cast_slice(&grad), &mut lanes))
            .expect("it fits");
    });
    let traffic = (4 * count * (3 + 2 * lanes)) as f64;
    println!("{:<10} {count:>9} {:>12.2} {:>14.0}", optimizer.method.name(), traffic / seconds / 1e9, count as f64 / seconds / 1e6);
}

fn best(count: usize, mut work: impl FnMut()) -> f64 {
    let repeats = (1 << 20) / count + 1;
    let run = |work: &mut dyn FnMut()| {
        let start = Instant::now();
        (0..repeats).for_each(|_| work());
        start.elapsed().as_secs_f64() / repeats as f64
    };
    (0..7).map(|_| run(&mut work)).fold(f64::MAX, f64::min)
}

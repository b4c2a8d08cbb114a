//! A network of two layers on handwritten digits, through a key-value store: gradients are pushed, Adam runs where the weights live.
//!
//! ```text
//! cargo run --release -p syncline --example digits_kvstore                             alone
//! syncline run -n 4 target/release/examples/digits_kvstore                             dist_sync: step by step
//! syncline run -n 4 target/release/examples/digits_kvstore dist_async                  each at its own pace
//! syncline run -n 4 target/release/examples/digits_kvstore dist_sync 2bit              gradients in two bits
//! ```
//! Layers that are needed first are pulled first: that is what priorities are for.

use std::time::Instant;

use syncline::kvstore::{KvStore, Optimizer, OptimizerError, Pending, Tensor, TensorError, wait_one};
use syncline::prelude::*;

const PIXELS: usize = 64;
const HIDDEN: usize = 48;
const CLASSES: usize = 10;
const EPOCHS: usize = 30;
/// Images of one step of all workers together.
const BATCH: usize = 48;
/// Key and shape of each parameter, in the order in which the network needs them.
const LAYERS: [(&str, [usize; 2]); 4] =
    [("hidden_weight", [PIXELS, HIDDEN]), ("hidden_bias", [1, HIDDEN]), ("out_weight", [HIDDEN, CLASSES]), ("out_bias", [1, CLASSES])];

struct Image {
    pixels: [f32; PIXELS],
    digit: usize,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let kind = words.next().unwrap_or_else(|| "dist_sync".into());
    let session = Session::open(Config::from_env()?)?;
    let store = session.kvstore(&kind)?;
    let (worker, workers) = (store.rank() as usize, store.num_workers() as usize);
    if let Some(code) = words.next() {
        store.set_gradient_compression(&[("type", &code), ("threshold", "0.5")])?;
    }
    // Pushed gradients are sums over a batch; the optimizer divides. In sync mode it sees the sum over all workers.
    let batch = (BATCH / workers).max(1);
    let divided_by = if store.kind().is_sync() { batch * workers } else { batch };
    store.set_optimizer(adam(1.0 / divided_by as f64)?)?;
    for (key, shape) in LAYERS {
        store.init(key, &first_value(key, &shape)?)?;
    }
    session.barrier()?;

    let (learn, test): (Vec<_>, Vec<_>) = read_images().into_iter().enumerate().partition(|(number, _)| number % 5 != 4);
    let mine: Vec<&Image> = learn.iter().skip(worker).step_by(workers).map(|(_, image)| image).collect();
    let steps = learn.len() / workers / batch;
    let mut random = Random(worker as u64);
    let mut order: Vec<usize> = (0..mine.len()).collect();
    let started = Instant::now();
    for epoch in 1..=EPOCHS {
        random.shuffle(&mut order);
        let mut loss = [0.0f64];
        for chosen in order.chunks(batch).take(steps) {
            let network = Network::pull(&store)?;
            let mut gradients: Vec<Vec<f32>> = LAYERS.iter().map(|(_, [rows, cols])| vec![0.0; rows * cols]).collect();
            for &number in chosen {
                loss[0] += f64::from(network.add_gradient(mine[number], &mut gradients));
            }
            for ((key, shape), gradient) in LAYERS.iter().zip(&gradients) {
                store.push(*key, &Tensor::from_slice(shape, gradient)?)?;
            }
        }
        if epoch % 10 == 0 {
            session.aggregate(&mut loss, ReduceOp::Sum)?;
            if worker == 0 {
                println!("epoch {epoch}: mean loss {:.4}", loss[0] / (steps * batch * workers) as f64);
            }
        }
    }
    store.barrier()?; // every push of everyone is applied
    let seconds = started.elapsed().as_secs_f64();
    if worker == 0 {
        let network = Network::pull(&store)?;
        let right = test.iter().filter(|(_, image)| network.guess(image) == image.digit).count();
        let accuracy = right as f64 / test.len() as f64;
        println!("{workers} workers, {kind}: test accuracy {accuracy:.4} after {EPOCHS} epochs in {seconds:.2} s");
    }
    Ok(session.shutdown()?)
}

fn adam(rescale: f64) -> Result<Optimizer, OptimizerError> {
    Optimizer::create("adam", &[("learning_rate", 0.01.into()), ("rescale_grad", rescale.into())])
}

/// Small random weights, the same on every worker though only worker 0's count; biases begin as zeros.
fn first_value(key: &str, shape: &[usize; 2]) -> Result<Tensor, TensorError> {
    let mut random = Random(key.len() as u64);
    let reach = if key.ends_with("bias") { 0.0 } else { (1.0 / shape[0] as f32).sqrt() };
    let numbers: Vec<f32> = (0..shape[0] * shape[1]).map(|_| (random.below(2001) as f32 / 1000.0 - 1.0) * reach).collect();
    Tensor::from_slice(shape, &numbers)
}

/// The parameters as a worker last pulled them.
struct Network {
    layers: Vec<Vec<f32>>,
}

impl Network {
    fn pull(store: &KvStore) -> Result<Network, Box<dyn std::error::Error>> {
        let begin = |(place, (key, _)): (usize, &(&str, [usize; 2]))| store.pull_async(*key, -(place as i32));
        let pending: Vec<Pending<Tensor>> = LAYERS.iter().enumerate().map(begin).collect::<Result<_, Error>>()?;
        let mut layers = Vec::new();
        for pending in &pending {
            layers.push(wait_one(pending)?.as_slice::<f32>()?.to_vec());
        }
        Ok(Network { layers })
    }

    /// What the hidden layer and the classes say of an image.
    fn forward(&self, image: &Image) -> ([f32; HIDDEN], [f32; CLASSES]) {
        let [hidden_weight, hidden_bias, out_weight, out_bias] = &self.layers[..] else { unreachable!("four layers") };
        let (mut hidden, mut out) = ([0.0; HIDDEN], [0.0; CLASSES]);
        hidden.copy_from_slice(hidden_bias);
        out.copy_from_slice(out_bias);
        for (row, pixel) in hidden_weight.chunks_exact(HIDDEN).zip(image.pixels) {
            hidden.iter_mut().zip(row).for_each(|(sum, weight)| *sum += pixel * weight);
        }
        hidden.iter_mut().for_each(|sum| *sum = sum.max(0.0));
        for (row, input) in out_weight.chunks_exact(CLASSES).zip(hidden) {
            out.iter_mut().zip(row).for_each(|(sum, weight)| *sum += input * weight);
        }
        (hidden, out)
    }

    /// Adds the gradient of this image's loss and returns the loss.
    fn add_gradient(&self, image: &Image, gradients: &mut [Vec<f32>]) -> f32 {
        let (hidden, mut error) = self.forward(image);
        let highest = error.iter().copied().fold(f32::MIN, f32::max);
        error.iter_mut().for_each(|score| *score = (*score - highest).exp());
        let sum: f32 = error.iter().sum();
        error.iter_mut().for_each(|score| *score /= sum);
        let loss = -error[image.digit].max(1e-9).ln();
        error[image.digit] -= 1.0;
        let [of_hidden_weight, of_hidden_bias, of_out_weight, of_out_bias] = gradients else { unreachable!("four layers") };
        let mut back = [0.0f32; HIDDEN];
        let rows = of_out_weight.chunks_exact_mut(CLASSES).zip(self.layers[2].chunks_exact(CLASSES));
        for (((row, weights), input), back) in rows.zip(hidden).zip(&mut back) {
            row.iter_mut().zip(error).for_each(|(sum, error)| *sum += input * error);
            *back = if input > 0.0 { weights.iter().zip(error).map(|(weight, error)| weight * error).sum() } else { 0.0 };
        }
        of_out_bias.iter_mut().zip(error).for_each(|(sum, error)| *sum += error);
        for (row, pixel) in of_hidden_weight.chunks_exact_mut(HIDDEN).zip(image.pixels) {
            row.iter_mut().zip(back).for_each(|(sum, back)| *sum += pixel * back);
        }
        of_hidden_bias.iter_mut().zip(back).for_each(|(sum, back)| *sum += back);
        loss
    }

    fn guess(&self, image: &Image) -> usize {
        let (_, out) = self.forward(image);
        (0..CLASSES).max_by(|&a, &b| out[a].total_cmp(&out[b])).unwrap_or(0)
    }
}

fn read_images() -> Vec<Image> {
    let text = include_str!("../../../examples/data/digits/digits.csv");
    let line = |line: &str| {
        let (digit, levels) = line.split_once(',').expect("a digit and its pixels");
        let mut pixels = [0.0; PIXELS];
        for (pixel, level) in pixels.iter_mut().zip(levels.chars()) {
            *pixel = level.to_digit(17).expect("a level from 0 to g") as f32 / 16.0;
        }
        Image { pixels, digit: digit.parse().expect("a digit") }
    };
    text.lines().skip(1).map(line).collect()
}

/// A small generator, so that a run is the same wherever it runs.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % limit
    }

    fn shuffle(&mut self, numbers: &mut [usize]) {
        for last in (1..numbers.len()).rev() {
            numbers.swap(last, self.below(last + 1));
        }
    }
}

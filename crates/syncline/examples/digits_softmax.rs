//! Softmax regression on handwritten digits: each process learns from its share, one table holds the weights.
//!
//! ```text
//! cargo run --release -p syncline --example digits_softmax                             alone
//! syncline run -n 4 target/release/examples/digits_softmax                             four processes, step by step
//! syncline run -n 4 target/release/examples/digits_softmax --async                     each at its own pace
//! ```
//! The table's updater is `sgd`, so a worker adds its gradient times the learning rate and gets what all have made of
//! the weights. In sync mode the final weights are the same bits in every run.

use std::time::Instant;

use syncline::prelude::*;

const PIXELS: usize = 64;
const INPUTS: usize = PIXELS + 1; // and a constant
const CLASSES: usize = 10;
const EPOCHS: usize = 80;
const LEARNING_RATE: f32 = 0.5;
/// Images of one step of all workers together.
const BATCH: usize = 48;

struct Image {
    inputs: [f32; INPUTS],
    digit: usize,
}

fn main() -> Result<(), Error> {
    let sync = !std::env::args().any(|argument| argument == "--async");
    let session = Session::open(Config::from_env()?.sync(sync))?;
    let (worker, workers) = (session.worker_id().unwrap_or(0) as usize, session.num_workers() as usize);
    let (learn, test): (Vec<_>, Vec<_>) = read_images().into_iter().enumerate().partition(|(number, _)| number % 5 != 4);
    let mine: Vec<&Image> = learn.iter().skip(worker).step_by(workers).map(|(_, image)| image).collect();
    // All workers make the same number of steps; who has an image more than others leaves one out.
    let batch = (BATCH / workers).max(1);
    let steps = learn.len() / workers / batch;

    let table = session.array::<f32>((INPUTS * CLASSES) as u64).updater(Updater::Sgd).name("weights").create()?;
    let mut weights = table.get()?;
    let mut delta = vec![0.0; weights.len()];
    let mut order: Vec<usize> = (0..mine.len()).collect();
    let mut random = Random(worker as u64);
    let started = Instant::now();
    for epoch in 1..=EPOCHS {
        random.shuffle(&mut order);
        let mut loss = [0.0f64];
        for chosen in order.chunks(batch).take(steps) {
            delta.fill(0.0);
            for &number in chosen {
                loss[0] += f64::from(add_gradient(&weights, mine[number], &mut delta));
            }
            let scale = LEARNING_RATE / (chosen.len() * workers) as f32;
            delta.iter_mut().for_each(|number| *number *= scale);
            table.add_get(&delta, &mut weights)?;
        }
        if epoch % 10 == 0 {
            session.aggregate(&mut loss, ReduceOp::Sum)?;
            if worker == 0 {
                println!("epoch {epoch}: mean loss {:.4}", loss[0] / (steps * batch * workers) as f64);
            }
        }
    }
    session.barrier()?; // every add of everyone is applied
    let seconds = started.elapsed().as_secs_f64();

    if worker == 0 {
        table.get_into(&mut weights)?;
        let right = test.iter().filter(|(_, image)| guess(&weights, image) == image.digit).count();
        let accuracy = right as f64 / test.len() as f64;
        let mode = if sync { "sync" } else { "async" };
        println!("{workers} workers, {mode}: test accuracy {accuracy:.4} after {EPOCHS} epochs in {seconds:.2} s");
    }
    session.shutdown()
}

/// Adds the gradient of this image's loss to `gradient` and returns the loss.
fn add_gradient(weights: &[f32], image: &Image, gradient: &mut [f32]) -> f32 {
    let mut likely = scores(weights, image);
    let highest = likely.iter().copied().fold(f32::MIN, f32::max);
    likely.iter_mut().for_each(|score| *score = (*score - highest).exp());
    let sum: f32 = likely.iter().sum();
    likely.iter_mut().for_each(|score| *score /= sum);
    let loss = -likely[image.digit].max(1e-9).ln();
    likely[image.digit] -= 1.0;
    for (row, input) in gradient.chunks_exact_mut(CLASSES).zip(image.inputs) {
        row.iter_mut().zip(likely).for_each(|(number, error)| *number += input * error);
    }
    loss
}

fn scores(weights: &[f32], image: &Image) -> [f32; CLASSES] {
    let mut scores = [0.0; CLASSES];
    for (row, input) in weights.chunks_exact(CLASSES).zip(image.inputs) {
        scores.iter_mut().zip(row).for_each(|(score, weight)| *score += input * weight);
    }
    scores
}

fn guess(weights: &[f32], image: &Image) -> usize {
    let scores = scores(weights, image);
    (0..CLASSES).max_by(|&a, &b| scores[a].total_cmp(&scores[b])).unwrap_or(0)
}

fn read_images() -> Vec<Image> {
    let text = include_str!("../../../examples/data/digits/digits.csv");
    let line = |line: &str| {
        let (digit, pixels) = line.split_once(',').expect("a digit and its pixels");
        let mut inputs = [1.0; INPUTS];
        for (input, level) in inputs.iter_mut().zip(pixels.chars()) {
            *input = level.to_digit(17).expect("a level from 0 to g") as f32 / 16.0;
        }
        Image { inputs, digit: digit.parse().expect("a digit") }
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

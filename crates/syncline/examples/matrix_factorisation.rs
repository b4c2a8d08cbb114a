//! Word vectors of a book by factorising the matrix of which words stand near each other. Rows are pulled and pushed.
//!
//! ```text
//! cargo run --release -p syncline --example matrix_factorisation                       alone
//! syncline run -n 4 target/release/examples/matrix_factorisation                       each at its own pace
//! syncline run -n 4 target/release/examples/matrix_factorisation --sync                step by step
//! ```
//! The matrix has a cell for each pair of words that come close to each other: the logarithm of how often. It is
//! approximated by the product of two thin matrices, two tables of one row per word (after Pennington and others,
//! "GloVe", 2014). A worker takes some cells, gets the rows they need, and adds the gradients of just these rows; the
//! tables' updater, AdaGrad, gives each number a step of its own. Some cells are kept apart to see how well it does.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Instant;

use syncline::prelude::*;

const FACTORS: usize = 16;
const COLS: usize = FACTORS + 1; // and a number for how frequent the word is
const EPOCHS: usize = 12;
const CELLS_PER_STEP: usize = 512;
const WINDOW: usize = 5;
const RARE: usize = 5;
const SHRINK: f32 = 0.02;

/// `word` stood near `context`; `value` is the logarithm of how often, nearer ones counting more.
struct Cell {
    word: i64,
    context: i64,
    value: f32,
}

fn main() -> Result<(), Error> {
    let sync = std::env::args().any(|argument| argument == "--sync");
    let session = Session::open(Config::from_env()?.sync(sync))?;
    let (worker, workers) = (session.worker_id().unwrap_or(0) as usize, session.num_workers() as usize);
    let (vocabulary, cells) = read_cells();
    let (learn, test): (Vec<_>, Vec<_>) = cells.iter().enumerate().partition(|(number, _)| number % 10 != 9);
    let mut mine: Vec<&Cell> = learn.iter().skip(worker).step_by(workers).map(|(_, cell)| *cell).collect();
    let steps = learn.len() / workers / CELLS_PER_STEP; // the same for all workers

    let rows = vocabulary.len() as u64;
    let create = |name: &str, seed| {
        let initial = small_numbers(seed, vocabulary.len() * COLS);
        session.matrix::<f32>(rows, COLS as u64).initial(&initial).updater(Updater::Adagrad).name(name).create()
    };
    let (words, contexts) = (create("words", 1)?, create("contexts", 2)?);
    let mean = learn.iter().map(|(_, cell)| cell.value).sum::<f32>() / learn.len() as f32;

    let started = Instant::now();
    let mut rows_moved = [0i64];
    let mut random = Random(worker as u64);
    for _ in 0..EPOCHS {
        random.shuffle(&mut mine);
        for chosen in mine.chunks(CELLS_PER_STEP).take(steps) {
            rows_moved[0] += step(&words, &contexts, chosen, mean)?;
        }
    }
    session.barrier()?; // every add of everyone is applied
    let seconds = started.elapsed().as_secs_f64();
    session.aggregate(&mut rows_moved, ReduceOp::Sum)?;

    if worker == 0 {
        let (words, contexts) = (words.get()?, contexts.get()?);
        let error = root_mean_square(test.iter().map(|(_, cell)| cell.value - predict(&words, &contexts, cell, mean)));
        let plain = root_mean_square(test.iter().map(|(_, cell)| cell.value - mean));
        let rate = rows_moved[0] as f64 / seconds;
        println!("{} words, {} cells, {workers} workers: {seconds:.2} s, {rate:.0} rows/s", vocabulary.len(), cells.len());
        println!("error on cells never seen: {error:.3} (always guessing the mean: {plain:.3})");
        for word in ["alice", "queen", "she", "little"] {
            println!("near `{word}`: {}", neighbours(&vocabulary, &words, word).join(" "));
        }
    }
    session.shutdown()
}

/// Learns from some cells; returns how many rows were fetched and added.
fn step(words: &MatrixTable<f32>, contexts: &MatrixTable<f32>, cells: &[&Cell], mean: f32) -> Result<i64, Error> {
    let (word_ids, context_ids) = (distinct(cells.iter().map(|cell| cell.word)), distinct(cells.iter().map(|cell| cell.context)));
    let (word_rows, context_rows) = (words.get_rows(&word_ids)?, contexts.get_rows(&context_ids)?);
    let mut word_deltas = vec![0.0; word_rows.len()];
    let mut context_deltas = vec![0.0; context_rows.len()];
    for cell in cells {
        let (word, context) = (place(&word_ids, cell.word), place(&context_ids, cell.context));
        let (w, c) = (&word_rows[word.clone()], &context_rows[context.clone()]);
        let error = product(w, c) + mean - cell.value;
        let (word_delta, context_delta) = (&mut word_deltas[word], &mut context_deltas[context]);
        for factor in 0..FACTORS {
            word_delta[factor] += error * c[factor] + SHRINK * w[factor];
            context_delta[factor] += error * w[factor] + SHRINK * c[factor];
        }
        word_delta[FACTORS] += error;
        context_delta[FACTORS] += error;
    }
    // The deltas are plain gradients: with a learning rate of 1, AdaGrad alone says how far to go.
    let options = AddOptions { learning_rate: Some(1.0), rho: Some(0.1), ..AddOptions::default() };
    words.add_rows_with(&word_ids, &word_deltas, &options)?;
    contexts.add_rows_with(&context_ids, &context_deltas, &options)?;
    Ok(2 * (word_ids.len() + context_ids.len()) as i64)
}

fn product(word: &[f32], context: &[f32]) -> f32 {
    let factors = word[..FACTORS].iter().zip(context).map(|(a, b)| a * b).sum::<f32>();
    factors + word[FACTORS] + context[FACTORS]
}

fn predict(words: &[f32], contexts: &[f32], cell: &Cell, mean: f32) -> f32 {
    product(row(words, cell.word), row(contexts, cell.context)) + mean
}

fn row(matrix: &[f32], id: i64) -> &[f32] {
    &matrix[id as usize * COLS..][..COLS]
}

fn distinct(ids: impl Iterator<Item = i64>) -> Vec<i64> {
    ids.collect::<BTreeSet<i64>>().into_iter().collect()
}

/// Where the row of `id` lies among those of `ids`, which are ascending.
fn place(ids: &[i64], id: i64) -> std::ops::Range<usize> {
    let index = ids.binary_search(&id).expect("its row was fetched");
    index * COLS..(index + 1) * COLS
}

fn root_mean_square(numbers: impl ExactSizeIterator<Item = f32>) -> f32 {
    let count = numbers.len() as f32;
    (numbers.map(|number| number * number).sum::<f32>() / count).sqrt()
}

/// The five words whose rows point most nearly in the same direction.
fn neighbours<'a>(vocabulary: &[&'a str], words: &[f32], word: &str) -> Vec<&'a str> {
    let Some(id) = vocabulary.iter().position(|other| *other == word) else { return Vec::new() };
    let factors = |id: usize| &row(words, id as i64)[..FACTORS];
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    let likeness = |other: usize| {
        let (a, b) = (factors(id), factors(other));
        dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
    };
    let mut others: Vec<usize> = (0..vocabulary.len()).filter(|other| *other != id).collect();
    others.sort_by(|&a, &b| likeness(b).total_cmp(&likeness(a)));
    others.into_iter().take(5).map(|other| vocabulary[other]).collect()
}

/// The words that are not rare, the most frequent first, and the cells of those that come near each other.
fn read_cells() -> (Vec<&'static str>, Vec<Cell>) {
    // Case matters little to meaning: the book is folded to lower case once, and lives as long as the program.
    let text: &'static str = include_str!("../../../examples/data/alice.txt").to_lowercase().leak();
    let tokens: Vec<&str> = text.split(|letter: char| !letter.is_ascii_alphabetic()).filter(|word| !word.is_empty()).collect();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    tokens.iter().for_each(|token| *counts.entry(token).or_default() += 1);
    let mut vocabulary: Vec<&str> = counts.iter().filter(|(_, count)| **count >= RARE).map(|(word, _)| *word).collect();
    vocabulary.sort_by_key(|word| std::cmp::Reverse(counts[word]));
    let ids: HashMap<&str, i64> = vocabulary.iter().copied().zip(0..).collect();

    let mut near: BTreeMap<(i64, i64), f32> = BTreeMap::new();
    for (position, token) in tokens.iter().enumerate() {
        for distance in 1..=WINDOW.min(position) {
            if let (Some(&a), Some(&b)) = (ids.get(token), ids.get(tokens[position - distance])) {
                *near.entry((a, b)).or_default() += 1.0 / distance as f32;
                *near.entry((b, a)).or_default() += 1.0 / distance as f32;
            }
        }
    }
    let cells = near.into_iter().map(|((word, context), count)| Cell { word, context, value: count.ln() });
    (vocabulary, cells.collect())
}

fn small_numbers(seed: u64, count: usize) -> Vec<f32> {
    let mut random = Random(seed);
    (0..count).map(|_| (random.below(2001) as f32 / 1000.0 - 1.0) * 0.1).collect()
}

/// A small generator, so that a run is the same wherever it runs.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % limit
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

//! Random programs against a model that is too simple to be wrong: after j pushes of a key, a pull shows the state after j rounds.
//!
//! All numbers are small whole ones, so sums are exact and equality is equality of bits.

use syncline::kvstore::{Key, KvStore, Optimizer, RowSparse, Tensor, Value, wait_one};

use crate::{filled, numbers};

/// Numbers that look random and follow from a seed.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}

/// One push of one worker: the values of its devices.
#[derive(Clone, Debug)]
pub(crate) enum Pushed {
    Dense(Vec<Tensor>),
    Rows(Vec<RowSparse>),
}

impl Pushed {
    fn values(&self) -> Vec<Value<'_>> {
        match self {
            Pushed::Dense(values) => values.iter().map(Value::from).collect(),
            Pushed::Rows(values) => values.iter().map(Value::from).collect(),
        }
    }

    fn sum(&self, elements: usize) -> Vec<f32> {
        let parts: Vec<Vec<f32>> = match self {
            Pushed::Dense(values) => values.iter().map(numbers).collect(),
            Pushed::Rows(values) => values.iter().map(|rows| numbers(&rows.to_dense())).collect(),
        };
        parts.into_iter().fold(vec![0.0; elements], |mut sum, part| {
            sum.iter_mut().zip(part).for_each(|(sum, more)| *sum += more);
            sum
        })
    }
}

/// A key of a program, with everything that will happen to it.
#[derive(Debug)]
pub(crate) struct Story {
    pub(crate) key: Key,
    shape: Vec<usize>,
    sparse: bool,
    /// By round, then by worker.
    pushes: Vec<Vec<Pushed>>,
    /// After so many rounds.
    states: Vec<Vec<f32>>,
}

/// What all pushes do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Does {
    Replace,
    /// w += rescale · g
    Add {
        rescale: f32,
    },
}

#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) seed: u64,
    pub(crate) does: Does,
    pub(crate) stories: Vec<Story>,
}

impl Program {
    pub(crate) fn random(seed: u64, workers: u64, does: Does, largest: u64) -> Program {
        let dice = &mut Dice::new(seed);
        let names = dice.below(2) == 0;
        let stories = (0..1 + dice.below(4)).map(|number| Story::random(dice, number, names, workers, does, largest)).collect();
        Program { seed, does, stories }
    }

    /// Plays one worker's part and compares all it sees. Keys are made in an order of its own; rounds follow one order on all workers, since a pull waits for the
    /// others' pushes and two that wait for each other's would wait for ever.
    pub(crate) fn play(&self, store: &KvStore, worker: usize) {
        let dice = &mut Dice::new(self.seed ^ (worker as u64 + 77) << 20);
        let mut order: Vec<&Story> = self.stories.iter().collect();
        (1..order.len()).for_each(|last| order.swap(last, dice.below(last as u64 + 1) as usize));
        for story in order {
            story.init(store, worker);
        }
        if let (Does::Add { rescale }, 0) = (self.does, worker) {
            let test = Optimizer::create("test", &[("rescale_grad", f64::from(rescale).into())]).expect("known");
            store.set_optimizer(test).expect("set");
        }
        store.barrier().expect("everybody"); // the optimizer is there before the first push
        let together = &mut Dice::new(self.seed + 5);
        let mut done = vec![0; self.stories.len()];
        let mut later = Vec::new();
        loop {
            let open: Vec<usize> = (0..done.len()).filter(|story| done[*story] < self.stories[*story].pushes.len()).collect();
            if open.is_empty() {
                break;
            }
            let at = open[together.below(open.len() as u64) as usize];
            let story = &self.stories[at];
            let key = || story.key.clone();
            let pushed = &story.pushes[done[at]][worker];
            let priority = dice.below(5) as i32 - 2;
            if dice.below(3) == 0 {
                let push = syncline::kvstore::Push { key: &story.key, values: &pushed.values() };
                let by = syncline::Deadline::after(std::time::Duration::from_secs(20));
                store.raw().push_async(&[push], priority, by).expect("queued");
            } else {
                store.push_values(key(), &pushed.values()).expect("pushed");
            }
            done[at] += 1;
            let expected = &story.states[done[at]];
            let context = || format!("seed {} worker {worker} key {} after {} rounds", self.seed, story.key, done[at]);
            match dice.below(4) {
                0 => assert_eq!(&numbers::<f32>(&store.pull(key()).expect("pulled")), expected, "{}", context()),
                1 if story.sparse => {
                    let rows = story.shape[0] as u64;
                    let ids: Vec<i64> = (0..dice.below(rows + 3)).map(|_| dice.below(rows) as i64).collect();
                    let pulled = store.row_sparse_pull(key(), &ids).expect("pulled");
                    let width = story.shape[1];
                    for (id, row) in numbers::<f32>(&pulled.to_dense()).chunks(width).enumerate() {
                        let wanted = if ids.contains(&(id as i64)) { &expected[id * width..][..width] } else { &vec![0.0; width][..] };
                        assert_eq!(row, wanted, "{} row {id} of {ids:?}", context());
                    }
                }
                2 => later.push((store.pull_async(key(), priority).expect("queued"), at, done[at])),
                _ => {}
            }
        }
        for (pending, at, rounds) in later {
            let pulled = wait_one(&pending).expect("pulled");
            let story = &self.stories[at];
            assert_eq!(
                numbers::<f32>(&pulled),
                story.states[rounds],
                "seed {} worker {worker} key {} after {rounds} rounds, later",
                self.seed,
                story.key
            );
        }
        for story in &self.stories {
            let last = store.pull(story.key.clone()).expect("pulled");
            assert_eq!(
                &numbers::<f32>(&last),
                story.states.last().expect("a beginning"),
                "seed {} worker {worker} key {} at the end",
                self.seed,
                story.key
            );
        }
    }
}

impl Story {
    fn random(dice: &mut Dice, number: u64, names: bool, workers: u64, does: Does, largest: u64) -> Story {
        let key = if names { Key::from(format!("key {number}").as_str()) } else { Key::from(number as i64 * 1_000_000_007 - 5) };
        let shape = vec![1 + dice.below(largest) as usize, 1 + dice.below(9) as usize];
        let sparse = dice.below(2) == 0;
        let elements = shape[0] * shape[1];
        let first: Vec<f32> = (0..elements).map(|_| dice.below(9) as f32 - 4.0).collect();
        let mut states = vec![first];
        let mut pushes = Vec::new();
        for _ in 0..dice.below(12) {
            let round: Vec<Pushed> = (0..workers).map(|_| pushed(dice, &shape, sparse)).collect();
            let mut sum = vec![0.0; elements];
            for pushed in &round {
                sum.iter_mut().zip(pushed.sum(elements)).for_each(|(sum, more)| *sum += more);
            }
            let before = states.last().expect("a beginning");
            let after = match does {
                Does::Replace => sum,
                Does::Add { rescale } => before.iter().zip(sum).map(|(weight, gradient)| weight + rescale * gradient).collect(),
            };
            states.push(after);
            pushes.push(round);
        }
        Story { key, shape, sparse, pushes, states }
    }

    fn init(&self, store: &KvStore, worker: usize) {
        // Only worker 0's value counts.
        let first =
            if worker == 0 { Tensor::from_slice(&self.shape, &self.states[0]).expect("sound") } else { filled(&self.shape, -99.0f32) };
        let rows = RowSparse::from_dense(syncline::DType::F32, &self.shape, first.bytes()).expect("sound");
        store.init(self.key.clone(), if self.sparse { Value::from(&rows) } else { Value::from(&first) }).expect("new");
    }
}

fn pushed(dice: &mut Dice, shape: &[usize], sparse: bool) -> Pushed {
    let devices = 1 + dice.below(3);
    let number = |dice: &mut Dice| dice.below(7) as f32 - 3.0;
    if sparse && dice.below(4) > 0 {
        let mut rows = || {
            let mut ids: Vec<i64> = (0..dice.below(shape[0] as u64 + 1)).map(|_| dice.below(shape[0] as u64) as i64).collect();
            ids.dedup();
            let values: Vec<f32> = (0..ids.len() * shape[1]).map(|_| number(dice)).collect();
            RowSparse::of(shape, ids, &values).expect("sound rows")
        };
        return Pushed::Rows((0..devices).map(|_| rows()).collect());
    }
    let mut dense = || Tensor::from_slice(shape, &(0..shape[0] * shape[1]).map(|_| number(dice)).collect::<Vec<_>>()).expect("sound");
    Pushed::Dense((0..devices).map(|_| dense()).collect())
}

#[test]
fn local_stores_do_what_the_model_does() {
    for seed in 0..200 {
        for does in [Does::Replace, Does::Add { rescale: 2.0 }] {
            let store = KvStore::local(if seed % 2 == 0 { "local" } else { "device" }).expect("local");
            Program::random(seed, 1, does, 20).play(&store, 0);
        }
    }
}

//! Every updater against its formula, one number at a time.

use proptest::prelude::*;
use syncline_tensor::{DType, bf16, f16};

use super::*;

const ALL: [Updater; 6] = [Updater::Add, Updater::Sgd, Updater::MomentumSgd, Updater::Adagrad, Updater::Dcasgd, Updater::Dcasgda];
const WORKERS: u32 = 3;

/// One value with every state it might have, in f64.
#[derive(Clone, Debug)]
struct Model {
    x: f64,
    momentum: f64,
    history: [f64; WORKERS as usize],
    backup: [f64; WORKERS as usize],
    mean_square: f64,
}

impl Model {
    fn new(x: f64) -> Model {
        Model { x, momentum: 0.0, history: [0.0; WORKERS as usize], backup: [x; WORKERS as usize], mean_square: 0.0 }
    }

    fn add(&mut self, updater: Updater, worker: usize, d: f64, options: &AddOptions) {
        let lr = f64::from(options.learning_rate.unwrap_or(0.01));
        let rho = f64::from(options.rho.unwrap_or(0.1));
        let lambda = f64::from(options.lambda.unwrap_or(0.1));
        let g = d / lr;
        match updater {
            Updater::Add => self.x += d,
            Updater::Sgd => self.x -= d,
            Updater::MomentumSgd => {
                let m = f64::from(options.momentum.unwrap_or(0.0));
                self.momentum = m * self.momentum + (1.0 - m) * d;
                self.x -= self.momentum;
            }
            Updater::Adagrad => {
                self.history[worker] += g * g;
                self.x -= rho / (self.history[worker] + 1e-6).sqrt() * g;
            }
            Updater::Dcasgd => self.x -= d + lambda * (d * d / lr) * (self.x - self.backup[worker]),
            Updater::Dcasgda => {
                let m = f64::from(options.momentum.unwrap_or(0.95));
                self.mean_square = m * self.mean_square + (1.0 - m) * g * g;
                self.x -= d + lambda / (self.mean_square + 1e-7).sqrt() * (d * d / lr) * (self.x - self.backup[worker]);
            }
            Updater::Gradient => unreachable!("not by these formulas"),
        }
    }
}

/// A table of one block, driven as a share drives it.
struct Small {
    updater: Updater,
    dtype: DType,
    values: Vec<u8>,
    states: Vec<Vec<u8>>,
}

impl Small {
    fn new(updater: Updater, dtype: DType, initial: &[f64]) -> Small {
        let values = bytes_of(dtype, initial);
        let lanes = updater.state_lanes(dtype, WORKERS);
        let state = |lane: &StateLane| if lane.starts_as_value { values.clone() } else { vec![0; initial.len() * lane.dtype.size()] };
        Small { updater, dtype, states: lanes.iter().map(state).collect(), values }
    }

    fn add(&mut self, worker: u32, delta: &[f64], options: &AddOptions) {
        let delta = bytes_of(self.dtype, delta);
        let (lanes, count) = self.updater.lanes_touched(worker, WORKERS);
        let mut new = vec![0xee; self.values.len()];
        let mut new_states = [0, 1].map(|index| if index < count { vec![0xee; self.states[lanes[index]].len()] } else { Vec::new() });
        let states_old = [0, 1].map(|index| if index < count { &self.states[lanes[index]][..] } else { &[] });
        let [first, second] = &mut new_states;
        let block = Block { old: &self.values, delta: &delta, new: &mut new, states_old, states_new: [first, second] };
        apply(self.updater, self.dtype, options, block);
        self.values = new;
        for (lane, state) in lanes.into_iter().zip(new_states).take(count) {
            self.states[lane] = state;
        }
    }

    fn get(&mut self, worker: u32) {
        if let Some(lane) = self.updater.backup_lane(worker, WORKERS) {
            self.states[lane] = self.values.clone();
        }
    }

    fn numbers(&self) -> Vec<f64> {
        numbers_of(self.dtype, &self.values)
    }
}

fn bytes_of(dtype: DType, numbers: &[f64]) -> Vec<u8> {
    let each = |number: &f64| match dtype {
        DType::F32 => (*number as f32).to_ne_bytes().to_vec(),
        DType::F64 => number.to_ne_bytes().to_vec(),
        DType::F16 => f16::from_f64(*number).to_ne_bytes().to_vec(),
        DType::BF16 => bf16::from_f64(*number).to_ne_bytes().to_vec(),
        other => panic!("no {other} here"),
    };
    numbers.iter().flat_map(each).collect()
}

fn numbers_of(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    let each = |bytes: &[u8]| match dtype {
        DType::F32 => f32::from_ne_bytes(bytes.try_into().unwrap()).into(),
        DType::F64 => f64::from_ne_bytes(bytes.try_into().unwrap()),
        DType::F16 => f16::from_ne_bytes(bytes.try_into().unwrap()).to_f64(),
        DType::BF16 => bf16::from_ne_bytes(bytes.try_into().unwrap()).to_f64(),
        other => panic!("no {other} here"),
    };
    bytes.chunks_exact(dtype.size()).map(each).collect()
}

/// What one worker does: adds a delta with some options, or gets.
#[derive(Clone, Debug)]
struct Act {
    worker: u32,
    delta: Option<f64>,
    options: AddOptions,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let options =
        (prop::option::of(0.01f32..0.5), prop::option::of(0.0f32..0.99), prop::option::of(0.01f32..0.2), prop::option::of(0.0f32..0.5))
            .prop_map(|(learning_rate, momentum, rho, lambda)| AddOptions { learning_rate, momentum, rho, lambda });
    let act = (0..WORKERS, prop::option::weighted(0.8, -0.05f64..0.05), options);
    prop::collection::vec(act.prop_map(|(worker, delta, options)| Act { worker, delta, options }), 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn adds_and_gets_of_several_workers_follow_the_formulas(initial in prop::collection::vec(-2.0f64..2.0, 1..40), acts in acts()) {
        // A value rounds a few times per act; the bounds are a handful of units in the last place per act.
        for (dtype, close) in [(DType::F64, 1e-12), (DType::F32, 3e-5), (DType::F16, 0.05), (DType::BF16, 0.4)] {
            for updater in ALL {
                let rounded = numbers_of(dtype, &bytes_of(dtype, &initial));
                let mut table = Small::new(updater, dtype, &rounded);
                let mut models: Vec<Model> = rounded.iter().map(|x| Model::new(*x)).collect();
                for (number, act) in acts.iter().enumerate() {
                    act.options.check(updater).unwrap();
                    let Some(delta) = act.delta else {
                        table.get(act.worker);
                        models.iter_mut().for_each(|model| model.backup[act.worker as usize] = model.x);
                        continue;
                    };
                    let deltas: Vec<f64> = (0..initial.len()).map(|index| delta * (1.0 + index as f64 / 64.0)).collect();
                    let deltas = numbers_of(dtype, &bytes_of(dtype, &deltas));
                    table.add(act.worker, &deltas, &act.options);
                    for (index, model) in models.iter_mut().enumerate() {
                        model.add(updater, act.worker as usize, deltas[index], &act.options);
                        let found = table.numbers()[index];
                        prop_assert!((found - model.x).abs() <= close, "{updater} {dtype} after act {number}: {found}, expected {}", model.x);
                    }
                }
            }
        }
    }
}

#[test]
fn adagrad_remembers_and_its_steps_shrink() {
    let options = AddOptions { learning_rate: Some(0.1), rho: Some(0.1), ..AddOptions::default() };
    let mut table = Small::new(Updater::Adagrad, DType::F64, &[0.0]);
    let mut before = 0.0;
    for round in 1..=5 {
        table.add(0, &[0.1], &options);
        let step = before - table.numbers()[0];
        let expected = 0.1 / f64::from(round).sqrt(); // g = 1, so after n rounds h = n
        assert!((step - expected).abs() < 1e-6, "round {round}: {step}, expected {expected}");
        before = table.numbers()[0];
    }
    table.add(1, &[0.1], &options); // another worker's history is still empty
    assert!((before - table.numbers()[0] - 0.1).abs() < 1e-6);
}

#[test]
fn small_changes_do_not_vanish_in_the_momentum_of_a_half_precision_table() {
    // 0.999·1 + 0.001·1.5 is 1.0005, which bfloat16 would round back to 1.
    let options = AddOptions { momentum: Some(0.999), ..AddOptions::default() };
    let mut table = Small::new(Updater::MomentumSgd, DType::BF16, &[0.0]);
    table.states[0] = 1.0f32.to_ne_bytes().to_vec();
    table.add(0, &[1.5], &options);
    let momentum = f32::from_ne_bytes(table.states[0][..].try_into().unwrap());
    assert!(momentum > 1.0004, "{momentum}");
}

#[test]
fn a_worker_that_just_got_the_values_makes_a_plain_step() {
    for updater in [Updater::Dcasgd, Updater::Dcasgda] {
        let mut table = Small::new(updater, DType::F32, &[1.0, 2.0]);
        table.add(1, &[0.25, 0.25], &AddOptions::default());
        assert_eq!(table.numbers(), [0.75, 1.75], "{updater}: the backup begins as the initial value");
        table.get(0);
        table.add(0, &[0.25, 0.5], &AddOptions::default());
        assert_eq!(table.numbers(), [0.5, 1.25], "{updater}");
        table.add(1, &[0.25, 0.25], &AddOptions::default());
        assert_ne!(table.numbers(), [0.25, 1.0], "{updater}: worker 1 is behind, and is compensated");
    }
}

#[test]
fn whole_numbers_add_and_subtract_and_wrap() {
    for (updater, expected) in [(Updater::Add, [1u8, 5]), (Updater::Sgd, [253, 1])] {
        let mut new = [0; 2];
        let block = Block { old: &[255, 3], delta: &[2, 2], new: &mut new, states_old: [&[]; 2], states_new: [&mut [], &mut []] };
        apply(updater, DType::U8, &AddOptions::default(), block);
        assert_eq!(new, expected, "{updater}");
        let mut values = [255, 3];
        apply_in_place(updater, DType::U8, &mut values, &[2, 2]);
        assert_eq!(values, expected, "{updater} in place");
    }
}

#[test]
fn an_add_leaves_the_backup_as_it_is_whether_its_new_state_is_asked_for_or_not() {
    let (old, delta, backup) = (1.0f32.to_ne_bytes(), 0.5f32.to_ne_bytes(), 0.25f32.to_ne_bytes());
    let (mut new, mut also_new, mut copy) = ([0; 4], [0; 4], [0; 4]);
    let block = Block { old: &old, delta: &delta, new: &mut new, states_old: [&backup, &[]], states_new: [&mut copy, &mut []] };
    apply(Updater::Dcasgd, DType::F32, &AddOptions::default(), block);
    let block = Block { old: &old, delta: &delta, new: &mut also_new, states_old: [&backup, &[]], states_new: [&mut [], &mut []] };
    apply(Updater::Dcasgd, DType::F32, &AddOptions::default(), block);
    assert_eq!((copy, also_new), (backup, new));
}

#[test]
fn lanes_touched_are_lanes_of_that_worker_or_of_all() {
    for updater in ALL {
        for workers in [1, 3] {
            let lanes = updater.state_lanes(DType::BF16, workers);
            let unique: std::collections::BTreeSet<&String> = lanes.iter().map(|lane| &lane.name).collect();
            assert_eq!(unique.len(), lanes.len(), "{updater}");
            assert_eq!(updater.is_stateless(), lanes.is_empty());
            for worker in 0..workers {
                let (touched, count) = updater.lanes_touched(worker, workers);
                for lane in &touched[..count] {
                    assert!(lanes[*lane].of_worker.is_none_or(|owner| owner == worker), "{updater}");
                }
                if let Some(backup) = updater.backup_lane(worker, workers) {
                    assert_eq!((lanes[backup].dtype, lanes[backup].starts_as_value), (DType::BF16, true));
                    assert!(touched[..count].contains(&backup));
                }
            }
            let states = lanes.iter().filter(|lane| !lane.starts_as_value);
            assert!(states.into_iter().all(|lane| lane.dtype == DType::F32), "{updater}");
        }
    }
}

#[test]
fn options_that_make_no_sense_are_refused_by_those_who_use_them() {
    let none = AddOptions::default();
    let cases: [(&str, AddOptions, &[Updater]); 9] = [
        ("learning_rate", AddOptions { learning_rate: Some(0.0), ..none }, &[Updater::Adagrad, Updater::Dcasgd, Updater::Dcasgda]),
        ("learning_rate", AddOptions { learning_rate: Some(-0.1), ..none }, &[Updater::Adagrad, Updater::Dcasgd, Updater::Dcasgda]),
        ("learning_rate", AddOptions { learning_rate: Some(f32::NAN), ..none }, &[Updater::Adagrad, Updater::Dcasgd, Updater::Dcasgda]),
        ("momentum", AddOptions { momentum: Some(1.0), ..none }, &[Updater::MomentumSgd, Updater::Dcasgda]),
        ("momentum", AddOptions { momentum: Some(-0.1), ..none }, &[Updater::MomentumSgd, Updater::Dcasgda]),
        ("momentum", AddOptions { momentum: Some(f32::NAN), ..none }, &[Updater::MomentumSgd, Updater::Dcasgda]),
        ("rho", AddOptions { rho: Some(0.0), ..none }, &[Updater::Adagrad]),
        ("lambda", AddOptions { lambda: Some(-0.1), ..none }, &[Updater::Dcasgd, Updater::Dcasgda]),
        ("lambda", AddOptions { lambda: Some(f32::INFINITY), ..none }, &[Updater::Dcasgd, Updater::Dcasgda]),
    ];
    for (name, options, users) in cases {
        for updater in ALL {
            match options.check(updater) {
                Ok(()) => assert!(!users.contains(&updater), "{updater} took {options:?}"),
                Err(error) => {
                    assert!(users.contains(&updater), "{updater} refused {options:?}");
                    assert!(error.to_string().contains(name), "{error}");
                }
            }
        }
    }
    assert!(ALL.iter().all(|updater| none.check(*updater).is_ok()));
}

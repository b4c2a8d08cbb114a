//! Random programs: what each worker pushes and which rules are set when is drawn from a seed that all workers know.

use model::{Model, Push, bytes_of};
use syncline_cluster::{Job, TransportChoice};
use syncline_optimizer::{Decay, Key, Optimizer, Schedule};
use syncline_table::{AddOptions, Consistency, Spec, Table, Tables, Updater};
use syncline_tensor::DType;
use syncline_testkit::sim::Chance;

use super::model;
use crate::gathered::{job, soon};

/// Every optimizer, in every form that has other states.
pub(crate) fn optimizers() -> Vec<Optimizer> {
    let of = |name: &str, options: &[(&str, syncline_optimizer::OptionValue)]| Optimizer::create(name, options).expect(name);
    let mut all = vec![
        of("sgd", &[("learning_rate", 0.1.into()), ("wd", 0.01.into())]),
        of("sgd", &[("learning_rate", 0.1.into()), ("lazy_update", false.into())]),
        of("sgd", &[("momentum", 0.9.into()), ("clip_gradient", 0.5.into())]),
        of("nag", &[("momentum", 0.9.into())]),
        of("signum", &[]),
        of("ftml", &[]),
        of("dcasgd", &[]),
        of("dcasgd", &[("momentum", 0.5.into())]),
        of("sgld", &[]),
        of("adam", &[("wd", 0.1.into())]),
        of("adam", &[("lazy_update", false.into())]),
        of("adamw", &[]),
        of("adagrad", &[]),
        of("rmsprop", &[]),
        of("rmsprop", &[("centered", true.into())]),
        of("adadelta", &[]),
        of("ftrl", &[]),
        of("adamax", &[]),
        of("nadam", &[]),
        of("lamb", &[("wd", 0.01.into())]),
        of("lars", &[("momentum", 0.9.into()), ("eta", 0.1.into())]),
        of("test", &[("rescale_grad", 2.0.into())]),
        of("custom", &[("update", "m = 0.5 * m + g; w -= lr * m".into())]),
    ];
    let mut scheduled = of("adam", &[]);
    scheduled.settings.schedule = Some(Schedule::new(0.5, Decay::Factor { step: 2, factor: 0.5, stop_factor_lr: 1e-8 }));
    all.push(scheduled);
    let mut multiplied = of("sgd", &[("learning_rate", 0.5.into())]);
    multiplied.settings.lr_mult.insert(Key::Int(3), 0.125);
    all.push(multiplied);
    all
}

/// Sizes around the edges of blocks and stripes, in numbers of f32: rows and columns.
const SHAPES: [(u64, u64); 7] = [(1, 1), (40, 3), (1, 1025), (17, 1000), (3, 20_000), (16_385, 1), (300, 70)];

struct World<'a> {
    job: &'a Job,
    tables: &'a Tables,
    table: Table,
    worker: usize,
    workers: usize,
    model: Model,
    chance: Chance,
    rows: u64,
}

impl World<'_> {
    fn numbers(&mut self, count: usize) -> Vec<f64> {
        (0..count).map(|_| self.chance.below(4001) as f64 / 1000.0 - 2.0).collect()
    }

    fn push(&mut self, rows_only: bool) -> Push {
        let (cols, rows) = (self.model.cols, self.rows);
        let whole = !rows_only && self.chance.below(3) > 0;
        if whole {
            return Push { rows: None, numbers: self.numbers(rows as usize * cols) };
        }
        let count = [0, 1, 2, 5, 20][self.chance.below(5) as usize];
        let ids: Vec<i64> = (0..count).map(|_| self.chance.below(rows) as i64).collect();
        Push { numbers: self.numbers(ids.len() * cols), rows: Some(ids) }
    }

    fn add(&self, push: &Push) {
        let delta = bytes_of(self.model.dtype, &push.numbers);
        self.table.add(&delta, push.rows.as_deref(), &AddOptions::default(), false, soon()).expect("added");
    }

    fn set_rule(&mut self, optimizer: Option<Optimizer>, keep: bool) {
        let setter = self.chance.below(self.workers as u64) as usize;
        self.job.barrier(soon()).expect("all live");
        if self.worker == setter {
            self.tables.set_rule(1, optimizer.clone(), keep, soon()).expect("set");
        }
        self.job.barrier(soon()).expect("all live");
        self.model.set_rule(optimizer, keep);
    }

    fn compare(&self, context: &str) {
        let mut found = vec![0; self.model.values.len()];
        self.table.get(&mut found, None, soon()).expect("got");
        let size = self.model.dtype.size();
        if let Some(at) = found.chunks(size).zip(self.model.values.chunks(size)).position(|(found, expected)| found != expected) {
            let show = |bytes: &[u8]| bytes[at * size..][..size].to_vec();
            panic!("{context}: number {at} is {:?}, expected {:?}", show(&found), show(&self.model.values));
        }
    }
}

fn run(name: &str, workers: usize, consistency: Consistency, dtype: DType, seed: u64) {
    let roles = vec!["both"; workers];
    job(&format!("{name}{seed}"), &roles, TransportChoice::Auto, |job, tables, worker| {
        let mut chance = Chance::new(seed);
        for (index, optimizer) in optimizers().into_iter().enumerate() {
            let (rows, cols) = SHAPES[chance.below(SHAPES.len() as u64) as usize];
            let context = format!("seed {seed}, {dtype}, {workers} workers, {rows} x {cols}, {index}: {optimizer:?}");
            let spec = Spec::matrix(rows, cols).with_dtype(dtype).with_updater(Updater::Gradient).with_consistency(consistency);
            let spec = spec.with_family(1).with_key(Key::Int(3));
            let initial: Vec<f64> = (0..rows * cols).map(|_| chance.below(2001) as f64 / 1000.0 - 1.0).collect();
            let model = Model::new(dtype, cols as usize, &initial, Key::Int(3));
            let table = tables.create(spec, Some(&model.values), "here", soon()).expect("made");
            let mut world = World { job, tables, table, worker, workers, model, chance, rows };
            let half = matches!(dtype, DType::F16 | DType::BF16);
            let mut optimizer = optimizer;
            optimizer.settings.multi_precision = half && world.chance.below(2) == 0;
            world.set_rule(Some(optimizer.clone()), false);
            for round in 0..5 {
                match world.chance.below(12) {
                    0 if optimizer.settings.schedule.is_none() => {
                        optimizer.set_learning_rate(0.05).expect("no schedule");
                        world.set_rule(Some(optimizer.clone()), true);
                    }
                    1 => world.set_rule(Some(optimizer.clone()), false),
                    _ => {}
                }
                let rows_only = world.chance.below(2) == 0;
                match consistency {
                    Consistency::Sync => {
                        let pushes: Vec<Push> = (0..workers).map(|_| world.push(rows_only)).collect();
                        world.add(&pushes[worker]);
                        world.model.push(&pushes.iter().collect::<Vec<_>>());
                    }
                    _ => {
                        let author = world.chance.below(workers as u64) as usize;
                        let push = world.push(rows_only);
                        if worker == author {
                            world.add(&push);
                            tables.flush(soon()).expect("flushed");
                        }
                        world.model.push(&[&push]);
                        job.barrier(soon()).expect("all live");
                    }
                }
                world.compare(&format!("{context}, round {round}"));
                job.barrier(soon()).expect("all live");
            }
            chance = world.chance;
        }
    });
}

#[test]
fn rounds_sum_in_order_of_worker_and_step_once() {
    for (seed, workers, dtype) in
        [(1, 1, DType::F32), (2, 2, DType::F32), (3, 4, DType::F32), (4, 3, DType::F64), (5, 2, DType::BF16), (6, 3, DType::F16)]
    {
        run("rounds", workers, Consistency::Sync, dtype, seed);
    }
}

#[test]
fn async_gradients_step_one_by_one_whoever_adds() {
    for (seed, workers, dtype) in [(11, 1, DType::F32), (12, 2, DType::F32), (13, 3, DType::F64), (14, 2, DType::F16)] {
        run("steps", workers, Consistency::Async, dtype, seed);
    }
}

#[cfg(debug_assertions)]
#[test]
fn gradients_of_a_crowd_are_added_up_counted_and_go_by_the_rule_of_their_time() {
    const PUSHES: usize = 50;
    syncline_shm::mortality::pretend_a_crowd();
    let found = job("crowd", &["both"; 2], TransportChoice::Auto, |job, tables, _| {
        let spec = Spec::array(700).with_updater(Updater::Gradient).with_family(4);
        let table = tables.create(spec, Some(&bytes_of(DType::F32, &[0.5; 700])), "here", soon()).expect("made");
        let mut values = vec![0; 2800];
        for rescale in [1.0, 100.0] {
            let rule = Optimizer::create("test", &[("rescale_grad", rescale.into())]).expect("known");
            tables.set_rule(4, Some(rule), true, soon()).expect("set");
            job.barrier(soon()).expect("all live");
            for _ in 0..PUSHES {
                table.add(&bytes_of(DType::F32, &[1.0; 700]), None, &AddOptions::default(), false, soon()).expect("added");
                table.get(&mut values, None, soon()).expect("got");
            }
            tables.flush(soon()).expect("applied");
            job.barrier(soon()).expect("all live");
        }
        table.get(&mut values, None, soon()).expect("got");
        let states = table.states(soon()).expect("states");
        job.barrier(soon()).expect("all live");
        (values, states.state.count)
    });
    let wanted = bytes_of(DType::F32, &[0.5 + 2.0 * 50.0 * 101.0; 700]);
    assert!(found.iter().flatten().all(|(values, count)| *values == wanted && *count == Some(4 * PUSHES as u64)), "{found:?}");
}

#[test]
fn a_round_goes_by_the_entry_of_its_lowest_worker_and_never_by_an_older_rule_than_the_last() {
    let adding = || Some(Optimizer::create("test", &[]).expect("known"));
    let seen = job("lowest", &["both"; 2], TransportChoice::Auto, |job, tables, worker| {
        let spec = Spec::array(3).with_updater(Updater::Gradient).with_consistency(Consistency::Sync).with_family(3);
        let table = tables.create(spec, Some(&bytes_of(DType::F32, &[10.0; 3])), "here", soon()).expect("made");
        let add = || table.add(&bytes_of(DType::F32, &[1.0; 3]), None, &AddOptions::default(), false, soon()).expect("added");
        let mut seen = Vec::new();
        let get = |seen: &mut Vec<f32>| {
            let mut out = [0; 12];
            table.get(&mut out, None, soon()).expect("got");
            seen.push(f32::from_ne_bytes(out[..4].try_into().expect("four bytes")));
        };
        // Worker 0 has added before there was a rule, worker 1 adds after: the sum becomes the value.
        if worker == 0 {
            add();
        }
        job.barrier(soon()).expect("all live");
        if worker == 1 {
            tables.set_rule(3, adding(), false, soon()).expect("set");
            add();
        }
        get(&mut seen);
        add();
        get(&mut seen); // Both know of it now: 2 + (1 + 1).
        // Worker 1 is ahead of a change, worker 0 behind it: the change counts from this round on.
        if worker == 1 {
            add();
        }
        job.barrier(soon()).expect("all live");
        if worker == 0 {
            tables
                .set_rule(3, Some(Optimizer::create("test", &[("rescale_grad", 10.0.into())]).expect("known")), true, soon())
                .expect("set");
            add();
        }
        get(&mut seen);
        seen
    });
    assert!(seen.iter().flatten().all(|seen| *seen == [2.0, 4.0, 24.0]), "{seen:?}");
}

#[test]
fn without_a_rule_a_round_becomes_the_value_and_an_async_add_is_refused() {
    for (workers, dtype) in [(1, DType::I32), (3, DType::I32), (3, DType::F16)] {
        job(&format!("assign{workers}{dtype}"), &vec!["both"; workers], TransportChoice::Auto, |_, tables, worker| {
            let spec = Spec::matrix(9, 3000).with_dtype(dtype).with_updater(Updater::Gradient).with_family(2);
            let table = tables.create(spec.clone().with_consistency(Consistency::Sync), None, "here", soon()).expect("made");
            let mut model = Model::new(dtype, 3000, &vec![0.0; 27_000], Key::from(""));
            let whole =
                |worker: usize| Push { rows: None, numbers: (0..27_000).map(|index| (index * (worker + 1) % 100) as f64).collect() };
            let some = |worker: usize| Push { rows: Some(vec![8, worker as i64, 8]), numbers: vec![2.0; 9000] };
            for round in 0..3 {
                let pushes: Vec<Push> =
                    (0..workers).map(|worker| if round == 1 || round == 2 && worker == 0 { some(worker) } else { whole(worker) }).collect();
                let delta = bytes_of(dtype, &pushes[worker].numbers);
                table.add(&delta, pushes[worker].rows.as_deref(), &AddOptions::default(), false, soon()).expect("added");
                let mut found = vec![0; model.values.len()];
                table.get(&mut found, None, soon()).expect("got");
                model.push(&pushes.iter().collect::<Vec<_>>());
                assert!(found == model.values, "{workers} {dtype} round {round}");
            }
            let table = tables.create(spec, None, "here", soon()).expect("made");
            let error = table.add(&vec![0; 27_000 * dtype.size()], None, &AddOptions::default(), false, soon()).expect_err("no rule");
            assert!(error.to_string().contains("needs an optimizer"), "{error}");
        });
    }
}

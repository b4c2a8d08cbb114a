//! States of optimizers that are taken out of one job and brought into another, of another size.

use syncline_cluster::TransportChoice;
use syncline_optimizer::{Key, Optimizer};
use syncline_table::{AddOptions, Consistency, GradientStates, Spec, Tables, Updater};
use syncline_tensor::DType;

use super::model::{Model, Push, bytes_of};
use crate::gathered::{job, soon};

const ROWS: usize = 23;
const COLS: usize = 1000;

fn spec(consistency: Consistency, dtype: DType) -> Spec {
    let spec = Spec::matrix(ROWS as u64, COLS as u64).with_dtype(dtype).with_updater(Updater::Gradient);
    spec.with_consistency(consistency).with_family(4).named("w")
}

/// Round `round` as the only worker that has anything to say pushes it.
fn push(round: usize) -> Push {
    let rows: Vec<i64> = (0..ROWS as i64).filter(|row| (*row as usize + round).is_multiple_of(3)).collect();
    Push { numbers: (0..rows.len() * COLS).map(|index| ((index * 7 + round) % 100) as f64 / 50.0 - 1.0).collect(), rows: Some(rows) }
}

fn optimizers() -> Vec<Optimizer> {
    let of = |name: &str, options: &[(&str, syncline_optimizer::OptionValue)]| Optimizer::create(name, options).expect(name);
    vec![
        of("adam", &[("multi_precision", true.into())]),
        of("nadam", &[("begin_num_update", 10.0.into())]),
        of("lars", &[("momentum", 0.9.into())]),
        of("dcasgd", &[("momentum", 0.5.into())]),
    ]
}

/// Makes rounds on one table: worker 0 pushes, the others contribute nothing.
fn train(
    name: &str,
    workers: usize,
    spec: &Spec,
    initial: &[u8],
    rounds: std::ops::Range<usize>,
    begin: impl Fn(&Tables, &syncline_table::Table, usize) + Sync,
) -> (Vec<u8>, GradientStates) {
    let found = job(name, &vec!["both"; workers], TransportChoice::Auto, |job, tables, worker| {
        let table = tables.create(spec.clone(), Some(initial), "here", soon()).expect("made");
        begin(tables, &table, worker);
        job.barrier(soon()).expect("all live");
        for round in rounds.clone() {
            let push = push(round);
            if worker == 0 {
                table
                    .add(&bytes_of(spec.dtype(), &push.numbers), push.rows.as_deref(), &AddOptions::default(), true, soon())
                    .expect("added");
            } else if spec.consistency == Consistency::Sync {
                table.add(&[], Some(&[]), &AddOptions::default(), true, soon()).expect("added");
            }
        }
        job.barrier(soon()).expect("all live");
        let mut values = vec![0; spec.bytes()];
        table.get(&mut values, None, soon()).expect("got");
        let states = table.states(soon()).expect("states");
        job.barrier(soon()).expect("all live");
        (values, states)
    });
    let found: Vec<_> = found.into_iter().flatten().collect();
    assert!(found.iter().all(|one| *one == found[0]), "all workers read the same");
    found.into_iter().next().expect("a worker")
}

fn model(spec: &Spec, optimizer: &Optimizer, initial: &[f64]) -> Model {
    let mut model = Model::new(spec.dtype(), COLS, initial, Key::from("w"));
    model.set_rule(Some(optimizer.clone()), false);
    model
}

#[test]
fn states_go_on_in_another_job_of_another_size() {
    let initial: Vec<f64> = (0..ROWS * COLS).map(|index| (index % 17) as f64 / 8.0 - 1.0).collect();
    for (index, optimizer) in optimizers().iter().enumerate() {
        for (consistency, dtype) in [(Consistency::Sync, DType::F16), (Consistency::Async, DType::F32)] {
            let spec = spec(consistency, dtype);
            let mut model = model(&spec, optimizer, &initial);
            let context = format!("{consistency:?} {dtype} {optimizer:?}");
            let set = |tables: &Tables| tables.set_rule(4, Some(optimizer.clone()), false, soon()).expect("set");
            let start = model.values.clone();
            let (values, states) = train(&format!("first{index}{dtype}"), 2, &spec, &start, 0..4, |tables, _, worker| {
                if worker == 1 {
                    set(tables);
                }
            });
            (0..4).for_each(|round| model.push(&[&push(round)]));
            assert!(values == model.values, "{context}");
            assert_eq!(states.optimizer.as_ref(), Some(optimizer), "{context}");
            assert_eq!(states.state, model.state, "{context}");
            assert!(states.lanes.iter().map(|lane| &lane.bytes).eq(&model.states), "{context}");
            let (values, states) = train(&format!("second{index}{dtype}"), 3, &spec, &values, 4..8, |tables, table, worker| {
                if worker == 2 {
                    set(tables);
                    table.set_states(&states, soon()).expect("these are its states");
                }
            });
            (4..8).for_each(|round| model.push(&[&push(round)]));
            assert!(values == model.values, "{context}, gone on");
            assert_eq!(states.state, model.state, "{context}, gone on");
        }
    }
}

#[test]
fn a_checkpoint_brings_back_states_and_the_optimizer_too() {
    let initial: Vec<f64> = (0..ROWS * COLS).map(|index| (index % 19) as f64 / 8.0 - 1.0).collect();
    for (index, optimizer) in optimizers().iter().enumerate() {
        for (consistency, dtype) in [(Consistency::Sync, DType::BF16), (Consistency::Async, DType::F32)] {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("saved");
            let spec = spec(consistency, dtype);
            let mut model = model(&spec, optimizer, &initial);
            let start = model.values.clone();
            let context = format!("{consistency:?} {dtype} {optimizer:?}");
            job(&format!("save{index}{dtype}"), &["both"; 2], TransportChoice::Auto, |job, tables, worker| {
                let table = tables.create(spec.clone(), Some(&start), "here", soon()).expect("made");
                tables.set_rule(4, Some(optimizer.clone()), false, soon()).expect("set");
                job.barrier(soon()).expect("all live");
                for round in 0..3 {
                    let push = if worker == 0 { push(round) } else { Push { rows: Some(vec![]), numbers: vec![] } };
                    if worker == 0 || consistency == Consistency::Sync {
                        let delta = bytes_of(dtype, &push.numbers);
                        table.add(&delta, push.rows.as_deref(), &AddOptions::default(), false, soon()).expect("added");
                    }
                }
                tables.save(&path, soon()).expect("saved");
            });
            (0..3).for_each(|round| model.push(&[&push(round)]));
            let zeros = vec![0; spec.bytes()];
            let (values, states) = train(&format!("load{index}{dtype}"), 3, &spec, &zeros, 3..6, |tables, _, _| {
                tables.load(&path, soon()).expect("loaded");
            });
            (3..6).for_each(|round| model.push(&[&push(round)]));
            assert!(values == model.values, "{context}");
            assert_eq!((states.optimizer.as_ref(), states.state), (Some(optimizer), model.state), "{context}");
        }
    }
}

#[test]
fn states_of_another_optimizer_or_size_are_refused_and_change_nothing() {
    job("refuse", &["both"; 2], TransportChoice::Auto, |job, tables, worker| {
        let table = tables.create(spec(Consistency::Async, DType::F32), None, "here", soon()).expect("made");
        let plain = tables.create(Spec::array(3), None, "here", soon()).expect("made");
        if worker == 0 {
            tables.set_rule(4, Some(optimizers().remove(0)), false, soon()).expect("set");
            let good = table.states(soon()).expect("states");
            let mut other = good.clone();
            other.lanes[0].name = "history".into();
            let error = table.set_states(&other, soon()).expect_err("of another optimizer").to_string();
            assert!(error.contains("history") && error.contains("mean"), "{error}");
            let mut short = good.clone();
            short.lanes[1].bytes.pop();
            let error = table.set_states(&short, soon()).expect_err("too short").to_string();
            assert!(error.contains("var"), "{error}");
            assert_eq!(table.states(soon()).expect("states"), good);
            assert!(plain.states(soon()).expect_err("no gradients").to_string().contains("gradient table"));
        }
        job.barrier(soon()).expect("all live");
    });
}

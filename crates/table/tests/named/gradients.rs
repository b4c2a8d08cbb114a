//! Gradient tables made by name: where they live, and in how many bits gradients come, never shows in a result.

use std::collections::BTreeMap;

use syncline_cluster::Job;
use syncline_cluster::TransportChoice::{self, Auto, Tcp, Unix};
use syncline_optimizer::Optimizer;
use syncline_table::{AddOptions, Consistency, Placement, Spec, Table, Tables, Updater};
use syncline_tensor::kernels::quantize::Quantizer;
use syncline_testkit::sim::Chance;

use super::{bytes, floats, values};
use crate::gathered::{job, soon};

const PLAIN: AddOptions = AddOptions { learning_rate: None, momentum: None, rho: None, lambda: None };
const CODES: [Quantizer; 6] = [
    Quantizer::TwoBit { threshold: 0.5 },
    Quantizer::OneBit { threshold: 0.0 },
    Quantizer::F16,
    Quantizer::BF16,
    Quantizer::Int8,
    Quantizer::TopK { ratio: 0.05 },
];

/// Three workers, one server to four, one host to five.
const HOSTS: [(&[&str], TransportChoice); 6] = [
    (&["both", "both", "both"], Auto),
    (&["both", "both", "both"], Tcp),
    (&["both", "worker", "both"], Unix),
    (&["worker", "worker", "worker", "server"], Tcp),
    (&["worker", "worker", "worker", "server", "server"], Tcp),
    (&["worker", "worker", "worker", "server", "server", "server", "server"], Unix),
];

fn gradient(chance: &mut Chance, numbers: usize) -> Vec<f32> {
    (0..numbers).map(|_| (chance.below(2001) as f32 - 1000.0) / 777.0).collect()
}

fn adam() -> Optimizer {
    Optimizer::create("adam", &[("learning_rate", 0.05.into()), ("wd", 0.01.into())]).expect("adam")
}

/// What a worker sees of one table while all push in every way there is.
fn push_and_pull(job: &Job, tables: &Tables, table: &Table, worker: usize, seed: u64) -> Vec<Vec<u8>> {
    let mut chance = Chance::new(seed * 100 + worker as u64);
    let (rows, cols) = table.spec().rows_and_cols().expect("a matrix");
    let numbers = (rows * cols) as usize;
    let mut residual: BTreeMap<&str, Vec<f32>> = BTreeMap::new();
    let mut seen = Vec::new();
    for round in 0..10 {
        match round {
            0 | 9 => table.add(&bytes(gradient(&mut chance, numbers)), None, &PLAIN, false, soon()).expect("a dense push"),
            1 => {
                let ids: Vec<i64> = (0..1 + chance.below(20)).map(|_| chance.below(rows) as i64).collect();
                let delta = bytes(gradient(&mut chance, ids.len() * cols as usize));
                table.add(&delta, Some(&ids), &PLAIN, false, soon()).expect("rows");
            }
            2 if worker == 1 => table.add(&[], Some(&[]), &PLAIN, false, soon()).expect("no rows are a contribution too"),
            2 => table.add(&bytes(gradient(&mut chance, cols as usize)), Some(&[3]), &PLAIN, false, soon()).expect("one row"),
            _ => {
                let code = CODES[round as usize - 3];
                let residual = residual.entry(code.name()).or_insert_with(|| vec![0.0; numbers]);
                let mut words = vec![0; code.encoded_len(numbers)];
                code.encode(&gradient(&mut chance, numbers), residual, &mut words).expect("sound");
                table.add_quantized(&code, &words, &PLAIN, round % 2 == 0, soon()).expect("few bits");
            }
        }
        let mut out = vec![0; numbers * 4];
        match round {
            4 => table.get_quantized(&Quantizer::Int8, &mut out, soon()).expect("got"),
            5 => table.get_quantized(&Quantizer::F16, &mut out, soon()).expect("got"),
            6 => table.prioritised(7).get_quantized(&Quantizer::BF16, &mut out, soon()).expect("got"),
            7 => table.prioritised(-7).get(&mut out, None, soon()).expect("got"),
            _ => table.get(&mut out, None, soon()).expect("got"),
        }
        seen.push(out);
        if round == 6 {
            if worker == 1 {
                let mut slower = adam();
                slower.set_learning_rate(0.01).expect("a rate");
                tables.set_rule(table.spec().family(), Some(slower), true, soon()).expect("set");
            }
            job.barrier(soon()).expect("all live"); // so that it changes between the same two rounds everywhere
        }
    }
    seen
}

#[test]
fn where_a_gradient_table_lives_never_shows() {
    // Cut in odd places: small and large rows, fewer numbers than a block, more than a stripe.
    for (at, (rows, cols)) in [(40, 3), (700, 1), (9, 5), (300, 257), (64, 1024)].into_iter().enumerate() {
        let mut first: Option<Vec<Vec<u8>>> = None;
        for (hosts, (roles, transport)) in HOSTS.iter().enumerate() {
            for placement in [Placement::Split, Placement::Whole { on: 1 }] {
                if *transport == Auto && placement != Placement::Split {
                    continue; // one host has one place
                }
                let name = format!("lives{at}-{hosts}-{}", placement == Placement::Split);
                let seen = job(&name, roles, *transport, |job, tables, worker| {
                    let spec = Spec::matrix(rows, cols).named("w").with_updater(Updater::Gradient).with_family(3);
                    let spec = spec.with_consistency(Consistency::Sync).placed(placement);
                    if worker == 2 {
                        tables.set_rule(3, Some(adam()), false, soon()).expect("set by one of them, before the table is");
                    }
                    job.barrier(soon()).expect("all live");
                    let initial = bytes((0..rows * cols).map(|index| (index % 97) as f32 / 50.0));
                    let table = tables.create_named(spec, Some(&initial), "here", soon()).expect("made");
                    let seen = push_and_pull(job, tables, &table, worker, 5);
                    assert_eq!(values(&table).len() as u64, rows * cols);
                    seen
                });
                for seen in seen.into_iter().flatten() {
                    let expected = first.get_or_insert_with(|| seen.clone());
                    for (round, (seen, expected)) in seen.iter().zip(expected.iter()).enumerate() {
                        let differs = floats(seen).iter().zip(&floats(expected)).position(|(one, other)| one.to_bits() != other.to_bits());
                        assert_eq!(differs, None, "{rows} x {cols}, {roles:?} {transport} {placement:?}: round {round}");
                    }
                }
            }
        }
    }
}

#[test]
fn asynchronous_steps_count_the_same_wherever_rows_live() {
    let optimizers = [
        adam(), // lazy: rows that are absent stay as they are, but the update counts
        Optimizer::create("sgd", &[("momentum", 0.9.into()), ("lazy_update", false.into()), ("wd", 0.1.into())]).expect("sgd"),
    ];
    for (which, optimizer) in optimizers.iter().enumerate() {
        let mut first: Option<Vec<Vec<u8>>> = None;
        for (hosts, roles) in
            [&["both"][..], &["worker", "server"], &["worker", "server", "server"], &["both", "server"]].iter().enumerate()
        {
            for placement in [Placement::Split, Placement::Whole { on: 1 }] {
                let name = format!("steps{which}-{hosts}-{}", placement == Placement::Split);
                let seen = job(&name, roles, if hosts == 0 { Auto } else { Tcp }, |_, tables, _| {
                    let spec = Spec::matrix(600, 7).named("w").with_updater(Updater::Gradient).placed(placement);
                    tables.set_rule(0, Some(optimizer.clone()), false, soon()).expect("set");
                    let table = tables.create_named(spec, Some(&bytes((0..4200).map(|index| index as f32))), "here", soon()).expect("made");
                    let mut chance = Chance::new(9);
                    let rounds = (0..12).map(|round| {
                        // Rows of one end, of both, of none.
                        let ids: Vec<i64> = match round % 4 {
                            0 => vec![1, 5, 1],
                            1 => vec![599, 400],
                            2 => vec![0, 300, 599],
                            _ => vec![],
                        };
                        table.add(&bytes(gradient(&mut chance, ids.len() * 7)), Some(&ids), &PLAIN, round % 2 == 0, soon()).expect("added");
                        let mut out = vec![0; 4200 * 4];
                        table.get(&mut out, None, soon()).expect("got");
                        out
                    });
                    rounds.collect::<Vec<_>>()
                });
                for seen in seen.into_iter().flatten() {
                    let expected = first.get_or_insert_with(|| seen.clone());
                    let differs = seen.iter().zip(expected.iter()).position(|(seen, expected)| seen != expected);
                    assert_eq!(differs, None, "optimizer {which}, {roles:?} {placement:?}");
                }
            }
        }
    }
}

#[test]
fn late_rules_and_new_rates_of_any_worker_reach_every_server() {
    for (hosts, (roles, transport)) in HOSTS.iter().enumerate() {
        job(&format!("late{hosts}"), roles, *transport, |job, tables, worker| {
            let spec = |key: u64| {
                Spec::array(600).named(format!("k{key}")).with_updater(Updater::Gradient).with_family(1).placed(match key {
                    0 => Placement::Split,
                    key => Placement::Whole { on: key },
                })
            };
            let made: Vec<Table> = (0..4).map(|key| tables.create_named(spec(key), None, "here", soon()).expect("made")).collect();
            let ones = bytes([1.0; 600]);
            let refused = made[0].add(&ones, None, &PLAIN, true, soon()).expect_err("no optimizer yet");
            assert!(refused.to_string().contains("optimizer"), "{refused}");
            job.barrier(soon()).expect("all live");
            let sgd = |rate: f64| Optimizer::create("sgd", &[("learning_rate", rate.into())]).expect("sgd");
            for (setter, rate) in [(2, 1.0), (1, 0.5), (0, 0.25)] {
                if worker == setter {
                    tables.set_rule(1, Some(sgd(rate)), setter != 2, soon()).expect("set");
                }
                job.barrier(soon()).expect("all live");
                made.iter().for_each(|table| table.add(&ones, None, &PLAIN, true, soon()).expect("added"));
                job.barrier(soon()).expect("all live");
            }
            for table in &made {
                assert_eq!(values(table), [-(1.0 + 0.5 + 0.25) * 3.0; 600], "{roles:?} {transport} {table:?}");
            }
        });
    }
}

#[test]
fn bad_words_are_refused_and_change_nothing() {
    for transport in [Auto, Tcp] {
        job("badwords", &["both", "both"], transport, |_, tables, worker| {
            let floats = Spec::array(100).named("f");
            let table = tables.create_named(floats, None, "here", soon()).expect("made");
            let whole =
                tables.create_named(Spec::array(8).named("i").with_dtype(syncline_tensor::DType::I32), None, "here", soon()).expect("made");
            let two_bit = Quantizer::TwoBit { threshold: 0.5 };
            let by = soon;
            assert!(table.add_quantized(&two_bit, &[0; 24], &PLAIN, true, by()).is_err(), "24 bytes are no 100 numbers");
            assert!(table.add_quantized(&Quantizer::TwoBit { threshold: -1.0 }, &[0; 28], &PLAIN, true, by()).is_err());
            assert!(whole.add_quantized(&Quantizer::F16, &[0; 16], &PLAIN, true, by()).is_err(), "whole numbers");
            assert!(table.get_quantized(&two_bit, &mut [0; 400], by()).is_err(), "values have no residual");
            let mut scale = vec![0; 104];
            scale[..4].copy_from_slice(&f32::INFINITY.to_le_bytes());
            assert!(table.add_quantized(&Quantizer::Int8, &scale, &PLAIN, true, by()).is_err(), "an infinite scale");
            let mut places = vec![0; 40];
            places[..4].copy_from_slice(&100u32.to_le_bytes());
            assert!(table.add_quantized(&Quantizer::TopK { ratio: 0.05 }, &places, &PLAIN, true, by()).is_err(), "outside");
            if worker == 0 {
                assert_eq!(values(&table), [0.0; 100]);
                table.add_quantized(&two_bit, &[0xff; 28], &PLAIN, true, by()).expect("sound");
                assert_eq!(values(&table), [0.5; 100]);
            }
        });
    }
}

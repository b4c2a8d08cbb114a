//! What every optimizer promises: blocks, levels and alignment change no bits; rows are rows; messages come back as they went.

mod support;

use proptest::prelude::*;
use support::{Kept, narrowed};
use syncline_optimizer::{Also, Block, Decay, Key, KeyState, Optimizer, OptimizerError, OptionValue, Progress, Rows, Schedule};
use syncline_tensor::DType;
use syncline_tensor::kernels::SimdLevel;

const NAMES: [&str; 18] = [
    "sgd", "nag", "signum", "ftml", "dcasgd", "sgld", "adam", "adamw", "adagrad", "rmsprop", "adadelta", "ftrl", "adamax", "nadam", "lamb",
    "lars", "test", "custom",
];

fn all() -> Vec<Optimizer> {
    let common: [(&str, OptionValue); 3] = [("wd", 0.01.into()), ("rescale_grad", 0.5.into()), ("clip_gradient", 0.4.into())];
    let mut optimizers = Vec::new();
    for name in NAMES {
        let own: &[&[(&str, OptionValue)]] = match name {
            "sgd" | "nag" | "dcasgd" | "lars" => &[&[], &[("momentum", OptionValue::Number(0.9))]],
            "rmsprop" => &[&[], &[("centered", OptionValue::Truth(true))]],
            "custom" => &[&[("update", OptionValue::Nothing)]],
            _ => &[&[]],
        };
        for own in own {
            let mut options = common.to_vec();
            options.extend(own.iter().cloned());
            if name == "custom" {
                options.push(("update", "m = 0.9*m + g; w -= lr * (m + wd*w)".into()));
            }
            optimizers.push(Optimizer::create(name, &options).unwrap());
        }
    }
    optimizers
}

fn numbers(seed: usize, count: usize) -> Vec<f64> {
    (0..count).map(|i| ((i * 7919 + seed * 104_729 + 77) % 2003) as f64 / 1001.5 - 1.0).collect()
}

/// Weight and lanes after three updates in these blocks.
fn after(optimizer: &Optimizer, dtype: DType, count: usize, cuts: &[usize]) -> (Vec<u8>, Vec<Vec<u8>>) {
    let mut kept = Kept::new(optimizer, dtype, &numbers(0, count));
    for step in 1..=3 {
        kept.update(optimizer, &Key::from("fc_weight"), &narrowed(dtype, &numbers(step, count)), cuts);
    }
    (kept.weight, kept.lanes)
}

#[test]
fn blocks_change_no_bits() {
    let count = 3 * 1024 + 333;
    for optimizer in all() {
        for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
            let whole = after(&optimizer, dtype, count, &[0]);
            assert!(whole == after(&optimizer, dtype, count, &[0, 1024, 2048, 3072]), "{:?} {dtype}", optimizer.method);
            let measured = ["lamb", "lars"].contains(&optimizer.method.name());
            let cuts: &[usize] = if measured { &[0, 3072] } else { &[0, 1, 17, 700, 701, 2000, 3400] };
            assert!(whole == after(&optimizer, dtype, count, cuts), "{:?} {dtype}", optimizer.method);
        }
    }
}

#[test]
fn only_what_neither_decays_clips_nor_remembers_makes_the_same_of_a_sum() {
    let exact = |seed: usize| (0..99).map(|i| ((i * 31 + seed * 17) % 64) as f64 / 16.0 - 2.0).collect::<Vec<f64>>();
    let sum: Vec<f64> = exact(1).iter().zip(exact(2)).map(|(one, two)| one + two).collect();
    let after = |optimizer: &Optimizer, gradients: &[Vec<f64>]| {
        let mut kept = Kept::new(optimizer, DType::F32, &exact(3));
        gradients.iter().for_each(|grad| kept.update(optimizer, &Key::from("w"), &narrowed(DType::F32, grad), &[0]));
        kept.weight
    };
    let rate = [("learning_rate", OptionValue::Number(0.25)), ("rescale_grad", OptionValue::Number(0.5))];
    let mut found = Vec::new();
    for name in NAMES.into_iter().filter(|name| *name != "custom") {
        for more in [&[][..], &[("wd", 0.5.into())], &[("clip_gradient", 0.5.into())], &[("momentum", 0.5.into())]] {
            let Ok(optimizer) = Optimizer::create(name, &[&rate[..], more].concat()) else { continue };
            let adds_up = after(&optimizer, &[exact(1), exact(2)]) == after(&optimizer, std::slice::from_ref(&sum));
            assert!(adds_up || !optimizer.adds_up(), "{name} {more:?}");
            found.extend(optimizer.adds_up().then(|| format!("{name} {}", more.first().map_or("", |(option, _)| option))));
        }
    }
    assert_eq!(found, ["sgd ", "test ", "test wd"]);
}

#[test]
fn the_master_copy_is_f32_and_the_weight_its_rounding() {
    for mut optimizer in all() {
        optimizer.settings.multi_precision = true;
        for dtype in [DType::F16, DType::BF16] {
            assert_eq!(optimizer.lanes(dtype).unwrap()[0].name, "master");
            let (weight, lanes) = after(&optimizer, dtype, 1100, &[0, 1024]);
            let mut rounded = vec![0; weight.len()];
            syncline_tensor::kernels::cast(DType::F32, &lanes[0], dtype, &mut rounded).unwrap();
            assert_eq!(weight, rounded, "{:?}", optimizer.method);
        }
        assert_eq!(optimizer.lanes(DType::F32).unwrap().len() + 1, optimizer.lanes(DType::F16).unwrap().len());
    }
}

#[test]
fn levels_and_alignment_change_no_bits() {
    let count = 700;
    for optimizer in all() {
        for dtype in [DType::F32, DType::F64, DType::BF16] {
            let mut results = Vec::new();
            for (level, shift) in SimdLevel::available().into_iter().flat_map(|level| [(level, 0), (level, 1)]) {
                let kept = Kept::new(&optimizer, dtype, &numbers(0, count));
                let shifted = |bytes: &[u8]| [&[0; 8][..shift], bytes].concat();
                let (mut weight, grad) = (shifted(&kept.weight), shifted(&narrowed(dtype, &numbers(1, count))));
                let mut lanes: Vec<Vec<u8>> = kept.lanes.iter().map(|lane| shifted(lane)).collect();
                let mut step = optimizer.begin(&Key::Int(1), &mut Progress::default(), &mut KeyState::default());
                let mut states: Vec<&mut [u8]> = lanes.iter_mut().map(|lane| &mut lane[shift..]).collect();
                if step.needs_norms() {
                    let block = Block::whole(dtype, &mut weight[shift..], &grad[shift..], &mut states);
                    step = step.with_norms(&step.measure(&block).unwrap());
                }
                step.apply_at(level, Block::whole(dtype, &mut weight[shift..], &grad[shift..], &mut states)).unwrap();
                results.push((weight[shift..].to_vec(), lanes.iter().map(|lane| lane[shift..].to_vec()).collect::<Vec<_>>()));
            }
            assert!(results.windows(2).all(|pair| pair[0] == pair[1]), "{:?} {dtype}", optimizer.method);
        }
    }
}

#[test]
fn a_step_from_weights_elsewhere_is_the_same_step() {
    let count = 700;
    let unclipped = ["sgd", "signum", "lars"].map(|name| Optimizer::create(name, &[("rescale_grad", 0.5.into())]).expect("known"));
    for optimizer in all().into_iter().chain(unclipped) {
        for (dtype, shift) in [DType::F32, DType::F64, DType::BF16].into_iter().flat_map(|dtype| [(dtype, 0), (dtype, 1)]) {
            let kept = Kept::new(&optimizer, dtype, &numbers(0, count));
            let grad = [&[0; 8][..shift], &narrowed(dtype, &numbers(1, count))].concat();
            let old = kept.weight.clone();
            let mut step = optimizer.begin(&Key::Int(1), &mut Progress::default(), &mut KeyState::default());
            // In place; from elsewhere; into two places, and past the cache.
            let mut ways = [(); 4].map(|()| (old.clone(), kept.lanes.clone()));
            for (from, (weight, lanes)) in ways.iter_mut().enumerate() {
                let mut states: Vec<&mut [u8]> = lanes.iter_mut().map(Vec::as_mut_slice).collect();
                if step.needs_norms() {
                    step = step.with_norms(&step.measure(&Block::whole(dtype, weight, &grad[shift..], &mut states)).unwrap());
                }
                let mut second = vec![0x55; old.len()];
                match from {
                    0 => step.apply(Block::whole(dtype, weight, &grad[shift..], &mut states)).unwrap(),
                    _ => {
                        weight.fill(0x55);
                        let also = (from > 1).then_some(Also { bytes: &mut second, past_cache: from == 3 });
                        step.apply_from(&old, Block::whole(dtype, weight, &grad[shift..], &mut states), also).unwrap();
                    }
                }
                assert!(from < 2 || second == *weight, "{:?} {dtype} at {shift}: two places", optimizer.method);
            }
            assert!(ways.windows(2).all(|pair| pair[0] == pair[1]), "{:?} {dtype} at {shift}", optimizer.method);
        }
    }
}

#[test]
fn an_update_of_rows_is_one_of_zeros_elsewhere_or_leaves_the_rest() {
    let (rows, row_len) = (40usize, 13usize);
    let ids: Vec<u64> = (0..rows as u64).filter(|row| row % 5 < 3 && *row != 7).collect();
    for optimizer in all() {
        if ["lamb", "lars", "sgd", "nag"].contains(&optimizer.method.name()) {
            continue; // Norms are of the dense gradient; MXNet does descent of rows in another order. The oracle knows them.
        }
        if optimizer.method.name() == "adam" && !optimizer.method.is_lazy() {
            continue;
        }
        let count = rows * row_len;
        let gradient = numbers(3, count);
        let present = |i: usize| ids.contains(&((i / row_len) as u64));
        let zeroed: Vec<f64> = gradient.iter().enumerate().map(|(i, g)| if present(i) { *g } else { 0.0 }).collect();
        let sparse: Vec<f64> = gradient.iter().enumerate().filter(|(i, _)| present(*i)).map(|(_, g)| *g).collect();
        let key = Key::Int(3);
        let (mut by_rows, mut dense) =
            (Kept::new(&optimizer, DType::F32, &numbers(0, count)), Kept::new(&optimizer, DType::F32, &numbers(0, count)));
        let before = by_rows.weight.clone();
        by_rows.update_rows(&optimizer, &key, row_len, &ids, &narrowed(DType::F32, &sparse));
        dense.update(&optimizer, &key, &narrowed(DType::F32, &zeroed), &[0]);
        for i in 0..count {
            let place = i * 4..i * 4 + 4;
            let wanted = if present(i) || !optimizer.method.is_lazy() { &dense.weight } else { &before };
            assert_eq!(by_rows.weight[place.clone()], wanted[place], "{:?}: number {i}", optimizer.method);
        }
    }
}

#[test]
fn what_does_not_fit_is_refused_and_nothing_changes() {
    let adam = Optimizer::create("adam", &[]).unwrap();
    let step = adam.begin(&Key::Int(0), &mut Progress::default(), &mut KeyState::default());
    let (mut weight, grad, mut a, mut b) = ([1u8; 16], [1u8; 16], [1u8; 16], [1u8; 16]);
    let refused = step.apply(Block::whole(DType::I32, &mut weight, &grad, &mut [&mut a, &mut b]));
    assert!(matches!(refused, Err(OptimizerError::NeedsFloat { .. })));
    let refused = step.apply(Block::whole(DType::F32, &mut weight, &grad, &mut [&mut a]));
    assert_eq!(refused.unwrap_err().to_string(), "adam keeps 2 states, 1 were given");
    let refused = step.apply(Block::whole(DType::F32, &mut weight, &grad[..12], &mut [&mut a, &mut b]));
    assert_eq!(refused.unwrap_err().to_string(), "the gradient holds 12 bytes, expected 16");
    let refused = step.apply(Block::whole(DType::F32, &mut weight, &grad, &mut [&mut a, &mut b[..8]]));
    assert_eq!(refused.unwrap_err().to_string(), "state 1 holds 8 bytes, expected 16");
    for ids in [[0, 0], [1, 0], [0, 2]] {
        let rows = Rows { row_len: 2, ids: &ids };
        assert!(matches!(
            step.apply_rows(rows, Block::whole(DType::F32, &mut weight, &grad, &mut [&mut a, &mut b])),
            Err(OptimizerError::Row { .. })
        ));
    }
    let lamb = Optimizer::create("lamb", &[]).unwrap();
    let step = lamb.begin(&Key::Int(0), &mut Progress::default(), &mut KeyState::default());
    let refused = step.apply(Block::whole(DType::F32, &mut weight, &grad, &mut [&mut a, &mut b]));
    assert!(matches!(refused, Err(OptimizerError::NormsMissing { .. })));
    let mut states: [&mut [u8]; 2] = [&mut a, &mut b];
    let block = Block { at: 5, ..Block::whole(DType::F32, &mut weight, &grad, &mut states) };
    assert!(matches!(step.measure(&block), Err(OptimizerError::Unaligned { at: 5, .. })));
    assert_eq!((weight, a, b), ([1; 16], [1; 16], [1; 16]));
}

#[test]
fn options_are_checked_and_named() {
    let error = |name: &str, options: &[(&str, OptionValue)]| Optimizer::create(name, options).unwrap_err().to_string();
    assert!(error("sdg", &[]).starts_with("no optimizer is called \"sdg\"; there are sgd, nag, "));
    assert!(error("adam", &[("momentum", 0.9.into())]).starts_with("adam has no option \"momentum\"; it has beta1, "));
    assert_eq!(error("adam", &[("beta1", 1.0.into())]), "adam: beta1 is 1, must be at least 0 and below 1");
    assert_eq!(error("sgd", &[("momentum", "much".into())]), "sgd: momentum is \"much\", must be a number");
    assert_eq!(error("sgd", &[("learning_rate", f64::NAN.into())]), "sgd: learning_rate is NaN, must be finite");
    assert_eq!(error("sgd", &[("begin_num_update", 1.5.into())]), "sgd: begin_num_update is 1.5, must be a whole number from 0 to 2^53");
    assert!(Optimizer::create("RMSProp", &[("clip_weights", OptionValue::Nothing), ("clip_gradient", 0.0.into())]).is_ok());
    let backwards = Schedule::new(0.1, Decay::MultiFactor { steps: vec![5, 3], factor: 0.5 });
    assert!(error("sgd", &[("lr_scheduler", backwards.into())]).contains("a list that ascends"));
}

#[test]
fn a_schedule_keeps_its_base_rate_unless_the_user_gives_another() {
    let schedule = || Schedule::new(0.4, Decay::Factor { step: 10, factor: 0.5, stop_factor_lr: 0.0 });
    let adam = Optimizer::create("adam", &[("lr_scheduler", schedule().into())]).unwrap();
    assert_eq!((adam.learning_rate(1), adam.learning_rate(11)), (0.4, 0.2), "not Adam's own 0.001");
    let given = Optimizer::create("adam", &[("lr_scheduler", schedule().into()), ("learning_rate", 0.8.into())]).unwrap();
    assert_eq!((given.learning_rate(1), given.learning_rate(11)), (0.8, 0.4));
    let mut given = given;
    assert!(given.set_learning_rate(0.1).is_err());
    let mut plain = Optimizer::create("sgd", &[]).unwrap();
    plain.set_learning_rate(0.3).unwrap();
    assert_eq!(plain.learning_rate(9), 0.3);
}

#[test]
fn multipliers_and_counts_belong_to_keys_and_schedules_to_all() {
    let mut sgd = Optimizer::create("sgd", &[("wd", 0.5.into()), ("begin_num_update", 4.0.into())]).unwrap();
    sgd.settings.schedule = Some(Schedule::new(1.0, Decay::MultiFactor { steps: vec![6], factor: 0.1 }));
    sgd.settings.lr_mult.insert(Key::from("b"), 3.0);
    sgd.spare_biases(["a_weight", "b"]);
    assert_eq!(sgd.settings.wd_mult.get(&Key::from("b")), Some(&0.0));
    assert_eq!(sgd.settings.wd_mult.get(&Key::from("a_weight")), None);
    let (mut progress, mut a, mut b) = (Progress::default(), KeyState::default(), KeyState::default());
    let rate = |key: &str, progress: &mut Progress, state: &mut KeyState| sgd.begin(&Key::from(key), progress, state).learning_rate();
    assert_eq!([5, 6, 7].map(|_| rate("a_weight", &mut progress, &mut a)), [1.0, 1.0, 0.1]);
    let of_b = rate("b", &mut progress, &mut b);
    assert!((of_b - 0.3).abs() < 1e-15, "its first update, but the seventh of all: {of_b}");
    assert_eq!((a.count, b.count, progress.num_update), (Some(7), Some(5), 7));
}

#[test]
fn messages_come_back_as_they_went_and_anything_else_is_refused() {
    for optimizer in all() {
        let bytes = optimizer.encode().unwrap();
        assert_eq!(Optimizer::decode(&bytes).unwrap(), optimizer);
        assert!(Optimizer::decode(&[&bytes[..], &[0]].concat()).is_err());
        assert!(Optimizer::decode(&bytes[..bytes.len() - 1]).is_err());
        assert!(Optimizer::decode(&[&[2], &bytes[1..]].concat()).unwrap_err().to_string().contains("version"));
    }
    assert!(Optimizer::decode(&[]).is_err());
    assert!(Optimizer::decode(&[1, 99]).is_err(), "a method that does not exist yet");
}

#[test]
fn noise_follows_the_seed_and_the_place() {
    let run = |seed: f64| {
        let sgld = Optimizer::create("sgld", &[("seed", seed.into()), ("learning_rate", 0.04.into())]).unwrap();
        let mut kept = Kept::new(&sgld, DType::F64, &[0.0; 20_000]);
        kept.update(&sgld, &Key::Int(0), &[0; 160_000], &[0]);
        bytemuck::pod_collect_to_vec::<u8, f64>(&kept.weight)
    };
    let numbers = run(1.0);
    assert_eq!(numbers, run(1.0));
    assert_ne!(numbers, run(2.0));
    let deviation = (numbers.iter().map(|number| number * number).sum::<f64>() / 20_000.0).sqrt();
    assert!((deviation - 0.2).abs() < 0.005, "the root of the rate, not {deviation}");
}

/// The same seed makes the same noise, so what is left beside it is the formula: half a step along the gradient.
#[test]
fn without_its_noise_sgld_goes_half_a_step_down() {
    let [rate, decay, rescale, clip] = [0.04, 0.3, 0.5, 0.8];
    let words = [("seed", 5.0), ("learning_rate", rate), ("wd", decay), ("rescale_grad", rescale), ("clip_gradient", clip)];
    let sgld = Optimizer::create("sgld", &words.map(|(name, value)| (name, value.into()))).unwrap();
    let step = |weights: &[f64], gradients: &[f64]| {
        let mut kept = Kept::new(&sgld, DType::F64, weights);
        kept.update(&sgld, &Key::Int(0), bytemuck::cast_slice(gradients), &[0]);
        bytemuck::pod_collect_to_vec::<u8, f64>(&kept.weight)
    };
    let weights: Vec<f64> = (0..500).map(|place| f64::from(place) / 50.0 - 5.0).collect();
    let gradients: Vec<f64> = (0..500).map(|place| f64::from(place * 37 % 100) / 20.0 - 2.5).collect();
    let (noise, stepped) = (step(&[0.0; 500], &[0.0; 500]), step(&weights, &gradients));
    for (((weight, gradient), noise), found) in weights.iter().zip(&gradients).zip(&noise).zip(&stepped) {
        let wanted = weight - rate / 2.0 * ((rescale * gradient).clamp(-clip, clip) + decay * weight);
        assert!((found - noise - wanted).abs() < 1e-12, "{weight} with {gradient}: {} instead of {wanted}", found - noise);
    }
}

#[test]
fn a_weight_that_never_had_a_gradient_survives_adamax() {
    let adamax = Optimizer::create("adamax", &[]).unwrap();
    let mut kept = Kept::new(&adamax, DType::F32, &[1.0]);
    kept.update(&adamax, &Key::Int(0), &[0; 4], &[0]);
    assert_eq!(kept.weight, 1f32.to_ne_bytes());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_are_an_optimizer_or_an_error(mut bytes in prop::collection::vec(any::<u8>(), 0..200), change in any::<(u16, u8)>(), which in 0usize..18) {
        let _ = Optimizer::decode(&bytes);
        bytes = all()[which].encode().unwrap();
        let at = change.0 as usize % bytes.len();
        bytes[at] = change.1;
        if let Ok(optimizer) = Optimizer::decode(&bytes) {
            let mut kept = Kept::new(&optimizer, DType::F32, &numbers(0, 50));
            kept.update(&optimizer, &Key::Int(0), &narrowed(DType::F32, &numbers(1, 50)), &[0]);
        }
    }
}

/// MXNet raises an error for it, so the formula is all there is to compare with.
#[test]
fn dcasgd_with_momentum_follows_its_formula() {
    let (count, momentum, lamda, lr, wd, scale, clip) = (33, 0.9f32, 0.04f32, 0.05f32, 0.01f32, 0.5f32, 0.3f32);
    let options =
        [("momentum", 0.9), ("lamda", 0.04), ("learning_rate", 0.05), ("wd", 0.01), ("rescale_grad", 0.5), ("clip_gradient", 0.3)];
    let dcasgd = Optimizer::create("dcasgd", &options.map(|(name, number)| (name, number.into()))).unwrap();
    let mut kept = Kept::new(&dcasgd, DType::F32, &numbers(0, count));
    let mut weights: Vec<f32> = numbers(0, count).iter().map(|number| *number as f32).collect();
    let (mut previous, mut moving) = (weights.clone(), vec![0.0f32; count]);
    for step in 1..=50 {
        let gradient = numbers(step, count);
        kept.update(&dcasgd, &Key::Int(1), &narrowed(DType::F32, &gradient), &[0]);
        for (i, g) in gradient.iter().enumerate() {
            let g = (scale * *g as f32).clamp(-clip, clip);
            moving[i] = momentum * moving[i] - lr * (g + wd * weights[i] + lamda * g * g * (weights[i] - previous[i]));
            previous[i] = weights[i];
            weights[i] += moving[i];
        }
        assert_eq!(bytemuck::cast_slice::<u8, f32>(&kept.weight), weights, "step {step}");
    }
}

#[test]
fn options_are_what_create_makes_the_same_optimizer_of() {
    let schedule = Schedule::new(0.1, Decay::Cosine { max_update: 9, final_lr: 0.01 });
    for mut optimizer in all() {
        optimizer.settings.schedule = Some(schedule.clone());
        optimizer.settings.lr_mult.insert(Key::Int(3), 0.5);
        optimizer.settings.wd_mult.insert(Key::from("fc_bias"), 0.0);
        let again = Optimizer::create(optimizer.method.name(), &optimizer.options()).unwrap();
        assert_eq!(again, optimizer);
        let names: Vec<&str> = optimizer.options().iter().map(|(name, _)| *name).collect();
        let error = Optimizer::create(optimizer.method.name(), &[("nothing", 1.0.into())]).unwrap_err();
        assert!(matches!(error, OptimizerError::UnknownOption { known, .. } if known == names), "{names:?}");
    }
}

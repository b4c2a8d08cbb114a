//! Bytes of an optimizer, and texts of custom updates: what a server takes from anybody who may push.

#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use syncline_optimizer::{Block, Key, KeyState, Optimizer, Progress, expression::Program};
use syncline_tensor::DType;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = Program::parse(text, &BTreeMap::from([("beta".to_owned(), 0.5)])).map_err(|error| error.to_string());
    }
    let custom = std::str::from_utf8(bytes).ok().and_then(|text| Optimizer::create("custom", &[("update", text.into())]).ok());
    for optimizer in Optimizer::decode(bytes).ok().into_iter().chain(custom) {
        let lanes = optimizer.lanes(DType::F32).expect("f32 is fine").len();
        let (mut weight, grad) = ([1u8; 80], [2u8; 80]);
        let mut states = vec![[0u8; 80]; lanes];
        let mut states: Vec<&mut [u8]> = states.iter_mut().map(|state| &mut state[..]).collect();
        let mut step = optimizer.begin(&Key::Int(1), &mut Progress::default(), &mut KeyState::default());
        let norms = step.measure(&Block::whole(DType::F32, &mut weight, &grad, &mut states)).expect("it fits");
        step = step.with_norms(&norms);
        step.apply(Block::whole(DType::F32, &mut weight, &grad, &mut states)).expect("it fits");
    }
});

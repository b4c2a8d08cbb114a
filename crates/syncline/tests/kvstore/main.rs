//! The key-value store: what MXNet's own tests expect, what MXNet got wrong, random programs against a model, and workers that die.

mod jobs;
mod local;
mod model;
mod mortal;
mod nightly;
mod quirks;
mod resume;
mod rows;

use syncline::kvstore::{RowSparse, Tensor};
use syncline::{Element, Error};

/// An array of one number.
fn filled<T: Element>(shape: &[usize], number: T) -> Tensor {
    Tensor::from_slice(shape, &vec![number; shape.iter().product()]).expect("a sound shape")
}

fn numbers<T: Element>(tensor: &Tensor) -> Vec<T> {
    tensor.as_slice::<T>().expect("its dtype").to_vec()
}

/// All numbers of an array, which must be one and the same.
fn all_of(tensor: &Tensor) -> f32 {
    let numbers = numbers::<f32>(tensor);
    assert!(
        numbers.iter().all(|number| number.to_bits() == numbers[0].to_bits()),
        "not all alike: {:?}",
        &numbers[..numbers.len().min(20)]
    );
    numbers[0]
}

fn rows_of(shape: &[usize], ids: &[i64], number: f32) -> RowSparse {
    let width: usize = shape[1..].iter().product();
    RowSparse::of(shape, ids.to_vec(), &vec![number; ids.len() * width]).expect("sound rows")
}

/// The text of the error that must have come.
fn refusal<T: std::fmt::Debug>(result: Result<T, impl Into<Error>>) -> String {
    result.map_err(Into::into).expect_err("must be refused").to_string()
}

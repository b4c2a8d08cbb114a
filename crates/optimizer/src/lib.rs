//! What a gradient does to a weight: optimizers as plain data, and the loops that carry them out.
//!
//! ```text
//! optimizer · create     which optimizer with which numbers; by name and keyword options, and back (describe); as a message
//! schedule               learning rates that change with the number of updates
//! step                   one update of one key: any block of it, or some of its rows
//! rules · walk           what happens to one number; the loops over many
//! norms                  sums over a whole array for those that need them, the same in any order
//! noise                  normal numbers that depend on where they are used and on nothing else
//! expression             a small language for updates that nobody thought of
//! ```
//!
//! An optimizer never is code: a server checks the data it gets and runs loops it already has. The README beside this crate has the formulas.
//!
//! ```
//! use syncline_optimizer::{Block, Key, KeyState, Optimizer, Progress};
//! use syncline_tensor::DType;
//!
//! let adam = Optimizer::create("Adam", &[("learning_rate", 0.1.into())])?;
//! let (mut progress, mut state) = (Progress::default(), KeyState::default());
//! let (mut weight, grad) = ([1.0f32, -1.0], [0.5f32, 0.5]);
//! let (mut mean, mut var) = ([0.0f32; 2], [0.0f32; 2]); // the lanes that `adam.lanes(DType::F32)` names
//!
//! let step = adam.begin(&Key::from("fc1_weight"), &mut progress, &mut state);
//! let mut states = [bytemuck::cast_slice_mut(&mut mean), bytemuck::cast_slice_mut(&mut var)];
//! step.apply(Block::whole(DType::F32, bytemuck::cast_slice_mut(&mut weight), bytemuck::cast_slice(&grad), &mut states))?;
//! assert!((weight[0] - 0.9).abs() < 1e-6 && (weight[1] + 1.1).abs() < 1e-6);
//! # Ok::<(), syncline_optimizer::OptimizerError>(())
//! ```
#![forbid(unsafe_code)]

mod create;
mod describe;
mod error;
pub mod expression;
mod key;
mod method;
mod noise;
mod norms;
mod optimizer;
mod real;
mod rules;
mod schedule;
mod step;
mod walk;

pub use create::OptionValue;
pub use error::OptimizerError;
pub use key::Key;
pub use method::Method;
pub use norms::{CELL, ExactSum, NORM_WORDS, Norms};
pub use optimizer::{KeyState, Lane, Optimizer, Progress, Settings, Start};
pub use schedule::{Decay, Schedule, Warmup};
pub use step::{Block, Rows, Step};
pub use walk::Also;

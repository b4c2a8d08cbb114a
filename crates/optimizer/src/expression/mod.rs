//! A small language for updates that nobody thought of: `m = 0.9*m + g; w -= lr * (m + wd*w)`.
//!
//! ```text
//! update     = statement { ";" statement } [ ";" ]
//! statement  = name ( "=" | "+=" | "-=" | "*=" | "/=" ) expression
//! expression = sum [ ( "<" | "<=" | ">" | ">=" | "==" | "!=" ) sum ]        1 if it holds, else 0
//! sum        = term { ( "+" | "-" ) term }
//! term       = factor { ( "*" | "/" ) factor }
//! factor     = "-" factor | number | name | "(" expression ")" | function "(" expression { "," expression } ")"
//! function   = abs sqrt exp log sign (1) · min max (2) · where(condition, then, else) clip(x, low, high)
//! ```
//!
//! | name | meaning |
//! |---|---|
//! | `w` | the weight; assigning to it changes it |
//! | `g` | the gradient, rescaled and clipped as the optimizer's settings say; read only |
//! | `lr`, `wd`, `t` | rate and decay of this key, number of this update from 1; read only |
//! | a parameter | a number given beside the text; read only |
//! | a name that is read before it is written | a state: kept for each number from one update to the next, 0 before the first |
//! | a name that is written first | a shorthand inside of one update |
//!
//! Numbers are computed in f64 for f64 weights and in f32 for all others, each operation rounded once. `where` chooses its second argument if the first is
//! not 0; both are computed. `min` and `max` return the second argument if either is NaN.
//!
//! A text is checked when it arrives: every name must be known, nothing is longer, deeper or larger than the caps, and nothing in it can loop, index or
//! allocate. It becomes a list of operations on registers, each run over a block of [`BLOCK`] numbers at a time, so that what lies between two
//! operations stays in the first-level cache.
//!
//! ```
//! use syncline_optimizer::{Block, Key, KeyState, Optimizer, Progress};
//! use syncline_tensor::DType;
//!
//! let heavy_ball = Optimizer::create("custom", &[("update", "m = 0.5*m + g; w -= lr*m".into()), ("learning_rate", 0.1.into())])?;
//! assert_eq!(heavy_ball.lanes(DType::F64)?[0].name, "m");
//! let (mut w, g, mut m) = ([1.0f64], [1.0f64], [0.0f64]);
//! let (mut progress, mut state) = (Progress::default(), KeyState::default());
//! for _ in 0..2 {
//!     let step = heavy_ball.begin(&Key::Int(0), &mut progress, &mut state);
//!     let mut states = [bytemuck::cast_slice_mut(&mut m)];
//!     step.apply(Block::whole(DType::F64, bytemuck::cast_slice_mut(&mut w), bytemuck::cast_slice(&g), &mut states))?;
//! }
//! assert_eq!((m[0], w[0]), (1.5, 0.75));
//!
//! let error = Optimizer::create("custom", &[("update", "w -= lr * gradient".into())]).unwrap_err();
//! assert_eq!(error.to_string(), "nothing is called `gradient`; there are w, g, lr, wd, t, parameters, and names assigned before\n  w -= lr * gradient\n            ^");
//! # Ok::<(), syncline_optimizer::OptimizerError>(())
//! ```

mod compile;
mod error;
mod parse;
mod run;
#[cfg(test)]
mod tests;
mod token;

pub use compile::Program;
pub use error::ExpressionError;

/// Numbers that an operation is run over at a time: 1 KB of f32.
pub const BLOCK: usize = 256;
/// Bytes of a text.
pub const MAX_TEXT: usize = 4096;
/// Parentheses, functions and signs inside of each other.
pub const MAX_DEPTH: usize = 64;
/// States of an update.
pub const MAX_STATES: usize = 8;
/// Operations of an update.
pub const MAX_OPERATIONS: usize = 256;
/// Values that are needed at the same time.
pub const MAX_REGISTERS: usize = 64;

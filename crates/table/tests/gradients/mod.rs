//! Gradient tables against a plain model: every optimizer, dtype and way of adding, bit for bit.

mod model;
mod programs;
mod states;

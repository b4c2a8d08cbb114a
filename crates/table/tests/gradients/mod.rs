//! Gradient tables against a plain model: every optimizer, dtype and way of adding, bit for bit.

mod model;
mod mortal;
mod programs;
mod speed;
mod states;

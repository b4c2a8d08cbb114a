#![doc = include_str!("../README.md")]
//!
//! # Where to start
//!
//! [`duplex`] is what links are made of, [`board`] and [`meeting`] what the ranks of a host share.
//! Below them: [`ring`] and [`arena`] move bytes, [`bell`] and [`wait`] sleep and wake,
//! [`segment`], [`heap`] and [`fdpass`] provide the memory, [`fork`] knows a forked child, [`kin`] ends with its parent,
//! [`pipe`] survives a broken one.
#![cfg_attr(loom, allow(dead_code, unused_imports, reason = "what needs real memory is left out of the models"))]

pub mod arena;
#[cfg(not(loom))]
pub mod array;
pub mod bell;
#[cfg(not(loom))]
pub mod board;
pub mod bulletin;
mod corrupt;
#[cfg(not(loom))]
pub mod desk;
#[cfg(not(loom))]
pub mod duplex;
#[cfg(not(loom))]
pub mod estate;
pub mod fdpass;
pub mod fork;
pub mod guarded;
#[cfg(not(loom))]
pub mod heap;
pub mod kin;
pub mod latch;
mod mapping;
pub mod meeting;
pub mod mortality;
#[cfg(not(loom))]
pub mod outbox;
pub mod pipe;
mod placed;
#[cfg(not(loom))]
mod prefetch;
pub mod presence;
pub mod queue;
#[cfg(not(loom))]
mod racing_copy;
pub mod ring;
pub mod segment;
#[cfg(not(loom))]
pub mod store;
pub mod stripe;
mod sync;
pub mod wait;

pub use corrupt::Corrupt;
pub use placed::Shared;

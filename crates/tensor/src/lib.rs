//! Numbers in memory: dtypes, shapes, strided views, aligned tensors and the kernels that work on them.
//!
//! ```text
//! dtype · element     which numbers there are, at run time and as Rust types
//! shape · layout      how many there are and where each one lies
//! view  · tensor      borrowed and owned bytes with a dtype and a layout
//! kernels/            reduce, axpy, scale, cast, rows, strided copies; dispatched once to the widest SIMD of this CPU
//! ```
//!
//! Everything is native-endian bytes underneath, so a tensor that arrives in shared memory or in a frame is used
//! where it lies. Kernels take plain byte slices of any alignment; the typed variants are the same code.
//!
//! ```
//! use syncline_tensor::{DType, Tensor, kernels::{ReduceOp, reduce_into}};
//!
//! let mut total = Tensor::from_slice(&[2, 2], &[1.0f32, 2.0, 3.0, 4.0])?;
//! let gradient = Tensor::from_slice(&[2, 2], &[10.0f32, 20.0, 30.0, 40.0])?;
//! reduce_into(ReduceOp::Sum, DType::F32, total.bytes_mut(), gradient.bytes())?;
//! assert_eq!(total.as_slice::<f32>()?, [11.0, 22.0, 33.0, 44.0]);
//! # Ok::<(), syncline_tensor::TensorError>(())
//! ```
#![deny(unsafe_code)]

mod dtype;
mod element;
mod error;
pub mod kernels;
mod layout;
mod shape;
mod tensor;
mod view;

pub use dtype::DType;
pub use element::{Element, Native};
pub use error::TensorError;
pub use layout::Layout;
pub use shape::Shape;
pub use tensor::Tensor;
pub use view::{Elements, TensorView, TensorViewMut};

// The half types are part of the API: a user of `Element` must be able to name them in the version we use.
pub use half::{bf16, f16};

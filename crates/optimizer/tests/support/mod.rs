//! A weight with its lanes, and what a server does with them.

use syncline_optimizer::{Block, Key, KeyState, Optimizer, Progress, Rows, Start};
use syncline_tensor::{DType, kernels::cast};

/// A weight with its lanes, as a server keeps them.
pub(crate) struct Kept {
    pub(crate) dtype: DType,
    pub(crate) weight: Vec<u8>,
    pub(crate) lanes: Vec<Vec<u8>>,
    pub(crate) progress: Progress,
    pub(crate) state: KeyState,
}

pub(crate) fn narrowed(dtype: DType, numbers: &[f64]) -> Vec<u8> {
    let mut bytes = vec![0; numbers.len() * dtype.size()];
    cast(DType::F64, bytemuck::cast_slice(numbers), dtype, &mut bytes).unwrap();
    bytes
}

impl Kept {
    pub(crate) fn new(optimizer: &Optimizer, dtype: DType, numbers: &[f64]) -> Kept {
        let weight = narrowed(dtype, numbers);
        let lanes = optimizer.lanes(dtype).unwrap();
        let lane = |lane: &syncline_optimizer::Lane| {
            let mut bytes = vec![0; numbers.len() * lane.dtype.size()];
            if lane.start == Start::Weights {
                cast(dtype, &weight, lane.dtype, &mut bytes).unwrap();
            }
            bytes
        };
        let lanes = lanes.iter().map(lane).collect();
        Kept { dtype, weight, lanes, progress: Progress::default(), state: KeyState::default() }
    }

    /// One update, in blocks that begin at these numbers; measured first, in the same blocks, where that is needed.
    pub(crate) fn update(&mut self, optimizer: &Optimizer, key: &Key, grad: &[u8], cuts: &[usize]) {
        let mut step = optimizer.begin(key, &mut self.progress, &mut self.state);
        let (size, wide) = (self.dtype.size(), if self.dtype == DType::F64 { 8 } else { 4 });
        let count = self.weight.len() / size;
        let ends: Vec<usize> = cuts.iter().copied().skip(1).chain([count]).collect();
        if step.needs_norms() {
            let mut norms = syncline_optimizer::Norms::default();
            for (start, end) in cuts.iter().zip(&ends).rev() {
                let mut states: Vec<&mut [u8]> = self.lanes.iter_mut().map(|lane| &mut lane[start * wide..end * wide]).collect();
                let block = Block {
                    dtype: self.dtype,
                    at: *start as u64,
                    weight: &mut self.weight[start * size..end * size],
                    grad_dtype: self.dtype,
                    grad: &grad[start * size..end * size],
                    states: &mut states,
                };
                norms.merge(&step.measure(&block).unwrap());
            }
            step = step.with_norms(&norms);
        }
        for (start, end) in cuts.iter().zip(&ends).rev() {
            let mut states: Vec<&mut [u8]> = self.lanes.iter_mut().map(|lane| &mut lane[start * wide..end * wide]).collect();
            let block = Block {
                dtype: self.dtype,
                at: *start as u64,
                weight: &mut self.weight[start * size..end * size],
                grad_dtype: self.dtype,
                grad: &grad[start * size..end * size],
                states: &mut states,
            };
            step.apply(block).unwrap();
        }
    }

    pub(crate) fn update_rows(&mut self, optimizer: &Optimizer, key: &Key, row_len: usize, ids: &[u64], grad: &[u8]) {
        let mut step = optimizer.begin(key, &mut self.progress, &mut self.state);
        let mut states: Vec<&mut [u8]> = self.lanes.iter_mut().map(|lane| &mut lane[..]).collect();
        if step.needs_norms() {
            // Of all rows: those that the gradient does not have are zeros.
            let (mut dense, width) = (vec![0; self.weight.len()], row_len * self.dtype.size());
            for (row, id) in grad.chunks_exact(width).zip(ids) {
                dense[*id as usize * width..][..width].copy_from_slice(row);
            }
            let norms = step.measure(&Block::whole(self.dtype, &mut self.weight, &dense, &mut states)).unwrap();
            step = step.with_norms(&norms);
        }
        step.apply_rows(Rows { row_len, ids }, Block::whole(self.dtype, &mut self.weight, grad, &mut states)).unwrap();
    }
}

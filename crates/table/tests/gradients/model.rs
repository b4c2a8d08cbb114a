//! What a gradient table should hold, worked out the plain way: whole arrays, one step after the other.

use syncline_optimizer::{Block, Key, KeyState, Optimizer, Progress, Rows, Start};
use syncline_tensor::DType;
use syncline_tensor::kernels::cast;

/// One worker's gradient.
#[derive(Clone, Debug)]
pub(crate) struct Push {
    /// Rows, in any order, repeated or not; none for all.
    pub(crate) rows: Option<Vec<i64>>,
    /// One number for each element of these rows.
    pub(crate) numbers: Vec<f64>,
}

pub(crate) fn bytes_of(dtype: DType, numbers: &[f64]) -> Vec<u8> {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
    let mut out = vec![0; numbers.len() * dtype.size()];
    cast(DType::F64, &bytes, dtype, &mut out).expect("as many");
    out
}

fn converted(from: DType, bytes: &[u8], to: DType) -> Vec<u8> {
    let mut out = vec![0; bytes.len() / from.size() * to.size()];
    cast(from, bytes, to, &mut out).expect("as many");
    out
}

pub(crate) struct Model {
    pub(crate) dtype: DType,
    pub(crate) cols: usize,
    pub(crate) values: Vec<u8>,
    pub(crate) optimizer: Option<Optimizer>,
    pub(crate) states: Vec<Vec<u8>>,
    pub(crate) key: Key,
    pub(crate) state: KeyState,
    pub(crate) progress: Progress,
}

impl Model {
    pub(crate) fn new(dtype: DType, cols: usize, values: &[f64], key: Key) -> Model {
        let values = bytes_of(dtype, values);
        Model { dtype, cols, values, optimizer: None, states: Vec::new(), key, state: KeyState::default(), progress: Progress::default() }
    }

    fn wide(&self) -> DType {
        match self.dtype {
            DType::F16 | DType::BF16 => DType::F32,
            dtype => dtype,
        }
    }

    pub(crate) fn set_rule(&mut self, optimizer: Option<Optimizer>, keep: bool) {
        self.optimizer = optimizer;
        if keep {
            return;
        }
        (self.state, self.progress) = Default::default();
        let lanes = self.optimizer.as_ref().map(|optimizer| optimizer.lanes(self.dtype).expect("floats")).unwrap_or_default();
        let lane = |start| match start {
            Start::Zeros => vec![0; self.values.len() / self.dtype.size() * self.wide().size()],
            Start::Weights => converted(self.dtype, &self.values, self.wide()),
        };
        self.states = lanes.iter().map(|info| lane(info.start)).collect();
    }

    /// The sum of gradients, in order, and which rows it has; none for all.
    fn sum(&self, pushes: &[&Push]) -> (Vec<u8>, Option<Vec<u64>>) {
        let (wide, elements) = (self.wide(), self.values.len() / self.dtype.size());
        let mut sum = vec![0; elements * wide.size()];
        let all_whole = pushes.iter().all(|push| push.rows.is_none());
        let mut add = |at: usize, numbers: &[u8], first: bool| {
            let room = &mut sum[at * wide.size()..][..numbers.len()];
            for (sum, number) in room.chunks_exact_mut(wide.size()).zip(numbers.chunks_exact(wide.size())) {
                match wide {
                    _ if first => sum.copy_from_slice(number),
                    DType::F64 => {
                        let total = f64::from_ne_bytes((&*sum).try_into().unwrap()) + f64::from_ne_bytes(number.try_into().unwrap());
                        sum.copy_from_slice(&total.to_ne_bytes());
                    }
                    DType::F32 => {
                        let total = f32::from_ne_bytes((&*sum).try_into().unwrap()) + f32::from_ne_bytes(number.try_into().unwrap());
                        sum.copy_from_slice(&total.to_ne_bytes());
                    }
                    DType::I32 => {
                        let total =
                            i32::from_ne_bytes((&*sum).try_into().unwrap()).wrapping_add(i32::from_ne_bytes(number.try_into().unwrap()));
                        sum.copy_from_slice(&total.to_ne_bytes());
                    }
                    other => panic!("no {other} here"),
                }
            }
        };
        for (index, push) in pushes.iter().enumerate() {
            let numbers = converted(self.dtype, &bytes_of(self.dtype, &push.numbers), wide);
            let width = self.cols * wide.size();
            match &push.rows {
                None => add(0, &numbers, index == 0 && all_whole),
                Some(rows) => {
                    rows.iter()
                        .enumerate()
                        .for_each(|(place, row)| add(*row as usize * self.cols, &numbers[place * width..][..width], false));
                }
            }
        }
        let rows = pushes.iter().map(|push| push.rows.clone()).collect::<Option<Vec<_>>>().map(|rows| {
            let mut rows: Vec<u64> = rows.into_iter().flatten().map(|row| row as u64).collect();
            rows.sort_unstable();
            rows.dedup();
            rows
        });
        (sum, rows)
    }

    /// One round of these gradients, or one async gradient.
    pub(crate) fn push(&mut self, pushes: &[&Push]) {
        let (sum, rows) = self.sum(pushes);
        let wide = self.wide();
        let Some(optimizer) = &self.optimizer else {
            self.values = converted(wide, &sum, self.dtype);
            return;
        };
        let mut step = optimizer.begin(&self.key, &mut self.progress, &mut self.state);
        let mut states: Vec<&mut [u8]> = self.states.iter_mut().map(Vec::as_mut_slice).collect();
        let mut weight = self.values.clone();
        if step.needs_norms() {
            // Norms are those of a gradient of zero for rows that are absent.
            let block = Block { dtype: self.dtype, at: 0, weight: &mut weight, grad_dtype: wide, grad: &sum, states: &mut states };
            step = step.with_norms(&step.measure(&block).expect("it fits"));
        }
        match rows {
            None => step
                .apply(Block { dtype: self.dtype, at: 0, weight: &mut self.values, grad_dtype: wide, grad: &sum, states: &mut states })
                .expect("it fits"),
            Some(rows) => {
                let width = self.cols * wide.size();
                let grad: Vec<u8> = rows.iter().flat_map(|row| sum[*row as usize * width..][..width].to_vec()).collect();
                let block =
                    Block { dtype: self.dtype, at: 0, weight: &mut self.values, grad_dtype: wide, grad: &grad, states: &mut states };
                step.apply_rows(Rows { row_len: self.cols, ids: &rows }, block).expect("it fits");
            }
        }
    }
}

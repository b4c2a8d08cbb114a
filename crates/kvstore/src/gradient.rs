//! The values of one push, summed.

use std::borrow::Cow;

use syncline_tensor::kernels::{ReduceOp, reduce_into, reduce_many_into};

use crate::row_sparse::merged;
use crate::value::{KeySpec, Value};

/// What one push brings to a key: the sum of its values, left to right.
#[derive(Debug)]
pub(crate) enum Gradient<'a> {
    Dense(Cow<'a, [u8]>),
    Rows { ids: Cow<'a, [i64]>, values: Cow<'a, [u8]> },
}

impl<'a> Gradient<'a> {
    /// The sum of `values`, which fit `spec`; one alone is borrowed as it is, none is an empty list of rows.
    pub(crate) fn sum(spec: &KeySpec, values: &[Value<'a>]) -> Gradient<'a> {
        match values {
            [] => Gradient::Rows { ids: Cow::Borrowed(&[]), values: Cow::Borrowed(&[]) },
            [one] => Gradient::of(one),
            many if many.iter().all(|value| matches!(value, Value::Dense(_))) => {
                let sources: Vec<&[u8]> = many.iter().map(|value| dense_bytes(value)).collect();
                let mut total = vec![0; spec.bytes()];
                reduce_many_into(ReduceOp::Sum, spec.dtype, &mut total, &sources).expect("checked sizes");
                Gradient::Dense(Cow::Owned(total))
            }
            many if many.iter().all(|value| matches!(value, Value::RowSparse(_))) => {
                let parts: Vec<(&[i64], &[u8])> = many.iter().map(rows).collect();
                let (ids, values) = merged(spec.dtype, spec.row_bytes(), &parts);
                Gradient::Rows { ids: Cow::Owned(ids), values: Cow::Owned(values) }
            }
            many => {
                let mut total = Gradient::of(&many[0]).into_dense(spec).into_owned();
                for value in &many[1..] {
                    let more = Gradient::of(value).into_dense(spec);
                    reduce_into(ReduceOp::Sum, spec.dtype, &mut total, &more).expect("checked sizes");
                }
                Gradient::Dense(Cow::Owned(total))
            }
        }
    }

    fn of(value: &Value<'a>) -> Gradient<'a> {
        match value {
            Value::Dense(dense) => Gradient::Dense(Cow::Borrowed(dense.bytes())),
            Value::RowSparse(rows) => Gradient::Rows { ids: Cow::Borrowed(rows.indices()), values: Cow::Borrowed(rows.values()) },
        }
    }

    /// All numbers, absent rows as zeros.
    pub(crate) fn into_dense(self, spec: &KeySpec) -> Cow<'a, [u8]> {
        match self {
            Gradient::Dense(bytes) => bytes,
            Gradient::Rows { .. } => {
                let mut dense = vec![0; spec.bytes()];
                self.write_dense(spec, &mut dense);
                Cow::Owned(dense)
            }
        }
    }

    /// Writes all numbers to `out`.
    pub(crate) fn write_dense(&self, spec: &KeySpec, out: &mut [u8]) {
        match self {
            Gradient::Dense(bytes) => out.copy_from_slice(bytes),
            Gradient::Rows { ids, values } => {
                out.fill(0);
                let width = spec.row_bytes();
                for (id, row) in ids.iter().zip(values.chunks_exact(width.max(1))) {
                    out[*id as usize * width..][..width].copy_from_slice(row);
                }
            }
        }
    }
}

fn dense_bytes<'a>(value: &Value<'a>) -> &'a [u8] {
    match value {
        Value::Dense(dense) => dense.bytes(),
        Value::RowSparse(_) => unreachable!("asked before"),
    }
}

fn rows<'v>(value: &'v Value<'_>) -> (&'v [i64], &'v [u8]) {
    match value {
        Value::RowSparse(rows) => (rows.indices(), rows.values()),
        Value::Dense(_) => unreachable!("asked before"),
    }
}

#[cfg(test)]
mod tests {
    use syncline_optimizer::Key;
    use syncline_tensor::Tensor;

    use super::*;
    use crate::RowSparse;

    #[test]
    fn dense_rows_and_both_together_are_added_left_to_right() {
        let dense = Tensor::from_slice(&[3, 1], &[1.0f32, 2.0, 3.0]).expect("sound");
        let rows = RowSparse::of(&[3, 1], vec![2], &[10.0f32]).expect("sound");
        let spec = KeySpec::of(&Key::from(1), &Value::from(&dense));
        let sum = |values: &[Value<'_>]| {
            let bytes = Gradient::sum(&spec, values).into_dense(&spec).into_owned();
            bytemuck::pod_collect_to_vec::<u8, f32>(&bytes)
        };
        let (dense, rows) = (Value::from(&dense), Value::from(&rows));
        assert_eq!(sum(&[dense]), [1.0, 2.0, 3.0]);
        assert_eq!(sum(&[dense, dense, dense]), [3.0, 6.0, 9.0]);
        assert_eq!(sum(&[rows, rows]), [0.0, 0.0, 20.0]);
        assert_eq!(sum(&[rows, dense, rows]), [1.0, 2.0, 23.0]);
        assert_eq!(sum(&[]), [0.0; 3]);
    }
}

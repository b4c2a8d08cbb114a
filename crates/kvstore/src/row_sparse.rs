//! Arrays of which only some rows are there.

use syncline_cluster::Error;
use syncline_tensor::kernels::{ReduceOp, reduce_into};
use syncline_tensor::{DType, Element, Shape, Tensor};

/// An array whose absent rows are zero: ids in ascending order, each once, and one row of values for each.
///
/// ```
/// use syncline_kvstore::RowSparse;
///
/// let rows = RowSparse::of(&[4, 2], vec![3, 0], &[3.0f32, 3.5, 1.0, 1.5])?;
/// assert_eq!(rows.indices(), [0, 3]);
/// assert_eq!(rows.to_dense().as_slice::<f32>()?, [1.0, 1.5, 0.0, 0.0, 0.0, 0.0, 3.0, 3.5]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct RowSparse {
    dtype: DType,
    shape: Shape,
    indices: Vec<i64>,
    values: Vec<u8>,
}

impl RowSparse {
    /// From ids in any order and one row of bytes for each; rows of an id that stands twice are added.
    ///
    /// # Errors
    /// `ShapeMismatch` for a shape without rows or values of another length, `UnknownKey` for an id that is no row.
    pub fn new(dtype: DType, shape: &[usize], indices: Vec<i64>, values: Vec<u8>) -> Result<RowSparse, Error> {
        let refused = |detail: String| Err(Error::ShapeMismatch { operation: "a row-sparse array".into(), detail });
        let checked = match Shape::new(shape) {
            Ok(checked) if checked.axes() > 0 => checked,
            Ok(_) => return refused("a scalar has no rows".into()),
            Err(error) => return refused(error.to_string()),
        };
        let width = row_len(&checked) * dtype.size();
        if values.len() != indices.len() * width {
            let (given, size) = (values.len() / dtype.size(), dtype.size());
            return refused(format!("{given} values given for {} rows of {}", indices.len(), width / size));
        }
        check_rows("a row-sparse array", &indices, shape[0])?;
        let (indices, values) =
            if indices.windows(2).all(|pair| pair[0] < pair[1]) { (indices, values) } else { merged(dtype, width, &[(&indices, &values)]) };
        Ok(RowSparse { dtype, shape: checked, indices, values })
    }

    /// [`new`](Self::new) from numbers.
    pub fn of<T: Element>(shape: &[usize], indices: Vec<i64>, values: &[T]) -> Result<RowSparse, Error> {
        RowSparse::new(T::DTYPE, shape, indices, bytemuck::cast_slice(values).to_vec())
    }

    /// An array without any row.
    pub fn empty(dtype: DType, shape: &[usize]) -> Result<RowSparse, Error> {
        RowSparse::new(dtype, shape, Vec::new(), Vec::new())
    }

    /// The rows of a dense array that are not all zero bits.
    pub fn from_dense(dtype: DType, shape: &[usize], bytes: &[u8]) -> Result<RowSparse, Error> {
        let mut sparse = RowSparse::empty(dtype, shape)?;
        if bytes.len() != sparse.shape.byte_len(dtype) {
            let detail = format!("{} bytes given, {} needed", bytes.len(), sparse.shape.byte_len(dtype));
            return Err(Error::ShapeMismatch { operation: "a row-sparse array".into(), detail });
        }
        let width = sparse.row_bytes();
        for (id, row) in bytes.chunks_exact(width.max(1)).enumerate() {
            if row.iter().any(|byte| *byte != 0) {
                sparse.indices.push(id as i64);
                sparse.values.extend_from_slice(row);
            }
        }
        Ok(sparse)
    }

    /// The dtype of its numbers.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The shape of the whole array, absent rows included.
    pub fn shape(&self) -> &[usize] {
        self.shape.dims()
    }

    /// The ids of the rows that are there.
    pub fn indices(&self) -> &[i64] {
        &self.indices
    }

    /// Their numbers, row after row.
    pub fn values(&self) -> &[u8] {
        &self.values
    }

    /// The same with all rows.
    pub fn to_dense(&self) -> Tensor {
        let mut dense = Tensor::zeros(self.dtype, self.shape.clone());
        self.write_dense(dense.bytes_mut());
        dense
    }

    /// Bytes of one row.
    pub fn row_bytes(&self) -> usize {
        row_len(&self.shape) * self.dtype.size()
    }

    /// Writes all rows to `out`, which has the whole array's size.
    pub(crate) fn write_dense(&self, out: &mut [u8]) {
        out.fill(0);
        let width = self.row_bytes();
        for (id, row) in self.indices.iter().zip(self.values.chunks_exact(width.max(1))) {
            out[*id as usize * width..][..width].copy_from_slice(row);
        }
    }

    /// Makes exactly these rows, checked before, the contents.
    pub(crate) fn set_rows(&mut self, indices: Vec<i64>, values: Vec<u8>) {
        debug_assert_eq!(values.len(), indices.len() * self.row_bytes());
        (self.indices, self.values) = (indices, values);
    }
}

fn row_len(shape: &Shape) -> usize {
    shape.dims()[1..].iter().product()
}

/// Refuses ids that are no rows.
pub(crate) fn check_rows(operation: &str, ids: &[i64], rows: usize) -> Result<(), Error> {
    match ids.iter().enumerate().find(|(_, id)| **id < 0 || **id as u64 >= rows as u64) {
        None => Ok(()),
        Some((at, id)) => Err(Error::UnknownKey {
            operation: operation.into(),
            detail: format!("row id {id} (number {at} of {}) does not exist, there are {rows} rows; nothing was changed", ids.len()),
        }),
    }
}

/// The sum of several lists of rows of `width` bytes: each id once, ascending; rows of one id added in the order of the lists.
pub(crate) fn merged(dtype: DType, width: usize, parts: &[(&[i64], &[u8])]) -> (Vec<i64>, Vec<u8>) {
    // (id, which part, which row of it): sorting keeps the order of parts for each id.
    let mut places: Vec<(i64, u32, usize)> = Vec::with_capacity(parts.iter().map(|(ids, _)| ids.len()).sum());
    for (part, (ids, _)) in (0..).zip(parts) {
        places.extend(ids.iter().enumerate().map(|(row, id)| (*id, part, row)));
    }
    places.sort_unstable();
    let (mut indices, mut values): (Vec<i64>, Vec<u8>) = (Vec::new(), Vec::new());
    for (id, part, row) in places {
        let source = &parts[part as usize].1[row * width..][..width];
        if indices.last() == Some(&id) {
            let at = values.len() - width;
            reduce_into(ReduceOp::Sum, dtype, &mut values[at..], source).expect("rows of one width");
        } else {
            indices.push(id);
            values.extend_from_slice(source);
        }
    }
    (indices, values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_sorted_and_repeated_ones_added() {
        let rows = RowSparse::of(&[5, 1], vec![4, 1, 4], &[1.0f64, 2.0, 3.0]).expect("sound");
        assert_eq!(rows.indices(), [1, 4]);
        assert_eq!(rows.to_dense().as_slice::<f64>().expect("f64"), [0.0, 2.0, 0.0, 0.0, 4.0]);
        assert_eq!(RowSparse::from_dense(DType::F64, &[5, 1], rows.to_dense().bytes()).expect("sound"), rows);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert!(RowSparse::of(&[2, 2], vec![2], &[1.0f32, 1.0]).unwrap_err().to_string().contains("row id 2"));
        assert!(RowSparse::of(&[2, 2], vec![-1], &[1.0f32, 1.0]).is_err());
        assert!(RowSparse::of(&[2, 2], vec![1], &[1.0f32]).unwrap_err().to_string().contains("1 rows of 2"));
        assert!(RowSparse::of::<f32>(&[], vec![], &[]).is_err());
        assert!(RowSparse::of::<f32>(&[0, 3], vec![], &[]).is_ok());
        assert!(RowSparse::of::<f32>(&[3, 0], vec![2, 1], &[]).expect("rows of nothing").to_dense().bytes().is_empty());
    }
}

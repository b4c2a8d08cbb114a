//! Arrays of which only some rows are there.

use std::borrow::Cow;

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
        RowSparse::from_rows(dtype, shape, indices.into(), values.into())
    }

    fn from_rows(dtype: DType, shape: &[usize], indices: Cow<'_, [i64]>, values: Cow<'_, [u8]>) -> Result<RowSparse, Error> {
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
        check_rows(|| "a row-sparse array".into(), &indices, shape[0])?;
        let (indices, values) = match ascend(&indices) {
            true => (indices.into_owned(), values.into_owned()),
            false => merged(dtype, width, &[(&indices, &values)]),
        };
        Ok(RowSparse { dtype, shape: checked, indices, values })
    }

    /// Makes these rows, as [`new`](Self::new) takes them, the contents, in the memory that is there already: for gradients of one shape, step after step.
    pub fn assign<T: Element>(&mut self, indices: &[i64], numbers: &[T]) -> Result<(), Error> {
        let (width, values) = (self.row_bytes(), bytemuck::cast_slice(numbers));
        if T::DTYPE != self.dtype || values.len() != indices.len() * width {
            let (given, of) = (format!("{} values of {}", numbers.len(), T::DTYPE), self.dtype);
            let detail = format!("{given} given for {} rows of {} values of {of}", indices.len(), width / of.size());
            return Err(Error::ShapeMismatch { operation: "a row-sparse array".into(), detail });
        }
        check_rows(|| "a row-sparse array".into(), indices, self.shape()[0])?;
        self.indices.clear();
        self.values.clear();
        if ascend(indices) {
            self.indices.extend_from_slice(indices);
            self.values.extend_from_slice(values);
        } else {
            merge(self.dtype, width, &[(indices, values)], &mut self.indices, &mut self.values);
        }
        Ok(())
    }

    /// [`new`](Self::new) from numbers.
    pub fn of<T: Element>(shape: &[usize], indices: Vec<i64>, values: &[T]) -> Result<RowSparse, Error> {
        RowSparse::from_rows(T::DTYPE, shape, indices.into(), bytemuck::cast_slice(values).into())
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

    /// Makes rows, sorted and checked before, the contents: `read` writes their numbers, into the memory that is there already. Where it fails, none are left.
    pub(crate) fn fill(&mut self, indices: Vec<i64>, read: impl FnOnce(&[i64], &mut [u8]) -> Result<(), Error>) -> Result<(), Error> {
        let mut values = std::mem::take(&mut self.values);
        self.indices.clear();
        values.resize(indices.len() * self.row_bytes(), 0);
        read(&indices, &mut values)?;
        self.set_rows(indices, values);
        Ok(())
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
pub(crate) fn check_rows(operation: impl FnOnce() -> String, ids: &[i64], rows: usize) -> Result<(), Error> {
    // One pass without branches first: bad ids are rare.
    if !ids.iter().fold(false, |bad, id| bad | (*id as u64 >= rows as u64)) {
        return Ok(());
    }
    let (at, id) = ids.iter().enumerate().find(|(_, id)| **id as u64 >= rows as u64).expect("one is bad");
    Err(Error::UnknownKey {
        operation: operation(),
        detail: format!("row id {id} (number {at} of {}) does not exist, there are {rows} rows; nothing was changed", ids.len()),
    })
}

/// The sum of several lists of rows of `width` bytes, whose ids are not negative: each id once, ascending; rows of one id added in the order of the lists.
pub(crate) fn merged(dtype: DType, width: usize, parts: &[(&[i64], &[u8])]) -> (Vec<i64>, Vec<u8>) {
    let (mut indices, mut values) = (Vec::new(), Vec::new());
    merge(dtype, width, parts, &mut indices, &mut values);
    (indices, values)
}

/// The same, behind nothing in `indices` and `values`.
fn merge(dtype: DType, width: usize, parts: &[(&[i64], &[u8])], indices: &mut Vec<i64>, values: &mut Vec<u8>) {
    let total = parts.iter().map(|(ids, _)| ids.len()).sum();
    indices.reserve(total);
    values.reserve(total * width);
    let mut take = |id: i64, part: usize, row: usize| {
        let source = &parts[part].1[row * width..][..width];
        if indices.last() == Some(&id) {
            let at = values.len() - width;
            reduce_into(ReduceOp::Sum, dtype, &mut values[at..], source).expect("rows of one width");
        } else {
            indices.push(id);
            values.extend_from_slice(source);
        }
    };
    let largest = parts.iter().flat_map(|(ids, _)| ids.iter()).max().copied().unwrap_or(0);
    if let [(ids, _)] = parts
        && largest < 1 << 32
        && ids.len() < 1 << 32
    {
        // Id and place in one word: numbers sort faster than anything that is made of several.
        let mut words: Vec<u64> = (0..).zip(*ids).map(|(row, id)| (*id as u64) << 32 | row).collect();
        words.sort_unstable();
        words.iter().for_each(|word| take((word >> 32) as i64, 0, (word & 0xffff_ffff) as usize));
    } else {
        // Which part comes before which row of it: sorting keeps the order of parts for each id.
        let mut places: Vec<(i64, u32, usize)> = Vec::with_capacity(total);
        for (part, (ids, _)) in (0..).zip(parts) {
            places.extend(ids.iter().enumerate().map(|(row, id)| (*id, part, row)));
        }
        places.sort_unstable();
        places.iter().for_each(|(id, part, row)| take(*id, *part as usize, *row));
    }
}

/// Whether ids are in order, each once.
fn ascend(ids: &[i64]) -> bool {
    ids.windows(2).all(|pair| pair[0] < pair[1])
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
    fn memory_is_used_again_for_other_rows() {
        let mut rows = RowSparse::of(&[5, 1], vec![0, 1, 2], &[1.0f32, 2.0, 3.0]).expect("sound");
        let room = rows.values.as_ptr();
        rows.assign(&[4, 3, 4], &[1.0f32, 2.0, 3.0]).expect("sound");
        assert_eq!(rows, RowSparse::of(&[5, 1], vec![4, 3, 4], &[1.0f32, 2.0, 3.0]).expect("sound"));
        assert_eq!(rows.values.as_ptr(), room);
        assert!(rows.assign(&[5], &[0.0f32]).is_err() && rows.assign(&[0], &[0.0f32; 2]).is_err() && rows.assign(&[0], &[0.0f64]).is_err());
        assert_eq!(rows.indices(), [3, 4], "what was refused has changed nothing");
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

//! Rows by id: how embeddings leave and enter a table.
//!
//! Every id is checked before a byte is written, so one bad id among thousands changes nothing.
//! Cost: one pass over the ids, then one over the chosen rows.

use super::ReduceOp;
use super::byte_slices::change_by;
use super::dispatch::{Isa, SimdLevel, Work, simd_level};
use super::reduce::{Sum, update};
use crate::element::with_element;
use crate::{DType, Element, Shape, TensorError};

/// A table as these kernels see it: so many rows of so many numbers, in C order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowLayout {
    dtype: DType,
    rows: usize,
    cols: usize,
}

impl RowLayout {
    /// Fails with [`TensorError::ShapeTooLarge`] if such a table does not fit in memory.
    pub fn new(dtype: DType, rows: usize, cols: usize) -> Result<RowLayout, TensorError> {
        Shape::new(&[rows, cols])?;
        Ok(RowLayout { dtype, rows, cols })
    }

    /// The type of each number.
    pub fn dtype(self) -> DType {
        self.dtype
    }

    /// How many rows there are.
    pub fn rows(self) -> usize {
        self.rows
    }

    /// How many numbers a row holds.
    pub fn cols(self) -> usize {
        self.cols
    }

    /// Bytes of one row.
    pub fn row_bytes(self) -> usize {
        self.cols * self.dtype.size()
    }

    /// Bytes of the whole table.
    pub fn table_bytes(self) -> usize {
        self.rows * self.row_bytes()
    }

    /// Refuses ids that name no row, and buffers that are too short or too long.
    fn check(self, table: usize, ids: &[i64], rows: usize) -> Result<(), TensorError> {
        same_bytes("the table", self.table_bytes(), table)?;
        // Saturating: more rows than memory holds cannot equal the length of a slice.
        same_bytes("the rows", ids.len().saturating_mul(self.row_bytes()), rows)?;
        let outside = |id: &i64| usize::try_from(*id).map_or(true, |id| id >= self.rows);
        match ids.iter().position(outside) {
            None => Ok(()),
            Some(position) => Err(TensorError::RowOutOfRange {
                id: ids[position],
                position,
                rows: self.rows,
            }),
        }
    }

    /// The bytes of a row whose id was checked.
    #[inline(always)]
    fn row(self, id: i64) -> std::ops::Range<usize> {
        let start = id as usize * self.row_bytes();
        start..start + self.row_bytes()
    }
}

fn same_bytes(what: &'static str, expected: usize, found: usize) -> Result<(), TensorError> {
    if found == expected {
        Ok(())
    } else {
        Err(TensorError::ByteLength {
            what,
            expected,
            found,
        })
    }
}

/// Copies the rows named by `ids`, in that order, into `out`. An id may come more than once.
///
/// ```
/// use syncline_tensor::{DType, TensorError, kernels::{RowLayout, gather_rows}};
///
/// let layout = RowLayout::new(DType::U8, 3, 2)?;
/// let table = [10, 11, 20, 21, 30, 31];
/// let mut out = [0; 4];
/// gather_rows(layout, &table, &[2, 0], &mut out)?;
/// assert_eq!(out, [30, 31, 10, 11]);
///
/// let bad = gather_rows(layout, &table, &[0, -1], &mut out).unwrap_err();
/// assert_eq!(bad.to_string(), "row id -1 (number 1 of the ids) is outside the 3 rows");
/// # Ok::<(), TensorError>(())
/// ```
pub fn gather_rows(
    layout: RowLayout,
    table: &[u8],
    ids: &[i64],
    out: &mut [u8],
) -> Result<(), TensorError> {
    layout.check(table.len(), ids, out.len())?;
    if layout.row_bytes() > 0 {
        for (out, &id) in out.chunks_exact_mut(layout.row_bytes()).zip(ids) {
            out.copy_from_slice(&table[layout.row(id)]);
        }
    }
    Ok(())
}

/// Replaces the rows named by `ids` by those of `rows`. Where an id comes more than once, its last row stays.
pub fn scatter_rows(
    layout: RowLayout,
    table: &mut [u8],
    ids: &[i64],
    rows: &[u8],
) -> Result<(), TensorError> {
    layout.check(table.len(), ids, rows.len())?;
    if layout.row_bytes() > 0 {
        for (row, &id) in rows.chunks_exact(layout.row_bytes()).zip(ids) {
            table[layout.row(id)].copy_from_slice(row);
        }
    }
    Ok(())
}

/// Adds each row of `rows` to the row that its id names, in order. Where an id comes more than once, all are added.
///
/// The sums are those of [`reduce_into`](super::reduce_into): half types are rounded after each row, integers wrap.
/// ```
/// use syncline_tensor::{DType, kernels::{RowLayout, scatter_add_rows}};
///
/// let mut table = [0i8; 4];
/// let layout = RowLayout::new(DType::I8, 2, 2)?;
/// scatter_add_rows(layout, bytemuck::cast_slice_mut(&mut table), &[1, 1], &[1, 2, 3, 4])?;
/// assert_eq!(table, [0, 0, 4, 6]);
/// # Ok::<(), syncline_tensor::TensorError>(())
/// ```
pub fn scatter_add_rows(
    layout: RowLayout,
    table: &mut [u8],
    ids: &[i64],
    rows: &[u8],
) -> Result<(), TensorError> {
    scatter_add_rows_at(simd_level(), layout, table, ids, rows)
}

pub(super) fn scatter_add_rows_at(
    level: SimdLevel,
    layout: RowLayout,
    table: &mut [u8],
    ids: &[i64],
    rows: &[u8],
) -> Result<(), TensorError> {
    layout.check(table.len(), ids, rows.len())?;
    if layout.row_bytes() > 0 {
        with_element!(layout.dtype, T => add_rows::<T>(level, layout, table, ids, rows));
    }
    Ok(())
}

fn add_rows<T: Element>(
    level: SimdLevel,
    layout: RowLayout,
    table: &mut [u8],
    ids: &[i64],
    rows: &[u8],
) {
    if let (Ok(table), Ok(rows)) = (
        bytemuck::try_cast_slice_mut::<u8, T>(table),
        bytemuck::try_cast_slice(rows),
    ) {
        return level.run(AddRows {
            cols: layout.cols,
            table,
            ids,
            rows,
        });
    }
    for (row, &id) in rows.chunks_exact(layout.row_bytes()).zip(ids) {
        change_by::<T, T>(&mut table[layout.row(id)], row, |acc, row| {
            update(level, ReduceOp::Sum, acc, row)
        });
    }
}

/// All rows in one piece of work, because rows are often too short to dispatch each.
struct AddRows<'a, T> {
    cols: usize,
    table: &'a mut [T],
    ids: &'a [i64],
    rows: &'a [T],
}

impl<T: Element> Work for AddRows<'_, T> {
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        for (row, &id) in self.rows.chunks_exact(self.cols).zip(self.ids) {
            let start = id as usize * self.cols;
            T::update(isa, &mut self.table[start..start + self.cols], row, Sum);
        }
    }
}

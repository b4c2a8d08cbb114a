//! Row kernels against a table of separate rows.

use proptest::prelude::*;

use super::naive::Naive;
use super::{Shifted, Words, assert_same};
use crate::element::with_element;
use crate::kernels::rows::scatter_add_rows_at;
use crate::kernels::{ReduceOp, RowLayout, SimdLevel, gather_rows, scatter_add_rows, scatter_rows};
use crate::{DType, TensorError};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn rows_equal_the_naive_loop(
        seed: u64,
        rows in 1usize..20,
        cols in prop_oneof![0usize..40, 300usize..600],
        ids in 0usize..30,
        shifts in prop::array::uniform2(0usize..8),
    ) {
        for dtype in DType::ALL {
            with_element!(dtype, T => check::<T>(seed, rows, cols, ids, shifts));
        }
    }
}

fn check<T: Naive>(
    seed: u64,
    rows: usize,
    cols: usize,
    count: usize,
    [table_shift, rows_shift]: [usize; 2],
) {
    let mut words = Words(seed);
    let layout = RowLayout::new(T::DTYPE, rows, cols).unwrap();
    let table: Vec<T> = words.numbers(rows * cols);
    let ids: Vec<i64> = (0..count).map(|_| words.below(rows) as i64).collect();
    let changes: Vec<T> = words.numbers(count * cols);
    let (table_bytes, change_bytes) = (
        Shifted::holding(&table, table_shift),
        Shifted::holding(&changes, rows_shift),
    );

    let mut gathered = change_bytes.clone();
    gather_rows(layout, table_bytes.bytes(), &ids, gathered.bytes_mut()).unwrap();
    let place = |id: i64, col: usize| id as usize * cols + col;
    let expected: Vec<T> = ids
        .iter()
        .flat_map(|&id| (0..cols).map(move |col| (id, col)))
        .map(|(id, col)| table[place(id, col)])
        .collect();
    assert_same(&gathered.numbers(), &expected, "gather");

    let (mut replaced, mut added) = (table.clone(), table.clone());
    for (position, &id) in ids.iter().enumerate() {
        for col in 0..cols {
            let change = changes[position * cols + col];
            replaced[place(id, col)] = change;
            added[place(id, col)] = T::reduce(ReduceOp::Sum, added[place(id, col)], change);
        }
    }
    let mut scattered = table_bytes.clone();
    scatter_rows(layout, scattered.bytes_mut(), &ids, change_bytes.bytes()).unwrap();
    assert_same(&scattered.numbers(), &replaced, "scatter");
    for level in SimdLevel::available() {
        let mut summed = table_bytes.clone();
        scatter_add_rows_at(
            level,
            layout,
            summed.bytes_mut(),
            &ids,
            change_bytes.bytes(),
        )
        .unwrap();
        assert_same(&summed.numbers(), &added, ("scatter_add", level));
    }
}

#[test]
fn one_bad_id_is_named_and_changes_nothing() {
    let layout = RowLayout::new(DType::U8, 3, 2).unwrap();
    for bad in [-1, 3, i64::MIN, i64::MAX] {
        let ids = [0, 2, bad, 1];
        let expected = TensorError::RowOutOfRange {
            id: bad,
            position: 2,
            rows: 3,
        };
        let mut table = [7u8; 6];
        let mut out = [9u8; 8];
        assert_eq!(
            gather_rows(layout, &table, &ids, &mut out).unwrap_err(),
            expected
        );
        assert_eq!(
            scatter_rows(layout, &mut table, &ids, &out).unwrap_err(),
            expected
        );
        assert_eq!(
            scatter_add_rows(layout, &mut table, &ids, &out).unwrap_err(),
            expected
        );
        assert_eq!((table, out), ([7; 6], [9; 8]));
    }
}

#[test]
fn buffers_that_do_not_fit_are_refused() {
    let layout = RowLayout::new(DType::I16, 3, 2).unwrap();
    let refused = gather_rows(layout, &[0; 11], &[0], &mut [0; 4]).unwrap_err();
    assert_eq!(
        refused,
        TensorError::ByteLength {
            what: "the table",
            expected: 12,
            found: 11
        }
    );
    let refused = scatter_rows(layout, &mut [0; 12], &[0, 1], &[0; 4]).unwrap_err();
    assert_eq!(
        refused,
        TensorError::ByteLength {
            what: "the rows",
            expected: 8,
            found: 4
        }
    );
    assert!(matches!(
        RowLayout::new(DType::U8, usize::MAX, 2),
        Err(TensorError::ShapeTooLarge { .. })
    ));
}

#[test]
fn rows_without_columns_still_have_ids() {
    let layout = RowLayout::new(DType::F32, 5, 0).unwrap();
    assert_eq!(gather_rows(layout, &[], &[4, 0], &mut []), Ok(()));
    assert_eq!(scatter_add_rows(layout, &mut [], &[4], &[]), Ok(()));
    let refused = gather_rows(layout, &[], &[5], &mut []).unwrap_err();
    assert_eq!(
        refused,
        TensorError::RowOutOfRange {
            id: 5,
            position: 0,
            rows: 5
        }
    );
}

//! Which table of a checkpoint fills which table of a job.

use super::saved::SavedTable;

/// For each wanted table the place of the saved one: by name where it was given one, else by order of creation.
///
/// Fails with what to tell the user: no counterpart, or one of another shape, dtype or updater.
pub(super) fn counterparts(saved: &[SavedTable], wanted: &[SavedTable]) -> Result<Vec<usize>, Mismatch> {
    let by_name = |table: &SavedTable| saved.iter().position(|other| table.named && other.named && other.name == table.name);
    let mut found: Vec<Option<usize>> = wanted.iter().map(by_name).collect();
    // Two wanted tables of one name cannot both mean the one saved under it.
    for place in 1..found.len() {
        if found[..place].contains(&found[place]) {
            found[place] = None;
        }
    }
    for place in 0..wanted.len() {
        if found[place].is_none() {
            let by_order = saved.iter().position(|other| other.order == wanted[place].order);
            found[place] = by_order.filter(|other| !found.contains(&Some(*other)));
        }
    }
    wanted
        .iter()
        .zip(found)
        .map(|(wanted, found)| {
            let Some(place) = found else { return Err(Mismatch::Absent(absent(wanted, saved))) };
            let other = &saved[place];
            if (other.shape, other.dtype, other.updater) != (wanted.shape, wanted.dtype, wanted.updater) {
                return Err(Mismatch::Different(format!("the job has {wanted}; the checkpoint has {other}")));
            }
            Ok(place)
        })
        .collect()
}

/// Why a table of the job cannot be filled.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Mismatch {
    Absent(String),
    Different(String),
}

fn absent(wanted: &SavedTable, saved: &[SavedTable]) -> String {
    let there: Vec<String> = saved.iter().map(SavedTable::to_string).collect();
    let order = wanted.order;
    format!("nothing in the checkpoint is {wanted}, by name or as number {order}; there are {} tables: {}", saved.len(), there.join("; "))
}

#[cfg(test)]
mod tests {
    use syncline_tensor::DType;

    use super::*;
    use crate::{Spec, Updater};

    fn table(order: u32, name: Option<&str>, size: u64) -> SavedTable {
        let spec = Spec::array(size);
        match name {
            Some(name) => SavedTable::new(&spec.named(name), name, order, []),
            None => SavedTable::new(&spec, &format!("table {order}"), order, []),
        }
    }

    #[test]
    fn names_win_over_order_and_made_up_names_mean_nothing() {
        let saved = [table(0, Some("a"), 1), table(1, Some("b"), 2), table(2, None, 3)];
        assert_eq!(counterparts(&saved, &[table(0, Some("b"), 2), table(1, Some("a"), 1), table(2, None, 3)]), Ok(vec![1, 0, 2]));
        // A table that was renamed, or has no name any more, is still the one made first.
        assert_eq!(counterparts(&saved, &[table(0, Some("x"), 1)]), Ok(vec![0]));
        assert_eq!(counterparts(&saved, &[table(0, None, 1), table(1, None, 2)]), Ok(vec![0, 1]));
    }

    #[test]
    fn a_table_is_taken_once() {
        let saved = [table(0, Some("a"), 1), table(1, Some("b"), 1)];
        let Err(Mismatch::Absent(text)) = counterparts(&saved, &[table(0, Some("b"), 1), table(1, Some("c"), 1)]) else {
            panic!("b is taken")
        };
        assert!(text.contains("`c`") && text.contains("`a`") && text.contains("`b`"), "{text}");
        assert_eq!(counterparts(&saved, &[table(0, Some("a"), 1), table(1, Some("a"), 1)]), Ok(vec![0, 1]));
    }

    #[test]
    fn a_difference_names_both_sides() {
        let saved = [table(0, Some("w"), 8)];
        let spec = Spec::array(8).named("w");
        for (wanted, its, theirs) in [
            (table(0, Some("w"), 9), "array of 9", "array of 8"),
            (SavedTable::new(&spec.clone().with_dtype(DType::F16), "w", 0, []), "float16", "float32"),
            (SavedTable::new(&spec.with_updater(Updater::Adagrad), "w", 0, []), "updater adagrad", "updater add"),
        ] {
            let Err(Mismatch::Different(text)) = counterparts(&saved, &[wanted]) else { panic!("they differ") };
            assert!(text.contains(its) && text.contains(theirs), "{text}");
        }
    }
}

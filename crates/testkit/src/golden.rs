//! Golden texts: whatever has a shape is compared with a file that a person can read.
//!
//! `UPDATE_GOLDEN=1 cargo test` rewrites the files; the diff then shows what changed.

use std::path::Path;

/// Compares `actual` with the file at `path` (relative to the crate under test) and panics with both on a difference.
pub fn assert_golden(path: impl AsRef<Path>, actual: &str) {
    let path = path.as_ref();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).expect("the golden folder can be made");
        }
        std::fs::write(path, actual).expect("the golden file can be written");
        return;
    }
    let expected = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}\nUPDATE_GOLDEN=1 writes it", path.display()));
    if expected != actual {
        let common = expected.lines().count().min(actual.lines().count());
        let line = expected.lines().zip(actual.lines()).position(|(a, b)| a != b).unwrap_or(common);
        panic!(
            "{} differs from line {}:\n  expected: {}\n  actual:   {}\nUPDATE_GOLDEN=1 rewrites it; the whole text:\n{actual}",
            path.display(),
            line + 1,
            expected.lines().nth(line).unwrap_or("<end>"),
            actual.lines().nth(line).unwrap_or("<end>"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_names_the_line() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let path = folder.path().join("text");
        std::fs::write(&path, "one\ntwo\n").expect("written");
        assert_golden(&path, "one\ntwo\n");
        let failure = std::panic::catch_unwind(|| assert_golden(&path, "one\n2\n")).expect_err("differs");
        assert!(failure.downcast_ref::<String>().expect("a text").contains("from line 2"));
    }
}

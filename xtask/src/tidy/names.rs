//! A name says what is inside. `util` says that nobody knew; a very long file has two names.

use super::{Finding, Tree};

/// Names that fit everything and therefore tell nothing.
const EMPTY_NAMES: &[&str] = &["util", "utils", "common", "helper", "helpers", "misc"];

/// Past this many lines a file likely holds a second idea. A hint, not a failure: some ideas are long.
const LONG: usize = 600;

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    tree.files
        .iter()
        .filter_map(|file| {
            let part = file.path.split('/').find(|part| EMPTY_NAMES.contains(&stem(part)))?;
            Some(Finding::at(&file.path, format!("`{part}` tells nothing: name it after what it holds")))
        })
        .collect()
}

/// Sources past [`LONG`] lines, reported as warnings.
pub(crate) fn long_files(tree: &Tree) -> Vec<Finding> {
    tree.files
        .iter()
        .filter(|file| [".rs", ".py", ".lua", ".pm", ".c", ".h"].iter().any(|ending| file.path.ends_with(ending)))
        .filter_map(|file| {
            let lines = file.text.lines().count();
            let words = format!("{lines} lines; is there a second idea in it?");
            (lines > LONG).then(|| Finding::at(&file.path, words))
        })
        .collect()
}

fn stem(part: &str) -> &str {
    part.split('.').next().unwrap_or(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_folders_with_empty_names_are_named() {
        let tree = Tree::of(&[
            ("crates/x/src/util.rs", ""),
            ("crates/x/tests/common/mod.rs", ""),
            ("crates/x/src/utility_theory.rs", ""),
            ("crates/x/src/ring.rs", ""),
        ]);
        let places: Vec<String> = check(&tree).into_iter().map(|finding| finding.place).collect();
        assert_eq!(places, ["crates/x/src/util.rs", "crates/x/tests/common/mod.rs"]);
    }

    #[test]
    fn a_long_source_is_mentioned_and_a_long_text_is_not() {
        let long = "x\n".repeat(LONG + 1);
        let enough = "x\n".repeat(LONG);
        let tree = Tree::of(&[("a.rs", &long), ("b.rs", &enough), ("Cargo.lock", &long)]);
        let places: Vec<String> = long_files(&tree).into_iter().map(|finding| finding.place).collect();
        assert_eq!(places, ["a.rs"]);
    }
}

//! Open any file and you know why it exists: each begins with the sentence that says so.
//!
//! Rust sources open with `//!` or with the README beside them; tests, examples and build scripts may use a plain
//! comment. Python opens with a docstring or a comment, a script has its comment right below the `#!` line.

use super::{Finding, Tree};
use crate::tree::File;

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    tree.files.iter().filter_map(objection).collect()
}

fn objection(file: &File) -> Option<Finding> {
    let mut lines = file.text.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    let (content, wanted): (bool, &str) = if file.path.ends_with(".rs") {
        let plain_comment_will_do = file.name() == "build.rs"
            || ["tests/", "examples/", "benches/", "fuzz_targets/"].iter().any(|folder| file.path.contains(folder));
        let is_readme = first.starts_with("#![doc = include_str!(");
        let content = opens(first, "//!") || is_readme || plain_comment_will_do && opens(first, "//");
        (content, "`//!` and why the file exists")
    } else if file.path.ends_with(".py") || file.path.ends_with(".pyi") {
        let first = if first.starts_with("#!") { lines.next().unwrap_or_default() } else { first };
        // A package marker may be empty.
        let content = file.text.trim().is_empty() || first.starts_with("\"\"\"") || opens(first, "#");
        (content, "a docstring that says why the file exists")
    } else if first.starts_with("#!") {
        let second = lines.next().unwrap_or_default();
        (opens(second, "#") || second.starts_with("\"\"\""), "a comment below `#!` that says what the script does")
    } else {
        return None;
    };
    (!content).then(|| Finding::at(&file.path, format!("should open with {wanted}")))
}

/// The line begins with `mark` and goes on with words.
fn opens(line: &str, mark: &str) -> bool {
    line.strip_prefix(mark).is_some_and(|words| words.trim().len() > 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(path: &str, text: &str) -> bool {
        check(&Tree::of(&[(path, text)])).is_empty()
    }

    #[test]
    fn rust_opens_with_why() {
        assert!(passes("crates/x/src/a.rs", "//! Why this exists.\nfn a() {}"));
        assert!(!passes("crates/x/src/a.rs", "fn a() {}\n//! too late"));
        assert!(!passes("crates/x/src/a.rs", "// a plain comment"));
        assert!(!passes("crates/x/src/a.rs", "//!\nfn a() {}"));
        assert!(!passes("crates/x/src/a.rs", ""));
        assert!(passes("crates/x/src/lib.rs", "#![doc = include_str!(\"../README.md\")]"));
        assert!(!passes("crates/x/src/lib.rs", "#![allow(dead_code)]"));
    }

    #[test]
    fn a_test_or_build_script_may_open_with_a_plain_comment_but_not_with_nothing() {
        assert!(passes("crates/x/tests/a.rs", "// What is promised here."));
        assert!(passes("crates/x/build.rs", "// Why a build script."));
        assert!(!passes("crates/x/tests/a.rs", "use x::y;"));
        assert!(!passes("crates/x/build.rs", "fn main() {}"));
    }

    #[test]
    fn python_and_scripts_say_it_too() {
        assert!(passes("a/__init__.py", ""));
        assert!(passes("a/b.py", "\"\"\"Why.\"\"\""));
        assert!(passes("a/b.py", "#!/usr/bin/env python3\n# Why it is.\n"));
        assert!(!passes("a/b.py", "import os"));
        assert!(passes("scripts/x", "#!/usr/bin/env bash\n# Sets things up."));
        assert!(passes("scripts/x", "#!/usr/bin/env python3\n\"\"\"Sets things up.\"\"\""));
        assert!(!passes("scripts/x", "#!/usr/bin/env bash\nset -eu"));
        assert!(passes("README.md", "# Any text"));
    }
}

//! The rules this project keeps about itself, one file each, and the command that runs them all.
//!
//! A rule is a function from a [`Tree`] to findings: what is wrong, and where. Each is tested on a project that
//! keeps it and on one that breaks it, because a rule that cannot fail protects nothing.

mod architecture;
mod border;
mod doors;
mod layers;
mod manifest;
mod names;
mod openings;
mod places;
mod reasons;
mod unsafe_code;
mod variables;

use std::fmt;
use std::path::Path;

use crate::tree::Tree;

/// Something a rule objects to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// File, and line where there is one: `crates/shm/src/ring.rs:12`.
    pub(crate) place: String,
    pub(crate) words: String,
}

impl Finding {
    pub(crate) fn at(place: impl Into<String>, words: impl Into<String>) -> Finding {
        Finding { place: place.into(), words: words.into() }
    }

    /// `line` counts from 0, as `enumerate` does; people count from 1.
    pub(crate) fn at_line(path: &str, line: usize, words: impl Into<String>) -> Finding {
        Finding::at(format!("{path}:{}", line + 1), words)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.words)
    }
}

type Rule = fn(&Tree) -> Vec<Finding>;

/// What fails the check, by the name it is reported under.
const RULES: &[(&str, Rule)] = &[
    ("layers", layers::check),
    ("reasons", reasons::check),
    ("architecture", architecture::check),
    ("unsafe", unsafe_code::check),
    ("border", border::check),
    ("openings", openings::check),
    ("doors", doors::check),
    ("names", names::check),
    ("places", places::check),
    ("variables", variables::check),
];

/// Runs every rule on the project at `root`; true when all of them are content.
pub(crate) fn run(root: &Path) -> bool {
    let tree = match Tree::read(root) {
        Ok(tree) => tree,
        Err(error) => {
            eprintln!("tidy: cannot read the project: {error}");
            return false;
        }
    };
    let mut broken = 0;
    for (name, rule) in RULES {
        for finding in rule(&tree) {
            broken += 1;
            println!("tidy({name}): {finding}");
        }
    }
    for finding in names::long_files(&tree) {
        println!("tidy: warning: {finding}");
    }
    println!("tidy: {} files, {} rules, {broken} findings", tree.files.len(), RULES.len());
    broken == 0
}

//! What comes in and goes out does so by a known door: two places read the environment, one crate prints.
//!
//! A library that reads a variable deep inside cannot be configured by its caller, and one that prints cannot be
//! silenced. Tests, examples, benches and tools may do both. A file's tests come last, so reading stops where they begin.

use super::{Finding, Tree};

/// Who may read environment variables.
const READS_ENVIRONMENT: &[&str] = &[
    "crates/cluster/src/bootstrap", // finds the job
    "crates/syncline/src/config",   // the user's settings
    "crates/tensor/src/kernels",    // the switch that forces the baseline kernels
    "crates/cli/",                  // the terminal: colours, width
];

/// Who may write to the terminal.
const PRINTS: &[&str] = &["crates/cli/"];

/// Folders under which all of this is fine, wherever they are.
const FREE: &[&str] = &["tests/", "examples/", "benches/", "crates/testkit/", "xtask/", "fuzz/", "build.rs"];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| file.path.ends_with(".rs")) {
        if FREE.iter().any(|place| file.path.contains(place)) {
            continue;
        }
        let is_in = |places: &[&str]| places.iter().any(|place| file.path.starts_with(place));
        let own_code = file.text.lines().enumerate().take_while(|(_, line)| !line.starts_with("#[cfg(test)]"));
        for (number, line) in own_code.filter(|(_, line)| !line.trim_start().starts_with("//")) {
            if line.contains("env::var") && !is_in(READS_ENVIRONMENT) {
                let words = "reads the environment: let bootstrap or config do it and pass the value";
                findings.push(Finding::at_line(&file.path, number, words));
            }
            let prints = ["print!(", "println!("].iter().any(|word| line.contains(word));
            if prints && !is_in(PRINTS) {
                findings.push(Finding::at_line(&file.path, number, "prints: use `tracing`, or return the words"));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(path: &str, text: &str) -> Vec<String> {
        check(&Tree::of(&[(path, text)])).into_iter().map(|finding| finding.place).collect()
    }

    const BOTH: &str = "let a = std::env::var(\"A\");\neprintln!(\"{a:?}\");\n";

    #[test]
    fn a_library_that_reads_variables_or_prints_is_named() {
        assert_eq!(places("crates/wire/src/frame.rs", BOTH), ["crates/wire/src/frame.rs:1", "crates/wire/src/frame.rs:2"]);
        assert_eq!(places("crates/cluster/src/bootstrap/slurm.rs", BOTH).len(), 1, "it may read, it may not print");
    }

    #[test]
    fn the_command_its_tests_and_comments_are_free() {
        assert_eq!(places("crates/cli/src/main.rs", BOTH), [""; 0]);
        assert_eq!(places("crates/wire/tests/frames.rs", BOTH), [""; 0]);
        assert_eq!(places("crates/wire/src/frame.rs", &format!("#[cfg(test)]\nmod tests {{\n{BOTH}}}")), [""; 0]);
        assert_eq!(places("crates/wire/src/frame.rs", "/// println!(\"shown\")"), [""; 0]);
    }
}

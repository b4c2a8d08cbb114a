//! Where `unsafe` may stand: `shm`, the kernels of `tensor`, and the bindings. Everywhere else the compiler forbids it.

use super::manifest::{Package, packages};
use super::{Finding, Tree};

/// Crates whose business is memory that the compiler cannot see.
const MAY: &[&str] = &["shm"];

/// Crates that deny it at the top and allow it again in one folder.
const MAY_IN: &[(&str, &str)] = &[("tensor", "src/kernels")];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in packages(tree).0 {
        if MAY.contains(&package.short.as_str()) || package.folder.starts_with("bindings/") {
            continue;
        }
        // libFuzzer's macro makes an unsafe entry point.
        if package.short == "fuzz" {
            continue;
        }
        match MAY_IN.iter().find(|(name, _)| *name == package.short) {
            Some((_, place)) => {
                findings.extend(without(tree, &package, "#![deny(unsafe_code)]"));
                findings.extend(allowed_elsewhere(tree, &package, place));
            }
            None => findings.extend(without(tree, &package, "#![forbid(unsafe_code)]")),
        }
    }
    findings
}

/// A finding for each root of the package (library or program) that lacks `attribute`.
fn without(tree: &Tree, package: &Package, attribute: &str) -> Vec<Finding> {
    ["src/lib.rs", "src/main.rs"]
        .iter()
        .filter_map(|root| tree.get(&format!("{}/{root}", package.folder)))
        .filter(|file| !file.text.lines().any(|line| line.trim() == attribute))
        .map(|file| Finding::at(&file.path, format!("does not open with `{attribute}`")))
        .collect()
}

/// A finding for each line outside `place` that lets `unsafe` back in.
fn allowed_elsewhere(tree: &Tree, package: &Package, place: &str) -> Vec<Finding> {
    let sources = format!("{}/src/", package.folder);
    let inside = format!("{}/{place}", package.folder);
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| file.path.starts_with(&sources)) {
        let is_inside = file.path.strip_prefix(&inside).is_some_and(|rest| rest.starts_with('/') || rest == ".rs");
        for (number, line) in file.text.lines().enumerate() {
            let lets_in = line.contains("allow(unsafe_code") || line.contains("expect(unsafe_code");
            // `mod kernels;` may carry the attribute in the crate's root: it speaks of that folder.
            let for_the_place = file.path.ends_with("/lib.rs") && line.trim_start().starts_with("#[");
            if lets_in && !is_inside && !for_the_place {
                findings.push(Finding::at_line(&file.path, number, format!("allows unsafe code outside of {place}")));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(crate_name: &str, files: &[(&str, &str)]) -> Vec<String> {
        let manifest = format!("[package]\nname = \"syncline-{crate_name}\"");
        let mut all = vec![(format!("crates/{crate_name}/Cargo.toml"), manifest)];
        all.extend(files.iter().map(|(path, text)| (format!("crates/{crate_name}/{path}"), (*text).to_owned())));
        let all: Vec<(&str, &str)> = all.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        check(&Tree::of(&all)).into_iter().map(|finding| finding.to_string()).collect()
    }

    #[test]
    fn a_crate_that_forbids_it_passes_and_one_that_does_not_is_named() {
        assert_eq!(findings("wire", &[("src/lib.rs", "//! Why.\n#![forbid(unsafe_code)]")]), [""; 0]);
        assert_eq!(
            findings("wire", &[("src/lib.rs", "//! Says #![forbid(unsafe_code)] but does not do it.")]),
            ["crates/wire/src/lib.rs: does not open with `#![forbid(unsafe_code)]`"]
        );
        assert_eq!(findings("cli", &[("src/main.rs", "fn main() {}")]).len(), 1);
    }

    #[test]
    fn shared_memory_may_and_bindings_may() {
        assert_eq!(findings("shm", &[("src/lib.rs", "")]), [""; 0]);
        let binding = Tree::of(&[("bindings/c/Cargo.toml", "[package]\nname = \"syncline-c\""), ("bindings/c/src/lib.rs", "")]);
        assert_eq!(check(&binding), []);
    }

    #[test]
    fn tensor_may_in_its_kernels_only() {
        let root = ("src/lib.rs", "#![deny(unsafe_code)]");
        assert_eq!(findings("tensor", &[root, ("src/kernels/reduce.rs", "#![allow(unsafe_code)]")]), [""; 0]);
        assert_eq!(
            findings("tensor", &[root, ("src/view.rs", "\n#![allow(unsafe_code)]")]),
            ["crates/tensor/src/view.rs:2: allows unsafe code outside of src/kernels"]
        );
        assert_eq!(findings("tensor", &[("src/lib.rs", "")]).len(), 1);
    }
}

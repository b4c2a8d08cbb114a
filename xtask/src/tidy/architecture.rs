//! ARCHITECTURE.md is true: it names every crate, and what it names exists.
//!
//! Only `code spans` in running text are read; fenced blocks are pictures. A span is checked by its looks:
//! - `crates/shm/src/ring.rs`, with a slash: a file or folder of the project;
//! - `shm::ring` or `shm::Segment`, with a path: a crate, and names that this crate defines;
//! - `Session`, a bare type name: a word in some source file.
//!
//! Anything else (a command, a variable, a value) says nothing about the code and is left alone.

use std::collections::{BTreeMap, BTreeSet};

use super::manifest::{Package, packages, short_name};
use super::{Finding, Tree};

const DOCUMENT: &str = "ARCHITECTURE.md";

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(document) = tree.get(DOCUMENT) else {
        return vec![Finding::at(DOCUMENT, "is missing")];
    };
    let packages = packages(tree).0;
    let spans = code_spans(&document.text);
    let mut findings: Vec<Finding> = packages
        .iter()
        .filter(|package| package.folder.starts_with("crates/") || package.folder.starts_with("bindings/"))
        .filter(|package| !spans.iter().any(|(_, span)| span.trim_end_matches('/') == package.folder))
        .map(|package| Finding::at(DOCUMENT, format!("does not speak of `{}`", package.folder)))
        .collect();
    let names = Names::of(tree, &packages);
    findings.extend(spans.iter().filter_map(|(line, span)| {
        let words = objection(span, tree, &names)?;
        Some(Finding::at_line(DOCUMENT, *line, words))
    }));
    findings
}

fn objection(span: &str, tree: &Tree, names: &Names) -> Option<String> {
    let is_path_word = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    if span.contains("::") {
        names.objection(span)
    } else if span.contains('/') && !span.starts_with('/') && span.chars().all(is_path_word) {
        (!tree.exists(span)).then(|| format!("`{span}` does not exist"))
    } else if is_type_name(span) {
        (!names.words.contains(span)).then(|| format!("`{span}` is named in no source file"))
    } else {
        None
    }
}

/// Spans with the line they stand on, counted from 0; fenced blocks are passed over.
fn code_spans(text: &str) -> Vec<(usize, String)> {
    let mut spans = Vec::new();
    let mut fenced = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            spans.extend(line.split('`').skip(1).step_by(2).map(|span| (number, span.trim().to_owned())));
        }
    }
    spans
}

/// `Session`, `DType`; not `SIGKILL`, not `P1`, not `make`.
fn is_type_name(span: &str) -> bool {
    span.starts_with(|c: char| c.is_ascii_uppercase())
        && span.chars().all(|c| c.is_ascii_alphanumeric())
        && span.chars().any(|c| c.is_ascii_lowercase())
}

/// What the sources define, by crate, and every word they contain.
struct Names {
    by_crate: BTreeMap<String, BTreeSet<String>>,
    words: BTreeSet<String>,
}

impl Names {
    fn of(tree: &Tree, packages: &[Package]) -> Names {
        let mut names = Names { by_crate: BTreeMap::new(), words: BTreeSet::new() };
        for package in packages {
            let defined = names.by_crate.entry(package.short.clone()).or_default();
            let folder = format!("{}/", package.folder);
            for file in tree.files.iter().filter(|file| file.path.starts_with(&folder)) {
                let path = &file.path[folder.len()..];
                if path.ends_with(".rs") || path.ends_with(".py") || path.ends_with(".pyi") {
                    defined.extend(path.split('/').map(|part| part.split('.').next().unwrap_or(part).to_owned()));
                    defined.extend(file.text.lines().flat_map(definitions));
                    names.words.extend(words(&file.text).map(str::to_owned));
                }
            }
        }
        names
    }

    fn objection(&self, span: &str) -> Option<String> {
        let mut segments = span.split("::").map(|part| part.split(['(', '<', '!', '{', ' ']).next().unwrap_or(part));
        let first = segments.next().unwrap_or_default();
        if first == "std" {
            return None;
        }
        let Some(defined) = self.by_crate.get(short_name(&first.replace('_', "-"))) else {
            return Some(format!("`{span}`: there is no crate `{first}`"));
        };
        let missing = segments.find(|name| !name.is_empty() && !defined.contains(*name))?;
        Some(format!("`{span}`: `{missing}` is not defined in `{first}`"))
    }
}

/// The names that one line of source defines, near enough: items, re-exports and, at the start of a line, enum variants.
fn definitions(line: &str) -> Vec<String> {
    const ITEMS: &[&str] = &["struct", "enum", "trait", "type", "union", "const", "static", "fn", "mod", "macro_rules", "class", "def"];
    let trimmed = line.trim_start();
    if trimmed.starts_with("//") || trimmed.starts_with('#') {
        return Vec::new();
    }
    let words: Vec<&str> = words(trimmed).collect();
    if trimmed.starts_with("pub use ") {
        return words.into_iter().map(str::to_owned).collect();
    }
    let items = words.windows(2).filter(|pair| ITEMS.contains(&pair[0])).map(|pair| pair[1]);
    let variant = words.first().copied().filter(|word| is_type_name(word) && trimmed.starts_with(word));
    items.chain(variant).map(str::to_owned).collect()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(document: &str) -> Vec<String> {
        let tree = Tree::of(&[
            (DOCUMENT, document),
            ("crates/shm/Cargo.toml", "[package]\nname = \"syncline-shm\""),
            ("crates/shm/src/lib.rs", "//! Mentions `Ghost`.\npub mod ring;\npub use std::time::Instant as Moment;"),
            ("crates/shm/src/ring.rs", "pub struct Producer;\nimpl Producer {\n    pub fn push() {}\n}"),
            ("crates/shm/src/error.rs", "pub enum ShmError {\n    Full { free: usize },\n}"),
        ]);
        check(&tree).into_iter().map(|finding| finding.to_string()).collect()
    }

    #[test]
    fn a_true_document_passes() {
        let text = "`crates/shm` holds `shm::ring`, whose `shm::ring::Producer` and `shm::Producer::push()` are in\n\
                    `crates/shm/src/ring.rs`; `shm::ShmError::Full`; `shm::Moment`; `Producer`; `make test`; `SIGKILL`;\n\
                    `std::sync::Arc`; `/dev/shm`\n```text\n`crates/gone`\n```\n";
        assert_eq!(findings(text), [""; 0]);
    }

    #[test]
    fn a_crate_left_out_is_named() {
        assert_eq!(findings("Nothing here."), ["ARCHITECTURE.md: does not speak of `crates/shm`"]);
    }

    #[test]
    fn names_that_do_not_exist_are_named_with_their_line() {
        let text = "`crates/shm`\n`crates/shm/src/gone.rs`\n`shm::gone`\n`ships::ring`\n`Absent`\n`shm::Ghost`";
        assert_eq!(
            findings(text),
            [
                "ARCHITECTURE.md:2: `crates/shm/src/gone.rs` does not exist",
                "ARCHITECTURE.md:3: `shm::gone`: `gone` is not defined in `shm`",
                "ARCHITECTURE.md:4: `ships::ring`: there is no crate `ships`",
                "ARCHITECTURE.md:5: `Absent` is named in no source file",
                "ARCHITECTURE.md:6: `shm::Ghost`: `Ghost` is not defined in `shm`",
            ]
        );
    }

    #[test]
    fn a_missing_document_is_a_finding() {
        assert_eq!(check(&Tree::of(&[])).len(), 1);
    }
}

//! A variable that nobody documented is a secret, and a documented one that nobody reads is a lie.

use std::collections::BTreeMap;

use super::{Finding, Tree};

const DOCUMENT: &str = "docs/variables.md";
const PREFIX: &str = "SYNCLINE_";

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let used = variables(tree, |path, line| {
        // The constants of the C interface have the same prefix and are no variables.
        let ours = path.starts_with("crates/") || path.starts_with("bindings/") && !path.starts_with("bindings/c/");
        // Tests make up names to see them refused; what they really read counts.
        let reads = ["env::var", "os.environ", "$ENV{"].iter().any(|words| line.contains(words));
        ours && (path.contains("/src/") || reads) || path.starts_with("scripts/") || path == "Makefile"
    });
    let documented = variables(tree, |path, _| path == DOCUMENT);
    let undocumented = used
        .iter()
        .filter(|(name, _)| !documented.contains_key(*name))
        .map(|(name, place)| Finding::at(place, format!("{name} is not in {DOCUMENT}")));
    let unused = documented
        .iter()
        .filter(|(name, _)| !used.contains_key(*name))
        .map(|(name, place)| Finding::at(place, format!("nothing reads {name}")));
    undocumented.chain(unused).collect()
}

/// Names in the chosen lines, each with the first place it was seen.
fn variables(tree: &Tree, chosen: impl Fn(&str, &str) -> bool) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for file in &tree.files {
        for (number, line) in file.text.lines().enumerate().filter(|(_, line)| chosen(&file.path, line)) {
            for (at, _) in line.match_indices(PREFIX) {
                let part_of_a_word = line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
                let rest = &line[at + PREFIX.len()..];
                let end = rest.find(|c: char| !c.is_ascii_uppercase() && !c.is_ascii_digit() && c != '_');
                let name = &rest[..end.unwrap_or(rest.len())];
                if !name.is_empty() && !part_of_a_word {
                    found.entry(format!("{PREFIX}{name}")).or_insert_with(|| format!("{}:{}", file.path, number + 1));
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(source: &str, document: &str) -> Vec<String> {
        let tree = Tree::of(&[("crates/x/src/config.rs", source), (DOCUMENT, document)]);
        check(&tree).into_iter().map(|finding| finding.to_string()).collect()
    }

    #[test]
    fn what_is_read_and_documented_passes() {
        assert_eq!(findings("var(\"SYNCLINE_RANK\"), \"SYNCLINE_\"", "| `SYNCLINE_RANK` | a number |"), [""; 0]);
    }

    #[test]
    fn a_variable_missing_on_either_side_is_named() {
        assert_eq!(findings("\nvar(\"SYNCLINE_RANK\")", ""), ["crates/x/src/config.rs:2: SYNCLINE_RANK is not in docs/variables.md"]);
        assert_eq!(findings("", "SYNCLINE_GONE"), ["docs/variables.md:1: nothing reads SYNCLINE_GONE"]);
    }

    #[test]
    fn a_test_may_make_a_name_up_but_not_read_it() {
        let made_up = Tree::of(&[("crates/x/tests/a.rs", "refuses(\"SYNCLINE_NONSENSE\")")]);
        assert_eq!(check(&made_up), []);
        let read = Tree::of(&[("crates/x/tests/a.rs", "std::env::var(\"SYNCLINE_SEEDS\")")]);
        assert_eq!(check(&read).len(), 1);
    }
}

//! The project runs anywhere, so no file of it names a folder of one machine or the address of one registry.
//!
//! Package registries are the user's choice (mirrors, offline caches): the project names packages, never hosts.

use super::{Finding, Tree};

/// First folders of paths that exist on one machine only. Matched as `/NAME/x`.
const MACHINE_FOLDERS: &[&str] = &["work", "root", "home", "farm", "Users"];

/// Hosts that packages come from. Matched inside an address, after `://`.
const REGISTRIES: &[&str] =
    &["crates.io", "pypi.org", "pythonhosted.org", "debian.org", "npmjs.org", "npmjs.com", "luarocks.org", "cpan.org"];

/// Settings that point a package client at one registry.
const REGISTRY_SETTINGS: &[&str] = &["index-url", "INDEX_URL", "find-links", "replace-with"];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &tree.files {
        // Cargo writes the name of its registry into the lock file; the rule's own file lists the words it looks for.
        if file.name() == "Cargo.lock" || file.path == "xtask/src/tidy/places.rs" {
            continue;
        }
        for (number, line) in file.text.lines().enumerate() {
            if let Some(words) = objection(line) {
                findings.push(Finding::at_line(&file.path, number, words));
            }
        }
    }
    findings
}

fn objection(line: &str) -> Option<String> {
    if let Some(folder) = MACHINE_FOLDERS.iter().find(|folder| names_folder(line, folder)) {
        return Some(format!("a path of one machine (under /{folder})"));
    }
    if let Some(host) = REGISTRIES.iter().find(|host| addresses(line).any(|address| address.ends_with(**host))) {
        return Some(format!("the address of a package registry ({host})"));
    }
    let setting = REGISTRY_SETTINGS.iter().find(|setting| line.contains(**setting))?;
    Some(format!("chooses a package registry (`{setting}`)"))
}

/// Does the line hold `/FOLDER/x` as an absolute path? `./FOLDER/x` and `a/FOLDER/x` are relative and fine.
fn names_folder(line: &str, folder: &str) -> bool {
    let pattern = format!("/{folder}/");
    line.match_indices(&pattern).any(|(at, _)| {
        let absolute = !line[..at].ends_with(|c: char| c.is_alphanumeric() || "./-_$}".contains(c));
        let goes_on = line[at + pattern.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '.' || c == '_');
        absolute && goes_on
    })
}

/// The host of each address in the line.
fn addresses(line: &str) -> impl Iterator<Item = &str> {
    line.split("://").skip(1).map(|rest| rest.split(['/', ':', ' ', ')', '"', '\'', '>']).next().unwrap_or(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_fine(line: &str) -> bool {
        check(&Tree::of(&[("docs/a.md", line)])).is_empty()
    }

    #[test]
    fn paths_of_one_machine_are_named() {
        for folder in MACHINE_FOLDERS {
            assert!(!is_fine(&format!("see /{folder}/someone/project")), "{folder}");
            assert!(!is_fine(&format!("PATH=\"/{folder}/x\"")), "{folder}");
            assert!(is_fine(&format!("./{folder}/x or crates/{folder}/x or $D/{folder}/x")), "{folder}");
        }
        assert!(is_fine("/usr/bin/env, and a /home/ folder in general"));
    }

    #[test]
    fn registries_are_not_addressed() {
        for host in REGISTRIES {
            assert!(!is_fine(&format!("from https://{host}/x")), "{host}");
            assert!(!is_fine(&format!("from https://index.{host}")), "{host}");
        }
        assert!(!is_fine("pip install --index-url X"));
        assert!(is_fine("published on crates.io, say; see https://www.rust-lang.org/x"));
    }

    #[test]
    fn the_line_is_told_and_a_lock_file_is_left_alone() {
        let text = format!("fine\n/{}/me\n", "home");
        let tree = Tree::of(&[("a.txt", text.as_str()), ("Cargo.lock", text.as_str())]);
        let places: Vec<String> = check(&tree).into_iter().map(|finding| finding.place).collect();
        assert_eq!(places, ["a.txt:2"]);
    }
}

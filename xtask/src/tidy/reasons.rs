//! A dependency is a decision, so its line in a manifest says why it was taken.
//!
//! Checked on the text, since a TOML reader drops comments. Lines that take a version from the workspace
//! (`workspace = true`) or name a crate of the project (`path = …`) have their reason elsewhere.

use super::{Finding, Tree};

/// Fewer words than this are a label and no reason.
const FEWEST_WORDS: usize = 2;

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    tree.files.iter().filter(|file| file.name() == "Cargo.toml").flat_map(|file| unexplained(&file.path, &file.text)).collect()
}

fn unexplained(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut in_dependencies = false;
    let mut open_brackets = 0i32; // an entry's arrays may go on over several lines
    let mut entry: Option<(usize, String, String)> = None; // first line, code and comments so far
    for (number, line) in text.lines().enumerate() {
        let (code, comment) = split_comment(line);
        let code = code.trim();
        if entry.is_none() {
            if let Some(header) = code.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                in_dependencies = lists_dependencies(header);
                continue;
            }
            if !in_dependencies || code.is_empty() {
                continue;
            }
            entry = Some((number, String::new(), String::new()));
        }
        if let Some((first, all_code, all_comments)) = &mut entry {
            open_brackets += brackets(code);
            all_code.push_str(code);
            all_comments.push(' ');
            all_comments.push_str(comment);
            if open_brackets <= 0 {
                let explained = all_comments.split_whitespace().count() >= FEWEST_WORDS;
                let ours = all_code.contains("path =") || all_code.contains("path=");
                let inherited = all_code.contains("workspace = true") || all_code.contains("workspace=true");
                if !(explained || ours || inherited) {
                    let name = all_code.split('=').next().unwrap_or_default().trim();
                    findings.push(Finding::at_line(path, *first, format!("`{name}` has no reason on its line")));
                }
                open_brackets = 0;
                entry = None;
            }
        }
    }
    findings
}

/// `dependencies`, `dev-dependencies`, `workspace.dependencies`, `target.'cfg(…)'.build-dependencies`, …
fn lists_dependencies(header: &str) -> bool {
    let last = header.trim().rsplit('.').next().unwrap_or_default();
    matches!(last, "dependencies" | "dev-dependencies" | "build-dependencies")
}

/// Cuts a line at the `#` that begins its comment: the first one outside quotes.
fn split_comment(line: &str) -> (&str, &str) {
    let mut quote = None;
    for (at, character) in line.char_indices() {
        match (quote, character) {
            (None, '#') => return (&line[..at], &line[at + 1..]),
            (None, '"' | '\'') => quote = Some(character),
            (Some(open), _) if open == character => quote = None,
            _ => {}
        }
    }
    (line, "")
}

/// How many brackets and braces a line leaves open, those inside quotes not counted.
fn brackets(code: &str) -> i32 {
    let mut quote = None;
    let mut open = 0;
    for character in code.chars() {
        match (quote, character) {
            (None, '[' | '{') => open += 1,
            (None, ']' | '}') => open -= 1,
            (None, '"' | '\'') => quote = Some(character),
            (Some(mark), _) if mark == character => quote = None,
            _ => {}
        }
    }
    open
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(text: &str) -> Vec<String> {
        unexplained("Cargo.toml", text).into_iter().map(|finding| finding.to_string()).collect()
    }

    #[test]
    fn a_line_with_its_reason_is_welcome() {
        let text = "[workspace.dependencies]\n\
                    syncline-shm = { path = \"crates/shm\" }\n\
                    serde = { version = \"1\", features = [\"derive\"] } # derives for control messages\n\
                    [dependencies]\nserde.workspace = true\n\
                    [package]\nname = \"x\"";
        assert_eq!(places(text), [""; 0]);
    }

    #[test]
    fn a_line_without_one_is_named() {
        assert_eq!(places("[dependencies]\n\nserde = \"1\""), ["Cargo.toml:3: `serde` has no reason on its line"]);
        assert_eq!(places("[target.'cfg(unix)'.dev-dependencies]\nx = \"1\"").len(), 1);
    }

    #[test]
    fn a_hash_inside_quotes_is_no_comment_and_one_word_no_reason() {
        assert_eq!(places("[dependencies]\nx = { version = \"1\", features = [\"a # b c\"] }").len(), 1);
        assert_eq!(places("[dependencies]\nx = \"1\" # serialisation").len(), 1);
    }

    #[test]
    fn an_entry_over_several_lines_may_carry_its_reason_on_any_of_them() {
        let entry = "[dependencies]\nx = { version = \"1\", features = [\n  \"a\",\n  \"b\",\n] }";
        assert_eq!(places(&format!("{entry} # why it is here")), [""; 0]);
        assert_eq!(places(entry), ["Cargo.toml:2: `x` has no reason on its line"]);
        assert_eq!(places(&format!("{entry}\ny = \"1\"")).len(), 2);
    }
}

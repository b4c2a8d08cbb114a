//! No panic crosses into C: a function that C calls does its work behind the one place where panics are caught.
//!
//! A panic that reaches the border ends the whole process, interpreter and all, where a status was promised.

use super::{Finding, Tree};

const PLACE: &str = "bindings/c/src/";

/// What catches: the border itself, what Multiverso's functions make of it, and another function that is exported.
const CATCHES: &[&str] = &["guarded(", "told(", "number(", "unsafe { syncline_"];

/// Those that read or set a word or two, and have no status to return.
const CANNOT_FAIL: &[&str] = &[
    "syncline_abi_version",
    "syncline_here",
    "syncline_last_error",
    "syncline_last_error_host",
    "syncline_last_error_kind",
    "syncline_last_error_pid",
    "syncline_last_error_rank",
    "syncline_set_going_on",
    "syncline_set_interrupt",
    "syncline_status_name",
    "syncline_version",
];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| file.path.starts_with(PLACE)) {
        let mut lines = file.text.lines().enumerate();
        while let Some((number, line)) = lines.next() {
            if line != "#[unsafe(no_mangle)]" {
                continue;
            }
            // Formatted code: what ends a function is the first brace that stands alone at the margin.
            let body: Vec<&str> = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "}").collect();
            let name = body.iter().find_map(|line| line.split_once("fn ")).and_then(|(_, rest)| rest.split('(').next()).unwrap_or("?");
            let catches = body.iter().skip(1).any(|line| CATCHES.iter().any(|word| line.contains(word)));
            if !catches && !CANNOT_FAIL.contains(&name) {
                findings.push(Finding::at_line(&file.path, number, format!("`{name}` lets a panic out: run it in `guarded`")));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(text: &str) -> Vec<String> {
        check(&Tree::of(&[("bindings/c/src/tables.rs", text)])).into_iter().map(|finding| finding.to_string()).collect()
    }

    #[test]
    fn a_function_without_the_border_is_named() {
        let text = "#[unsafe(no_mangle)]\npub extern \"C\" fn syncline_ok() -> i32 {\n    guarded(|| {\n        Ok(())\n    })\n}\n\n\
                    /// Why.\n#[unsafe(no_mangle)]\npub extern \"C\" fn syncline_bad() -> i32 {\n    work()\n}\n\nfn after() {\n    guarded(work)\n}\n";
        assert_eq!(findings(text), ["bindings/c/src/tables.rs:9: `syncline_bad` lets a panic out: run it in `guarded`"]);
    }

    #[test]
    fn what_cannot_fail_and_what_hands_over_pass() {
        assert_eq!(findings("#[unsafe(no_mangle)]\npub extern \"C\" fn syncline_version() -> u8 {\n    1\n}\n"), [""; 0]);
        let over =
            "#[unsafe(no_mangle)]\npub unsafe extern \"C\" fn syncline_tree_scatter() -> i32 {\n    unsafe { syncline_other() }\n}\n";
        assert_eq!(findings(over), [""; 0]);
    }
}

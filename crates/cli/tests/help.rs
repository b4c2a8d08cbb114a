//! The texts of the command line, compared with files that a person can read.

mod support;

use support::syncline;
use syncline_testkit::golden::assert_golden;

fn text(words: &[&str]) -> String {
    let output = syncline(words).output().unwrap();
    assert!(output.status.success());
    assert!(output.stderr.is_empty());
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn help_is_complete() {
    assert_golden("tests/golden/help.txt", &text(&["--help"]));
    assert_golden("tests/golden/run-help.txt", &text(&["run", "--help"]));
    assert_golden("tests/golden/server-help.txt", &text(&["server", "--help"]));
    assert_golden("tests/golden/bench-help.txt", &text(&["bench", "--help"]));
    assert_golden("tests/golden/env-help.txt", &text(&["env", "--help"]));
    assert_golden("tests/golden/bench-link-help.txt", &text(&["bench", "link", "--help"]));
    assert_golden("tests/golden/bench-table-help.txt", &text(&["bench", "table", "--help"]));
    assert_golden("tests/golden/bench-ipc-help.txt", &text(&["bench", "ipc", "--help"]));
    assert_golden("tests/golden/bench-kv-help.txt", &text(&["bench", "kv", "--help"]));
    assert_golden("tests/golden/bench-allreduce-help.txt", &text(&["bench", "allreduce", "--help"]));
    assert_golden("tests/golden/bench-pb-help.txt", &text(&["bench", "pb", "--help"]));
}

#[test]
fn version_is_that_of_the_crate() {
    assert_eq!(text(&["--version"]), format!("syncline {}\n", env!("CARGO_PKG_VERSION")));
}

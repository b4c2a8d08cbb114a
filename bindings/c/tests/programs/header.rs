// The header is what the signatures say, and C and C++ compilers take it without a word.

use std::path::Path;

use syncline_testkit::golden::assert_golden;

use crate::compiled::{here, skipped_without};

#[test]
fn the_committed_header_is_what_cbindgen_writes() {
    let config = cbindgen::Config::from_file(here().join("cbindgen.toml")).expect("a readable configuration");
    // The one file leads to all others, in the order in which it names them; `with_crate` would ask cargo about the whole workspace.
    let builder = cbindgen::Builder::new().with_config(config).with_src(here().join("src/lib.rs"));
    let mut header = Vec::new();
    builder.generate().expect("signatures that C can say").write(&mut header);
    let text = String::from_utf8(header).expect("text");
    // What Rust calls a promise to the compiler is a plain sentence in C.
    let text = text.replace("// # Safety\n", "// The caller promises:\n");
    let prototypes = text.split(';').filter_map(|piece| piece.lines().find(|line| line.contains("syncline_") && line.contains('(')));
    let mut seen = std::collections::BTreeSet::new();
    prototypes.for_each(|line| assert!(seen.insert(line.to_owned()), "twice in the header: {line}"));
    assert_golden(here().join("include/syncline.h"), &text);
}

#[test]
fn c_and_cpp_compilers_take_the_header_without_a_warning() {
    for (compiler, standard) in [("cc", "-std=c99"), ("c++", "-std=c++11")] {
        if skipped_without(compiler) {
            continue;
        }
        let language = if compiler == "cc" { "c" } else { "c++" };
        let mut command = std::process::Command::new(compiler);
        command.args([standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-x", language]);
        let output = command.arg(Path::new(&here()).join("include/syncline.h")).output().expect("it starts");
        assert!(output.status.success(), "{compiler}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

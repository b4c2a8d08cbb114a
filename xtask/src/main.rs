//! The project's own commands, in Rust so that they need nothing but the tool chain: `cargo xtask check`.
//!
//! `check` is what a change must pass besides its tests; `tidy` is the part of it that no other tool knows,
//! the rules this project keeps about itself. Both print what is wrong and where, and end with a failure if anything is.
#![forbid(unsafe_code)]

mod check;
mod tidy;
mod tree;

use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask COMMAND

  check   format, lints, tidy and documentation: everything but the tests
  tidy    only the project's own rules: layers, reasons, openings, names, paths";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let passed = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["check"] => check::run(&tree::root()),
        ["tidy"] => tidy::run(&tree::root()),
        [] | ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            true
        }
        _ => {
            eprintln!("no such command: {}\n\n{USAGE}", arguments.join(" "));
            return ExitCode::from(2);
        }
    };
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

//! `cargo xtask check`: everything a change must pass besides its tests, in one command, here and in CI.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crate::{tidy, tree::Tree};

/// Runs every step even when one fails, so that one run tells all; true when all passed.
pub(crate) fn run(root: &Path) -> bool {
    let mut failed = Vec::new();
    for step in steps(root) {
        println!("check: {}", step.name);
        let started = Instant::now();
        let passed = match step.work {
            Work::Tidy => tidy::run(root),
            Work::Cargo(arguments) => cargo(root, &arguments),
        };
        let verdict = if passed { "ok" } else { "FAILED" };
        println!("check: {} {verdict} in {:.1} s", step.name, started.elapsed().as_secs_f64());
        if !passed {
            failed.push(step.name);
        }
    }
    if failed.is_empty() {
        println!("check: all passed");
    } else {
        println!("check: failed: {}", failed.join(", "));
    }
    failed.is_empty()
}

struct Step {
    name: String,
    work: Work,
}

enum Work {
    Tidy,
    Cargo(Vec<String>),
}

/// Quick ones first. Packages that are no members of the workspace are looked at one by one.
fn steps(root: &Path) -> Vec<Step> {
    let mut steps = vec![
        cargo_step("format", "fmt --all --check"),
        Step { name: "tidy".to_owned(), work: Work::Tidy },
        cargo_step("lints", "clippy --workspace --all-targets --locked --quiet -- -D warnings"),
        // The workspace builds the Lua module for 5.4; a few lines of it are for 5.1 only.
        cargo_step(
            "lints of Lua 5.1",
            "clippy --package syncline-lua --no-default-features --features lua51 --locked --quiet -- -D warnings",
        ),
        cargo_step("documentation", "doc --workspace --no-deps --locked --quiet"),
    ];
    let files = Tree::read(root).map(|tree| tree.files).unwrap_or_default();
    let manifests: Vec<&str> = files.iter().filter(|file| file.name() == "Cargo.toml").map(|file| file.path.as_str()).collect();
    let workspace = files.iter().find(|file| file.path == "Cargo.toml").map_or("", |file| file.text.as_str());
    for manifest in outside(workspace, &manifests) {
        let folder = manifest.trim_end_matches("/Cargo.toml");
        steps.push(cargo_step(&format!("format of {folder}"), &format!("fmt --manifest-path {manifest} --check")));
        if folder != "fuzz" {
            let arguments = format!("clippy --manifest-path {manifest} --all-targets --quiet -- -D warnings");
            steps.push(cargo_step(&format!("lints of {folder}"), &arguments));
        }
    }
    steps
}

fn cargo_step(name: &str, arguments: &str) -> Step {
    let arguments = arguments.split(' ').map(str::to_owned).collect();
    Step { name: name.to_owned(), work: Work::Cargo(arguments) }
}

/// The manifests that the workspace's `members` do not cover. Members are paths or `folder/*`.
fn outside<'a>(workspace: &str, manifests: &[&'a str]) -> Vec<&'a str> {
    let members: Vec<String> = workspace
        .parse::<toml::Table>()
        .ok()
        .and_then(|table| table.get("workspace")?.get("members")?.as_array().cloned())
        .unwrap_or_default()
        .iter()
        .filter_map(|member| member.as_str().map(str::to_owned))
        .collect();
    let is_member = |folder: &str| {
        members.iter().any(|member| match member.strip_suffix("/*") {
            Some(parent) => folder.strip_prefix(parent).is_some_and(|rest| rest.starts_with('/') && !rest[1..].contains('/')),
            None => member == folder,
        })
    };
    manifests
        .iter()
        .filter_map(|manifest| Some((manifest, manifest.strip_suffix("/Cargo.toml")?)))
        .filter(|(_, folder)| !is_member(folder))
        .map(|(manifest, _)| *manifest)
        .collect()
}

fn cargo(root: &Path, arguments: &[String]) -> bool {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let status = Command::new(cargo).args(arguments).env("RUSTDOCFLAGS", "-D warnings").current_dir(root).status();
    match status {
        Ok(status) => status.success(),
        Err(error) => {
            eprintln!("check: cannot run cargo: {error}");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_outside_the_workspace_are_found() {
        let workspace = "[workspace]\nmembers = [\"crates/*\", \"xtask\"]";
        let manifests = [
            "Cargo.toml",
            "crates/shm/Cargo.toml",
            "xtask/Cargo.toml",
            "fuzz/Cargo.toml",
            "crates/shm/nested/Cargo.toml",
            "bindings/python/Cargo.toml",
        ];
        assert_eq!(outside(workspace, &manifests), ["fuzz/Cargo.toml", "crates/shm/nested/Cargo.toml", "bindings/python/Cargo.toml"]);
    }

    #[test]
    fn every_step_of_the_promise_is_there() {
        let names: Vec<String> = steps(&crate::tree::root()).into_iter().map(|step| step.name).collect();
        for name in ["format", "tidy", "lints", "lints of Lua 5.1", "documentation"] {
            assert!(names.iter().any(|step| step == name), "{name} is missing from {names:?}");
        }
    }
}

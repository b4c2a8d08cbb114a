//! Which crate may use which: the picture in ARCHITECTURE.md, as a list that is tested.

use super::manifest::{Package, Use, packages};
use super::{Finding, Tree};

/// Top to bottom. A crate uses rows below it: never a row above, never its neighbour.
/// Rows name crates that do not exist yet, so that each finds its place waiting.
const LAYERS: &[&[&str]] = &[
    &["cli", "python", "lua", "c"],  // what people touch; Perl stands on C
    &["dashboard"],                  // one page that watches
    &["syncline"],                   // one door: Session, prelude, Error
    &["kvstore"],                    // one push and pull, three backends
    &["table", "collective", "ipc"], // the algorithms
    &["cluster"],                    // who takes part, and what it costs to reach them
    &["transport"],                  // frames over inproc, shm, unix, tcp
    &["wire", "shm", "optimizer"],   // checked bytes; shared memory; what a gradient does to a weight
    &["tensor", "metrics"],          // dtypes, views, kernels; counters
];

/// Serves tests only: it may use all that lies below the top row, and only `[dev-dependencies]` may name it.
const TESTKIT: &str = "testkit";

/// Tools beside the picture: they may use anything, and nothing may use them.
const TOOLS: &[&str] = &["xtask", "fuzz", "benches"];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let (packages, mut findings) = packages(tree);
    for package in &packages {
        findings.extend(misplaced(package));
        findings.extend(package.uses.iter().filter_map(|(used, name)| {
            let words = objection(&package.short, *used, name)?;
            Some(Finding::at(&package.manifest, words))
        }));
    }
    findings
}

/// The row of a crate, counted from the top.
fn row(name: &str) -> Option<usize> {
    LAYERS.iter().position(|row| row.contains(&name))
}

fn misplaced(package: &Package) -> Option<Finding> {
    let name = package.short.as_str();
    if row(name).is_none() && name != TESTKIT && !TOOLS.contains(&name) {
        return Some(Finding::at(&package.manifest, format!("`{name}` has no row in LAYERS: give it one")));
    }
    let folder = package.folder.rsplit('/').next().unwrap_or_default();
    if folder != name {
        return Some(Finding::at(&package.manifest, format!("package `{name}` lies in a folder called `{folder}`")));
    }
    None
}

/// Why `user` may not use `used`, if it may not.
fn objection(user: &str, how: Use, used: &str) -> Option<String> {
    if user == used || TOOLS.contains(&user) {
        return None;
    }
    if TOOLS.contains(&used) {
        return Some(format!("uses `{used}`, which is a tool and no part of the library"));
    }
    if used == TESTKIT {
        return (how == Use::Build).then(|| format!("uses `{TESTKIT}` outside of its tests"));
    }
    // An unknown crate is reported once, where it is defined; here it has no row to compare.
    let used_row = row(used)?;
    if user == TESTKIT {
        return (used_row == 0).then(|| format!("`{TESTKIT}` uses `{used}`, which is in the top row"));
    }
    let user_row = row(user)?;
    if used_row > user_row {
        return None;
    }
    let direction = if used_row == user_row { "is its neighbour" } else { "is above it" };
    Some(format!("`{user}` uses `{used}`, which {direction}: arrows point down only"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn project(manifests: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<(String, String)> = manifests
            .iter()
            .map(|(folder, rest)| {
                let short = folder.rsplit('/').next().expect("a folder");
                let name = match short {
                    "syncline" | "xtask" => short.to_owned(),
                    _ => format!("syncline-{short}"),
                };
                (format!("{folder}/Cargo.toml"), format!("[package]\nname = \"{name}\"\n{rest}"))
            })
            .collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        check(&Tree::of(&files)).into_iter().map(|finding| finding.to_string()).collect()
    }

    #[test]
    fn arrows_that_point_down_are_welcome() {
        let findings = project(&[
            ("crates/tensor", ""),
            ("crates/wire", "[dependencies]\nsyncline-tensor.workspace = true"),
            ("crates/cluster", "[dependencies]\nsyncline-wire.workspace = true\nsyncline-tensor.workspace = true"),
            ("bindings/python", "[dependencies]\nsyncline-cluster.workspace = true"),
        ]);
        assert_eq!(findings, [""; 0]);
    }

    #[test]
    fn an_arrow_that_points_up_is_named() {
        let findings = project(&[("crates/cluster", ""), ("crates/wire", "[dependencies]\nsyncline-cluster.workspace = true")]);
        assert_eq!(findings, ["crates/wire/Cargo.toml: `wire` uses `cluster`, which is above it: arrows point down only"]);
    }

    #[test]
    fn an_arrow_to_a_neighbour_is_named_even_in_build_dependencies() {
        let findings = project(&[("crates/shm", ""), ("crates/wire", "[build-dependencies]\nsyncline-shm.workspace = true")]);
        assert_eq!(findings, ["crates/wire/Cargo.toml: `wire` uses `shm`, which is its neighbour: arrows point down only"]);
    }

    #[test]
    fn tests_may_use_the_testkit_and_the_testkit_nearly_everything() {
        let findings = project(&[
            ("crates/syncline", ""),
            ("crates/wire", "[dev-dependencies]\nsyncline-testkit.workspace = true"),
            ("crates/testkit", "[dependencies]\nsyncline.workspace = true\nsyncline-wire.workspace = true"),
        ]);
        assert_eq!(findings, [""; 0]);
    }

    #[test]
    fn the_testkit_stays_out_of_the_library_and_below_the_top_row() {
        let findings = project(&[
            ("crates/cli", ""),
            ("crates/wire", "[dependencies]\nsyncline-testkit.workspace = true"),
            ("crates/testkit", "[dependencies]\nsyncline-cli.workspace = true"),
        ]);
        assert_eq!(
            findings,
            [
                "crates/wire/Cargo.toml: uses `testkit` outside of its tests",
                "crates/testkit/Cargo.toml: `testkit` uses `cli`, which is in the top row",
            ]
        );
    }

    #[test]
    fn dev_dependencies_other_than_the_testkit_point_down_too() {
        let findings = project(&[("crates/cluster", ""), ("crates/shm", "[dev-dependencies]\nsyncline-cluster.workspace = true")]);
        assert_eq!(findings.len(), 1, "{findings:?}");
    }

    #[test]
    fn a_crate_without_a_row_or_with_another_name_than_its_folder_is_named() {
        assert_eq!(project(&[("crates/gossip", "")]), ["crates/gossip/Cargo.toml: `gossip` has no row in LAYERS: give it one"]);
        let moved = Tree::of(&[("crates/memory/Cargo.toml", "[package]\nname = \"syncline-shm\"")]);
        assert_eq!(check(&moved).len(), 1);
    }

    #[test]
    fn nothing_uses_a_tool() {
        let findings = project(&[("xtask", ""), ("crates/wire", "[dependencies]\nxtask = { path = \"../../xtask\" }")]);
        assert_eq!(findings, ["crates/wire/Cargo.toml: uses `xtask`, which is a tool and no part of the library"]);
    }

    #[test]
    fn no_crate_stands_in_two_rows() {
        let mut names: Vec<_> = LAYERS.iter().flat_map(|row| row.iter()).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}

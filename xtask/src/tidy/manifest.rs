//! Reads the manifests: which packages the project has, where, and which of each other they use.

use toml::{Table, Value};

use super::Finding;
use crate::tree::Tree;

/// For what a dependency is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// In the crate itself or in its build script.
    Build,
    /// In its tests, examples and benches only.
    Test,
}

/// One package of the project and the packages it names.
#[derive(Debug)]
pub(crate) struct Package {
    /// The manifest's path from the root.
    pub(crate) manifest: String,
    /// The folder of the manifest, `crates/shm`.
    pub(crate) folder: String,
    /// The name without its `syncline-` prefix: `shm`; the facade stays `syncline`.
    pub(crate) short: String,
    /// Short names of the project's own packages among its dependencies.
    pub(crate) uses: Vec<(Use, String)>,
}

/// `syncline-shm` → `shm`.
pub(crate) fn short_name(package: &str) -> &str {
    package.strip_prefix("syncline-").unwrap_or(package)
}

/// All packages of the project, and a finding for each manifest that does not parse.
pub(crate) fn packages(tree: &Tree) -> (Vec<Package>, Vec<Finding>) {
    let mut tables = Vec::new();
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| file.name() == "Cargo.toml") {
        match file.text.parse::<Table>() {
            Ok(table) => tables.push((file.path.as_str(), table)),
            Err(error) => findings.push(Finding::at(&file.path, format!("does not parse: {}", error.message()))),
        }
    }
    let names: Vec<String> = tables.iter().filter_map(|(_, table)| package_name(table)).collect();
    let aliases = tables
        .iter()
        .find(|(path, _)| *path == "Cargo.toml")
        .and_then(|(_, root)| root.get("workspace")?.get("dependencies")?.as_table().cloned())
        .unwrap_or_default();
    let packages = tables
        .iter()
        .filter_map(|(path, table)| {
            let uses = dependency_tables(table)
                .into_iter()
                .flat_map(|(used, dependencies)| dependencies.iter().map(move |(key, value)| (used, real_name(key, value))))
                .map(|(used, name)| (used, aliases.get(&name).map_or(name.clone(), |value| real_name(&name, value))))
                .filter(|(_, name)| names.contains(name))
                .map(|(used, name)| (used, short_name(&name).to_owned()))
                .collect();
            Some(Package {
                manifest: (*path).to_owned(),
                folder: path.trim_end_matches("Cargo.toml").trim_end_matches('/').to_owned(),
                short: short_name(&package_name(table)?).to_owned(),
                uses,
            })
        })
        .collect();
    (packages, findings)
}

fn package_name(manifest: &Table) -> Option<String> {
    Some(manifest.get("package")?.get("name")?.as_str()?.to_owned())
}

/// A dependency may be renamed; the arrow goes to the package behind the name.
fn real_name(key: &str, value: &Value) -> String {
    value.get("package").and_then(Value::as_str).unwrap_or(key).to_owned()
}

/// Every dependency table, those of `[target.'cfg(…)']` included.
fn dependency_tables(manifest: &Table) -> Vec<(Use, &Table)> {
    let targets =
        manifest.get("target").and_then(Value::as_table).into_iter().flat_map(|targets| targets.values().filter_map(Value::as_table));
    std::iter::once(manifest)
        .chain(targets)
        .flat_map(|table| {
            [("dependencies", Use::Build), ("build-dependencies", Use::Build), ("dev-dependencies", Use::Test)]
                .into_iter()
                .filter_map(|(key, used)| Some((used, table.get(key)?.as_table()?)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrows_are_found_in_every_table_and_behind_every_alias() {
        let tree = Tree::of(&[
            ("Cargo.toml", "[workspace.dependencies]\nmemory = { path = \"crates/shm\", package = \"syncline-shm\" }"),
            ("crates/shm/Cargo.toml", "[package]\nname = \"syncline-shm\""),
            ("crates/wire/Cargo.toml", "[package]\nname = \"syncline-wire\""),
            (
                "crates/cluster/Cargo.toml",
                "[package]\nname = \"syncline-cluster\"\n[dependencies]\nmemory.workspace = true\nserde = \"1\"\n\
                 [dev-dependencies]\nw = { path = \"../wire\", package = \"syncline-wire\" }\n\
                 [target.'cfg(unix)'.dependencies]\nsyncline-wire.workspace = true",
            ),
        ]);
        let (packages, findings) = packages(&tree);
        assert_eq!(findings, []);
        let cluster = packages.iter().find(|package| package.short == "cluster").expect("cluster was read");
        assert_eq!(cluster.folder, "crates/cluster");
        let mut uses: Vec<_> = cluster.uses.iter().map(|(used, name)| format!("{used:?} {name}")).collect();
        uses.sort();
        assert_eq!(uses, ["Build shm", "Build wire", "Test wire"]);
    }

    #[test]
    fn a_manifest_that_does_not_parse_is_a_finding() {
        let (_, findings) = packages(&Tree::of(&[("crates/x/Cargo.toml", "[package\n")]));
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].place, "crates/x/Cargo.toml");
    }
}

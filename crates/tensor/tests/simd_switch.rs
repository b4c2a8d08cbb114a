//! `SYNCLINE_SIMD` is read once per process, so each value is tried in a process of its own.

use std::process::Command;

use syncline_tensor::kernels::{SimdLevel, simd_level};

#[test]
fn the_environment_forces_a_level() {
    for level in SimdLevel::available() {
        assert_eq!(level_under(Some(level.name())), level.name());
    }
}

#[test]
fn without_a_known_name_the_widest_level_is_used() {
    let widest = *SimdLevel::available().last().unwrap();
    for value in [None, Some(""), Some("fastest")] {
        assert_eq!(level_under(value), widest.name(), "{value:?}");
    }
}

/// What a fresh process chooses: this very program, running only `report` below.
fn level_under(value: Option<&str>) -> String {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "report", "--nocapture"]);
    match value {
        Some(value) => child.env("SYNCLINE_SIMD", value),
        None => child.env_remove("SYNCLINE_SIMD"),
    };
    let output = child.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let (_, after) = text
        .split_once("level=")
        .unwrap_or_else(|| panic!("no level in {text}"));
    after.split(';').next().unwrap().to_owned()
}

/// The child half of the tests above.
#[test]
fn report() {
    println!("level={};", simd_level());
}

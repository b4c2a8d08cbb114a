//! The files open with the plain `safetensors` package of Python.

use std::process::Command;

use super::*;

const PROGRAM: &str = r#"
import sys
from safetensors import safe_open
for name in sys.argv[1:]:
    with safe_open(name, framework="np") as f:
        about = f.metadata()
        assert about["syncline"] == "checkpoint 1", about
        for key in sorted(f.keys()):
            part = f.get_slice(key)
            text = f"{key} {part.get_dtype()} {part.get_shape()} {about.get(key + '.rows', '-')}"
            if part.get_dtype() != "BF16":  # NumPy has no such type
                text += " " + f.get_tensor(key).tobytes()[:4].hex()
            print(text)
"#;

#[test]
fn the_safetensors_package_opens_every_shard() {
    // `make test` puts the project's environment first on the path.
    let python = |program: &str, words: &[std::path::PathBuf]| Command::new("python3").args(["-c", program]).args(words).output();
    if !python("import safetensors.numpy", &[]).is_ok_and(|output| output.status.success()) {
        println!("skipped: python3 with the packages safetensors and numpy is not here");
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let tables = some_tables();
    let mut tables = [&tables[..2], &tables[3..]].concat();
    let others = DType::ALL.into_iter().filter(|dtype| *dtype != DType::BF16);
    let others = others.map(|dtype| SavedTable::new(&Spec::array(2).with_dtype(dtype).named(dtype.name()), dtype.name(), 9, []));
    tables.extend(others);
    save(scratch.path(), 2, &tables, 1);
    let shards: Vec<_> =
        files(scratch.path()).iter().filter(|name| name.ends_with(".safetensors")).map(|name| scratch.path().join(name)).collect();
    let output = python(PROGRAM, &shards).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let begin =
        |table: usize, lane: usize, at: u64| (at..at + 4).map(|index| format!("{:02x}", byte(1, table, lane, index))).collect::<String>();
    for line in [
        format!("w F32 [5, 3] 0..5 of 10 {}", begin(0, 0, 0)),
        format!("w F32 [5, 3] 5..10 of 10 {}", begin(0, 0, 60)),
        format!("w.momentum F32 [5, 3] 5..10 of 10 {}", begin(0, 1, 60)),
        "table 1 BF16 [3] 0..3 of 7".into(),
        "table 1 BF16 [4] 3..7 of 7".into(),
        "none F32 [0] 0..0 of 0 ".into(),
        "thin F32 [3, 0] 2..5 of 5 ".into(),
        format!("float64 F64 [1] 1..2 of 2 {}", begin(5, 0, 8)),
    ] {
        assert!(text.lines().any(|found| found == line), "{line:?} is not in\n{text}");
    }
}

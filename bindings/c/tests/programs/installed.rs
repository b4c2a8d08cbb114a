// What `install` puts into a folder is all that a program needs: header, pkg-config files, both libraries.

use std::path::Path;
use std::process::{Command, Output};

use crate::compiled::{built_libraries, here, launcher, root, skipped_without};

fn fine(mut command: Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = || format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}\n{}", said());
    output
}

/// What pkg-config says about a package of `prefix`, and of nowhere else.
fn flags(prefix: &Path, package: &str, kind: &str) -> Vec<String> {
    let mut command = Command::new("pkg-config");
    command.env("PKG_CONFIG_LIBDIR", prefix.join("lib/pkgconfig")).args([kind, package]);
    let output = fine(command);
    String::from_utf8_lossy(&output.stdout).split_whitespace().map(str::to_owned).collect()
}

#[test]
fn the_examples_compile_with_what_was_installed_and_run_alone_and_as_a_job() {
    if skipped_without("pkg-config") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let prefix = folder.path().join("prefix");
    let prefix = prefix.as_path();
    let mut install = Command::new(here().join("install"));
    install.arg(prefix).env("C_BUILT", built_libraries(folder.path()));
    fine(install);
    for file in ["include/syncline.h", "lib/libsyncline.so", "lib/libsyncline.so.0", "lib/libsyncline.a"] {
        assert!(prefix.join(file).exists(), "{file} is not there");
    }
    // A program of Multiverso's, as it was written.
    let old = folder.path().join("old.c");
    let text = "#include <multiverso/c_api.h>\nint main(int argc, char **argv) { MV_Init(&argc, argv); int id = MV_WorkerId(); MV_ShutDown(); return id; }\n";
    std::fs::write(&old, text).expect("a file");
    let mut cc = Command::new("cc");
    cc.args(["-Wall", "-Werror"]).args(flags(prefix, "syncline", "--cflags")).arg(&old).arg("-o").arg(folder.path().join("old"));
    fine({
        cc.args(flags(prefix, "syncline", "--libs"));
        cc
    });
    let mut old = Command::new(folder.path().join("old"));
    old.env("LD_LIBRARY_PATH", prefix.join("lib"));
    fine(old);
    let examples = std::fs::read_dir(root().join("examples/c")).expect("examples").map(|entry| entry.expect("an entry").path());
    let examples: Vec<_> = examples.filter(|path| path.extension().is_some_and(|extension| extension == "c")).collect();
    assert!(!examples.is_empty());
    for example in examples {
        for package in ["syncline", "syncline-static"] {
            let program = folder.path().join("program");
            let mut cc = Command::new("cc");
            cc.args(["-Wall", "-Werror"]).args(flags(prefix, package, "--cflags")).arg(&example).arg("-o").arg(&program);
            fine({
                cc.args(flags(prefix, package, "--libs"));
                cc
            });
            // Linked into the program it needs nothing; else the dynamic linker has to find it.
            let library = if package == "syncline" { prefix.join("lib") } else { "/nowhere".into() };
            let mut alone = Command::new(&program);
            alone.env("LD_LIBRARY_PATH", &library);
            fine(alone);
            let mut job = Command::new(launcher());
            job.args(["run", "-n", "2", "--timeout", "20"]).arg(&program).env("LD_LIBRARY_PATH", &library);
            let said = String::from_utf8_lossy(&fine(job).stdout).into_owned();
            assert!(said.contains("2 workers") || said.contains("338350"), "{example:?}: {said}");
        }
    }
}

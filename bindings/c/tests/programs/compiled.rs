// One C program: found, compiled, run.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use syncline_testkit::enclosure::find_program;

/// The folder of this package.
pub(crate) fn here() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The folder of the project.
pub(crate) fn root() -> PathBuf {
    here().join("../..")
}

/// Says so where a program is not installed.
pub(crate) fn skipped_without(program: &str) -> bool {
    let missing = find_program(program).is_none();
    if missing {
        println!("skipped: {program} is not installed");
    }
    missing
}

/// Where cargo puts what it builds: the test's own binary lies in `deps` below it.
fn built() -> PathBuf {
    let own = std::env::current_exe().expect("this test has a file");
    own.parent().and_then(Path::parent).expect("target/PROFILE/deps/TEST").to_owned()
}

/// The command `syncline`, built if this is the first to ask.
pub(crate) fn launcher() -> PathBuf {
    let path = built().join("syncline");
    if !path.exists() {
        let release = built().ends_with("release");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--locked", "--quiet", "--package", "syncline-cli"]).current_dir(root());
        assert!(cargo.args(release.then_some("--release")).status().expect("cargo starts").success());
    }
    path
}

/// The library of this name, which cargo puts beside the tests or above them.
fn library(name: &str) -> PathBuf {
    let places = [built().join("deps").join(name), built().join(name)];
    let newest = places.iter().filter(|place| place.exists()).max_by_key(|place| place.metadata().and_then(|facts| facts.modified()).ok());
    newest.unwrap_or_else(|| panic!("none of {places:?} was built")).clone()
}

/// A folder below `scratch` with the libraries under the names that cargo gives them.
pub(crate) fn built_libraries(scratch: &Path) -> PathBuf {
    let folder = scratch.join("built");
    std::fs::create_dir(&folder).expect("a folder");
    for name in ["libsyncline_c.so", "libsyncline_c.a"] {
        std::os::unix::fs::symlink(library(name), folder.join(name)).expect("a link");
    }
    folder
}

pub(crate) struct Program {
    folder: tempfile::TempDir,
}

impl Program {
    /// `tests/programs/c/NAME.c`, with the shared library.
    pub(crate) fn compile(name: &str) -> Program {
        Program::compile_file(&here().join(format!("tests/programs/c/{name}.c")))
    }

    pub(crate) fn compile_file(source: &Path) -> Program {
        let program = Program { folder: tempfile::tempdir().expect("a folder") };
        // Under the name that the dynamic linker will ask for.
        std::os::unix::fs::symlink(library("libsyncline_c.so"), program.folder.path().join("libsyncline.so.0")).expect("a link");
        program.cc(source, &[program.folder.path().join("libsyncline.so.0").as_os_str()]);
        program
    }

    pub(crate) fn compile_static(name: &str) -> Program {
        let program = Program { folder: tempfile::tempdir().expect("a folder") };
        let library = library("libsyncline_c.a");
        let flags = ["-lpthread", "-lm", "-ldl"].map(std::ffi::OsStr::new);
        let parts: Vec<&std::ffi::OsStr> = std::iter::once(library.as_os_str()).chain(flags).collect();
        program.cc(&here().join(format!("tests/programs/c/{name}.c")), &parts);
        program
    }

    fn cc(&self, source: &Path, with: &[&std::ffi::OsStr]) {
        let mut cc = Command::new("cc");
        cc.args(["-std=c11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-pthread", "-o"]);
        cc.arg(self.path()).arg("-I").arg(here().join("include")).arg(source).args(with).arg("-lm");
        let output = cc.output().expect("cc is installed");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("program")
    }

    pub(crate) fn alone(&self) -> Ran {
        self.ran(&mut Command::new(self.path()))
    }

    pub(crate) fn in_a_job_of(&self, ranks: u32) -> Ran {
        let mut run = Command::new(launcher());
        run.args(["run", "-n", &ranks.to_string(), "--timeout", "20"]).arg(self.path());
        self.ran(&mut run)
    }

    /// The same with each rank under a tool. At its end valgrind reads all that is mapped, and a family that was never left is terabytes of
    /// addresses: the limit makes that a failure and no hang.
    pub(crate) fn in_a_job_under(&self, ranks: u32, tool: &[&str]) -> Ran {
        let mut run = Command::new("timeout");
        run.args(["--kill-after=5", "150"]).arg(launcher());
        run.args(["run", "-n", &ranks.to_string(), "--timeout", "60"]).args(tool).arg(self.path());
        self.ran(&mut run)
    }

    pub(crate) fn under(&self, tool: &mut Command) -> Ran {
        self.ran(tool.arg(self.path()))
    }

    fn ran(&self, command: &mut Command) -> Ran {
        command.env("LD_LIBRARY_PATH", self.folder.path()).env("TMPDIR", self.folder.path());
        Ran(command.output().expect("it starts"))
    }
}

pub(crate) struct Ran(Output);

impl Ran {
    pub(crate) fn text(&self) -> String {
        format!("{}\n{}", String::from_utf8_lossy(&self.0.stdout), String::from_utf8_lossy(&self.0.stderr))
    }

    pub(crate) fn assert_fine(&self) {
        assert!(self.0.status.success(), "{}\n{}", self.0.status, self.text());
    }
}

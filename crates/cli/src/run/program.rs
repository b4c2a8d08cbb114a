//! Turns the COMMAND of the user into the words that are executed, and finds out before the start whether they can be.
//!
//! A missing program is told once and at once, not by each of a hundred ranks.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::options::RunOptions;

/// What each worker executes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Program {
    pub(super) words: Vec<OsString>,
}

/// Why the program cannot be started, as fact, hint and exit code.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unstartable {
    pub(super) fact: String,
    pub(super) hint: String,
    pub(super) code: u8,
}

/// The part of the environment that decides which interpreter and which file is meant.
pub(super) struct Surroundings {
    pub(super) search_path: OsString,
    pub(super) python: Option<OsString>,
    pub(super) virtual_environment: Option<PathBuf>,
}

impl Surroundings {
    pub(super) fn of_this_process() -> Surroundings {
        let filled = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        Surroundings {
            search_path: filled("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into()),
            python: filled("SYNCLINE_PYTHON"),
            virtual_environment: filled("VIRTUAL_ENV").map(PathBuf::from),
        }
    }

    fn python(&self) -> OsString {
        if let Some(chosen) = &self.python {
            return chosen.clone();
        }
        let own = self.virtual_environment.as_ref().map(|dir| dir.join("bin/python"));
        own.filter(|path| path.is_file()).map_or("python3".into(), OsString::from)
    }

    /// The file that the shell would run for `word`: the executable one, or the first that is there but may not be executed.
    fn find(&self, word: &OsStr) -> Option<PathBuf> {
        if word.as_encoded_bytes().contains(&b'/') {
            return Some(PathBuf::from(word)).filter(|path| path.exists());
        }
        let found = || std::env::split_paths(&self.search_path).map(|dir| dir.join(word)).filter(|path| path.is_file());
        found().find(|path| is_executable(path)).or_else(|| found().next())
    }
}

impl Program {
    pub(super) fn of(options: &RunOptions, around: &Surroundings) -> Result<Program, Unstartable> {
        let mut words = options.command.clone();
        let first = words[0].clone();
        if options.module {
            words.splice(0..0, [around.python(), "-m".into()]);
        } else if !options.no_python && first.as_encoded_bytes().ends_with(b".py") {
            if !Path::new(&first).exists() {
                return Err(Unstartable {
                    fact: format!("there is no script {}", shown(&first)),
                    hint: format!("this is relative to {}", current_folder()),
                    code: 127,
                });
            }
            words.insert(0, around.python());
        } else if first == "python" && around.find(&first).is_none() && around.find("python3".as_ref()).is_some() {
            // Debian calls it python3 only, and every example in the world says python.
            words[0] = "python3".into();
        }
        around.check(&words[0])?;
        Ok(Program { words })
    }
}

impl Surroundings {
    fn check(&self, word: &OsStr) -> Result<(), Unstartable> {
        let Some(path) = self.find(word) else {
            let is_path = word.as_encoded_bytes().contains(&b'/');
            return Err(Unstartable {
                fact: format!("there is no command {}", shown(word)),
                hint: if is_path {
                    format!("this is relative to {}", current_folder())
                } else if Path::new(word).is_file() {
                    format!("it is a file of this folder: write ./{}", word.display())
                } else {
                    "it is in none of the folders of PATH; is its virtual environment active?".into()
                },
                code: 127,
            });
        };
        if path.is_dir() || !is_executable(&path) {
            return Err(Unstartable {
                fact: format!("{} is not a program that can be executed", shown(path.as_os_str())),
                hint: if path.is_dir() {
                    "it is a folder".into()
                } else {
                    format!("chmod +x {}, or name its interpreter first", path.display())
                },
                code: 126,
            });
        }
        Ok(())
    }
}

fn is_executable(path: &Path) -> bool {
    access(path, Access::EXEC_OK).is_ok()
}

fn shown(word: &OsStr) -> String {
    format!("`{}`", word.display())
}

fn current_folder() -> String {
    std::env::current_dir().map_or_else(|_| "a folder that is gone".into(), |dir| dir.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        run: RunOptions,
    }

    struct Place {
        dir: tempfile::TempDir,
        around: Surroundings,
    }

    impl Place {
        fn with(files: &[(&str, u32)]) -> Place {
            let dir = tempfile::tempdir().unwrap();
            for (name, mode) in files {
                let path = dir.path().join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(&path, "").unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(*mode)).unwrap();
            }
            let around = Surroundings { search_path: dir.path().join("bin").into(), python: None, virtual_environment: None };
            Place { dir, around }
        }

        fn path(&self, name: &str) -> String {
            self.dir.path().join(name).display().to_string()
        }

        fn program(&self, words: &[&str]) -> Result<Vec<String>, Unstartable> {
            let options = Line::try_parse_from([&["run"], words].concat()).unwrap().run;
            Program::of(&options, &self.around).map(|program| program.words.iter().map(|word| word.to_str().unwrap().to_owned()).collect())
        }
    }

    #[test]
    fn a_script_gets_its_interpreter() {
        let mut place = Place::with(&[("bin/python3", 0o755), ("bin/x", 0o755), ("v/bin/python", 0o755), ("a.py", 0o644)]);
        let script = place.path("a.py");
        assert_eq!(place.program(&[&script, "-v"]).unwrap(), ["python3", &script, "-v"]);
        assert_eq!(place.program(&["-m", "pkg", "-v"]).unwrap(), ["python3", "-m", "pkg", "-v"]);
        assert_eq!(place.program(&["x", &script]).unwrap(), ["x", &script]);
        assert_eq!(place.program(&["python", &script]).unwrap(), ["python3", &script], "no `python` here");

        place.around.virtual_environment = Some(place.dir.path().join("v"));
        assert_eq!(place.program(&[&script]).unwrap()[0], place.path("v/bin/python"));
        place.around.python = Some("x".into());
        assert_eq!(place.program(&[&script]).unwrap()[0], "x");
    }

    #[test]
    fn what_cannot_start_is_told_as_a_shell_would() {
        let place = Place::with(&[("bin/plain", 0o644), ("bin/a.py", 0o644)]);
        assert_eq!(place.program(&["nothing"]).unwrap_err().code, 127);
        assert_eq!(place.program(&["./no/such"]).unwrap_err().code, 127);
        assert_eq!(place.program(&["missing.py"]).unwrap_err().code, 127);
        assert_eq!(place.program(&["/"]).unwrap_err().code, 126);
        assert_eq!(place.program(&["--no-python", &place.path("bin/a.py")]).unwrap_err().code, 126);
        assert_eq!(place.program(&["plain"]).unwrap_err().code, 126);
    }
}

//! Other libraries, at the same sizes in the same run: what is installed of them, and what is missing said plainly.
//!
//! Each is a small program that this file carries with it. It prints one line of JSON per rank and size, as our own ranks
//! do, so the figures are made the same way.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use super::point::Point;
use super::row::{Measured, Row};
use super::work::Operation;

const OPEN_MPI_C: &str = include_str!("openmpi.c");
const GLOO_PY: &str = include_str!("gloo.py");

/// A library that can be asked the same.
#[derive(Debug, Clone, Copy)]
pub(super) enum Peer {
    OpenMpi,
    Gloo,
}

/// All that are known.
pub(super) const ALL: [Peer; 2] = [Peer::OpenMpi, Peer::Gloo];

impl Peer {
    fn name(self) -> &'static str {
        match self {
            Peer::OpenMpi => "openmpi",
            Peer::Gloo => "gloo",
        }
    }

    /// A row for each size; the error says why there is none.
    pub(super) fn measure(self, point: &Point, python: &Path) -> Result<Vec<Row>, String> {
        self.offers(point)?;
        let scratch = Scratch::new()?;
        let lines = match self {
            Peer::OpenMpi => open_mpi(point, &scratch.0)?,
            Peer::Gloo => gloo(point, python, &scratch.0)?,
        };
        let measured: Vec<Measured> = lines
            .lines()
            .filter(|line| line.starts_with('{'))
            .map(|line| serde_json::from_str(line).map_err(|error| format!("{}: {line}: {error}", self.name())))
            .collect::<Result<_, _>>()?;
        let of_size = |size: &usize| {
            let ranks: Vec<&Measured> = measured.iter().filter(|one| one.size == *size).collect();
            if ranks.len() != point.ranks as usize {
                return Err(format!("{}: {} of {} ranks reported {size} bytes", self.name(), ranks.len(), point.ranks));
            }
            let most = |value: fn(&Measured) -> f64| ranks.iter().map(|one| value(one)).fold(0.0, f64::max);
            let wrong = ranks.iter().map(|one| one.wrong).sum();
            Ok(Row::of(point, self.name(), Measured { size: *size, time: most(|one| one.time), p99: most(|one| one.p99), wrong }))
        };
        point.sizes.iter().map(of_size).collect()
    }

    fn offers(self, point: &Point) -> Result<(), String> {
        let name = self.name();
        if !["float32", "float64", "int32", "int64"].contains(&point.dtype.name()) {
            return Err(format!("{name} is not asked for {}: only for float32, float64, int32 and int64", point.dtype));
        }
        if !["sum", "prod", "min", "max"].contains(&point.redop.name()) {
            return Err(format!("{name} is not asked for {}: only for sum, prod, min and max", point.redop.name()));
        }
        let unknown_to_gloo = matches!(point.operation, Operation::ReduceScatter | Operation::AllToAll);
        match self {
            Peer::Gloo if unknown_to_gloo => Err(format!("gloo: torch.distributed offers no {} there", point.operation)),
            _ => Ok(()),
        }
    }
}

/// `operation dtype redop secs runs size…`
fn words(point: &Point) -> Vec<String> {
    let mut words = vec![
        point.operation.to_string(),
        point.dtype.name().to_owned(),
        point.redop.name().to_owned(),
        point.secs.to_string(),
        point.runs.to_string(),
    ];
    words.extend(point.sizes.iter().map(usize::to_string));
    words
}

fn open_mpi(point: &Point, folder: &Path) -> Result<String, String> {
    let (compiler, launcher) = [("mpicc.openmpi", "mpirun.openmpi"), ("mpicc", "mpirun")]
        .into_iter()
        .find(|(compiler, launcher)| is_open_mpi(launcher) && output(Command::new(compiler).arg("--version")).is_ok())
        .ok_or("openmpi: mpicc and mpirun of Open MPI are not installed")?;
    let (source, program) = (folder.join("openmpi.c"), folder.join("openmpi"));
    std::fs::write(&source, OPEN_MPI_C).map_err(|error| format!("openmpi: {error}"))?;
    output(Command::new(compiler).args(["-O2", "-o"]).args([&program, &source])).map_err(|error| format!("openmpi: {error}"))?;
    let mut command = Command::new(launcher);
    command.args(["--allow-run-as-root", "--oversubscribe", "-np", &point.ranks.to_string()]).arg(program).args(words(point));
    output(&mut command).map_err(|error| format!("openmpi: {error}"))
}

fn is_open_mpi(launcher: &str) -> bool {
    output(Command::new(launcher).arg("--version")).is_ok_and(|text| text.contains("Open MPI") || text.contains("OpenRTE"))
}

fn gloo(point: &Point, python: &Path, folder: &Path) -> Result<String, String> {
    let asked = output(Command::new(python).args(["-c", "import torch.distributed"]).stderr(Stdio::null()));
    asked.map_err(|_| format!("gloo: {} has no torch.distributed; --python names another", python.display()))?;
    let script = folder.join("gloo.py");
    std::fs::write(&script, GLOO_PY).map_err(|error| format!("gloo: {error}"))?;
    let mut children = Vec::new();
    for rank in 0..point.ranks {
        let mut command = Command::new(python);
        command.arg(&script).arg(folder.join("store")).args([rank.to_string(), point.ranks.to_string()]).args(words(point));
        let child = command.env("OMP_NUM_THREADS", "1").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        children.push(child.map_err(|error| format!("gloo: {error}"))?);
    }
    let mut lines = String::new();
    for child in children {
        let ended = child.wait_with_output().map_err(|error| format!("gloo: {error}"))?;
        lines += &text_of(ended).map_err(|error| format!("gloo: {error}"))?;
    }
    Ok(lines)
}

/// What a command prints; its last words if it fails.
fn output(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let ended = command.stdin(Stdio::null()).output().map_err(|error| format!("{program}: {error}"))?;
    text_of(ended).map_err(|error| format!("{program}: {error}"))
}

fn text_of(ended: Output) -> Result<String, String> {
    if ended.status.success() {
        return Ok(String::from_utf8_lossy(&ended.stdout).into_owned());
    }
    let words = String::from_utf8_lossy(&ended.stderr);
    Err(format!("{}: {}", ended.status, words.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no words")))
}

/// A folder for what is compiled, removed in the end.
struct Scratch(std::path::PathBuf);

impl Scratch {
    fn new() -> Result<Scratch, String> {
        let mut name = [0; 8];
        getrandom::fill(&mut name).map_err(|error| error.to_string())?;
        let folder = std::env::temp_dir().join(format!("syncline-bench-{:016x}", u64::from_ne_bytes(name)));
        std::fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Scratch(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

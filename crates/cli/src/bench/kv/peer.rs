//! MXNet's own store at the same settings in the same run, where it is installed; what is missing is said plainly.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::point::Point;
use super::row::Row;
use crate::bench::loops::Run;
use crate::bench::setting::What;

const SCRIPT: &str = include_str!("mxnet.py");

/// How long a cluster may take beside its measuring: starting one imports MXNet once per process, which takes seconds on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A Python that has MXNet.
pub(super) struct Peer {
    python: PathBuf,
}

impl Peer {
    /// Looks whether it has; the error says that it has not.
    pub(super) fn find(python: PathBuf) -> Result<Peer, String> {
        let mut asking = Command::new(&python);
        let asked = asking.args(["-c", "import mxnet"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        match asked.is_ok_and(|status| status.success()) {
            true => Ok(Peer { python }),
            false => Err(format!("mxnet: {} has no MXNet; --python or SYNCLINE_ORACLE_PYTHON names another", python.display())),
        }
    }

    /// A row of MXNet's; the error says why there is none.
    pub(super) fn measure(&self, point: &Point) -> Result<Row, String> {
        if !["none", "2bit"].contains(&point.code.as_str()) {
            return Err(format!("mxnet: 1.9.1 has no {}", point.code));
        }
        if point.code != "none" && point.setting.what == What::Rows {
            return Err("mxnet: rows are not compressed".into());
        }
        let setting = &point.setting;
        let servers = setting.servers.max(1);
        let cluster = Cluster {
            python: &self.python,
            port: free_port()?.to_string(),
            servers: servers.to_string(),
            workers: setting.workers.to_string(),
        };
        let words = [
            "-c".to_owned(),
            SCRIPT.to_owned(),
            setting.what.to_string(),
            setting.size.to_string(),
            setting.rows.to_string(),
            point.code.clone(),
            setting.secs.to_string(),
            setting.runs.to_string(),
            point.kind.clone(),
            point.optimizer.clone(),
        ];
        let mut started = Started(Vec::new());
        started.0.push(cluster.start("scheduler", &["-c".into(), "import mxnet".into()])?);
        for _ in 0..servers {
            started.0.push(cluster.start("server", &["-c".into(), "import mxnet".into()])?);
        }
        let others = started.0.len();
        for _ in 0..setting.workers {
            started.0.push(cluster.start("worker", &words)?);
        }
        started.wait_from(others, PATIENCE + Duration::from_secs_f64(4.0 * setting.secs * setting.runs as f64))?;
        let mut runs = Vec::with_capacity(setting.workers as usize);
        for worker in started.0.drain(others..) {
            let ended = worker.wait_with_output().map_err(|error| format!("mxnet: {error}"))?;
            if !ended.status.success() {
                let words = String::from_utf8_lossy(&ended.stderr);
                let last = words.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no words");
                return Err(format!("mxnet: {}: {last}", ended.status));
            }
            let text = String::from_utf8_lossy(&ended.stdout);
            let lines: Vec<&str> = text.lines().filter(|line| line.starts_with('{')).collect();
            runs.push(Run::read_all(&lines).map_err(|error| format!("mxnet: {error}"))?);
        }
        match runs.iter().all(|worker| worker.len() == setting.runs) {
            true => Ok(Row::of(point, "mxnet", servers, &runs)),
            false => Err("mxnet: a worker reported too few runs".into()),
        }
    }
}

struct Cluster<'a> {
    python: &'a Path,
    port: String,
    servers: String,
    workers: String,
}

impl Cluster<'_> {
    fn start(&self, role: &str, words: &[String]) -> Result<Child, String> {
        Command::new(self.python)
            .args(words)
            .env("DMLC_ROLE", role)
            .env("DMLC_PS_ROOT_URI", "127.0.0.1")
            .env("DMLC_PS_ROOT_PORT", &self.port)
            .env("DMLC_NUM_SERVER", &self.servers)
            .env("DMLC_NUM_WORKER", &self.workers)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("mxnet: cannot start a {role}: {error}"))
    }
}

/// Scheduler and servers end when their workers have; whatever happens, nobody stays.
struct Started(Vec<Child>);

impl Started {
    /// Waits until all from number `first` on have ended, or one of them has failed. What they say is little and waits in their pipes.
    fn wait_from(&mut self, first: usize, patience: Duration) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            let mut running = false;
            for child in &mut self.0[first..] {
                match child.try_wait().map_err(|error| format!("mxnet: {error}"))? {
                    None => running = true,
                    Some(status) if !status.success() => return Ok(()), // its words say why
                    Some(_) => {}
                }
            }
            if !running {
                return Ok(());
            }
            if begun.elapsed() > patience {
                return Err(format!("mxnet: a cluster did not end within {} s; is the machine busy?", patience.as_secs()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn free_port() -> Result<u16, String> {
    let door = TcpListener::bind("127.0.0.1:0").map_err(|error| format!("mxnet: {error}"))?;
    Ok(door.local_addr().map_err(|error| format!("mxnet: {error}"))?.port())
}

//! MXNet's own store at the same settings in the same run, where it is installed; what is missing is said plainly.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::point::Point;
use super::row::{Row, Run};

const SCRIPT: &str = include_str!("mxnet.py");

/// A row of MXNet's; the error says why there is none.
pub(super) fn measure(point: &Point, python: &Path) -> Result<Row, String> {
    let asked = Command::new(python).args(["-c", "import mxnet"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !asked.is_ok_and(|status| status.success()) {
        return Err(format!("mxnet: {} has no MXNet; --python or SYNCLINE_ORACLE_PYTHON names another", python.display()));
    }
    if !["none", "2bit"].contains(&point.code.as_str()) {
        return Err(format!("mxnet: 1.9.1 has no {}", point.code));
    }
    if point.code != "none" && point.what.to_string() == "rows" {
        return Err("mxnet: rows are not compressed".into());
    }
    let servers = point.servers.max(1);
    let port = free_port()?;
    let cluster = Cluster { python, port: port.to_string(), servers: servers.to_string(), workers: point.workers.to_string() };
    let words = [
        "-c".to_owned(),
        SCRIPT.to_owned(),
        point.what.to_string(),
        point.size.to_string(),
        point.rows.to_string(),
        point.code.clone(),
        point.secs.to_string(),
        point.runs.to_string(),
        point.kind.clone(),
        point.optimizer.clone(),
    ];
    let mut started = Started(Vec::new());
    started.0.push(cluster.start("scheduler", &["-c".into(), "import mxnet".into()])?);
    for _ in 0..servers {
        started.0.push(cluster.start("server", &["-c".into(), "import mxnet".into()])?);
    }
    let workers = (0..point.workers).map(|_| cluster.start("worker", &words)).collect::<Result<Vec<_>, _>>()?;
    let mut runs = Vec::with_capacity(workers.len());
    for worker in workers {
        let ended = worker.wait_with_output().map_err(|error| format!("mxnet: {error}"))?;
        if !ended.status.success() {
            let words = String::from_utf8_lossy(&ended.stderr);
            return Err(format!(
                "mxnet: {}: {}",
                ended.status,
                words.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no words")
            ));
        }
        let text = String::from_utf8_lossy(&ended.stdout);
        let read = |line: &str| serde_json::from_str(line).map_err(|error| format!("mxnet: {line}: {error}"));
        runs.push(text.lines().filter(|line| line.starts_with('{')).map(read).collect::<Result<Vec<Run>, _>>()?);
    }
    match runs.iter().all(|worker| worker.len() == point.runs) {
        true => Ok(Row::of(point, "mxnet", servers, &runs)),
        false => Err("mxnet: a worker reported too few runs".into()),
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

/// Scheduler and servers end when their workers have; whatever happens, they do not stay.
struct Started(Vec<Child>);

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

//! `syncline env`: what a process started here would find, and why.

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use syncline::bootstrap::{HostSpan, Launch, address};
use syncline::{Config, Settings};
use syncline_tensor::kernels;

use crate::print;

/// Show what was found in the environment.
#[derive(Debug, Args)]
pub(crate) struct EnvOptions {
    /// One JSON object instead of readable lines
    #[arg(long)]
    json: bool,
}

/// Everything there is to say, in the order in which it is shown.
#[derive(Debug, Serialize)]
struct Found {
    rank: Option<u32>,
    size: u32,
    launcher: &'static str,
    because: Vec<String>,
    role: &'static str,
    local_rank: Option<u32>,
    local_size: Option<u32>,
    hosts: String,
    rendezvous: String,
    token: String,
    epoch: u32,
    host: String,
    addresses: Vec<String>,
    transports: Vec<String>,
    timeout_seconds: f64,
    encryption: String,
    cores: usize,
    simd: String,
    version: &'static str,
}

/// Prints it; the exit code tells whether the environment makes sense.
pub(crate) fn show(options: &EnvOptions) -> ExitCode {
    let config = match Config::from_env() {
        Ok(config) => config,
        Err(error) => {
            eprintln!("syncline env: {error}");
            return ExitCode::FAILURE;
        }
    };
    let found = look(config.launch(), config.settings());
    if options.json {
        print::line(serde_json::to_string_pretty(&found).expect("plain data has a JSON form"));
    } else {
        print::line(lines(&found).trim_end());
    }
    ExitCode::SUCCESS
}

fn look(launch: &Launch, settings: &Settings) -> Found {
    let candidates = address::candidates(settings.interface.as_deref()).unwrap_or_default();
    Found {
        rank: launch.rank,
        size: launch.world,
        launcher: launch.launcher.name(),
        because: launch.because.clone(),
        role: launch.role.name(),
        local_rank: launch.local_rank,
        local_size: launch.local_size,
        hosts: launch.hosts.to_string(),
        rendezvous: launch.meeting.to_string(),
        token: launch.token.to_string(),
        epoch: launch.epoch,
        host: address::host_label(),
        addresses: candidates.iter().map(|candidate| format!("{} ({})", candidate.address, candidate.interface)).collect(),
        transports: transports(launch, settings),
        timeout_seconds: settings.timeout.as_secs_f64(),
        encryption: if settings.encrypt { "between hosts" } else { "off" }.into(),
        cores: std::thread::available_parallelism().map_or(1, |cores| cores.get()),
        simd: kernels::simd_level().name().to_owned(),
        version: env!("CARGO_PKG_VERSION"),
    }
}

fn transports(launch: &Launch, settings: &Settings) -> Vec<String> {
    use syncline::TransportChoice::*;
    let inside = match settings.transport {
        Auto | Shm => "shared memory inside a host",
        Unix => "Unix sockets inside a host (SYNCLINE_TRANSPORT=unix)",
        Tcp => "TCP on loopback inside a host (SYNCLINE_TRANSPORT=tcp)",
    };
    match launch.hosts {
        _ if launch.world == 1 => vec!["none: a world of one".into()],
        HostSpan::One => vec![inside.into()],
        _ if settings.encrypt => vec![inside.into(), "encrypted TCP between hosts".into()],
        _ => vec![inside.into(), "TCP in the clear between hosts (SYNCLINE_ENCRYPT=off)".into()],
    }
}

fn lines(found: &Found) -> String {
    let unknown = || "unknown until it joins".to_owned();
    let number = |value: Option<u32>| value.map_or_else(unknown, |value| value.to_string());
    let list = |values: &[String]| if values.is_empty() { "none but loopback".to_owned() } else { values.join(", ") };
    let rows = [
        ("rank", number(found.rank)),
        ("size", found.size.to_string()),
        ("launcher", found.launcher.to_owned()),
        ("because", list(&found.because)),
        ("role", found.role.to_owned()),
        ("local rank", number(found.local_rank)),
        ("local size", number(found.local_size)),
        ("hosts", found.hosts.clone()),
        ("rendezvous", found.rendezvous.clone()),
        ("token", found.token.clone()),
        ("epoch", found.epoch.to_string()),
        ("host", found.host.clone()),
        ("addresses", list(&found.addresses)),
        ("transports", list(&found.transports)),
        ("timeout", format!("{} s", found.timeout_seconds)),
        ("encryption", found.encryption.clone()),
        ("cores", found.cores.to_string()),
        ("simd", found.simd.clone()),
        ("version", found.version.to_owned()),
    ];
    rows.iter().map(|(name, value)| format!("{name}: {value}\n")).collect()
}

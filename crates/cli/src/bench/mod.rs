//! `syncline bench`: measurements in the columns that people know, beside what the machine allows.
//!
//! A figure is worth something only beside another of the same run, so each table carries its own limit: memory
//! copies, raw sockets. `bench pb` speaks the small protocol of the harness that measures other libraries.

mod chart;
mod collective;
mod consistency;
mod fleet;
mod ipc;
mod kv;
mod limits;
mod link;
mod loops;
mod pb;
mod samples;
mod setting;
mod sizes;
mod table;
mod worker;

use std::process::ExitCode;

use clap::Subcommand;

/// What can be measured.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Latency and bandwidth of every transport, beside memory copies and raw sockets
    Link(link::Options),
    /// Adds and gets of tables over sizes, workers, roles, modes and transports
    Table(table::Options),
    /// Push and pull through the key-value store, beside the real MXNet
    Kv(kv::Options),
    /// All-reduce and the other collective operations over sizes, ranks, transports and plans, beside other libraries
    #[command(visible_alias = "collective")]
    Allreduce(collective::Options),
    /// Messages per second and round trips through channels, between threads and between processes
    Ipc(ipc::Options),
    /// One workload of the peers' harness: `syncline bench pb w4 n=2 what=barrier secs=1`
    Pb(pb::Options),
}

/// One process of a measurement, started by [`fleet`]; hidden from users.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchRank {
    /// A rank of `bench link`
    Link(link::RankOptions),
    /// A rank of `bench table`
    Table(table::RankOptions),
    /// A rank of `bench kv`
    Kv(kv::RankOptions),
    /// A rank of `bench allreduce`
    Collective(collective::RankOptions),
    /// A process of `bench ipc`
    Ipc(ipc::RankOptions),
    /// A rank of `bench pb`
    Pb(pb::RankOptions),
    /// Sends back what plain sockets bring: the other end of a raw measurement between hosts
    Echo(limits::EchoOptions),
}

/// Runs a measurement and prints its table.
pub(crate) fn run(bench: Bench) -> ExitCode {
    let result = match bench {
        Bench::Link(options) => link::run(&options),
        Bench::Table(options) => table::run(&options),
        Bench::Kv(options) => kv::run(&options),
        Bench::Allreduce(options) => collective::run(&options),
        Bench::Ipc(options) => ipc::run(&options),
        Bench::Pb(options) => pb::run(&options),
    };
    conclude(result)
}

/// Runs one process of a measurement.
pub(crate) fn run_rank(rank: BenchRank) -> ExitCode {
    let result = match rank {
        BenchRank::Link(options) => link::run_rank(&options),
        BenchRank::Table(options) => table::run_rank(&options),
        BenchRank::Kv(options) => kv::run_rank(&options),
        BenchRank::Collective(options) => collective::run_rank(&options),
        BenchRank::Ipc(options) => ipc::run_rank(&options),
        BenchRank::Pb(options) => pb::run_rank(&options),
        BenchRank::Echo(options) => limits::run_echo(&options),
    };
    conclude(result)
}

fn conclude(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("syncline bench: {error}");
            ExitCode::FAILURE
        }
    }
}

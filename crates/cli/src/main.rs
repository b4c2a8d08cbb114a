//! The `syncline` command: what people type.
//!
//! `main` only sorts: it reads the command line, calls the sub-command of that name, and turns its answer into an exit code.
//! Each sub-command is a module of its own. Two more words, [`run::CHILD_WORD`] and [`run::GUARD_WORD`], are how `run` starts
//! this binary again inside a job; they are answered before the command line is parsed, because four ranks pay for each millisecond.
#![forbid(unsafe_code)]

mod bench;
mod env;
mod log;
mod print;
mod run;
mod server;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Keeps the parameters of one model the same in many processes.
#[derive(Parser)]
#[command(name = "syncline", version, max_term_width = 100, arg_required_else_help = true, disable_help_subcommand = true)]
struct CommandLine {
    #[command(subcommand)]
    command: SubCommand,
}

#[derive(Subcommand)]
enum SubCommand {
    /// Start a program several times on this host, as the ranks of one job
    Run(run::RunOptions),
    /// A dedicated server process that joins a job (`run --servers` starts these)
    #[command(after_help = server::AFTER_HELP)]
    Server,
    /// Say what this process would find: launcher, rank, peers, addresses, transports, and why
    Env(env::EnvOptions),
    /// Measure, in the columns that people know, beside what the machine allows
    #[command(subcommand)]
    Bench(bench::Bench),
    /// One process of a measurement
    #[command(name = "__bench", subcommand, hide = true)]
    BenchRank(bench::BenchRank),
}

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    match words.next() {
        Some(word) if word == run::CHILD_WORD => return run::become_child(words),
        Some(word) if word == run::GUARD_WORD => return run::stand_guard(),
        _ => {}
    }
    log::to_stderr();
    match CommandLine::parse().command {
        SubCommand::Run(options) => run::run(options),
        SubCommand::Server => server::serve(),
        SubCommand::Env(options) => env::show(&options),
        SubCommand::Bench(bench) => bench::run(bench),
        SubCommand::BenchRank(rank) => bench::run_rank(rank),
    }
}

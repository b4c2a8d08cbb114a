//! The command line of `syncline run`, and nothing that acts on it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

const AFTER_HELP: &str = "\
Examples:
  syncline run -n 4 train.py --lr 0.1           four ranks of a Python script
  syncline run -n 4 -m mypackage.train          the same for a module
  syncline run -n 4 --servers 2 train.py        two processes that only hold tables
  syncline run -n 2 --log-dir logs lua a.lua    any program; logs/rank-0.out, logs/rank-0.err, …
  syncline run -n 8 --max-restarts 3 train.py   start over when a rank fails, three times at most
  syncline run -n 4 -- ./simulate -n 100        everything after the command belongs to the command

What a rank finds in its environment:
  SYNCLINE_RANK, SYNCLINE_WORLD_SIZE, SYNCLINE_LOCAL_RANK, SYNCLINE_RENDEZVOUS, SYNCLINE_TOKEN,
  SYNCLINE_JOB, SYNCLINE_EPOCH (restarts so far), SYNCLINE_LAUNCHER=run;
  SYNCLINE_ROLE with --servers, SYNCLINE_TIMEOUT with --timeout.
  The token is made for each job unless SYNCLINE_TOKEN is already set. Standard input is empty.
  SYNCLINE_PYTHON chooses the interpreter of .py files and -m; otherwise it is that of the active
  virtual environment, otherwise python3.

How it ends:
  When a rank fails, the others have --grace seconds to report it, then come SIGTERM and SIGKILL.
  The first failure is repeated at the end. Ctrl-C is passed on; a second one kills at once.
  When run returns, or is killed itself, no process of the job is left.

  Exit code: 0 when every rank ended with 0, otherwise that of the first rank that failed, or
  128 + signal if a signal killed it; 130 after Ctrl-C, 143 after SIGTERM;
  127 no such command, 126 it cannot be executed, 125 the launcher itself failed.";

/// What the user asks for.
#[derive(Args)]
#[command(
    override_usage = "syncline run [-n N] [OPTIONS] COMMAND [ARGS]...\n       syncline run [-n N] [OPTIONS] -m MODULE [ARGS]...",
    after_help = AFTER_HELP
)]
pub(crate) struct RunOptions {
    /// Workers to start; `auto` is one for each core
    #[arg(
        short = 'n',
        long = "nproc-per-node",
        alias = "nproc_per_node",
        value_name = "N",
        default_value = "1",
        value_parser = worker_count
    )]
    pub(super) workers: u32,

    /// Server processes to start beside the workers, which then hold no shard
    #[arg(long, value_name = "K", default_value_t = 0)]
    pub(super) servers: u32,

    /// Start the whole job again after a failure, at most R times
    #[arg(long, alias = "max_restarts", value_name = "R", default_value_t = 0)]
    pub(super) max_restarts: u32,

    /// Also write each rank's output to DIR/rank-N.out and DIR/rank-N.err (restarts: DIR/restart-R/…)
    #[arg(long, alias = "log_dir", value_name = "DIR")]
    pub(super) log_dir: Option<PathBuf>,

    /// How long a rank waits for its peers (SYNCLINE_TIMEOUT)
    #[arg(long, value_name = "SECONDS", value_parser = patience)]
    pub(super) timeout: Option<Duration>,

    /// How long the others may go on after a failure, or after Ctrl-C, before they are stopped
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    pub(super) grace: Duration,

    /// COMMAND is a Python module, as in `python -m`
    #[arg(short = 'm', long)]
    pub(super) module: bool,

    /// Start COMMAND itself, even if it ends in .py
    #[arg(long, alias = "no_python", conflicts_with = "module")]
    pub(super) no_python: bool,

    /// Show lines without `[rank N]`
    #[arg(long)]
    pub(super) no_prefix: bool,

    /// Colour of the prefixes; `auto` is colour on a terminal unless NO_COLOR or CI is set
    #[arg(long, value_name = "WHEN", default_value = "auto", hide_possible_values = false)]
    pub(super) color: ColorChoice,

    /// Every job of `run` stands alone; accepted because torchrun users type it.
    #[arg(long, hide = true)]
    pub(super) standalone: bool,

    /// The program to start, and its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true)]
    pub(super) command: Vec<OsString>,
}

/// When prefixes are coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorChoice {
    Auto,
    Always,
    Never,
}

fn worker_count(text: &str) -> Result<u32, String> {
    match text {
        "auto" | "cpu" => {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            u32::try_from(cores).map_err(|error| error.to_string())
        }
        "p" => Err("the option is `-n 4`; `-np 4` is how mpirun spells it".into()),
        _ => match text.parse() {
            Ok(0) => Err("a job has at least one worker".into()),
            Ok(count) => Ok(count),
            Err(_) => Err("expected a number of workers, or `auto`".into()),
        },
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text.parse().map_err(|_| "expected a number of seconds".to_string())?;
    Duration::try_from_secs_f64(number).map_err(|_| "expected a number of seconds, zero or more".to_string())
}

/// The ranks refuse a timeout of nothing; once, here, is better than by each of them.
fn patience(text: &str) -> Result<Duration, String> {
    seconds(text).ok().filter(|time| !time.is_zero()).ok_or_else(|| "expected a number of seconds above 0".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, Parser};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        run: RunOptions,
    }

    fn parse(words: &[&str]) -> Result<RunOptions, clap::Error> {
        Line::try_parse_from([&["run"], words].concat()).map(|line| line.run)
    }

    #[test]
    fn the_command_line_is_consistent() {
        Line::command().debug_assert();
    }

    #[test]
    fn options_after_the_command_belong_to_the_command() {
        let options = parse(&["-n", "2", "prog", "-n", "9", "--servers", "--", "x"]).unwrap();
        assert_eq!(options.workers, 2);
        assert_eq!(options.command, ["prog", "-n", "9", "--servers", "--", "x"]);

        let options = parse(&["-n2", "--", "prog", "--", "-m"]).unwrap();
        assert_eq!(options.command, ["prog", "--", "-m"]);
        assert!(!options.module);
    }

    #[test]
    fn the_spellings_of_torchrun_are_understood() {
        for spelling in ["--nproc-per-node=3", "--nproc_per_node=3", "-n3"] {
            assert_eq!(parse(&[spelling, "x"]).unwrap().workers, 3, "{spelling}");
        }
        let options = parse(&["--standalone", "-m", "pkg.train", "-m"]).unwrap();
        assert!(options.module);
        assert_eq!(options.command, ["pkg.train", "-m"]);
    }

    #[test]
    fn mistakes_are_named() {
        for (words, expected) in [
            (&["-n", "0", "x"][..], "at least one worker"),
            (&["-np", "4", "x"], "mpirun"),
            (&["--grace=-1", "x"], "zero or more"),
            (&["--timeout=0", "x"], "above 0"),
            (&["--timeout=inf", "x"], "above 0"),
            (&["--sevrers", "2", "x"], "--servers"),
            (&[], "COMMAND"),
        ] {
            let text = parse(words).map(|_| ()).unwrap_err().to_string();
            assert!(text.contains(expected), "{words:?}: {text}");
        }
    }
}

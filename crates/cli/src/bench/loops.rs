//! What the loops of one setting amount to: one worker's figures of one run, and all of them put together.

use serde::{Deserialize, Serialize};

use super::worker::Measured;

/// One worker's figures of one run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) loops_per_s: f64,
    /// The same of what it is compared with; 0 for nothing.
    #[serde(default)]
    pub(crate) limit_loops_per_s: f64,
    /// Seconds of one loop.
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) wrong: u64,
}

impl Run {
    pub(crate) fn of(mut measured: Measured, limit_loops_per_s: f64) -> Run {
        Run {
            loops_per_s: measured.samples.len() as f64 / measured.elapsed.as_secs_f64(),
            limit_loops_per_s,
            p50: measured.samples.quantile(0.5),
            p99: measured.samples.quantile(0.99),
            wrong: 0,
        }
    }

    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("plain data has a JSON form")
    }

    /// From lines of JSON.
    pub(crate) fn read_all<S: AsRef<str>>(lines: &[S]) -> Result<Vec<Run>, String> {
        let read = |line: &S| serde_json::from_str(line.as_ref()).map_err(|error| format!("{}: {error}", line.as_ref()));
        lines.iter().map(read).collect()
    }
}

/// The figures of a setting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figures {
    /// Median and 99th percentile of one loop of one worker, microseconds.
    pub(crate) time_us: f64,
    pub(crate) p99_us: f64,
    /// Loops of all workers together: the median run, the worst and the best.
    pub(crate) loops_per_s: f64,
    pub(crate) slowest: f64,
    pub(crate) fastest: f64,
    /// Gigabytes of values per second that one worker sees, and that all move together.
    pub(crate) algbw_gb_per_s: f64,
    pub(crate) busbw_gb_per_s: f64,
    /// Values that were not what was sent.
    pub(crate) wrong: u64,
}

/// The names of the columns of figures, and below them their units.
pub(crate) const HEADS: [[&str; 6]; 2] =
    [["time", "p99", "loops/s", "spread", "algbw", "busbw"], ["(us)", "(us)", "", "", "(GB/s)", "(GB/s)"]];

impl Figures {
    /// `runs[worker][run]` of loops that move `size` bytes there and back, put together.
    pub(crate) fn of(size: usize, runs: &[Vec<Run>]) -> Figures {
        let loops = each_run(runs, |run| run.loops_per_s);
        let of_all = |figure: fn(&Run) -> f64| median(runs.iter().flatten().map(figure).collect());
        let gigabytes = 2.0 * size as f64 / 1e9;
        let (time, p99) = (of_all(|run| run.p50), of_all(|run| run.p99));
        let (slowest, fastest) = loops.iter().fold((f64::MAX, 0f64), |(low, high), rate| (low.min(*rate), high.max(*rate)));
        let rate = median(loops);
        Figures {
            time_us: time * 1e6,
            p99_us: p99 * 1e6,
            loops_per_s: rate,
            slowest,
            fastest,
            algbw_gb_per_s: gigabytes / time,
            busbw_gb_per_s: gigabytes * rate,
            wrong: runs.iter().flatten().map(|run| run.wrong).sum(),
        }
    }

    /// As texts below [`HEADS`].
    pub(crate) fn columns(&self) -> [String; 6] {
        [
            figure(self.time_us),
            figure(self.p99_us),
            short(self.loops_per_s),
            format!("{}..{}", short(self.slowest), short(self.fastest)),
            figure(self.algbw_gb_per_s),
            figure(self.busbw_gb_per_s),
        ]
    }
}

/// A figure of all workers together, run by run.
pub(crate) fn each_run(runs: &[Vec<Run>], figure: fn(&Run) -> f64) -> Vec<f64> {
    let count = runs.iter().map(Vec::len).min().unwrap_or(0);
    (0..count).map(|run| runs.iter().map(|worker| figure(&worker[run])).sum()).collect()
}

/// Texts below each other in columns.
pub(crate) fn line<const N: usize>(widths: [usize; N], texts: [&str; N]) -> String {
    let padded: Vec<String> = texts.iter().zip(widths).map(|(text, width)| format!("{text:>width$}")).collect();
    padded.join(" ")
}

pub(crate) fn figure(number: f64) -> String {
    format!("{number:.2}")
}

/// A rate in four digits.
fn short(rate: f64) -> String {
    match rate {
        1e6.. => format!("{:.2}M", rate / 1e6),
        1e3.. => format!("{:.1}k", rate / 1e3),
        _ => format!("{rate:.1}"),
    }
}

/// The middle one; of an even number, the lower of the two.
pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len().saturating_sub(1) / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_added_up_and_the_median_run_counts() {
        let run = |loops_per_s: f64| Run { loops_per_s, p50: 1e-3, p99: 2e-3, ..Run::default() };
        let figures = Figures::of(1 << 20, &vec![vec![run(1000.0), run(900.0), run(500.0)]; 2]);
        assert_eq!((figures.loops_per_s, figures.slowest, figures.fastest, figures.wrong), (1800.0, 1000.0, 2000.0, 0));
        assert!((figures.busbw_gb_per_s - 2.0 * 1.048576e-3 * 1800.0).abs() < 1e-9);
        assert!((figures.algbw_gb_per_s - 2.0 * 1.048576e-3 / 1e-3).abs() < 1e-9);
        assert_eq!((short(1234.5), short(2.5e6), short(9.04)), ("1.2k".into(), "2.50M".into(), "9.0".into()));
    }
}

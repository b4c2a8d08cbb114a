//! One line of the table: what the runs of one setting amount to.

use serde::{Deserialize, Serialize};

use super::point::{Point, Run};

/// A setting and its figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) what: String,
    pub(super) workers: u32,
    pub(super) servers: u32,
    pub(super) mode: String,
    pub(super) transport: String,
    pub(super) size: usize,
    /// Median and 99th percentile of one loop of one worker, microseconds.
    pub(super) time_us: f64,
    pub(super) p99_us: f64,
    /// Loops of all workers together: the median, the worst and the best run.
    pub(super) loops_per_s: f64,
    pub(super) slowest: f64,
    pub(super) fastest: f64,
    /// Gigabytes per second that one worker sees, and that all move together.
    pub(super) algbw_gb_per_s: f64,
    pub(super) busbw_gb_per_s: f64,
    /// The same as `busbw`, of a plain loop.
    pub(super) limit_gb_per_s: f64,
    /// Median over the runs of table over plain loop.
    pub(super) of_limit: f64,
    /// Values that were not what was added.
    pub(super) wrong: u64,
}

impl Row {
    /// The two lines above the rows.
    pub(super) fn head() -> [String; 2] {
        [
            line([
                "what",
                "n",
                "srv",
                "mode",
                "transport",
                "size",
                "time",
                "p99",
                "loops/s",
                "spread",
                "algbw",
                "busbw",
                "limit",
                "of limit",
                "#wrong",
            ]),
            line(["", "", "", "", "", "(B)", "(us)", "(us)", "", "", "(GB/s)", "(GB/s)", "(GB/s)", "", ""]),
        ]
    }

    /// `runs[worker][run]` of a setting, put together.
    pub(super) fn of(point: &Point, runs: &[Vec<Run>]) -> Row {
        let each_run = |figure: fn(&Run) -> f64| -> Vec<f64> {
            (0..point.runs).map(|run| runs.iter().map(|worker| figure(&worker[run])).sum::<f64>()).collect()
        };
        let of_all = |figure: fn(&Run) -> f64| median(runs.iter().flatten().map(figure).collect());
        let (loops, limits) = (each_run(|run| run.loops_per_s), each_run(|run| run.limit_loops_per_s));
        let ratios = loops.iter().zip(&limits).map(|(loops, limit)| loops / limit).collect();
        let gigabytes = 2.0 * point.size as f64 / 1e9;
        let (time, p99) = (of_all(|run| run.p50), of_all(|run| run.p99));
        let (slowest, fastest) = loops.iter().fold((f64::MAX, 0f64), |(low, high), rate| (low.min(*rate), high.max(*rate)));
        let (rate, limit) = (median(loops), median(limits));
        Row {
            what: point.what.to_string(),
            workers: point.workers,
            servers: point.servers,
            mode: point.mode.to_string(),
            transport: point.transport.clone(),
            size: point.size,
            time_us: time * 1e6,
            p99_us: p99 * 1e6,
            loops_per_s: rate,
            slowest,
            fastest,
            algbw_gb_per_s: gigabytes / time,
            busbw_gb_per_s: gigabytes * rate,
            limit_gb_per_s: gigabytes * limit,
            of_limit: median(ratios),
            wrong: runs.iter().flatten().map(|run| run.wrong).sum(),
        }
    }

    /// As a line below [`Row::head`].
    pub(super) fn columns(&self) -> String {
        let figure = |number: f64| format!("{number:.2}");
        line([
            &self.what,
            &self.workers.to_string(),
            &self.servers.to_string(),
            &self.mode,
            &self.transport,
            &self.size.to_string(),
            &figure(self.time_us),
            &figure(self.p99_us),
            &short(self.loops_per_s),
            &format!("{}..{}", short(self.slowest), short(self.fastest)),
            &figure(self.algbw_gb_per_s),
            &figure(self.busbw_gb_per_s),
            &figure(self.limit_gb_per_s),
            &figure(self.of_limit),
            &self.wrong.to_string(),
        ])
    }
}

/// Texts below each other in columns.
fn line(texts: [&str; 15]) -> String {
    const WIDTHS: [usize; 15] = [5, 2, 3, 11, 9, 9, 10, 10, 8, 18, 7, 7, 7, 8, 6];
    let padded: Vec<String> = texts.iter().zip(WIDTHS).map(|(text, width)| format!("{text:>width$}")).collect();
    padded.join(" ")
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
fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len().saturating_sub(1) / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::table::point::What;

    fn point() -> Point {
        let mode = "sync".parse().unwrap();
        Point { what: What::Dense, size: 1 << 20, workers: 2, servers: 0, mode, transport: "shm".into(), rows: 1, secs: 0.1, runs: 3 }
    }

    fn run(loops_per_s: f64, limit_loops_per_s: f64) -> Run {
        Run { loops_per_s, limit_loops_per_s, p50: 1e-3, p99: 2e-3, wrong: 0 }
    }

    #[test]
    fn a_row_adds_the_workers_up_and_takes_the_median_run() {
        let runs = vec![vec![run(1000.0, 2000.0), run(900.0, 1500.0), run(500.0, 2000.0)]; 2];
        let row = Row::of(&point(), &runs);
        assert_eq!((row.loops_per_s, row.slowest, row.fastest), (1800.0, 1000.0, 2000.0));
        assert_eq!((row.of_limit, row.wrong), (0.5, 0), "each run is compared with the limit measured beside it");
        assert!((row.busbw_gb_per_s - 2.0 * 1.048576e-3 * 1800.0).abs() < 1e-9);
        assert!((row.algbw_gb_per_s - 2.0 * 1.048576e-3 / 1e-3).abs() < 1e-9);
    }

    #[test]
    fn columns_stand_below_their_names() {
        let line = Row::of(&point(), &vec![vec![run(1234.0, 2000.0); 3]; 2]).columns();
        assert_eq!(Row::head().map(|head| head.len()), [line.len(); 2]);
        let json = serde_json::to_string(&Row::of(&point(), &vec![vec![run(1.0, 2.0); 3]; 2])).unwrap();
        assert_eq!(serde_json::from_str::<Row>(&json).unwrap().size, 1 << 20);
    }
}

//! One line of the table: what the runs of one setting amount to.

use serde::{Deserialize, Serialize};

use super::point::Point;
use crate::bench::loops::{self, Figures, HEADS, Run, each_run, figure, median};

/// A setting and its figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) what: String,
    pub(super) workers: u32,
    pub(super) servers: u32,
    pub(super) mode: String,
    pub(super) transport: String,
    pub(super) size: usize,
    #[serde(flatten)]
    pub(super) figures: Figures,
    /// The same as `busbw`, of a plain loop.
    pub(super) limit_gb_per_s: f64,
    /// Median over the runs of table over plain loop.
    pub(super) of_limit: f64,
}

impl Row {
    /// The two lines above the rows.
    pub(super) fn head() -> [String; 2] {
        let [[time, p99, loops, spread, algbw, busbw], units] = HEADS;
        let [in_us, also_us, _, _, in_gb, also_gb] = units;
        [
            line(["what", "n", "srv", "mode", "transport", "size", time, p99, loops, spread, algbw, busbw, "limit", "of limit", "#wrong"]),
            line(["", "", "", "", "", "(B)", in_us, also_us, "", "", in_gb, also_gb, in_gb, "", ""]),
        ]
    }

    /// `runs[worker][run]` of a setting, put together.
    pub(super) fn of(point: &Point, runs: &[Vec<Run>]) -> Row {
        let setting = &point.setting;
        let (rates, limits) = (each_run(runs, |run| run.loops_per_s), each_run(runs, |run| run.limit_loops_per_s));
        let ratios = rates.iter().zip(&limits).map(|(rate, limit)| rate / limit).collect();
        Row {
            what: setting.what.to_string(),
            workers: setting.workers,
            servers: setting.servers,
            mode: point.mode.to_string(),
            transport: setting.transport.clone(),
            size: setting.size,
            figures: Figures::of(setting.size, runs),
            limit_gb_per_s: 2.0 * setting.size as f64 / 1e9 * median(limits),
            of_limit: median(ratios),
        }
    }

    /// As a line below [`Row::head`].
    pub(super) fn columns(&self) -> String {
        let [time, p99, rate, spread, algbw, busbw] = &self.figures.columns();
        line([
            &self.what,
            &self.workers.to_string(),
            &self.servers.to_string(),
            &self.mode,
            &self.transport,
            &self.size.to_string(),
            time,
            p99,
            rate,
            spread,
            algbw,
            busbw,
            &figure(self.limit_gb_per_s),
            &figure(self.of_limit),
            &self.figures.wrong.to_string(),
        ])
    }
}

fn line(texts: [&str; 15]) -> String {
    loops::line([5, 2, 3, 11, 9, 9, 10, 10, 8, 18, 7, 7, 7, 8, 6], texts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::setting::{Setting, What};

    fn point() -> Point {
        let setting =
            Setting { what: What::Dense, size: 1 << 20, workers: 2, servers: 0, transport: "shm".into(), rows: 1, secs: 0.1, runs: 3 };
        Point { setting, mode: "sync".parse().unwrap() }
    }

    fn run(loops_per_s: f64, limit_loops_per_s: f64) -> Run {
        Run { loops_per_s, limit_loops_per_s, p50: 1e-3, p99: 2e-3, wrong: 0 }
    }

    #[test]
    fn each_run_is_compared_with_the_limit_measured_beside_it() {
        let runs = vec![vec![run(1000.0, 2000.0), run(900.0, 1500.0), run(500.0, 2000.0)]; 2];
        let row = Row::of(&point(), &runs);
        assert_eq!((row.figures.loops_per_s, row.of_limit), (1800.0, 0.5));
    }

    #[test]
    fn columns_stand_below_their_names() {
        let line = Row::of(&point(), &vec![vec![run(1234.0, 2000.0); 3]; 2]).columns();
        assert_eq!(Row::head().map(|head| head.len()), [line.len(); 2]);
        let json = serde_json::to_string(&Row::of(&point(), &vec![vec![run(1.0, 2.0); 3]; 2])).unwrap();
        assert_eq!(serde_json::from_str::<Row>(&json).unwrap().size, 1 << 20);
    }
}

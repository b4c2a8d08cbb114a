//! One line of the table: what the runs of one setting amount to.

use serde::{Deserialize, Serialize};

use super::point::Point;

/// One worker's figures of one run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Run {
    pub(super) loops_per_s: f64,
    /// Seconds of one loop.
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) wrong: u64,
}

/// A setting and its figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Row {
    /// `syncline` or `mxnet`.
    pub(super) who: String,
    pub(super) what: String,
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) code: String,
    pub(super) optimizer: String,
    pub(super) workers: u32,
    pub(super) servers: u32,
    pub(super) transport: String,
    pub(super) size: usize,
    /// Median and 99th percentile of one loop of one worker, microseconds.
    pub(super) time_us: f64,
    pub(super) p99_us: f64,
    /// Loops of all workers together: the median run, the worst and the best.
    pub(super) loops_per_s: f64,
    pub(super) slowest: f64,
    pub(super) fastest: f64,
    /// Gigabytes of values per second that one worker sees, and that all move together.
    pub(super) algbw_gb_per_s: f64,
    pub(super) busbw_gb_per_s: f64,
    /// Values that were not what was pushed.
    pub(super) wrong: u64,
}

impl Row {
    /// The two lines above the rows.
    pub(super) fn head() -> [String; 2] {
        [
            line([
                "who", "what", "type", "code", "update", "n", "srv", "size", "time", "p99", "loops/s", "spread", "algbw", "busbw", "#wrong",
            ]),
            line(["", "", "", "", "", "", "", "(B)", "(us)", "(us)", "", "", "(GB/s)", "(GB/s)", ""]),
        ]
    }

    /// `runs[worker][run]` of a setting, put together.
    pub(super) fn of(point: &Point, who: &str, servers: u32, runs: &[Vec<Run>]) -> Row {
        let loops: Vec<f64> = (0..point.runs).map(|run| runs.iter().map(|worker| worker[run].loops_per_s).sum()).collect();
        let of_all = |figure: fn(&Run) -> f64| median(runs.iter().flatten().map(figure).collect());
        let gigabytes = 2.0 * point.size as f64 / 1e9;
        let (time, p99) = (of_all(|run| run.p50), of_all(|run| run.p99));
        let (slowest, fastest) = loops.iter().fold((f64::MAX, 0f64), |(low, high), rate| (low.min(*rate), high.max(*rate)));
        let rate = median(loops);
        Row {
            who: who.to_owned(),
            what: point.what.to_string(),
            kind: point.kind.clone(),
            code: point.code.clone(),
            optimizer: point.optimizer.clone(),
            workers: point.workers,
            servers,
            transport: if who == "syncline" { point.transport.clone() } else { "tcp".to_owned() },
            size: point.size,
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

    /// As a line below [`Row::head`], or as JSON.
    pub(super) fn printed(&self, json: bool) -> String {
        if json {
            return serde_json::to_string(self).expect("plain data has a JSON form");
        }
        let figure = |number: f64| format!("{number:.2}");
        line([
            &self.who,
            &self.what,
            &self.kind,
            &self.code,
            &self.optimizer,
            &self.workers.to_string(),
            &self.servers.to_string(),
            &self.size.to_string(),
            &figure(self.time_us),
            &figure(self.p99_us),
            &short(self.loops_per_s),
            &format!("{}..{}", short(self.slowest), short(self.fastest)),
            &figure(self.algbw_gb_per_s),
            &figure(self.busbw_gb_per_s),
            &self.wrong.to_string(),
        ])
    }
}

/// Texts below each other in columns.
fn line(texts: [&str; 15]) -> String {
    const WIDTHS: [usize; 15] = [8, 5, 10, 4, 8, 2, 3, 9, 10, 10, 8, 16, 7, 7, 6];
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

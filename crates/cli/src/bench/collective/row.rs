//! One line of the table.

use serde::{Deserialize, Serialize};

use super::point::Point;

/// A setting, a size, and what was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) who: String,
    pub(super) operation: String,
    pub(super) ranks: u32,
    pub(super) transport: String,
    pub(super) plan: String,
    pub(super) size: usize,
    pub(super) count: usize,
    pub(super) dtype: String,
    pub(super) redop: String,
    pub(super) shared: bool,
    /// Of one operation of the slowest rank, microseconds: the median of the runs, and its 99th percentile.
    pub(super) time_us: f64,
    pub(super) p99_us: f64,
    pub(super) algbw_gb_per_s: f64,
    pub(super) busbw_gb_per_s: f64,
    /// Numbers that were not what they should be.
    pub(super) wrong: u64,
}

/// What a library measured of one size.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Measured {
    pub(super) size: usize,
    /// Seconds of one operation.
    pub(super) time: f64,
    pub(super) p99: f64,
    pub(super) wrong: u64,
}

impl Row {
    /// What `who` measured of a setting.
    pub(super) fn of(point: &Point, who: &str, measured: Measured) -> Row {
        let ours = who == "syncline";
        let algbw = if measured.time > 0.0 { measured.size as f64 / measured.time / 1e9 } else { 0.0 };
        Row {
            who: who.into(),
            operation: point.operation.to_string(),
            ranks: point.ranks,
            transport: if ours { point.transport.clone() } else { "-".into() },
            plan: if ours { point.plan.clone() } else { "-".into() },
            size: measured.size,
            count: measured.size / point.dtype.size(),
            dtype: point.dtype.name().into(),
            redop: if point.operation.reduces() { point.redop.name().into() } else { "none".into() },
            shared: ours && point.shared,
            time_us: measured.time * 1e6,
            p99_us: measured.p99 * 1e6,
            algbw_gb_per_s: algbw,
            busbw_gb_per_s: algbw * point.operation.bus_share(point.ranks),
            wrong: measured.wrong,
        }
    }

    /// The two lines above the rows.
    pub(super) fn head() -> [String; 2] {
        let names = ["who", "op", "n", "transport", "plan", "size", "count", "type", "redop", "time", "p99", "algbw", "busbw", "#wrong"];
        [
            line(names.map(str::to_owned)),
            line(["", "", "", "", "", "(B)", "", "", "", "(us)", "(us)", "(GB/s)", "(GB/s)", ""].map(str::to_owned)),
        ]
    }

    /// The row, as a line of JSON or in columns.
    pub(super) fn printed(&self, json: bool) -> String {
        if json {
            return serde_json::to_string(self).expect("plain data has a JSON form");
        }
        line([
            self.who.clone(),
            self.operation.clone(),
            self.ranks.to_string(),
            self.transport.clone(),
            self.plan.clone(),
            self.size.to_string(),
            self.count.to_string(),
            self.dtype.clone(),
            self.redop.clone(),
            format!("{:.1}", self.time_us),
            format!("{:.1}", self.p99_us),
            format!("{:.3}", self.algbw_gb_per_s),
            format!("{:.3}", self.busbw_gb_per_s),
            self.wrong.to_string(),
        ])
    }
}

fn line(cells: [String; 14]) -> String {
    const WIDTHS: [usize; 14] = [8, 14, 3, 9, 8, 11, 10, 8, 5, 10, 10, 8, 8, 6];
    let cells: Vec<String> = cells.iter().zip(WIDTHS).map(|(cell, width)| format!("{cell:>width$}")).collect();
    cells.join(" ")
}

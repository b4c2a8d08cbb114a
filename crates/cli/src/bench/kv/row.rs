//! One line of the table: what the runs of one setting amount to.

use serde::{Deserialize, Serialize};

use super::point::Point;
use crate::bench::loops::{self, Figures, HEADS, Run};

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
    #[serde(flatten)]
    pub(super) figures: Figures,
}

impl Row {
    /// The two lines above the rows.
    pub(super) fn head() -> [String; 2] {
        let [[time, p99, rate, spread, algbw, busbw], [in_us, also_us, _, _, in_gb, also_gb]] = HEADS;
        [
            line(["who", "what", "type", "code", "update", "n", "srv", "size", time, p99, rate, spread, algbw, busbw, "#wrong"]),
            line(["", "", "", "", "", "", "", "(B)", in_us, also_us, "", "", in_gb, also_gb, ""]),
        ]
    }

    /// `runs[worker][run]` of a setting, put together.
    pub(super) fn of(point: &Point, who: &str, servers: u32, runs: &[Vec<Run>]) -> Row {
        let setting = &point.setting;
        Row {
            who: who.to_owned(),
            what: setting.what.to_string(),
            kind: point.kind.clone(),
            code: point.code.clone(),
            optimizer: point.optimizer.clone(),
            workers: setting.workers,
            servers,
            transport: if who == "syncline" { setting.transport.clone() } else { "tcp".to_owned() },
            size: setting.size,
            figures: Figures::of(setting.size, runs),
        }
    }

    /// As a line below [`Row::head`], or as JSON.
    pub(super) fn printed(&self, json: bool) -> String {
        if json {
            return serde_json::to_string(self).expect("plain data has a JSON form");
        }
        let [time, p99, rate, spread, algbw, busbw] = &self.figures.columns();
        line([
            &self.who,
            &self.what,
            &self.kind,
            &self.code,
            &self.optimizer,
            &self.workers.to_string(),
            &self.servers.to_string(),
            &self.size.to_string(),
            time,
            p99,
            rate,
            spread,
            algbw,
            busbw,
            &self.figures.wrong.to_string(),
        ])
    }
}

fn line(texts: [&str; 15]) -> String {
    loops::line([8, 5, 10, 4, 8, 2, 3, 9, 10, 10, 8, 16, 7, 7, 6], texts)
}

//! The rows as a picture: one panel per operation and number of ranks.

use super::row::Row;
use crate::bench::chart::{Chart, DASHES, Line, PALETTE, Panel, distinct};

/// The picture of all rows.
pub(super) fn draw(rows: &[Row]) -> String {
    let series = distinct(rows, name);
    let look = |name: &String| {
        let index = series.iter().position(|other| other == name).unwrap_or(0);
        (PALETTE[index % PALETTE.len()], DASHES[index / PALETTE.len() % DASHES.len()])
    };
    let stroke = |name: &String| {
        let (color, dash) = look(name);
        format!("stroke=\"{color}\" stroke-dasharray=\"{dash}\"")
    };
    let panel = |(operation, ranks): (String, u32)| {
        let line = |name: &String| Line {
            look: stroke(name),
            dots: Some(look(name).0.into()),
            points: rows
                .iter()
                .filter(|row| row.operation == operation && row.ranks == ranks && &self::name(row) == name)
                .map(|row| (row.size, row.busbw_gb_per_s))
                .collect(),
        };
        Panel { title: format!("{operation}, {ranks} ranks"), lines: series.iter().map(line).collect() }
    };
    let chart = Chart {
        title: "syncline bench: bandwidth of collective operations over size",
        across: "bytes",
        up: "GB/s (busbw)",
        panels: distinct(rows, |row| (row.operation.clone(), row.ranks)).into_iter().map(panel).collect(),
        legend: series.iter().map(|name| (stroke(name), name.clone())).collect(),
    };
    chart.draw()
}

/// What a line of the picture is called.
fn name(row: &Row) -> String {
    match (row.transport.as_str(), row.plan.as_str()) {
        ("-", _) => row.who.clone(),
        (transport, "auto") => format!("{} {transport}", row.who),
        (transport, plan) => format!("{} {transport} {plan}", row.who),
    }
}

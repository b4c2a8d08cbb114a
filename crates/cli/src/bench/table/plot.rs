//! The rows as a picture: one panel per kind of work and transport.

use std::collections::BTreeMap;

use super::row::Row;
use crate::bench::chart::{Chart, DASHES, LIMIT_LOOK, Line, PALETTE, Panel, distinct};

/// The picture of all rows.
pub(super) fn draw(rows: &[Row]) -> String {
    let crews = distinct(rows, |row| (row.workers, row.servers));
    let modes = distinct(rows, |row| row.mode.clone());
    let panel = |(what, transport): (String, String)| {
        let here: Vec<&Row> = rows.iter().filter(|row| (&row.what, &row.transport) == (&what, &transport)).collect();
        let mut lines = vec![Line { look: LIMIT_LOOK.into(), dots: None, points: limits(&here).collect() }];
        for mode in &modes {
            for (crew, color) in crews.iter().zip(PALETTE.iter().cycle()) {
                let of_crew = here.iter().filter(|row| (row.workers, row.servers) == *crew && &row.mode == mode);
                lines.push(Line {
                    look: format!("stroke=\"{color}\" stroke-dasharray=\"{}\"", dash(&modes, mode)),
                    dots: Some((*color).into()),
                    points: of_crew.map(|row| (row.size, row.figures.busbw_gb_per_s)).collect(),
                });
            }
        }
        Panel { title: format!("{what} add + get, {transport}"), lines }
    };
    let chart = Chart {
        title: "syncline bench table: bandwidth of add and get over size",
        across: "bytes of each add and get",
        up: "GB/s, all workers",
        panels: distinct(rows, |row| (row.what.clone(), row.transport.clone())).into_iter().map(panel).collect(),
        legend: legend(&crews, &modes),
    };
    chart.draw()
}

/// What the plain loops of the most workers reached at each size, the best where several rows measured it.
fn limits(rows: &[&Row]) -> impl Iterator<Item = (usize, f64)> {
    let most = rows.iter().map(|row| row.workers).max().unwrap_or(0);
    let mut best: BTreeMap<usize, f64> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.workers == most) {
        let rate = best.entry(row.size).or_default();
        *rate = rate.max(row.limit_gb_per_s);
    }
    best.into_iter()
}

/// What each colour and each dash means.
fn legend(crews: &[(u32, u32)], modes: &[String]) -> Vec<(String, String)> {
    let plural = |count: u32, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    let mut entries = Vec::new();
    for (&(workers, servers), color) in crews.iter().zip(PALETTE.iter().cycle()) {
        let beside = if servers == 0 { String::new() } else { format!(" + {}", plural(servers, "server")) };
        entries.push((format!("stroke=\"{color}\""), plural(workers, "worker") + &beside));
    }
    if modes.len() > 1 {
        for mode in modes {
            entries.push((format!("class=\"axis\" stroke-dasharray=\"{}\"", dash(modes, mode)), mode.clone()));
        }
    }
    entries.push((LIMIT_LOOK.into(), "plain loop, most workers".into()));
    entries
}

fn dash(modes: &[String], mode: &str) -> &'static str {
    DASHES[modes.iter().position(|other| other == mode).unwrap_or(0) % DASHES.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::loops::Figures;

    fn row(what: &str, workers: u32, mode: &str, size: usize, busbw_gb_per_s: f64) -> Row {
        Row {
            what: what.into(),
            workers,
            servers: 0,
            mode: mode.into(),
            transport: "shm".into(),
            size,
            figures: Figures { busbw_gb_per_s, ..Figures::of(size, &[]) },
            limit_gb_per_s: 2.0 * busbw_gb_per_s,
            of_limit: 0.5,
        }
    }

    #[test]
    fn every_series_has_a_line_and_every_meaning_a_word() {
        let mut rows = Vec::new();
        for what in ["dense", "rows"] {
            for mode in ["async", "sync"] {
                for workers in [1, 2] {
                    rows.extend([4096, 1 << 20].map(|size| row(what, workers, mode, size, size as f64 / 1e5)));
                }
            }
        }
        let svg = draw(&rows);
        // Two panels of four series and a limit, their axes, and a legend of two crews, two modes and the limit.
        assert_eq!(svg.matches("<path").count(), 2 * (4 + 1 + 1) + 5);
        assert_eq!(svg.matches("<circle").count(), rows.len());
        for text in
            ["dense add + get, shm", "rows add + get, shm", "1 worker<", "2 workers<", ">sync<", ">4K<", ">1M<", "prefers-color-scheme"]
        {
            assert!(svg.contains(text), "{text}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn a_picture_of_one_point_or_of_nothing_is_still_a_picture() {
        for rows in [vec![], vec![row("dense", 1, "async", 4, 0.0)], vec![row("dense", 1, "async", 4096, 3.0)]] {
            let svg = draw(&rows);
            assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n") && !svg.contains("NaN"), "{svg}");
        }
    }
}

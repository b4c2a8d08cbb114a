//! The rows as a picture: bandwidth over size, both in powers, one panel per kind of work and transport.
//!
//! Plain SVG of a few shapes. Colours of lines stand out on white and on black; those of paper and ink follow the
//! reader's choice of light or dark.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::row::Row;
use crate::bench::sizes;

/// A panel's plot area, and the room around it.
const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 64.0;
const TOP: f64 = 44.0;
const RIGHT: f64 = 24.0;
const BOTTOM: f64 = 48.0;
const LEGEND_LINE: f64 = 20.0;
const LEGEND_ENTRY: f64 = 200.0;

const PALETTE: [&str; 6] = ["#0b84d8", "#e8590c", "#12a37a", "#cc6699", "#d49a00", "#8a6fe8"];
const LIMIT_LOOK: &str = "class=\"limit\" stroke-dasharray=\"1 4\" stroke-linecap=\"round\"";
const DASHES: [&str; 4] = ["none", "7 4", "2 3", "9 3 2 3"];

const STYLE: &str = "\
text{font:12px system-ui,sans-serif;fill:#1f2430}.title{font-weight:600;font-size:13px}.quiet{fill:#5b6472}\
.paper{fill:#ffffff}.grid{stroke:#e2e5ea}.axis{stroke:#5b6472}.limit{stroke:#9aa3af}\
path,line{fill:none}path{stroke-width:2;stroke-linejoin:round}\
@media(prefers-color-scheme:dark){text{fill:#e6e9ef}.quiet{fill:#a3acb9}.paper{fill:#14171c}.grid{stroke:#2c323b}.axis{stroke:#a3acb9}.limit{stroke:#6b7480}}";

/// The picture of all rows.
pub(super) fn draw(rows: &[Row]) -> String {
    let panels = distinct(rows, |row| (row.what.clone(), row.transport.clone()));
    let crews = distinct(rows, |row| (row.workers, row.servers));
    let modes = distinct(rows, |row| row.mode.clone());
    let scale = Scale::of(rows);
    let across = panels.len().clamp(1, 2);
    let down = panels.len().div_ceil(across);
    let (panel_width, panel_height) = (LEFT + WIDTH + RIGHT, TOP + HEIGHT + BOTTOM);
    let entries = legend(&crews, &modes);
    let per_line = ((panel_width * across as f64 - LEFT) / LEGEND_ENTRY).max(1.0) as usize;
    let legend_height = LEGEND_LINE * (entries.len().div_ceil(per_line) as f64 + 1.0);
    let (width, height) = (panel_width * across as f64, panel_height * down as f64 + legend_height);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\">\n\
         <title>syncline bench table: bandwidth of add and get over size</title>\n<style>{STYLE}</style>\n\
         <rect class=\"paper\" width=\"{width}\" height=\"{height}\"/>\n"
    );
    for (index, (what, transport)) in panels.iter().enumerate() {
        let (x, y) = (panel_width * (index % across) as f64 + LEFT, panel_height * (index / across) as f64 + TOP);
        let _ = writeln!(svg, "<g transform=\"translate({x} {y})\">");
        scale.frame(&mut svg, &format!("{what} add + get, {transport}"));
        let here: Vec<&Row> = rows.iter().filter(|row| (&row.what, &row.transport) == (what, transport)).collect();
        scale.line(&mut svg, limits(&here), LIMIT_LOOK, None);
        for mode in &modes {
            for (crew, color) in crews.iter().zip(PALETTE.iter().cycle()) {
                let of_crew = here.iter().filter(|row| (row.workers, row.servers) == *crew && &row.mode == mode);
                let look = format!("stroke=\"{color}\" stroke-dasharray=\"{}\"", dash(&modes, mode));
                scale.line(&mut svg, of_crew.map(|row| (row.size, row.busbw_gb_per_s)), &look, Some(color));
            }
        }
        svg.push_str("</g>\n");
    }
    for (index, (look, text)) in entries.iter().enumerate() {
        let x = LEFT + LEGEND_ENTRY * (index % per_line) as f64;
        let y = panel_height * down as f64 + LEGEND_LINE * ((index / per_line) as f64 + 0.5);
        let _ = writeln!(svg, "<path {look} d=\"M{x} {y}h28\"/><text x=\"{}\" y=\"{}\">{text}</text>", x + 36.0, y + 4.0);
    }
    svg.push_str("</svg>\n");
    svg
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

/// Keys of the rows in the order in which they first appear.
fn distinct<K: PartialEq>(rows: &[Row], key: impl Fn(&Row) -> K) -> Vec<K> {
    let mut keys = Vec::new();
    for row in rows {
        let key = key(row);
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys
}

/// From sizes and bandwidths to places; the same in all panels, so that they can be compared.
struct Scale {
    sizes: Vec<usize>,
    /// Decades between which every bandwidth lies.
    lowest: i32,
    highest: i32,
}

impl Scale {
    fn of(rows: &[Row]) -> Scale {
        let mut sizes = distinct(rows, |row| row.size);
        sizes.sort_unstable();
        let rates = rows.iter().flat_map(|row| [row.busbw_gb_per_s, row.limit_gb_per_s]).filter(|rate| *rate > 0.0 && rate.is_finite());
        let (low, high) = rates.fold((f64::MAX, 0f64), |(low, high), rate| (low.min(rate), high.max(rate)));
        let (lowest, highest) = if high == 0.0 { (-1, 1) } else { (low.log10().floor() as i32, high.log10().ceil() as i32) };
        Scale { sizes, lowest, highest: highest.max(lowest + 1) }
    }

    fn x(&self, size: usize) -> f64 {
        let place = |size: usize| (size.max(1) as f64).log2();
        let (first, last) = (self.sizes.first().map_or(0.0, |size| place(*size)), self.sizes.last().map_or(1.0, |size| place(*size)));
        if last > first { WIDTH * (0.04 + 0.92 * (place(size) - first) / (last - first)) } else { WIDTH / 2.0 }
    }

    fn y(&self, rate: f64) -> f64 {
        let share = (rate.log10() - f64::from(self.lowest)) / f64::from(self.highest - self.lowest);
        HEIGHT * (1.0 - share.clamp(0.0, 1.0))
    }

    /// Axes, grid and names of a panel.
    fn frame(&self, svg: &mut String, title: &str) {
        let _ = writeln!(svg, "<text class=\"title\" x=\"0\" y=\"-16\">{title}</text>");
        for decade in self.lowest..=self.highest {
            for step in [1.0, 2.0, 5.0] {
                let rate = step * 10f64.powi(decade);
                if decade == self.highest && step > 1.0 {
                    break;
                }
                let y = self.y(rate);
                let _ = writeln!(svg, "<line class=\"grid\" x1=\"0\" x2=\"{WIDTH}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>");
                if step == 1.0 || self.highest - self.lowest <= 2 {
                    let _ = writeln!(svg, "<text class=\"quiet\" x=\"-8\" y=\"{:.1}\" text-anchor=\"end\">{rate}</text>", y + 4.0);
                }
            }
        }
        let mut written_up_to = f64::MIN;
        for &size in &self.sizes {
            let x = self.x(size);
            let _ = writeln!(svg, "<line class=\"axis\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{HEIGHT}\" y2=\"{}\"/>", HEIGHT + 4.0);
            if x - written_up_to >= 34.0 {
                written_up_to = x;
                let text = sizes::text(size);
                let _ = writeln!(svg, "<text class=\"quiet\" x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{text}</text>", HEIGHT + 18.0);
            }
        }
        let _ = writeln!(
            svg,
            "<path class=\"axis\" style=\"stroke-width:1\" d=\"M0 0V{HEIGHT}H{WIDTH}\"/>\n\
             <text class=\"quiet\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">bytes of each add and get</text>\n\
             <text class=\"quiet\" transform=\"translate(-46 {}) rotate(-90)\" text-anchor=\"middle\">GB/s, all workers</text>",
            WIDTH / 2.0,
            HEIGHT + 36.0,
            HEIGHT / 2.0
        );
    }

    /// A line through the points, with a dot on each where a colour is given.
    fn line(&self, svg: &mut String, points: impl Iterator<Item = (usize, f64)>, look: &str, dots: Option<&str>) {
        let mut points: Vec<(usize, f64)> = points.filter(|(_, rate)| *rate > 0.0 && rate.is_finite()).collect();
        points.sort_by_key(|(size, _)| *size);
        if points.is_empty() {
            return;
        }
        let places: Vec<(f64, f64)> = points.iter().map(|(size, rate)| (self.x(*size), self.y(*rate))).collect();
        let path: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
        let _ = writeln!(svg, "<path {look} d=\"M{}\"/>", path.join("L"));
        for ((x, y), color) in places.iter().zip(std::iter::repeat(dots)) {
            if let Some(color) = color {
                let _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{color}\"/>");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(what: &str, workers: u32, mode: &str, size: usize, busbw_gb_per_s: f64) -> Row {
        Row {
            what: what.into(),
            workers,
            servers: 0,
            mode: mode.into(),
            transport: "shm".into(),
            size,
            time_us: 1.0,
            p99_us: 1.0,
            loops_per_s: 1.0,
            slowest: 1.0,
            fastest: 1.0,
            algbw_gb_per_s: 1.0,
            busbw_gb_per_s,
            limit_gb_per_s: 2.0 * busbw_gb_per_s,
            of_limit: 0.5,
            wrong: 0,
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

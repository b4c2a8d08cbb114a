//! Pictures of measurements: bandwidth over size, both in powers, in panels side by side.
//!
//! Plain SVG of a few shapes. Colours of lines stand out on white and on black; those of paper and ink follow the
//! reader's choice of light or dark.

use std::fmt::Write;

use super::sizes;

/// A panel's plot area, and the room around it.
const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 64.0;
const TOP: f64 = 44.0;
const RIGHT: f64 = 24.0;
const BOTTOM: f64 = 48.0;
const LEGEND_LINE: f64 = 20.0;
const LEGEND_ENTRY: f64 = 200.0;

pub(super) const PALETTE: [&str; 6] = ["#0b84d8", "#e8590c", "#12a37a", "#cc6699", "#d49a00", "#8a6fe8"];
pub(super) const LIMIT_LOOK: &str = "class=\"limit\" stroke-dasharray=\"1 4\" stroke-linecap=\"round\"";
pub(super) const DASHES: [&str; 4] = ["none", "7 4", "2 3", "9 3 2 3"];

const STYLE: &str = "\
text{font:12px system-ui,sans-serif;fill:#1f2430}.title{font-weight:600;font-size:13px}.quiet{fill:#5b6472}\
.paper{fill:#ffffff}.grid{stroke:#e2e5ea}.axis{stroke:#5b6472}.limit{stroke:#9aa3af}\
path,line{fill:none}path{stroke-width:2;stroke-linejoin:round}\
@media(prefers-color-scheme:dark){text{fill:#e6e9ef}.quiet{fill:#a3acb9}.paper{fill:#14171c}.grid{stroke:#2c323b}.axis{stroke:#a3acb9}.limit{stroke:#6b7480}}";

/// What a picture shows.
pub(super) struct Chart {
    pub(super) title: &'static str,
    /// What sizes and rates are.
    pub(super) across: &'static str,
    pub(super) up: &'static str,
    pub(super) panels: Vec<Panel>,
    /// What each look means.
    pub(super) legend: Vec<(String, String)>,
}

/// Lines that share axes.
pub(super) struct Panel {
    pub(super) title: String,
    pub(super) lines: Vec<Line>,
}

/// A series.
pub(super) struct Line {
    /// Its stroke, as attributes.
    pub(super) look: String,
    /// The colour of the dot on each of its points, if they have one.
    pub(super) dots: Option<String>,
    pub(super) points: Vec<(usize, f64)>,
}

impl Chart {
    /// The picture as SVG.
    pub(super) fn draw(&self) -> String {
        let scale = Scale::of(&self.panels);
        let across = self.panels.len().clamp(1, 2);
        let down = self.panels.len().div_ceil(across);
        let (panel_width, panel_height) = (LEFT + WIDTH + RIGHT, TOP + HEIGHT + BOTTOM);
        let per_line = ((panel_width * across as f64 - LEFT) / LEGEND_ENTRY).max(1.0) as usize;
        let legend_height = LEGEND_LINE * (self.legend.len().div_ceil(per_line) as f64 + 1.0);
        let (width, height) = (panel_width * across as f64, panel_height * down as f64 + legend_height);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\">\n\
             <title>{}</title>\n<style>{STYLE}</style>\n\
             <rect class=\"paper\" width=\"{width}\" height=\"{height}\"/>\n",
            self.title
        );
        for (index, panel) in self.panels.iter().enumerate() {
            let (x, y) = (panel_width * (index % across) as f64 + LEFT, panel_height * (index / across) as f64 + TOP);
            let _ = writeln!(svg, "<g transform=\"translate({x} {y})\">");
            scale.frame(&mut svg, &panel.title, self);
            panel.lines.iter().for_each(|line| scale.line(&mut svg, line));
            svg.push_str("</g>\n");
        }
        for (index, (look, text)) in self.legend.iter().enumerate() {
            let x = LEFT + LEGEND_ENTRY * (index % per_line) as f64;
            let y = panel_height * down as f64 + LEGEND_LINE * ((index / per_line) as f64 + 0.5);
            let _ = writeln!(svg, "<path {look} d=\"M{x} {y}h28\"/><text x=\"{}\" y=\"{}\">{text}</text>", x + 36.0, y + 4.0);
        }
        svg.push_str("</svg>\n");
        svg
    }
}

/// Keys of rows in the order in which they first appear.
pub(super) fn distinct<R, K: PartialEq>(rows: &[R], key: impl Fn(&R) -> K) -> Vec<K> {
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
    fn of(panels: &[Panel]) -> Scale {
        let points = || panels.iter().flat_map(|panel| &panel.lines).flat_map(|line| &line.points);
        let mut sizes: Vec<usize> = points().map(|(size, _)| *size).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let rates = points().map(|(_, rate)| *rate).filter(|rate| *rate > 0.0 && rate.is_finite());
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
    fn frame(&self, svg: &mut String, title: &str, chart: &Chart) {
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
             <text class=\"quiet\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n\
             <text class=\"quiet\" transform=\"translate(-46 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            WIDTH / 2.0,
            HEIGHT + 36.0,
            chart.across,
            HEIGHT / 2.0,
            chart.up
        );
    }

    /// A line through the points, with a dot on each where a colour is given.
    fn line(&self, svg: &mut String, line: &Line) {
        let Line { look, dots, points } = line;
        let mut points: Vec<(usize, f64)> = points.iter().copied().filter(|(_, rate)| *rate > 0.0 && rate.is_finite()).collect();
        points.sort_by_key(|(size, _)| *size);
        if points.is_empty() {
            return;
        }
        let places: Vec<(f64, f64)> = points.iter().map(|(size, rate)| (self.x(*size), self.y(*rate))).collect();
        let path: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
        let _ = writeln!(svg, "<path {look} d=\"M{}\"/>", path.join("L"));
        for ((x, y), color) in places.iter().zip(std::iter::repeat(dots.as_ref())) {
            if let Some(color) = color {
                let _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{color}\"/>");
            }
        }
    }
}

//! Metrics as the text that Prometheus reads, version 0.0.4 of its exposition format.

use std::fmt::Write;

use crate::HistogramSnapshot;

/// Label names and values of one metric, in the order they are shown.
pub(crate) type Labels = Vec<(String, String)>;

/// Writes families of metrics one after another.
#[derive(Default)]
pub(crate) struct Page(String);

impl Page {
    /// Opens a family; its samples must follow before the next family.
    pub(crate) fn family(&mut self, name: &str, kind: &str, help: &str) {
        let help = help.replace('\\', r"\\").replace('\n', r"\n");
        self.line(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}"));
    }

    /// One value of a counter.
    pub(crate) fn counter(&mut self, name: &str, labels: &Labels, value: u64) {
        let labels = rendered(labels, None);
        self.line(format_args!("{name}{labels} {value}"));
    }

    /// One histogram in seconds. The same buckets every time, so that scrapes can be compared.
    pub(crate) fn histogram(&mut self, name: &str, labels: &Labels, seen: &HistogramSnapshot) {
        let mut up_to = 0;
        for (bound, held) in seen.buckets() {
            up_to += held;
            if SHOWN.contains(&bound) {
                let labels = rendered(labels, Some(&seconds(bound)));
                self.line(format_args!("{name}_bucket{labels} {up_to}"));
            }
        }
        let (all, labels) = (rendered(labels, Some("+Inf")), rendered(labels, None));
        self.line(format_args!("{name}_bucket{all} {up_to}"));
        self.line(format_args!(
            "{name}_sum{labels} {}",
            seen.total().as_secs_f64()
        ));
        self.line(format_args!("{name}_count{labels} {up_to}"));
    }

    /// The text so far.
    pub(crate) fn into_text(self) -> String {
        self.0
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.0, "{line}").expect("a String takes everything");
    }
}

/// Bounds that are shown, in nanoseconds: 64 ns to 69 s. What is shorter or longer is in the first or in `+Inf`.
const SHOWN: std::ops::RangeInclusive<u64> = 1 << 6..=1 << 36;

fn seconds(nanos: u64) -> String {
    (nanos as f64 / 1e9).to_string()
}

fn rendered(labels: &Labels, bound: Option<&str>) -> String {
    let labels = labels
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    let pairs: Vec<String> = labels
        .chain(bound.map(|bound| ("le", bound)))
        .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
        .collect();
    if pairs.is_empty() {
        String::new()
    } else {
        format!("{{{}}}", pairs.join(","))
    }
}

fn escaped(value: &str) -> String {
    value
        .replace('\\', r"\\")
        .replace('"', "\\\"")
        .replace('\n', r"\n")
}

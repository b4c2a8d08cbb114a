//! Names for metrics, and all of them on one page.
//!
//! The lock is taken when a metric is made or the page is rendered, never when a metric is bumped.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::prometheus::{Labels, Page};
use crate::{Counter, Histogram, LinkStats};

/// The metrics of one owner, usually a session.
#[derive(Debug, Default)]
pub struct Registry {
    shelves: Mutex<Shelves>,
}

#[derive(Debug, Default)]
struct Shelves {
    families: BTreeMap<String, Family>,
    links: Vec<(Labels, Arc<LinkStats>)>,
}

/// All metrics of one name.
#[derive(Debug)]
struct Family {
    help: String,
    metrics: Metrics,
}

#[derive(Debug)]
enum Metrics {
    Counters(BTreeMap<Labels, Arc<Counter>>),
    Histograms(BTreeMap<Labels, Arc<Histogram>>),
}

/// Why a metric could not be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// Prometheus would not read this name.
    #[error("{name:?} cannot name a metric or label: use letters, digits and _, not beginning with a digit")]
    BadName {
        /// The name as given.
        name: String,
    },
    /// The name already stands for metrics of another kind.
    #[error("metric {name} is a {existing}, not a {wanted}")]
    OtherKind {
        /// The name as given.
        name: String,
        /// What it stands for.
        existing: &'static str,
        /// What was asked for.
        wanted: &'static str,
    },
}

const COUNTER: &str = "counter";
const HISTOGRAM: &str = "histogram";

impl Registry {
    /// Starts empty.
    pub fn new() -> Registry {
        Registry::default()
    }

    /// The counter of this name and these labels, made when it is first asked for.
    ///
    /// By custom its name ends in `_total`. Fails if the name is malformed or stands for histograms.
    pub fn counter(&self, name: &str, help: &str, labels: &[(&str, &str)]) -> Result<Arc<Counter>, RegistryError> {
        let labels = checked(name, labels)?;
        let mut shelves = self.lock();
        match shelves.family(name, help, || Metrics::Counters(BTreeMap::new())) {
            Metrics::Counters(counters) => Ok(Arc::clone(counters.entry(labels).or_default())),
            Metrics::Histograms(_) => Err(other_kind(name, HISTOGRAM, COUNTER)),
        }
    }

    /// The histogram of this name and these labels, made when it is first asked for.
    ///
    /// By custom its name ends in `_seconds`, the unit it is shown in. Fails if the name is malformed or stands for counters.
    /// ```
    /// # let registry = syncline_metrics::Registry::new();
    /// let waits = registry.histogram("syncline_barrier_seconds", "Time spent in barriers.", &[])?;
    /// waits.time(|| { /* the barrier */ });
    /// assert!(registry.render().contains("syncline_barrier_seconds_count 1\n"));
    /// # Ok::<(), syncline_metrics::RegistryError>(())
    /// ```
    pub fn histogram(&self, name: &str, help: &str, labels: &[(&str, &str)]) -> Result<Arc<Histogram>, RegistryError> {
        let labels = checked(name, labels)?;
        let mut shelves = self.lock();
        match shelves.family(name, help, || Metrics::Histograms(BTreeMap::new())) {
            Metrics::Histograms(histograms) => Ok(Arc::clone(histograms.entry(labels).or_default())),
            Metrics::Counters(_) => Err(other_kind(name, COUNTER, HISTOGRAM)),
        }
    }

    /// The counters of the link with these labels, made when it is first asked for; shown as `syncline_link_…`.
    ///
    /// A link that is made again under the same labels goes on counting where the last one stopped.
    pub fn link(&self, labels: &[(&str, &str)]) -> Result<Arc<LinkStats>, RegistryError> {
        let labels = checked("syncline_link", labels)?;
        let mut shelves = self.lock();
        if let Some((_, stats)) = shelves.links.iter().find(|(known, _)| *known == labels) {
            return Ok(Arc::clone(stats));
        }
        let stats = Arc::new(LinkStats::new());
        shelves.links.push((labels, Arc::clone(&stats)));
        Ok(stats)
    }

    /// Every metric as Prometheus text, sorted by name.
    pub fn render(&self) -> String {
        let shelves = self.lock();
        let mut page = Page::default();
        for (name, family) in &shelves.families {
            match &family.metrics {
                Metrics::Counters(counters) => {
                    page.family(name, COUNTER, &family.help);
                    counters.iter().for_each(|(labels, counter)| page.counter(name, labels, counter.get()));
                }
                Metrics::Histograms(histograms) => {
                    page.family(name, HISTOGRAM, &family.help);
                    histograms.iter().for_each(|(labels, seen)| page.histogram(name, labels, &seen.snapshot()));
                }
            }
        }
        shelves.render_links(&mut page);
        page.into_text()
    }

    /// A panic while the lock was held cannot leave a shelf half changed, so a poisoned lock is as good as any.
    fn lock(&self) -> MutexGuard<'_, Shelves> {
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shelves {
    fn family(&mut self, name: &str, help: &str, empty: impl FnOnce() -> Metrics) -> &mut Metrics {
        let family = self.families.entry(name.to_owned());
        &mut family.or_insert_with(|| Family { help: help.to_owned(), metrics: empty() }).metrics
    }

    /// A family per count, a sample per link in it, as the format demands.
    fn render_links(&self, page: &mut Page) {
        let seen: Vec<_> = self.links.iter().map(|(labels, stats)| (labels, stats.snapshot().named())).collect();
        let Some((_, first)) = seen.first() else {
            return;
        };
        for (count, (name, help, _)) in first.iter().enumerate() {
            page.family(name, COUNTER, help);
            seen.iter().for_each(|(labels, counts)| page.counter(name, labels, counts[count].2));
        }
    }
}

fn other_kind(name: &str, existing: &'static str, wanted: &'static str) -> RegistryError {
    RegistryError::OtherKind { name: name.to_owned(), existing, wanted }
}

/// The labels, once the metric's name and theirs are known to be readable.
fn checked(name: &str, labels: &[(&str, &str)]) -> Result<Labels, RegistryError> {
    let names = std::iter::once(&name).chain(labels.iter().map(|(label, _)| label));
    for name in names {
        let letters = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || !name.chars().all(letters) {
            return Err(RegistryError::BadName { name: (*name).to_owned() });
        }
    }
    Ok(labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_name_and_labels_are_the_same_metric() {
        let registry = Registry::new();
        let first = registry.counter("pushes_total", "Pushes.", &[("table", "a")]).unwrap();
        let again = registry.counter("pushes_total", "Pushes.", &[("table", "a")]).unwrap();
        let other = registry.counter("pushes_total", "Pushes.", &[("table", "b")]).unwrap();
        first.increment();
        assert_eq!((again.get(), other.get()), (1, 0));
        let link = registry.link(&[("peer", "3")]).unwrap();
        assert!(Arc::ptr_eq(&link, &registry.link(&[("peer", "3")]).unwrap()));
    }

    #[test]
    fn the_page_is_prometheus_text() {
        let registry = Registry::new();
        registry.counter("b_total", "Back\\slash.", &[]).unwrap().add(7);
        registry.counter("a_total", "Two\nlines.", &[("key", "say \"hi\"\n")]).unwrap().add(5);
        assert_eq!(
            registry.render(),
            "# HELP a_total Two\\nlines.\n\
             # TYPE a_total counter\n\
             a_total{key=\"say \\\"hi\\\"\\n\"} 5\n\
             # HELP b_total Back\\\\slash.\n\
             # TYPE b_total counter\n\
             b_total 7\n"
        );
    }

    #[test]
    fn histograms_are_cumulative_and_in_seconds() {
        let registry = Registry::new();
        let waits = registry.histogram("wait_seconds", "Waits.", &[("lane", "table")]).unwrap();
        for nanos in [1, 64, 65, 1_000_000_000, u64::MAX / 4] {
            waits.record_nanos(nanos);
        }
        let page = registry.render();
        for line in [
            "# TYPE wait_seconds histogram",
            "wait_seconds_bucket{lane=\"table\",le=\"0.000000064\"} 2",
            "wait_seconds_bucket{lane=\"table\",le=\"0.000000128\"} 3",
            "wait_seconds_bucket{lane=\"table\",le=\"1.073741824\"} 4",
            "wait_seconds_bucket{lane=\"table\",le=\"68.719476736\"} 4",
            "wait_seconds_bucket{lane=\"table\",le=\"+Inf\"} 5",
            "wait_seconds_count{lane=\"table\"} 5",
        ] {
            assert!(page.lines().any(|found| found == line), "{line}\nis not in\n{page}");
        }
    }

    #[test]
    fn links_are_shown_count_by_count() {
        let registry = Registry::new();
        registry.link(&[("peer", "1"), ("transport", "shm")]).unwrap().bytes_sent.add(64);
        registry.link(&[("peer", "2"), ("transport", "tcp")]).unwrap().bytes_sent.add(128);
        let page = registry.render();
        let together = "# TYPE syncline_link_bytes_sent_total counter\n\
                        syncline_link_bytes_sent_total{peer=\"1\",transport=\"shm\"} 64\n\
                        syncline_link_bytes_sent_total{peer=\"2\",transport=\"tcp\"} 128\n";
        assert!(page.contains(together), "{page}");
        assert_eq!(page.matches("# TYPE").count(), 7);
    }

    #[test]
    fn a_name_means_one_kind_of_metric() {
        let registry = Registry::new();
        registry.counter("steps", "Steps.", &[]).unwrap();
        let refused = registry.histogram("steps", "Steps.", &[]).unwrap_err();
        assert_eq!(refused.to_string(), "metric steps is a counter, not a histogram");
        registry.histogram("waits", "Waits.", &[]).unwrap();
        assert!(matches!(registry.counter("waits", "Waits.", &[]), Err(RegistryError::OtherKind { .. })));
    }

    #[test]
    fn names_that_prometheus_would_not_read_are_refused() {
        let registry = Registry::new();
        for name in ["", "7up", "bytes-sent", "späte", "a b"] {
            let expected = Err(RegistryError::BadName { name: name.to_owned() });
            assert_eq!(registry.counter(name, "", &[]).map(|_| ()), expected);
            assert_eq!(registry.link(&[(name, "x")]).map(|_| ()), expected);
        }
        assert_eq!(registry.render(), "");
    }

    #[test]
    fn two_registries_know_nothing_of_each_other() {
        let (one, two) = (Registry::new(), Registry::new());
        one.counter("steps_total", "Steps.", &[]).unwrap().increment();
        assert_eq!(two.render(), "");
    }
}

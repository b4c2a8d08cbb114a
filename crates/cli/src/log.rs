//! Lines of log on standard error: warnings always, the rest with `SYNCLINE_LOG=info` or `debug`.

use std::fmt::{self, Write as _};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Prints what the layers below have to say, from now on.
pub(crate) fn to_stderr() {
    let most = match std::env::var("SYNCLINE_LOG").as_deref() {
        Ok("debug") => Level::DEBUG,
        Ok("info") => Level::INFO,
        _ => Level::WARN,
    };
    let _ = tracing::subscriber::set_global_default(Lines { most });
}

/// One line an event; spans are not used.
struct Lines {
    most: Level,
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.most && metadata.target().starts_with("syncline")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut words = Words(String::new());
        event.record(&mut words);
        eprintln!("syncline: {}", words.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Words(String);

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}

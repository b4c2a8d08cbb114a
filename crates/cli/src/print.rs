//! Data on standard output. A reader that has seen enough (`syncline env | head -1`) is no reason to panic.

use std::io::Write;

/// Writes one line; when nobody reads any more, the process ends as one would that SIGPIPE killed.
pub(crate) fn line(text: impl std::fmt::Display) {
    const READER_LEFT: i32 = 128 + 13;
    let mut out = std::io::stdout().lock();
    if writeln!(out, "{text}").and_then(|()| out.flush()).is_err() {
        std::process::exit(READER_LEFT);
    }
}

//! An error that happened on a server, raised again at the worker whose request it was.
//!
//! The family, the culprit and the hint survive the way, so that bindings raise the same exception wherever the share lives.

use std::time::Duration;

use syncline_cluster::{Error, Who};
use syncline_wire::message::{MAX_TEXT, clip_text};

use super::messages::{Refusal, RefusalKind};

/// Culprits that are named; a large job's error stays readable.
const NAMED: usize = 12;

impl Refusal {
    /// What to tell the worker about `error`.
    pub(crate) fn of(error: &Error) -> Refusal {
        let made = |kind, operation: &str, detail: &str, who: &[Who], waited: Duration, hint: &str| Refusal {
            kind,
            operation: clip(operation),
            detail: clip(detail),
            who: who.iter().take(NAMED).map(|who| (who.rank, clip(&who.host), who.pid)).collect(),
            waited_ms: waited.as_millis() as u64,
            hint: clip(hint),
        };
        let plain = |kind, operation: &str, detail: &str| made(kind, operation, detail, &[], Duration::ZERO, "");
        match error {
            Error::PeerLost { operation, who, how, waited, hint } => {
                made(RefusalKind::PeerLost, operation, how, std::slice::from_ref(who), *waited, hint)
            }
            Error::Timeout { operation, missing, detail, waited, hint } => {
                made(RefusalKind::Timeout, operation, detail, missing, *waited, hint)
            }
            Error::ContractMismatch { operation, detail } => plain(RefusalKind::ContractMismatch, operation, detail),
            Error::ShapeMismatch { operation, detail } => plain(RefusalKind::ShapeMismatch, operation, detail),
            Error::UnknownKey { operation, detail } => plain(RefusalKind::UnknownKey, operation, detail),
            Error::Configuration { detail } => plain(RefusalKind::Configuration, "", detail),
            Error::Closed { operation } => plain(RefusalKind::Closed, operation, ""),
            Error::System { operation, detail } => plain(RefusalKind::System, operation, detail),
            other => plain(RefusalKind::System, "table server", &other.to_string()),
        }
    }

    /// The error that the worker raises; `server` is who said so.
    pub(crate) fn into_error(self, server: u32) -> Error {
        let Refusal { kind, operation, detail, who, waited_ms, hint } = self;
        let mut who = who.into_iter().map(|(rank, host, pid)| Who { rank, host, pid });
        let waited = Duration::from_millis(waited_ms);
        match kind {
            RefusalKind::PeerLost => {
                let who = who.next().unwrap_or(Who { rank: server, host: String::new(), pid: 0 });
                Error::PeerLost { operation, who, how: detail, waited, hint }
            }
            RefusalKind::Timeout => Error::Timeout { operation, missing: who.collect(), detail, waited, hint },
            RefusalKind::ContractMismatch => Error::ContractMismatch { operation, detail },
            RefusalKind::ShapeMismatch => Error::ShapeMismatch { operation, detail },
            RefusalKind::UnknownKey => Error::UnknownKey { operation, detail },
            RefusalKind::Configuration => Error::Configuration { detail },
            RefusalKind::Closed => Error::Closed { operation },
            RefusalKind::System => Error::System { operation, detail: format!("on rank {server}: {detail}") },
        }
    }
}

/// A third of what a text may be, so that several fit into one meta.
fn clip(text: &str) -> String {
    let mut text = clip_text(text);
    let mut end = (MAX_TEXT / 3).min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spread::messages::Reply;

    #[test]
    fn an_error_keeps_its_family_its_culprit_and_its_words() {
        let who = Who { rank: 3, host: "node-b".into(), pid: 77 };
        let waited = Duration::from_millis(1500);
        for error in [
            Error::PeerLost { operation: "get".into(), who: who.clone(), how: "was killed".into(), waited, hint: "look".into() },
            Error::Timeout { operation: "get".into(), missing: vec![who], detail: " (busy)".into(), waited, hint: "wait".into() },
            Error::ShapeMismatch { operation: "add".into(), detail: "5 bytes, needs 8".into() },
            Error::UnknownKey { operation: "add".into(), detail: "row 9".into() },
            Error::ContractMismatch { operation: "add".into(), detail: "two".into() },
            Error::Closed { operation: "add".into() },
        ] {
            let reply = Reply::Refused(Refusal::of(&error));
            let Ok(Reply::Refused(refusal)) = Reply::decode(&reply.encode()) else { panic!("a refusal comes back as one") };
            assert_eq!(refusal.into_error(0).to_string(), error.to_string());
        }
    }

    #[test]
    fn the_wordiest_error_fits_into_a_reply() {
        let long = "é".repeat(MAX_TEXT);
        let missing = (0..40).map(|rank| Who { rank, host: "h".repeat(200), pid: 1 }).collect();
        let error = Error::Timeout { operation: long.clone(), missing, detail: long.clone(), waited: Duration::ZERO, hint: long };
        let bytes = Reply::Refused(Refusal::of(&error)).encode();
        assert!(matches!(Reply::decode(&bytes), Ok(Reply::Refused(_))));
    }
}

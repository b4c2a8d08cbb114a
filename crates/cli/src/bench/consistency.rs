//! The words for a table's consistency on the command line: `async`, `sync`, `staleness=2`.

use std::fmt;
use std::str::FromStr;

use syncline::Consistency;

/// How far workers may drift apart, as a word.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Mode(pub(crate) Consistency);

impl Mode {
    /// Whether a worker that stops would hold the others up, so that all must stop together.
    pub(crate) fn couples_workers(self) -> bool {
        self.0 != Consistency::Async
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Mode, String> {
        let bound = |number: &str| number.parse().map_err(|_| format!("staleness={number} is no number of rounds"));
        match (text, text.strip_prefix("staleness=")) {
            ("async", _) => Ok(Mode(Consistency::Async)),
            ("sync", _) => Ok(Mode(Consistency::Sync)),
            (_, Some(number)) => Ok(Mode(Consistency::new(false, Some(bound(number)?)))),
            _ => Err(format!("there is no mode {text}; choose among async, sync, staleness=K")),
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Consistency::Async => f.pad("async"),
            Consistency::Sync => f.pad("sync"),
            Consistency::Bounded(bound) => f.pad(&format!("staleness={bound}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_the_way_there_and_back() {
        for word in ["async", "sync", "staleness=2"] {
            assert_eq!(word.parse::<Mode>().unwrap().to_string(), word);
        }
        assert_eq!("staleness=0".parse(), Ok(Mode(Consistency::Sync)), "no lag at all is what sync means");
        assert!("eventually".parse::<Mode>().unwrap_err().contains("async, sync, staleness=K"));
        assert!("staleness=some".parse::<Mode>().is_err());
    }
}

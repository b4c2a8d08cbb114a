//! The first thing a client says: which process of which machine it is, so that errors can name it.

use syncline_cluster::bootstrap::address::host_label;
use syncline_wire::{Limits, Value};

/// Told apart from the greetings of ranks, which come to other doors.
const TITLE: &str = "syncline ipc client 1";

/// What a client tells of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) host: String,
    pub(crate) pid: u32,
}

impl Hello {
    pub(crate) fn of_this_process() -> Hello {
        Hello { host: host_label(), pid: std::process::id() }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let told = Value::List(vec![Value::from(TITLE), Value::from(self.host.as_str()), Value::Int(i64::from(self.pid))]);
        told.encode(&Limits::STRANGER).map(|encoded| encoded.into_meta()).unwrap_or_default() // a host name has 64 bytes at most
    }

    /// `None` if it was something else that came in.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Hello> {
        let Ok(Value::List(told)) = Value::decode(bytes, &[], &Limits::STRANGER) else {
            return None;
        };
        match told.as_slice() {
            [Value::Str(title), Value::Str(host), Value::Int(pid)] if title == TITLE => {
                // It stands in error messages and logs: nothing that moves a cursor.
                let host = host.chars().filter(|c| !c.is_control()).take(64).collect();
                Some(Hello { host, pid: u32::try_from(*pid).ok()? })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_comes_back_as_it_went_and_nothing_else_passes() {
        let hello = Hello::of_this_process();
        let bytes = hello.encode();
        assert_eq!(Hello::decode(&bytes), Some(hello));
        for cut in 0..bytes.len() {
            assert_eq!(Hello::decode(&bytes[..cut]), None);
        }
        assert_eq!(Hello::decode(b"rank 3 wants its control link"), None);
    }

    #[test]
    fn a_host_name_cannot_paint_over_a_terminal() {
        let hello = Hello { host: "\u{1b}[2Jnode\n7".into(), pid: 1 };
        assert_eq!(Hello::decode(&hello.encode()).unwrap().host, "[2Jnode7");
    }
}

//! What a worker and a server of another neighbourhood say about one table: small metas, raw bytes beside them.
//!
//! ```text
//!  worker                                               server
//!    │ Add{3, 2 rows}  · id id row row ────────────────▶ │  stage and publish
//!    │ ◀──────────────────────────────────────── Done ── │
//!    │ Add{4, 9 rows, hold} · ids rows ────────────────▶ │  stage
//!    │ ◀────────────────────────────────────── Staged ── │
//!    │ Commit{4} ──────────────────────────────────────▶ │  publish
//!    │ Get{own_adds: 4, all} ──────────────────────────▶ │  wait as the table's consistency asks
//!    │ ◀──────────────────────────── Done · Data · rows ─ │  one reply per request, in order
//! ```
//! Ids may be millions, so they stand in the payload, 8 bytes each, in front of the rows. Every length is checked against
//! the payload's before a byte of it is read.

use serde::{Deserialize, Serialize};
use syncline_wire::codec::{decode_message, encode_message};
use syncline_wire::message::MAX_TEXT;
use syncline_wire::{Limits, WireError};

use super::words::Code;
use crate::AddOptions;

/// Bytes of one id in a payload.
pub(crate) const ID_BYTES: u64 = 8;
/// The longest meta of any message here: a refusal with its texts.
const MAX_META: usize = 8 * MAX_TEXT;

/// Which rows a request is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Rows {
    /// All that the share holds.
    All,
    /// So many, whose ids stand in front of the payload.
    Listed(u64),
}

/// Why an add is staged but not yet counted: another share decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hold {
    /// The share whose word counts.
    pub(crate) primary: u32,
    /// The number that the same add has there.
    pub(crate) sequence: u64,
}

/// What a worker asks for. Waits on the server end after `patience` milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Take over an add; with `hold`, do not make it count yet. Payload: ids, rows.
    Add {
        /// Its number, without gaps per worker and share.
        sequence: u64,
        /// Which rows.
        rows: Rows,
        /// What travels with it.
        options: AddOptions,
        /// Who decides whether it counts, if not this very message.
        hold: Option<Hold>,
        /// Milliseconds.
        patience: u32,
    },
    /// A held add counts.
    Commit {
        /// Its number.
        sequence: u64,
    },
    /// A held add will never count.
    Drop {
        /// Its number.
        sequence: u64,
    },
    /// Fetch rows. Payload: ids.
    Get {
        /// Adds that this worker has made at this share.
        own_adds: u64,
        /// Which rows.
        rows: Rows,
        /// Milliseconds.
        patience: u32,
        /// The turn of a large reply among those to this worker, if they take turns.
        priority: Option<i32>,
    },
    /// Fetch what others changed.
    Changed {
        /// Adds that this worker has made at this share.
        own_adds: u64,
        /// Answers of this share that arrived: what one that did not has told is told again.
        received: u64,
        /// Milliseconds.
        patience: u32,
    },
    /// Answer when adds up to this one are applied.
    Settle {
        /// Its number.
        sequence: u64,
        /// Milliseconds.
        patience: u32,
        /// Workers that the asker knows to be lost: what they left must be decided too.
        lost: Vec<u32>,
    },
    /// No clock waits for this worker any more.
    Finish,
    /// How many adds of each worker count.
    Clocks,
    /// A raw copy of a lane.
    ReadLane {
        /// Which.
        lane: u32,
        /// From this row on.
        first_row: u64,
        /// So many rows.
        rows: u64,
        /// Milliseconds.
        patience: u32,
    },
    /// The reverse. Payload: the bytes.
    WriteLane {
        /// Which.
        lane: u32,
        /// From this row on.
        first_row: u64,
        /// Milliseconds.
        patience: u32,
    },
    /// All pairs of a key-value table's server, by key.
    Export,
    /// The reverse: these pairs and no others. Payload: keys, values.
    Import {
        /// How many.
        pairs: u64,
    },
    /// As [`Add`](Request::Add) of all rows, in few bits. Payload: the words of this share's numbers.
    AddWords {
        /// Its number.
        sequence: u64,
        /// What the words mean.
        code: Code,
        /// What travels with it.
        options: AddOptions,
        /// Who decides whether it counts, if not this very message.
        hold: Option<Hold>,
        /// Milliseconds.
        patience: u32,
    },
    /// Fetch all rows in fewer bits.
    GetWords {
        /// Adds that this worker has made at this share.
        own_adds: u64,
        /// What the words shall mean.
        code: Code,
        /// Milliseconds.
        patience: u32,
        /// As in [`Get`](Request::Get).
        priority: Option<i32>,
    },
}

/// What the server answers: one reply per request, in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// The add is here and waits for its commit.
    Staged,
    /// As asked.
    Done,
    /// The payload is what was asked for, of so many rows. With ids in front after `Changed` and `Export`.
    Data {
        /// How many rows, values, clocks or pairs.
        rows: u64,
    },
    /// Nothing was done.
    Refused(Refusal),
}

/// An error that happened on the server, to be raised again at the worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Refusal {
    /// Its family.
    pub(crate) kind: RefusalKind,
    /// What was going on.
    pub(crate) operation: String,
    /// What is wrong.
    pub(crate) detail: String,
    /// Who is at fault, if somebody is: rank, host, process id.
    pub(crate) who: Vec<(u32, String, u32)>,
    /// How long the server had waited.
    pub(crate) waited_ms: u64,
    /// What to try.
    pub(crate) hint: String,
}

/// Families of errors that keep their shape on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum RefusalKind {
    PeerLost,
    Timeout,
    ContractMismatch,
    ShapeMismatch,
    UnknownKey,
    Configuration,
    Closed,
    System,
}

/// What a server knows about the table a request is for, to check it against.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Bytes of one row.
    pub(crate) row_bytes: u64,
    /// Rows of this share; none for an open key space.
    pub(crate) rows: Option<u64>,
    /// Its elements are f32, so that they may come in few bits.
    pub(crate) floats: bool,
}

impl Bounds {
    /// How many numbers a share has, if they may travel in this code.
    fn numbers(&self, code: Code) -> Result<u64, WireError> {
        let refuse = |cause| Err(WireError::Field { message: "quantized numbers", field: "code", cause });
        if code.check().is_err() {
            return refuse("has a parameter that makes no sense");
        }
        match self.rows.filter(|_| self.floats) {
            Some(rows) => Ok(rows.saturating_mul(self.row_bytes / 4)),
            None => refuse("is for tables of float32"),
        }
    }
}

impl Request {
    /// The bytes of the meta.
    pub(crate) fn encode(&self) -> Vec<u8> {
        encode_message("table request", self, MAX_META).expect("a request is a few numbers")
    }

    /// Reads a meta from outside and holds it against the payload that comes with it.
    pub(crate) fn decode(meta: &[u8], payload: u64, bounds: &Bounds) -> Result<Request, WireError> {
        let request: Request = decode_message("table request", meta, MAX_META)?;
        let expected = match &request {
            Request::Add { rows: Rows::All, .. } => {
                let rows = bounds.rows.ok_or(WireError::Field { message: "add", field: "rows", cause: "must be listed here" })?;
                rows.checked_mul(bounds.row_bytes)
            }
            Request::Add { rows: Rows::Listed(count), .. } | Request::Import { pairs: count } => {
                count.checked_mul(ID_BYTES + bounds.row_bytes)
            }
            Request::Get { rows: Rows::All, .. } if bounds.rows.is_none() => {
                return Err(WireError::Field { message: "get", field: "rows", cause: "must be listed here" });
            }
            Request::Get { rows: Rows::Listed(count), .. } => count.checked_mul(ID_BYTES),
            Request::WriteLane { .. } => Some(payload),
            Request::AddWords { code, .. } => {
                let numbers = bounds.numbers(*code)?;
                Some(payload).filter(|payload| code.takes(*payload, numbers))
            }
            Request::GetWords { code, .. } => {
                bounds.numbers(*code)?;
                if !code.suits_values() {
                    return Err(WireError::Field { message: "get", field: "code", cause: "is for gradients" });
                }
                Some(0)
            }
            _ => Some(0),
        };
        if expected != Some(payload) {
            return Err(WireError::PartLength { part: "payload", announced: expected.unwrap_or(u64::MAX), given: payload });
        }
        if let Request::Get { rows: Rows::Listed(count), .. } = &request {
            let answer = count.checked_mul(bounds.row_bytes).unwrap_or(u64::MAX);
            let max = Limits::default().max_payload;
            if answer > max {
                return Err(WireError::TooLarge { part: "answer", len: answer, max });
            }
        }
        Ok(request)
    }

    /// The name that errors and logs use.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Request::Add { .. } | Request::AddWords { .. } | Request::Commit { .. } | Request::Drop { .. } => "add",
            Request::Get { .. } | Request::GetWords { .. } => "get",
            Request::Changed { .. } => "get_changed",
            Request::Settle { .. } => "flush",
            Request::Finish => "finish",
            Request::Clocks => "clocks",
            Request::ReadLane { .. } | Request::Export => "save",
            Request::WriteLane { .. } | Request::Import { .. } => "load",
        }
    }
}

impl Reply {
    /// The bytes of the meta.
    pub(crate) fn encode(&self) -> Vec<u8> {
        encode_message("table reply", self, MAX_META).expect("texts are clipped when a refusal is made")
    }

    /// Reads a meta from outside.
    pub(crate) fn decode(meta: &[u8]) -> Result<Reply, WireError> {
        decode_message("table reply", meta, MAX_META)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { row_bytes: 12, rows: Some(5), floats: true };

    fn add(rows: Rows) -> Request {
        let options = AddOptions { learning_rate: Some(0.5), ..AddOptions::default() };
        Request::Add { sequence: 300, rows, options, hold: Some(Hold { primary: 1, sequence: 7 }), patience: 30_000 }
    }

    fn add_words(code: Code) -> Request {
        Request::AddWords { sequence: 3, code, options: AddOptions::default(), hold: None, patience: 1 }
    }

    #[test]
    fn words_are_held_against_the_share_and_their_code_against_sense() {
        let decode = |code: Code, payload| Request::decode(&add_words(code).encode(), payload, &BOUNDS);
        for (code, good) in [(Code::TwoBit { threshold: 0.5 }, 4), (Code::OneBit { threshold: -1.0 }, 4), (Code::F16, 30), (Code::Int8, 19)]
        {
            assert!(decode(code, good).is_ok(), "{code:?}: 15 numbers");
            assert!(decode(code, good + 4).is_err() && decode(code, good - 1).is_err(), "{code:?}");
        }
        let top = Code::TopK { ratio: 0.1 };
        assert!((0..=15).all(|kept| decode(top, 8 * kept).is_ok()), "a part may have any number of the largest");
        assert!(decode(top, 8 * 16).is_err() && decode(top, 12).is_err());
        for code in [Code::TwoBit { threshold: f32::NAN }, Code::OneBit { threshold: f32::NAN }, Code::TopK { ratio: 2.0 }] {
            assert!(decode(code, 4).is_err(), "{code:?}");
        }
        let get = |code| Request::decode(&Request::GetWords { own_adds: 0, code, patience: 0, priority: None }.encode(), 0, &BOUNDS);
        assert!(get(Code::BF16).is_ok() && get(Code::TwoBit { threshold: 0.5 }).is_err());
        let whole_numbers = Bounds { floats: false, ..BOUNDS };
        assert!(Request::decode(&add_words(Code::F16).encode(), 30, &whole_numbers).is_err());
    }

    #[test]
    fn the_bytes_stay_what_they_are() {
        let hex = |bytes: Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let lines = [
            ("add", hex(add(Rows::Listed(2)).encode())),
            (
                "add all",
                hex(Request::Add { sequence: 1, rows: Rows::All, options: AddOptions::default(), hold: None, patience: 1 }.encode()),
            ),
            ("commit", hex(Request::Commit { sequence: 300 }.encode())),
            ("drop", hex(Request::Drop { sequence: 1 }.encode())),
            ("get", hex(Request::Get { own_adds: 4, rows: Rows::Listed(3), patience: 100, priority: Some(-2) }.encode())),
            ("changed", hex(Request::Changed { own_adds: 4, received: 3, patience: 100 }.encode())),
            ("settle", hex(Request::Settle { sequence: 4, patience: 100, lost: vec![2] }.encode())),
            ("finish", hex(Request::Finish.encode())),
            ("clocks", hex(Request::Clocks.encode())),
            ("read lane", hex(Request::ReadLane { lane: 1, first_row: 2, rows: 3, patience: 4 }.encode())),
            ("write lane", hex(Request::WriteLane { lane: 1, first_row: 2, patience: 4 }.encode())),
            ("export", hex(Request::Export.encode())),
            ("import", hex(Request::Import { pairs: 2 }.encode())),
            ("add words", hex(add_words(Code::TwoBit { threshold: 0.5 }).encode())),
            ("get words", hex(Request::GetWords { own_adds: 4, code: Code::Int8, patience: 100, priority: None }.encode())),
            ("staged", hex(Reply::Staged.encode())),
            ("done", hex(Reply::Done.encode())),
            ("data", hex(Reply::Data { rows: 128 }.encode())),
        ];
        let text: String = lines.iter().map(|(name, hex)| format!("{name:<10} {hex}\n")).collect();
        syncline_testkit::golden::assert_golden("src/spread/messages.golden", &text);
    }

    #[test]
    fn a_request_comes_back_as_it_went_and_only_with_its_payload() {
        for (request, payload) in [
            (add(Rows::Listed(2)), 40),
            (add(Rows::All), 60),
            (Request::Get { own_adds: 0, rows: Rows::Listed(3), patience: 0, priority: None }, 24),
            (Request::Get { own_adds: 0, rows: Rows::All, patience: 0, priority: None }, 0),
            (Request::Import { pairs: 1 }, 20),
            (Request::Finish, 0),
        ] {
            let meta = request.encode();
            assert_eq!(Request::decode(&meta, payload, &BOUNDS), Ok(request.clone()));
            let wrong = Request::decode(&meta, payload + 1, &BOUNDS);
            assert!(matches!(wrong, Err(WireError::PartLength { .. })), "{request:?}: {wrong:?}");
        }
    }

    #[test]
    fn counts_that_overflow_or_ask_for_too_much_are_refused() {
        for rows in [u64::MAX, u64::MAX / 12, 1 << 61] {
            assert!(Request::decode(&add(Rows::Listed(rows)).encode(), 40, &BOUNDS).is_err());
        }
        let greedy = Request::Get { own_adds: 0, rows: Rows::Listed(1 << 37), patience: 0, priority: None };
        assert!(matches!(Request::decode(&greedy.encode(), 1 << 40, &BOUNDS), Err(WireError::TooLarge { .. })));
    }

    #[test]
    fn an_open_key_space_has_no_all() {
        let keys = Bounds { row_bytes: 4, rows: None, floats: true };
        assert!(Request::decode(&add(Rows::All).encode(), 0, &keys).is_err());
        assert!(Request::decode(&Request::Get { own_adds: 0, rows: Rows::All, patience: 0, priority: None }.encode(), 0, &keys).is_err());
        assert!(Request::decode(&add(Rows::Listed(1)).encode(), 12, &keys).is_ok());
    }
}

//! The bytes of version 1, written down: whoever changes them changes the version, and sees it here first.
//!
//! Each file in `golden/` holds entries of commented hex. An entry is compared byte for byte with what the encoder
//! writes and is read back by the decoder. `UPDATE_GOLDEN=1 cargo test -p syncline-wire` rewrites the files.

mod samples;

use std::fmt::Write;
use std::path::PathBuf;

use syncline_wire::message::{Control, Hello};
use syncline_wire::{FrameHeader, Limits, Value};

/// One thing that travels: its name and its bytes, cut into parts that have a meaning.
struct Entry {
    name: &'static str,
    parts: Vec<(&'static str, Vec<u8>)>,
}

impl Entry {
    fn whole(name: &'static str, bytes: &[u8]) -> Entry {
        Entry {
            name,
            parts: vec![("", bytes.to_vec())],
        }
    }
}

#[test]
fn frames_are_written_as_ever() {
    const FIELDS: [(&str, usize); 12] = [
        ("magic SLNF", 4),
        ("version", 2),
        ("kind", 2),
        ("epoch", 4),
        ("source", 4),
        ("sequence", 8),
        ("fingerprint", 16),
        ("length of meta", 4),
        ("flags", 4),
        ("length of payload", 8),
        ("checksum of meta", 4),
        ("checksum of the header", 4),
    ];
    let entries = samples::frames().into_iter().map(|(name, header, meta)| {
        let bytes = header.encode();
        let mut rest = &bytes[..];
        let mut parts = Vec::new();
        for (field, len) in FIELDS {
            let (part, after) = rest.split_at(len);
            parts.push((field, part.to_vec()));
            rest = after;
        }
        parts.push(("meta", meta.to_vec()));
        Entry { name, parts }
    });
    let golden = compare(
        "frames.hex",
        "Frame headers, followed by their meta",
        entries,
    );
    for (bytes, (name, header, meta)) in golden.iter().zip(samples::frames()) {
        let (head, tail) = bytes[0].split_first_chunk::<64>().unwrap();
        let decoded = FrameHeader::decode(head, &Limits::default()).unwrap();
        assert_eq!(decoded, header, "{name}");
        assert_eq!(tail, meta, "{name}");
        assert_eq!(decoded.check_meta(tail), Ok(()), "{name}");
    }
}

#[test]
fn fingerprints_are_computed_as_ever() {
    let entries = samples::fingerprints()
        .into_iter()
        .map(|(name, print)| Entry::whole(name, &print.0));
    compare("fingerprints.hex", "Fingerprints of operations", entries);
}

#[test]
fn greetings_are_written_as_ever() {
    let entries = samples::hellos()
        .into_iter()
        .map(|(name, hello)| Entry::whole(name, &hello.encode().unwrap()));
    let golden = compare("hello.hex", "The first message on a connection", entries);
    for (bytes, (name, hello)) in golden.iter().zip(samples::hellos()) {
        assert_eq!(Hello::decode(&bytes[0]), Ok(hello), "{name}");
    }
}

#[test]
fn control_messages_are_written_as_ever() {
    let limits = Limits::default();
    let entries = samples::controls()
        .into_iter()
        .map(|(name, control)| Entry::whole(name, &control.encode(&limits).unwrap()));
    let golden = compare(
        "control.hex",
        "Messages between a member and the coordinator",
        entries,
    );
    for (bytes, (name, control)) in golden.iter().zip(samples::controls()) {
        assert_eq!(Control::decode(&bytes[0], &limits), Ok(control), "{name}");
    }
}

#[test]
fn values_are_written_as_ever() {
    let limits = Limits::default();
    let entries = samples::values().into_iter().map(|(name, value)| {
        let encoded = value.encode(&limits).unwrap();
        Entry {
            name,
            parts: vec![
                (META, encoded.meta().to_vec()),
                (PAYLOAD, encoded.payload_to_vec()),
            ],
        }
    });
    let golden = compare(
        "values.hex",
        "Dynamic values: the meta in words of eight bytes, then the payload",
        entries,
    );
    for (bytes, (name, value)) in golden.iter().zip(samples::values()) {
        assert_eq!(
            Value::decode(&bytes[0], &bytes[1], &limits),
            Ok(value),
            "{name}"
        );
    }
}

/// The structure of a value, shown word by word.
const META: &str = "meta of a value";
/// The bulk of a value, under a heading of its own.
const PAYLOAD: &str = "payload";
const PAYLOAD_FOLLOWS: &str = "# in the payload:";

/// Compares the entries with the file and returns, entry by entry, what the *file* says, for the decoder.
fn compare(file: &str, title: &str, entries: impl Iterator<Item = Entry>) -> Vec<[Vec<u8>; 2]> {
    let fresh = render(title, entries);
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(file);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &fresh).unwrap();
    }
    let kept = std::fs::read_to_string(&path)
        .unwrap_or_else(|cause| panic!("{}: {cause}; UPDATE_GOLDEN=1 writes it", path.display()));
    for (number, (kept, fresh)) in kept.lines().zip(fresh.lines()).enumerate() {
        assert_eq!(
            kept,
            fresh,
            "{file}, line {}: left is the file, right is what we write now",
            number + 1
        );
    }
    assert_eq!(
        kept.lines().count(),
        fresh.lines().count(),
        "{file} has another number of lines"
    );
    parse(&kept)
}

fn render(title: &str, entries: impl Iterator<Item = Entry>) -> String {
    let mut text = format!("# {title}. Wire version 1, little-endian.\n");
    for Entry { name, parts } in entries {
        write!(text, "\n# {name}\n").unwrap();
        for (label, bytes) in parts {
            if label == PAYLOAD && !bytes.is_empty() {
                writeln!(text, "{PAYLOAD_FOLLOWS}").unwrap();
            }
            let per_line = if label == META { 8 } else { 16 };
            for chunk in bytes.chunks(per_line) {
                let hex: Vec<String> = chunk.iter().map(|byte| format!("{byte:02x}")).collect();
                let line = match label {
                    META | PAYLOAD | "" => hex.join(" "),
                    field => format!("{:<48}# {field}", hex.join(" ")),
                };
                writeln!(text, "{line}").unwrap();
            }
        }
    }
    text
}

/// Each entry as its bytes up to the payload and those of the payload.
fn parse(text: &str) -> Vec<[Vec<u8>; 2]> {
    let mut entries = Vec::new();
    for entry in text.split("\n\n").skip(1) {
        let (front, payload) = entry.split_once(PAYLOAD_FOLLOWS).unwrap_or((entry, ""));
        entries.push([front, payload].map(|part| part.lines().flat_map(bytes_of_line).collect()));
    }
    entries
}

fn bytes_of_line(line: &str) -> Vec<u8> {
    let hex = line.split('#').next().unwrap_or_default();
    hex.split_whitespace()
        .map(|byte| u8::from_str_radix(byte, 16).expect("two hex digits"))
        .collect()
}

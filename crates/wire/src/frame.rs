//! The fixed 64 bytes in front of everything that travels between two processes.
//!
//! ```text
//!  0        4      6      8        12       16                24
//!  ┌────────┬──────┬──────┬────────┬────────┬─────────────────┬───────────────────────────────────┐
//!  │ magic  │ vers │ kind │ epoch  │ source │ sequence        │ fingerprint (16)                  │
//!  └────────┴──────┴──────┴────────┴────────┴─────────────────┴───────────────────────────────────┘
//!  40       44       48                56          60           64
//!  ┌────────┬────────┬─────────────────┬───────────┬────────────┐
//!  │ meta # │ flags  │ payload #       │ meta crc  │ header crc │   little-endian; # = length in bytes
//!  └────────┴────────┴─────────────────┴───────────┴────────────┘
//! ```
//! The header crc covers bytes 0..60, so no single damaged bit passes; the meta has a checksum of its own
//! because it is interpreted. The payload has none in this version: TCP, Noise and the memory bus already
//! guard it, and a pass over large tensors costs more than it finds ([`Flags::PAYLOAD_CRC`] is kept free for it).
//!
//! Magic and version keep their place in every future version, which is why the version is judged before
//! the checksum: a newer peer may compute it differently, and "other version" is the answer that helps.

use crate::error::{Result, WireError};
use crate::{Fingerprint, Kind};

/// Bytes in a frame header.
pub const HEADER_LEN: usize = 64;
/// The first four bytes of every frame, `SLNF` in a hex dump.
pub const MAGIC: u32 = u32::from_le_bytes(*b"SLNF");
/// The version of everything in this crate; it changes whenever old and new bytes could be confused.
pub const VERSION: u16 = 1;

/// What a frame announces about itself.
///
/// ```
/// use syncline_wire::{FrameHeader, Kind, Limits};
///
/// let meta = b"how to read the payload";
/// let sent = FrameHeader { sequence: 7, payload_len: 4096, ..FrameHeader::new(Kind::DATA) }.with_meta(meta)?;
/// let bytes: [u8; 64] = sent.encode();
///
/// let received = FrameHeader::decode(&bytes, &Limits::default())?; // lengths are within the limits from here on
/// received.check_meta(meta)?;
/// assert_eq!(received, sent);
/// # Ok::<(), syncline_wire::WireError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameHeader {
    /// Who should read it.
    pub kind: Kind,
    /// Which life of the job the sender belongs to; frames of an older one are refused by the receiver.
    pub epoch: u32,
    /// The sender's rank.
    pub source: u32,
    /// Counts the frames of one link (or the operations of one group: the sender's layer decides).
    pub sequence: u64,
    /// Which operation the sender believes to be in; [`Fingerprint::NONE`] when there is none.
    pub fingerprint: Fingerprint,
    /// Bytes of meta after this header.
    pub meta_len: u32,
    /// Variations of the format; none exist in this version.
    pub flags: Flags,
    /// Bytes of payload after the meta.
    pub payload_len: u64,
    /// Checksum of the meta bytes.
    pub meta_crc: u32,
}

impl FrameHeader {
    /// A header of this kind for a frame without meta and payload, all else zero.
    pub const fn new(kind: Kind) -> FrameHeader {
        FrameHeader {
            kind,
            epoch: 0,
            source: 0,
            sequence: 0,
            fingerprint: Fingerprint::NONE,
            meta_len: 0,
            flags: Flags::NONE,
            payload_len: 0,
            meta_crc: 0, // the crc of no bytes
        }
    }

    /// The same header announcing `meta`: its length and its checksum.
    pub fn with_meta(mut self, meta: &[u8]) -> Result<FrameHeader> {
        self.meta_len = u32::try_from(meta.len()).map_err(|_| WireError::TooLarge {
            part: "meta",
            len: meta.len() as u64,
            max: u64::from(u32::MAX),
        })?;
        self.meta_crc = if meta.is_empty() { 0 } else { crc32fast::hash(meta) };
        Ok(self)
    }

    /// The same header announcing `meta` for a frame that goes through memory: no checksum.
    pub fn with_meta_in_memory(mut self, meta: &[u8]) -> Result<FrameHeader> {
        self = self.with_meta(&[])?;
        self.meta_len = u32::try_from(meta.len()).map_err(|_| WireError::TooLarge {
            part: "meta",
            len: meta.len() as u64,
            max: u64::from(u32::MAX),
        })?;
        Ok(self)
    }

    /// The bytes that travel.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut bytes = self.encode_in_memory();
        let crc = crc32fast::hash(&bytes[..60]);
        bytes[60..64].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The bytes of a header that goes through memory shared with the receiver: a checksum guards against damage on
    /// the way, and there is none. Its place stays zero.
    pub fn encode_in_memory(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
        bytes[6..8].copy_from_slice(&self.kind.0.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.source.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[24..40].copy_from_slice(&self.fingerprint.0);
        bytes[40..44].copy_from_slice(&self.meta_len.to_le_bytes());
        bytes[44..48].copy_from_slice(&self.flags.0.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.payload_len.to_le_bytes());
        bytes[56..60].copy_from_slice(&self.meta_crc.to_le_bytes());
        bytes
    }

    /// Reads a header that came from outside: right protocol, right version, undamaged, no larger than `limits`.
    ///
    /// What is returned may be trusted as far as lengths go; epoch, source, sequence and fingerprint are
    /// for the receiver to compare with what it expects.
    pub fn decode(bytes: &[u8; HEADER_LEN], limits: &Limits) -> Result<FrameHeader> {
        FrameHeader::read(bytes, limits, || crc32fast::hash(&bytes[..60]))
    }

    /// Reads a header that another process wrote with [`encode_in_memory`](FrameHeader::encode_in_memory): all the same
    /// checks but the checksum, which must be absent.
    pub fn decode_in_memory(bytes: &[u8; HEADER_LEN], limits: &Limits) -> Result<FrameHeader> {
        FrameHeader::read(bytes, limits, || 0)
    }

    fn read(bytes: &[u8; HEADER_LEN], limits: &Limits, checksum: impl FnOnce() -> u32) -> Result<FrameHeader> {
        let magic = u32::from_le_bytes(part(bytes, 0));
        if magic != MAGIC {
            return Err(WireError::NotAFrame { found: magic, expected: MAGIC });
        }
        let version = u16::from_le_bytes(part(bytes, 4));
        if version != VERSION {
            return Err(WireError::Version { theirs: version, ours: VERSION });
        }
        let found = u32::from_le_bytes(part(bytes, 60));
        let computed = checksum();
        if found != computed {
            return Err(WireError::HeaderChecksum { found, computed });
        }
        let header = FrameHeader {
            kind: Kind(u16::from_le_bytes(part(bytes, 6))),
            epoch: u32::from_le_bytes(part(bytes, 8)),
            source: u32::from_le_bytes(part(bytes, 12)),
            sequence: u64::from_le_bytes(part(bytes, 16)),
            fingerprint: Fingerprint(part(bytes, 24)),
            meta_len: u32::from_le_bytes(part(bytes, 40)),
            flags: Flags(u32::from_le_bytes(part(bytes, 44))),
            payload_len: u64::from_le_bytes(part(bytes, 48)),
            meta_crc: u32::from_le_bytes(part(bytes, 56)),
        };
        header.check(limits)?;
        Ok(header)
    }

    /// Whether a receiver with these limits would take this header. A sender asks before it sends.
    pub fn check(&self, limits: &Limits) -> Result<()> {
        let reserved = self.flags.0 & !Flags::KNOWN.0;
        if reserved != 0 {
            return Err(WireError::ReservedFlags { bits: reserved });
        }
        limits.check_meta_len(u64::from(self.meta_len))?;
        limits.check_payload_len(self.payload_len)
    }

    /// Whether `meta` has the length that this header announced; for frames that went through memory.
    pub fn check_meta_len(&self, meta: &[u8]) -> Result<()> {
        if meta.len() as u64 != u64::from(self.meta_len) {
            return Err(WireError::PartLength { part: "meta", announced: u64::from(self.meta_len), given: meta.len() as u64 });
        }
        Ok(())
    }

    /// Whether `meta` is what this header announced: same length, same checksum.
    pub fn check_meta(&self, meta: &[u8]) -> Result<()> {
        self.check_meta_len(meta)?;
        let computed = if meta.is_empty() { 0 } else { crc32fast::hash(meta) };
        if computed != self.meta_crc {
            return Err(WireError::MetaChecksum { expected: self.meta_crc, computed });
        }
        Ok(())
    }

    /// Bytes of the whole frame: header, meta and payload. `None` if the sum does not fit, which the
    /// [`Limits`] of a decoded header rule out.
    pub fn frame_len(&self) -> Option<u64> {
        (HEADER_LEN as u64 + u64::from(self.meta_len)).checked_add(self.payload_len)
    }
}

/// `N` bytes of the header from `at` on. Both are constants at every call, so the slice always fits.
fn part<const N: usize>(bytes: &[u8; HEADER_LEN], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

/// Variations of the frame format. This version defines none; a set bit is refused rather than ignored, so
/// that a later version can give it a meaning that matters.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Flags(pub u32);

impl Flags {
    /// No flag.
    pub const NONE: Flags = Flags(0);
    /// Reserved: a checksum of the payload follows it. Nobody may set it in this version.
    pub const PAYLOAD_CRC: Flags = Flags(1);
    /// The flags that this version accepts.
    pub const KNOWN: Flags = Flags::NONE;

    /// Whether every bit of `other` is set here.
    pub const fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
}

/// How much a receiver is willing to hold for one frame. Checked before a byte is allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The longest meta, in bytes.
    pub max_meta: u32,
    /// The longest payload, in bytes.
    pub max_payload: u64,
}

impl Limits {
    /// For a peer that has proven nothing yet: what a greeting needs and no payload.
    pub const STRANGER: Limits = Limits { max_meta: 2048, max_payload: 0 };

    pub(crate) fn check_meta_len(&self, len: u64) -> Result<()> {
        let max = u64::from(self.max_meta);
        if len > max { Err(WireError::TooLarge { part: "meta", len, max }) } else { Ok(()) }
    }

    pub(crate) fn check_payload_len(&self, len: u64) -> Result<()> {
        let max = self.max_payload;
        if len > max { Err(WireError::TooLarge { part: "payload", len, max }) } else { Ok(()) }
    }
}

impl Default for Limits {
    /// 16 MiB of meta, 1 TiB of payload: for members of the job.
    fn default() -> Limits {
        Limits { max_meta: 16 << 20, max_payload: 1 << 40 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> FrameHeader {
        FrameHeader { epoch: 3, source: 1, sequence: 99, payload_len: 1 << 33, ..FrameHeader::new(Kind::DATA) }.with_meta(b"meta").unwrap()
    }

    /// Puts the right checksum under tampered bytes, as an attacker would.
    fn resealed(mut bytes: [u8; HEADER_LEN]) -> [u8; HEADER_LEN] {
        let crc = crc32fast::hash(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    #[test]
    fn the_magic_reads_slnf_in_a_dump() {
        assert_eq!(&sample().encode()[..4], b"SLNF");
    }

    #[test]
    fn a_header_in_memory_has_no_checksum_and_all_other_checks() {
        let sent = FrameHeader { payload_len: 5, ..FrameHeader::new(Kind::DATA) }.with_meta_in_memory(b"meta").unwrap();
        let bytes = sent.encode_in_memory();
        assert_eq!(FrameHeader::decode_in_memory(&bytes, &Limits::default()), Ok(sent));
        assert_eq!(sent.check_meta_len(b"meta"), Ok(()));
        assert!(sent.check_meta_len(b"met").is_err());
        assert!(FrameHeader::decode_in_memory(&sent.encode(), &Limits::default()).is_err(), "one from a wire is not taken for it");
        assert!(FrameHeader::decode(&bytes, &Limits::default()).is_err(), "nor the other way round");
        assert!(FrameHeader::decode_in_memory(&bytes, &Limits::STRANGER).is_err(), "lengths are capped");
    }

    #[test]
    fn another_protocol_is_named_by_what_it_said() {
        let mut bytes = sample().encode();
        bytes[..4].copy_from_slice(b"GET ");
        let found = u32::from_le_bytes(*b"GET ");
        assert_eq!(FrameHeader::decode(&bytes, &Limits::default()), Err(WireError::NotAFrame { found, expected: MAGIC }));
    }

    #[test]
    fn another_version_is_told_apart_from_damage_even_when_its_checksum_differs() {
        let mut bytes = sample().encode();
        bytes[4..6].copy_from_slice(&2u16.to_le_bytes());
        let refused = Err(WireError::Version { theirs: 2, ours: 1 });
        assert_eq!(FrameHeader::decode(&bytes, &Limits::default()), refused);
        assert_eq!(FrameHeader::decode(&resealed(bytes), &Limits::default()), refused);
    }

    #[test]
    fn any_single_flipped_bit_is_refused() {
        let good = sample().encode();
        for bit in 0..HEADER_LEN * 8 {
            let mut bytes = good;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(FrameHeader::decode(&bytes, &Limits::default()).is_err(), "bit {bit} passed");
        }
    }

    #[test]
    fn lengths_over_the_limit_are_refused_and_at_the_limit_accepted() {
        let limits = Limits { max_meta: 10, max_payload: 100 };
        let of = |meta_len, payload_len| FrameHeader { meta_len, payload_len, ..FrameHeader::new(Kind::DATA) }.encode();
        assert!(FrameHeader::decode(&of(10, 100), &limits).is_ok());
        assert_eq!(FrameHeader::decode(&of(11, 0), &limits), Err(WireError::TooLarge { part: "meta", len: 11, max: 10 }));
        assert_eq!(FrameHeader::decode(&of(0, u64::MAX), &limits), Err(WireError::TooLarge { part: "payload", len: u64::MAX, max: 100 }));
    }

    #[test]
    fn reserved_flags_are_refused_even_with_a_right_checksum() {
        for bit in 0..32 {
            let header = FrameHeader { flags: Flags(1 << bit), ..sample() };
            assert_eq!(FrameHeader::decode(&header.encode(), &Limits::default()), Err(WireError::ReservedFlags { bits: 1 << bit }));
        }
    }

    #[test]
    fn meta_is_held_to_its_length_and_checksum() {
        let header = sample();
        assert_eq!(header.check_meta(b"meta"), Ok(()));
        assert!(matches!(header.check_meta(b"metb"), Err(WireError::MetaChecksum { .. })));
        assert_eq!(header.check_meta(b"met"), Err(WireError::PartLength { part: "meta", announced: 4, given: 3 }));
        assert_eq!(FrameHeader::new(Kind::HEARTBEAT).check_meta(b""), Ok(()));
    }

    #[test]
    fn the_length_of_a_frame_never_overflows_silently() {
        assert_eq!(sample().frame_len(), Some(64 + 4 + (1 << 33)));
        assert_eq!(FrameHeader { payload_len: u64::MAX, ..sample() }.frame_len(), None);
    }
}

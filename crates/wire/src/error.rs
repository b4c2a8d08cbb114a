//! Why bytes were refused: the place, what stood there and what was allowed.

/// Why bytes could not become a type, or a type could not become bytes.
///
/// Offsets count from the start of the part that was being read (header, meta or payload).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The first four bytes are not a frame's: the peer speaks another protocol, or the stream lost its place.
    #[error("not a Syncline frame: it begins with {found:#010x}, expected {expected:#010x}")]
    NotAFrame {
        /// The four bytes that stood there, as a little-endian number.
        found: u32,
        /// [`MAGIC`](crate::MAGIC).
        expected: u32,
    },
    /// The peer is another release of Syncline.
    #[error(
        "the peer speaks wire version {theirs}, this process speaks {ours}; \
         install the same release of Syncline everywhere"
    )]
    Version {
        /// What the frame says.
        theirs: u16,
        /// What this build speaks.
        ours: u16,
    },
    /// The header was damaged on its way, or forged carelessly.
    #[error("the frame header is damaged: its checksum is {found:#010x}, its bytes give {computed:#010x}")]
    HeaderChecksum {
        /// What the header carries.
        found: u32,
        /// What its first 60 bytes add up to.
        computed: u32,
    },
    /// The meta was damaged on its way.
    #[error("the meta of a frame is damaged: the header announces checksum {expected:#010x}, its bytes give {computed:#010x}")]
    MetaChecksum {
        /// What the header announced.
        expected: u32,
        /// What the bytes add up to.
        computed: u32,
    },
    /// A part of a frame has another length than its header announced.
    #[error("the {part} has {given} bytes, its header announced {announced}")]
    PartLength {
        /// `"meta"` or `"payload"`.
        part: &'static str,
        /// What the header says.
        announced: u64,
        /// What was given.
        given: u64,
    },
    /// Something is larger than the receiver is willing to hold.
    #[error("the {part} has {len}, at most {max} are accepted")]
    TooLarge {
        /// What is too large: a part of a frame or a field of a message.
        part: &'static str,
        /// Its length (bytes, or entries of a list).
        len: u64,
        /// The cap.
        max: u64,
    },
    /// Flag bits are set that this version gives no meaning.
    #[error("frame flags {bits:#010x} are reserved in this version and must be zero")]
    ReservedFlags {
        /// The bits without a meaning.
        bits: u32,
    },
    /// Something that only processes of one family may say to each other.
    #[error("an {what} travels only between processes of one family, never over a connection")]
    LocalOnly {
        /// What it is.
        what: &'static str,
    },
    /// The bytes end in the middle of something.
    #[error("the {part} ends at byte {at}: {needed} more bytes were announced, {available} are there")]
    Truncated {
        /// The part that was being read.
        part: &'static str,
        /// Where the reader stood.
        at: u64,
        /// What it wanted.
        needed: u64,
        /// What was left.
        available: u64,
    },
    /// Bytes are left over after the end.
    #[error("{extra} bytes follow the end of the {part} at byte {at}")]
    Trailing {
        /// The part that was being read.
        part: &'static str,
        /// Where it ended.
        at: u64,
        /// How many bytes follow.
        extra: u64,
    },
    /// Something stands in the bytes that no encoder writes.
    #[error("byte {at} of the {part}: {cause}")]
    Malformed {
        /// The part that was being read.
        part: &'static str,
        /// Where.
        at: u64,
        /// What is wrong with it.
        cause: &'static str,
    },
    /// Lists or maps are nested deeper than anyone may.
    #[error("values may be nested {max} deep, this one is deeper")]
    TooDeep {
        /// [`MAX_DEPTH`](crate::value::MAX_DEPTH).
        max: usize,
    },
    /// A control message does not parse.
    #[error("not a valid {message}: {cause}")]
    Message {
        /// Which message was expected.
        message: &'static str,
        /// What the message codec says.
        cause: postcard::Error,
    },
    /// A control message parses, but a field of it makes no sense.
    #[error("not a valid {message}: {field} {cause}")]
    Field {
        /// Which message.
        message: &'static str,
        /// Which field.
        field: &'static str,
        /// What is wrong with it.
        cause: &'static str,
    },
}

/// What this crate's functions return.
pub(crate) type Result<T, E = WireError> = std::result::Result<T, E>;

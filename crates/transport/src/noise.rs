//! How two strangers find out that they hold the same token, as pure state: bytes in, bytes out.
//!
//! ```text
//!  caller                                               door
//!    ── preamble 16 · Noise message 1 (48) ──────────────▶   proves the token before the door keeps anything
//!    ◀─────────── answer 16 · Noise message 2 (66) ──────    proves the token and names the door's identity
//!    ── length 2 · sealed hello (≤ 4 KiB) ───────────────▶   proves that message 1 was not a replay
//! ```
//! The pattern is `Noise_NNpsk0_25519_AESGCM_SHA256` with the job's key as the shared secret. The preamble
//! travels in clear so that another protocol or version is recognised without cryptography; it is the
//! prologue of the handshake, so nobody in the middle can change what it asks for. A refusal is an answer with
//! a status and nothing after it. Fixed lengths everywhere before the hello: nothing they claim is believed.

use std::sync::RwLock;

use snow::{Builder, HandshakeState, StatelessTransportState};

use crate::JobKey;

/// Bytes of the clear parts.
pub(crate) const PREAMBLE: usize = 16;
/// What a caller sends first: preamble and Noise message 1 (32 of key, 16 of tag).
pub(crate) const GREETING: usize = PREAMBLE + 32 + 16;
/// What a door answers: status and Noise message 2 (32 of key, 18 of payload, 16 of tag).
pub(crate) const ANSWER: usize = PREAMBLE + 32 + 18 + 16;
/// The version of handshake and wire; both sides must agree.
pub(crate) const VERSION: u16 = 1;
/// The longest hello, without the byte that says whether a descriptor follows.
pub const MAX_HELLO: usize = 4096;
/// What sealing adds to a message.
pub(crate) const TAG: usize = 16;
/// The longest sealed message that Noise allows, tag included.
pub(crate) const MAX_SEALED: usize = 65535;

const MAGIC: [u8; 8] = *b"SLNDOOR\n"; // the newline is damaged by whatever treats the stream as text
const PATTERN: &str = "Noise_NNpsk0_25519_AESGCM_SHA256";
const WANTS_ENCRYPTION: u16 = 1;

const ACCEPTED: u16 = 0;
const OTHER_VERSION: u16 = 1;
const OTHER_TOKEN: u16 = 2;

/// Names one door, so that a caller knows that it reached the member it wanted.
pub type Identity = [u8; 16];

/// Why a door sent a visitor away.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The first bytes are not a greeting.
    #[error("it does not speak Syncline's protocol")]
    NotSyncline,
    /// Another release.
    #[error("it speaks protocol version {theirs}, this door speaks {ours}")]
    Version {
        /// The visitor's version.
        theirs: u16,
        /// The door's version.
        ours: u16,
    },
    /// It does not hold the job's token.
    #[error("it does not hold this job's token")]
    Token,
    /// It repeated somebody's greeting but could not go on, or damaged its hello.
    #[error("its hello is not sealed with the keys of its greeting")]
    Hello,
    /// The length in front of its hello is impossible.
    #[error("it announced a hello of {len} bytes, at most {MAX_HELLO} are accepted")]
    HelloLength {
        /// What it announced.
        len: usize,
    },
    /// A descriptor was announced and did not come, or came where none may.
    #[error("the descriptor that it announced did not come")]
    NoDescriptor,
    /// It did not finish in time.
    #[error("it did not finish its greeting within {allowed:?}")]
    TooSlow {
        /// What each visitor is given.
        allowed: std::time::Duration,
    },
    /// Others came after it and the waiting room is small.
    #[error("it was still undecided when newer visitors needed its place")]
    Evicted,
    /// It went away by itself.
    #[error("it went away before it had finished its greeting")]
    Left,
    /// This process has no descriptors (or memory) left for visitors.
    #[error("this process cannot accept connections at the moment ({0})")]
    Exhausted(rustix::io::Errno),
}

/// The keys of one connection: one per direction, shared by the two halves of a link.
pub(crate) struct Keys {
    // Rekeying needs `&mut`; every 4 million records each direction takes the lock for it.
    state: RwLock<StatelessTransportState>,
}

impl Keys {
    fn new(handshake: HandshakeState) -> Result<Keys, snow::Error> {
        Ok(Keys { state: RwLock::new(handshake.into_stateless_transport_mode()?) })
    }

    /// Seals `plain` as message number `number` of this side into `out`, which needs room for the tag.
    pub(crate) fn seal(&self, number: u64, plain: &[u8], out: &mut [u8]) -> usize {
        let state = self.state.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        state.write_message(number, plain, out).expect("callers leave room for the tag and stay under Noise's limit")
    }

    /// Opens message number `number` of the other side into `out`; `None` if it was not sealed by it.
    pub(crate) fn open(&self, number: u64, sealed: &[u8], out: &mut [u8]) -> Option<usize> {
        let state = self.state.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        state.read_message(number, sealed, out).ok()
    }

    pub(crate) fn rekey_outgoing(&self) {
        self.state.write().unwrap_or_else(|poisoned| poisoned.into_inner()).rekey_outgoing();
    }

    pub(crate) fn rekey_incoming(&self) {
        self.state.write().unwrap_or_else(|poisoned| poisoned.into_inner()).rekey_incoming();
    }
}

fn preamble(word: u16) -> [u8; PREAMBLE] {
    let mut bytes = [0; PREAMBLE];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
    bytes[10..12].copy_from_slice(&word.to_le_bytes());
    bytes
}

/// Version and flags (or status) of a preamble, or `None` if it is none.
fn read_preamble(bytes: &[u8]) -> Option<(u16, u16)> {
    let word = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    (bytes.len() >= PREAMBLE && bytes[..8] == MAGIC).then(|| (word(8), word(10)))
}

fn handshake(key: &JobKey, prologue: &[u8], caller: bool) -> HandshakeState {
    let builder = Builder::new(PATTERN.parse().expect("the pattern is a constant"))
        .prologue(prologue)
        .and_then(|builder| builder.psk(0, key.bytes()))
        .expect("prologue and key are each set once");
    let state = if caller { builder.build_initiator() } else { builder.build_responder() };
    state.expect("the pattern needs nothing but the key")
}

/// The caller's side, between its greeting and the door's answer.
pub(crate) struct Caller {
    handshake: HandshakeState,
    wants_encryption: bool,
}

/// What the door's answer proved.
pub(crate) struct Answered {
    pub(crate) identity: Identity,
    pub(crate) encrypt: bool,
    pub(crate) keys: Keys,
}

/// Why an answer did not open the door.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unanswered {
    NotSyncline,
    Version {
        theirs: u16,
    },
    TokenRefused,
    Unknown {
        status: u16,
    },
    /// The answer does not prove the token: whoever sent it is not a member.
    Forged,
}

impl Caller {
    /// The state to keep and the bytes to send.
    pub(crate) fn greet(key: &JobKey, wants_encryption: bool) -> (Caller, [u8; GREETING]) {
        let preamble = preamble(if wants_encryption { WANTS_ENCRYPTION } else { 0 });
        let mut handshake = handshake(key, &preamble, true);
        let mut greeting = [0; GREETING];
        greeting[..PREAMBLE].copy_from_slice(&preamble);
        let written = handshake.write_message(&[], &mut greeting[PREAMBLE..]);
        assert!(matches!(written, Ok(48)), "message 1 of NNpsk0 has 48 bytes: {written:?}");
        (Caller { handshake, wants_encryption }, greeting)
    }

    /// Judges the clear first part of an answer: `Ok` means that the rest of [`ANSWER`] bytes follows.
    pub(crate) fn status(first: &[u8; PREAMBLE]) -> Result<(), Unanswered> {
        match read_preamble(first) {
            None => Err(Unanswered::NotSyncline),
            Some((theirs, OTHER_VERSION)) => Err(Unanswered::Version { theirs }),
            Some((_, OTHER_TOKEN)) => Err(Unanswered::TokenRefused),
            Some((VERSION, ACCEPTED)) => Ok(()),
            Some((theirs, ACCEPTED)) => Err(Unanswered::Version { theirs }),
            Some((_, status)) => Err(Unanswered::Unknown { status }),
        }
    }

    /// Reads a whole answer.
    pub(crate) fn hear(mut self, answer: &[u8; ANSWER]) -> Result<Answered, Unanswered> {
        let mut payload = [0; ANSWER];
        let read = self.handshake.read_message(&answer[PREAMBLE..], &mut payload);
        if read != Ok(18) {
            return Err(Unanswered::Forged);
        }
        let mut identity = Identity::default();
        identity.copy_from_slice(&payload[..16]);
        // A member that gives up what this side asked for is no member we know.
        let encrypt = payload[16] != 0;
        if self.wants_encryption && !encrypt {
            return Err(Unanswered::Forged);
        }
        let keys = Keys::new(self.handshake).map_err(|_| Unanswered::Forged)?;
        Ok(Answered { identity, encrypt, keys })
    }
}

/// What the door makes of a greeting: the answer to send and the keys of what follows.
pub(crate) struct Admitted {
    pub(crate) answer: [u8; ANSWER],
    pub(crate) encrypt: bool,
    pub(crate) keys: Keys,
}

/// A refusal, and the clear answer that tells the visitor, if it would understand one.
pub(crate) struct TurnedAway {
    pub(crate) why: Refusal,
    pub(crate) answer: Option<[u8; PREAMBLE]>,
}

/// Whether the first bytes of a greeting can still become one. Asked as they arrive, so that a stranger is
/// recognised by its first byte rather than by its silence.
pub(crate) fn plausible(begin: &[u8]) -> bool {
    let known = begin.len().min(MAGIC.len());
    begin[..known] == MAGIC[..known]
}

/// Judges a whole greeting. Traffic is sealed if either side wants it, where it is sealed at all.
pub(crate) fn admit(
    key: &JobKey,
    identity: &Identity,
    encrypt: bool,
    sealing_allowed: bool,
    greeting: &[u8; GREETING],
) -> Result<Admitted, TurnedAway> {
    let (clear, message) = greeting.split_at(PREAMBLE);
    let Some((theirs, flags)) = read_preamble(clear) else {
        return Err(TurnedAway { why: Refusal::NotSyncline, answer: None });
    };
    if theirs != VERSION {
        let why = Refusal::Version { theirs, ours: VERSION };
        return Err(TurnedAway { why, answer: Some(preamble(OTHER_VERSION)) });
    }
    let mut handshake = handshake(key, clear, false);
    if handshake.read_message(message, &mut [0; GREETING]).is_err() {
        return Err(TurnedAway { why: Refusal::Token, answer: Some(preamble(OTHER_TOKEN)) });
    }
    let encrypt = sealing_allowed && (encrypt || flags & WANTS_ENCRYPTION != 0);
    let mut payload = [0; 18];
    payload[..16].copy_from_slice(identity);
    payload[16] = u8::from(encrypt);
    let mut answer = [0; ANSWER];
    answer[..PREAMBLE].copy_from_slice(&preamble(ACCEPTED));
    let token = |_| TurnedAway { why: Refusal::Token, answer: Some(preamble(OTHER_TOKEN)) };
    let written = handshake.write_message(&payload, &mut answer[PREAMBLE..]).map_err(token)?;
    assert_eq!(written, ANSWER - PREAMBLE, "message 2 of NNpsk0 has 66 bytes");
    let keys = Keys::new(handshake).map_err(token)?;
    Ok(Admitted { answer, encrypt, keys })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meet(caller_key: &JobKey, door_key: &JobKey) -> Result<(Answered, Admitted), Refusal> {
        let (caller, greeting) = Caller::greet(caller_key, true);
        let admitted = admit(door_key, &[7; 16], false, true, &greeting).map_err(|away| away.why)?;
        let answered = caller.hear(&admitted.answer).map_err(|_| Refusal::Token)?;
        Ok((answered, admitted))
    }

    #[test]
    fn members_meet_learn_the_identity_and_share_keys() {
        let key = JobKey::from_token("t");
        let (caller, door) = meet(&key, &key).unwrap();
        assert_eq!(caller.identity, [7; 16]);
        assert!(caller.encrypt && door.encrypt, "one side's wish for encryption is enough");
        let (mut sealed, mut open) = ([0; 64], [0; 64]);
        let len = caller.keys.seal(0, b"hello", &mut sealed);
        assert_eq!(door.keys.open(0, &sealed[..len], &mut open), Some(5));
        assert_eq!(&open[..5], b"hello");
        assert_eq!(door.keys.open(1, &sealed[..len], &mut open), None, "the number of a message is part of it");
        assert_eq!(caller.keys.open(0, &sealed[..len], &mut open), None, "a side does not take its own messages");
    }

    #[test]
    fn a_wrong_token_is_noticed_by_the_first_message() {
        let refused = meet(&JobKey::from_token("mine"), &JobKey::from_token("yours")).err();
        assert_eq!(refused, Some(Refusal::Token));
    }

    #[test]
    fn any_changed_byte_of_a_greeting_is_refused() {
        let key = JobKey::from_token("t");
        let (_, greeting) = Caller::greet(&key, true);
        for at in 0..GREETING {
            let mut changed = greeting;
            changed[at] ^= 1;
            assert!(admit(&key, &[0; 16], true, true, &changed).is_err(), "byte {at} passed");
        }
    }

    #[test]
    fn any_changed_byte_of_an_answer_is_refused() {
        let key = JobKey::from_token("t");
        for at in 0..ANSWER {
            let (caller, greeting) = Caller::greet(&key, true);
            let mut answer = admit(&key, &[0; 16], true, true, &greeting).ok().unwrap().answer;
            answer[at] ^= 1;
            let first: [u8; PREAMBLE] = answer[..PREAMBLE].try_into().unwrap();
            let heard = Caller::status(&first).and_then(|()| caller.hear(&answer).map(drop));
            // Four bytes of the answer's preamble are kept for later versions and mean nothing today.
            assert_eq!(heard.is_ok(), (12..16).contains(&at), "byte {at}");
        }
    }

    #[test]
    fn another_version_is_told_so_in_clear() {
        let key = JobKey::from_token("t");
        let (_, mut greeting) = Caller::greet(&key, true);
        greeting[8] = 9;
        let away = admit(&key, &[0; 16], true, true, &greeting).err().unwrap();
        assert_eq!(away.why, Refusal::Version { theirs: 9, ours: VERSION });
        assert_eq!(Caller::status(&away.answer.unwrap()), Err(Unanswered::Version { theirs: VERSION }));
    }

    #[test]
    fn keys_change_together() {
        let key = JobKey::from_token("t");
        let (caller, door) = meet(&key, &key).unwrap();
        let (mut sealed, mut open) = ([0; 64], [0; 64]);
        caller.keys.rekey_outgoing();
        let len = caller.keys.seal(3, b"new", &mut sealed);
        assert_eq!(door.keys.open(3, &sealed[..len], &mut open), None);
        door.keys.rekey_incoming();
        assert_eq!(door.keys.open(3, &sealed[..len], &mut open), Some(3));
    }
}

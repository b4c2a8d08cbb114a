//! One visitor at a door, from its first byte to its hello, as a state machine without a socket.
//!
//! ```text
//!   Greeting ── 64 bytes ──▶ (answer sent) ──▶ Length ── 2 bytes ──▶ Hello ── sealed ──▶ done
//!      │ wrong from the first wrong byte on       │ too long            └─ descriptor announced ──▶ Descriptor ──▶ done
//!      ▼                                          ▼
//!    refused                                    refused
//! ```
//! Until the greeting has proven the token a visitor costs this struct and nothing else; afterwards one buffer of at
//! most 4 KiB. The machine says how many bytes it wants next, so nothing behind the hello is ever read here.

use crate::JobKey;
use crate::noise::{self, GREETING, Identity, Keys, MAX_HELLO, PREAMBLE, Refusal, TAG, TurnedAway};

/// Set in the first byte of a hello when a descriptor follows it.
pub(crate) const DESCRIPTOR_FOLLOWS: u8 = 1;

/// What a door is, to its visitors.
pub(crate) struct Host {
    pub(crate) key: JobKey,
    pub(crate) identity: Identity,
}

/// Where a visitor stands.
pub(crate) struct Visit {
    state: State,
    encrypt: bool,
    sealed_traffic_allowed: bool,
}

enum State {
    Greeting {
        bytes: [u8; GREETING],
        got: usize,
    },
    Length {
        keys: Keys,
        bytes: [u8; 2],
        got: usize,
    },
    Hello {
        keys: Keys,
        sealed: Vec<u8>,
        want: usize,
    },
    Descriptor {
        keys: Keys,
        hello: Vec<u8>,
    },
    Over,
}

/// What the door has to do next for this visitor.
pub(crate) enum Step {
    /// Nothing: more bytes are needed.
    Wait,
    /// Send these bytes and go on.
    Answer(Vec<u8>),
    /// Tell it (where there is something to tell) and close.
    Refuse(Refusal, Option<[u8; PREAMBLE]>),
    /// It is a member, and this is what it said. The keys are there if the traffic is to be sealed.
    Done { hello: Vec<u8>, keys: Option<Keys> },
}

impl Visit {
    /// A new visitor. On a local socket (`tcp` false) traffic after the hello is never sealed.
    pub(crate) fn new(tcp: bool, encrypt: bool) -> Visit {
        Visit {
            state: State::Greeting {
                bytes: [0; GREETING],
                got: 0,
            },
            encrypt: tcp && encrypt,
            sealed_traffic_allowed: tcp,
        }
    }

    /// Whether it has shown that it holds the token (or recorded someone who does).
    pub(crate) fn has_proven_token(&self) -> bool {
        !matches!(self.state, State::Greeting { .. } | State::Over)
    }

    /// Whether the next byte carries a descriptor.
    pub(crate) fn wants_descriptor(&self) -> bool {
        matches!(self.state, State::Descriptor { .. })
    }

    /// How many bytes may be read now, at most.
    pub(crate) fn wants(&self) -> usize {
        match &self.state {
            State::Greeting { got, .. } => GREETING - got,
            State::Length { got, .. } => 2 - got,
            State::Hello { sealed, want, .. } => want - sealed.len(),
            State::Descriptor { .. } => 1,
            State::Over => 0,
        }
    }

    /// Takes bytes that arrived, no more than it [`wants`](Visit::wants).
    pub(crate) fn take(&mut self, arrived: &[u8], host: &Host) -> Step {
        let arrived = &arrived[..arrived.len().min(self.wants())];
        match std::mem::replace(&mut self.state, State::Over) {
            State::Greeting { mut bytes, mut got } => {
                bytes[got..got + arrived.len()].copy_from_slice(arrived);
                got += arrived.len();
                if !noise::plausible(&bytes[..got]) {
                    return Step::Refuse(Refusal::NotSyncline, None);
                }
                if got < GREETING {
                    self.state = State::Greeting { bytes, got };
                    return Step::Wait;
                }
                self.judge(&bytes, host)
            }
            State::Length {
                keys,
                mut bytes,
                mut got,
            } => {
                bytes[got..got + arrived.len()].copy_from_slice(arrived);
                got += arrived.len();
                if got < 2 {
                    self.state = State::Length { keys, bytes, got };
                    return Step::Wait;
                }
                let want = usize::from(u16::from_le_bytes(bytes));
                if !(TAG + 1..=TAG + 1 + MAX_HELLO).contains(&want) {
                    return Step::Refuse(
                        Refusal::HelloLength {
                            len: want.saturating_sub(TAG + 1),
                        },
                        None,
                    );
                }
                self.state = State::Hello {
                    keys,
                    sealed: Vec::with_capacity(want),
                    want,
                };
                Step::Wait
            }
            State::Hello {
                keys,
                mut sealed,
                want,
            } => {
                sealed.extend_from_slice(arrived);
                if sealed.len() < want {
                    self.state = State::Hello { keys, sealed, want };
                    return Step::Wait;
                }
                self.open(keys, &sealed)
            }
            // The byte itself means nothing; the door took the descriptor that came with it.
            State::Descriptor { keys, hello } => self.done(keys, hello),
            State::Over => Step::Refuse(Refusal::Left, None),
        }
    }

    fn judge(&mut self, greeting: &[u8; GREETING], host: &Host) -> Step {
        match noise::admit(
            &host.key,
            &host.identity,
            self.encrypt,
            self.sealed_traffic_allowed,
            greeting,
        ) {
            Ok(admitted) => {
                self.encrypt = admitted.encrypt;
                self.state = State::Length {
                    keys: admitted.keys,
                    bytes: [0; 2],
                    got: 0,
                };
                Step::Answer(admitted.answer.to_vec())
            }
            Err(TurnedAway { why, answer }) => Step::Refuse(why, answer),
        }
    }

    fn open(&mut self, keys: Keys, sealed: &[u8]) -> Step {
        let mut plain = vec![0; sealed.len()];
        let Some(len) = keys.open(0, sealed, &mut plain) else {
            return Step::Refuse(Refusal::Hello, None);
        };
        let follows = plain[0] & DESCRIPTOR_FOLLOWS != 0;
        plain.truncate(len);
        plain.remove(0);
        if !follows {
            return self.done(keys, plain);
        }
        if self.sealed_traffic_allowed {
            return Step::Refuse(Refusal::NoDescriptor, None); // TCP carries none
        }
        self.state = State::Descriptor { keys, hello: plain };
        Step::Wait
    }

    fn done(&mut self, keys: Keys, hello: Vec<u8>) -> Step {
        Step::Done {
            hello,
            keys: self.encrypt.then_some(keys),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::Caller;

    fn host() -> Host {
        Host {
            key: JobKey::from_token("t"),
            identity: [3; 16],
        }
    }

    /// A caller's whole side up to its hello, fed to `visit` in pieces of `piece` bytes.
    fn greet(visit: &mut Visit, host: &Host, hello: &[u8], piece: usize) -> Step {
        let (caller, greeting) = Caller::greet(&host.key, false);
        let Step::Answer(answer) = feed(visit, host, &greeting, piece) else {
            panic!("no answer to a good greeting")
        };
        let answered = caller.hear(&answer.try_into().unwrap()).unwrap();
        let mut sealed = vec![0; hello.len() + TAG];
        answered.keys.seal(0, hello, &mut sealed);
        let mut bytes = (sealed.len() as u16).to_le_bytes().to_vec();
        bytes.extend(sealed);
        feed(visit, host, &bytes, piece)
    }

    fn feed(visit: &mut Visit, host: &Host, mut bytes: &[u8], piece: usize) -> Step {
        loop {
            let now = piece.min(bytes.len()).min(visit.wants());
            let (given, rest) = bytes.split_at(now);
            bytes = rest;
            match visit.take(given, host) {
                Step::Wait if !bytes.is_empty() => {}
                step => return step,
            }
        }
    }

    #[test]
    fn a_member_is_let_in_however_its_bytes_are_cut() {
        for piece in [1, 2, 7, 63, 64, 5000] {
            let mut visit = Visit::new(false, true);
            let Step::Done { hello, keys } = greet(&mut visit, &host(), b"\0it is me", piece)
            else {
                panic!("a member was not let in with pieces of {piece}")
            };
            assert_eq!(hello, b"it is me");
            assert!(keys.is_none(), "local traffic is not sealed");
        }
    }

    #[test]
    fn a_stranger_is_known_by_its_first_wrong_byte() {
        let mut visit = Visit::new(true, true);
        assert!(matches!(
            visit.take(b"G", &host()),
            Step::Refuse(Refusal::NotSyncline, None)
        ));
    }

    #[test]
    fn a_replayed_greeting_gets_no_further_than_its_hello() {
        let host = host();
        let (_, greeting) = Caller::greet(&host.key, false);
        for _ in 0..2 {
            let mut visit = Visit::new(true, true);
            assert!(matches!(
                feed(&mut visit, &host, &greeting, 64),
                Step::Answer(_)
            ));
            let mut guess = vec![0; 2 + 40];
            guess[0] = 40;
            assert!(matches!(
                feed(&mut visit, &host, &guess, 64),
                Step::Refuse(Refusal::Hello, None)
            ));
        }
    }

    #[test]
    fn an_impossible_length_allocates_nothing() {
        let host = host();
        for claimed in [0u16, 16, (MAX_HELLO + TAG + 2) as u16, u16::MAX] {
            let mut visit = Visit::new(true, true);
            let (_, greeting) = Caller::greet(&host.key, false);
            feed(&mut visit, &host, &greeting, 64);
            let step = visit.take(&claimed.to_le_bytes(), &host);
            assert!(
                matches!(step, Step::Refuse(Refusal::HelloLength { .. }, None)),
                "{claimed} was accepted"
            );
        }
    }

    #[test]
    fn no_descriptor_is_expected_over_tcp() {
        let mut visit = Visit::new(true, true);
        assert!(matches!(
            greet(&mut visit, &host(), b"\x01hi", 64),
            Step::Refuse(Refusal::NoDescriptor, None)
        ));
    }

    #[test]
    fn random_bytes_never_get_in_and_never_panic() {
        let host = host();
        let mut seed = 0x5eed_u64;
        let mut random = move || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        };
        for round in 0..3000 {
            let mut visit = Visit::new(round % 2 == 0, true);
            let (_, greeting) = Caller::greet(&host.key, false);
            let mut bytes: Vec<u8> = (0..300).map(|_| random() as u8).collect();
            match round % 3 {
                0 => {}
                // A good greeting, then noise behind a length of every kind.
                1 => bytes.splice(..0, greeting).for_each(drop),
                // A greeting with one changed bit.
                _ => {
                    bytes.splice(..0, greeting).for_each(drop);
                    bytes[random() as usize % GREETING] ^= 1 << (random() % 8);
                }
            }
            let piece = 1 + random() as usize % 90;
            let mut rest = &bytes[..];
            let refused = loop {
                if rest.is_empty() {
                    break false; // a long hello that never comes is for the door's clock to end
                }
                let (given, later) = rest.split_at(piece.min(rest.len()).min(visit.wants()));
                rest = later;
                match visit.take(given, &host) {
                    Step::Wait | Step::Answer(_) => {}
                    Step::Refuse(..) => break true,
                    Step::Done { .. } => panic!("round {round}: noise was let in"),
                }
            };
            assert!(
                refused || round % 3 == 1,
                "round {round} is still undecided"
            );
        }
    }

    #[test]
    fn a_visitor_that_has_proven_nothing_is_small() {
        assert!(
            size_of::<Visit>() < 512,
            "a visit takes {} bytes",
            size_of::<Visit>()
        );
    }
}

//! What rank 0 tells the others where no socket is known yet: a few lines of text, in a file or through PMI.
//!
//! ```text
//! syncline invitation 2
//! job cluster 4711.0-restart0
//! epoch 0
//! address 10.0.0.7:41235
//! address [fd00::7]:41235
//! local 3e0f…/4026531840 syncline-9b1c…
//! token 5d1c…
//! end
//! ```

use std::net::SocketAddr;

use syncline_wire::message::HostId;

use super::Token;

const FIRST_LINE: &str = "syncline invitation 2";

/// No more addresses than this are read: each one costs a member a connection attempt.
const MOST_ADDRESSES: usize = 64;

/// Where the coordinator listens, for which job, and the token if rank 0 made one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invitation {
    /// What the ranks of this job share ([`Launch::job`](super::Launch::job)); a reader ignores other jobs.
    pub job: String,
    /// Which life of the job this is.
    pub epoch: u32,
    /// Every address of the coordinator for ranks of other hosts, in the order to try; never loopback.
    pub addresses: Vec<SocketAddr>,
    /// Where ranks of the coordinator's own host find it, with or without a network.
    pub local: Option<LocalDoor>,
    /// The job's token, when the origin is [`TokenOrigin::Exchanged`](super::TokenOrigin::Exchanged).
    pub token: Option<Token>,
}

/// An abstract Unix socket and the host on which its name means something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalDoor {
    /// The kernel and network namespace it belongs to.
    pub host: HostId,
    /// The name without its leading zero byte.
    pub name: String,
}

impl LocalDoor {
    fn to_text(&self) -> String {
        let boot = u128::from_be_bytes(self.host.boot);
        format!("{boot:032x}/{} {}", self.host.network, one_line(&self.name))
    }

    fn from_text(text: &str) -> Option<Self> {
        let (host, name) = text.split_once(' ')?;
        let (boot, network) = host.split_once('/')?;
        let boot = u128::from_str_radix(boot, 16).ok()?.to_be_bytes();
        Some(LocalDoor { host: HostId { boot, network: network.parse().ok()? }, name: name.to_owned() })
    }
}

/// Why a text is no invitation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an invitation: {problem} in line {line}")]
pub struct InvitationError {
    /// What is wrong.
    pub problem: &'static str,
    /// In which line, counted from 1.
    pub line: usize,
}

impl Invitation {
    /// The longest text that is read.
    pub const LONGEST: usize = 16 << 10;

    /// The lines above. Line breaks in the job's name become spaces.
    pub fn to_text(&self) -> String {
        let mut text = format!("{FIRST_LINE}\njob {}\nepoch {}\n", one_line(&self.job), self.epoch);
        for address in &self.addresses {
            text.push_str(&format!("address {address}\n"));
        }
        if let Some(local) = &self.local {
            text.push_str(&format!("local {}\n", local.to_text()));
        }
        if let Some(token) = &self.token {
            text.push_str(&format!("token {}\n", one_line(token.reveal())));
        }
        text + "end\n"
    }

    /// Reads the lines back; a text that does not reach `end` is not whole.
    pub fn from_text(text: &str) -> Result<Self, InvitationError> {
        let mut invitation = Invitation { job: String::new(), epoch: 0, addresses: Vec::new(), local: None, token: None };
        for (index, line) in text.lines().enumerate() {
            let fault = |problem| InvitationError { problem, line: index + 1 };
            if index == 0 {
                if line != FIRST_LINE {
                    return Err(fault("another kind or version of text"));
                }
                continue;
            }
            if line == "end" {
                return Ok(invitation);
            }
            match line.split_once(' ').ok_or(fault("no value"))? {
                ("job", job) => invitation.job = job.to_owned(),
                ("epoch", epoch) => invitation.epoch = epoch.parse().map_err(|_| fault("no number"))?,
                ("address", _) if invitation.addresses.len() == MOST_ADDRESSES => return Err(fault("too many addresses")),
                ("address", address) => {
                    invitation.addresses.push(address.parse().map_err(|_| fault("no address"))?);
                }
                ("local", door) => invitation.local = Some(LocalDoor::from_text(door).ok_or(fault("no name on a host"))?),
                ("token", token) => invitation.token = Some(Token::from_text(token).ok_or(fault("no token"))?),
                _ => return Err(fault("an unknown word")),
            }
        }
        Err(InvitationError { problem: "the text ends early", line: text.lines().count() })
    }

    /// Whether this invites the ranks of `job` in its life `epoch`.
    pub fn is_for(&self, job: &str, epoch: u32) -> bool {
        self.job == one_line(job) && self.epoch == epoch
    }
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_text_that_is_cut_anywhere_is_refused() {
        let invitation = Invitation {
            job: "7 x".into(),
            epoch: 3,
            addresses: vec!["10.0.0.7:41235".parse().unwrap(), "[fd00::7]:1".parse().unwrap()],
            local: Some(LocalDoor { host: HostId { boot: [7; 16], network: 42 }, name: "syncline-9b".into() }),
            token: Token::from_text("secret"),
        };
        let text = invitation.to_text();
        assert_eq!(
            text,
            "syncline invitation 2\njob 7 x\nepoch 3\naddress 10.0.0.7:41235\naddress [fd00::7]:1\n\
             local 07070707070707070707070707070707/42 syncline-9b\ntoken secret\nend\n"
        );
        assert_eq!(Invitation::from_text(&text).unwrap(), invitation);
        for end in 0..text.len() - 1 {
            assert!(Invitation::from_text(&text[..end]).is_err(), "{:?}", &text[..end]);
        }
        assert!(!format!("{invitation:?}").contains("secret"));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(job in "\\PC{0,40}", epoch: u32, ports in proptest::collection::vec(1u16.., 0..8), boot: u128, network: u64, name in "[a-z0-9-]{1,40}", token in proptest::option::of("[0-9a-f]{8,64}")) {
            let invitation = Invitation {
                job: job.clone(),
                epoch,
                addresses: ports.iter().map(|&port| SocketAddr::from(([10, 0, 0, 1], port))).collect(),
                local: Some(LocalDoor { host: HostId { boot: boot.to_be_bytes(), network }, name }),
                token: token.as_deref().and_then(Token::from_text),
            };
            let read = Invitation::from_text(&invitation.to_text()).unwrap();
            prop_assert!(read.is_for(&job, epoch));
            prop_assert!(!read.is_for(&job, epoch.wrapping_add(1)));
            prop_assert_eq!((read.addresses, read.local, read.token), (invitation.addresses, invitation.local, invitation.token));
        }

        #[test]
        fn no_text_panics(text in "(syncline invitation 2\n)?(job |epoch |address |local |token |end|\n|\\PC){0,20}") {
            let _ = Invitation::from_text(&text);
        }
    }
}

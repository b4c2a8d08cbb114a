//! A function of the user's folds messages along a tree: inside each host first, then among their leaders.

use std::sync::atomic::AtomicBool;

use syncline_cluster::Error;

use super::Mesh;
use super::wire::{Talk, Trouble};
use crate::call::{Call, Failure};
use crate::engine::Merge;
use crate::plan::PlanName;
use crate::plan::host_tree::{self, Kin};

/// The first byte of a frame's meta: whether the message is what it should be, or why it is not.
const FINE: u8 = 0;
const FAILED: u8 = 1;

impl Mesh {
    /// `merge(mine, received)` once per child, children in ascending order; the root's message goes to all.
    ///
    /// The tree is that of `hosts`, positions by host, which keep the order of the group. All have agreed on the call before. A
    /// function that fails on one rank fails the call on all, which stay in step.
    pub(crate) fn fold(&mut self, mine: Vec<u8>, merge: &mut Merge<'_>, hosts: &[Vec<usize>], call: &Call<'_>) -> Result<Vec<u8>, Failure> {
        self.calls += 1;
        let base = match self.settings.forced {
            Some(PlanName::Tree { base: Some(base) }) => base,
            _ => self.settings.base,
        };
        let Kin { parent, children } = host_tree::kin(hosts, base, self.position());
        self.open(children.iter().copied().chain(parent), call)?;
        let mut own_error = None;
        let mut message: Result<Vec<u8>, String> = Ok(mine);
        for child in &children {
            let came = self.hear(*child, call)?;
            message = match (message, came) {
                (Ok(mine), Ok(received)) => merge(mine, received).map_err(|error| {
                    let words = format!("the function failed on rank {}: {error}", self.company.vigil.me());
                    own_error = Some(error);
                    words
                }),
                (Err(words), _) | (_, Err(words)) => Err(words),
            };
        }
        if let Some(parent) = parent {
            self.pass(parent, &message, call)?;
            message = self.hear(parent, call)?;
        }
        for child in children.iter().rev() {
            self.pass(*child, &message, call)?;
        }
        match message {
            Ok(message) => Ok(message),
            Err(detail) => {
                let theirs = Error::System { operation: call.operation(), detail };
                Err(Failure::Agreed(own_error.unwrap_or(theirs)))
            }
        }
    }

    fn pass(&mut self, to: usize, message: &Result<Vec<u8>, String>, call: &Call<'_>) -> Result<(), Failure> {
        match message {
            Ok(bytes) => self.tell_with(to, &[FINE], &[bytes], call),
            Err(words) => self.tell_with(to, &[FAILED], &[words.as_bytes()], call),
        }
    }

    fn hear(&mut self, from: usize, call: &Call<'_>) -> Result<Result<Vec<u8>, String>, Failure> {
        self.exchange(call, None, None, from, |incoming, talk| {
            let (meta, _) = incoming.head(talk)?;
            let body = incoming.body(talk)?;
            match meta[..] {
                [FINE] => Ok(Ok(body)),
                [FAILED] => Ok(Err(String::from_utf8_lossy(&body).into_owned())),
                _ => Err(Trouble::Garbled(from, "a message that is no part of a fold".into())),
            }
        })
    }

    /// Sends one frame to an open link.
    pub(super) fn tell_with(&mut self, to: usize, meta: &[u8], payload: &[&[u8]], call: &Call<'_>) -> Result<(), Failure> {
        let stop = AtomicBool::new(false);
        let fingerprint = call.fingerprint();
        let talk = Talk { company: &self.company, sequence: self.calls, fingerprint, by: call.by, stop: &stop };
        let sent = self.senders[to].as_mut().expect("opened before").send(&talk, meta, payload);
        sent.map_err(|trouble| self.failed(call, trouble))
    }
}

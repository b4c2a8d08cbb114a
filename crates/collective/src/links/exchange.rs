//! Exchanges: one rank sends here and receives there at the same time.

use std::sync::atomic::{AtomicBool, Ordering::*};

use syncline_wire::Fingerprint;

use super::Mesh;
use super::wire::{Incoming, SENT_AT_ONCE, Talk, Trouble};
use crate::call::{Call, Failure};

impl Mesh {
    /// Sends `said` to one position and returns the body of what another says, frames of `fingerprint`.
    pub(super) fn swap(
        &mut self,
        call: &Call<'_>,
        fingerprint: Fingerprint,
        to: usize,
        said: &[u8],
        from: usize,
    ) -> Result<Vec<u8>, Failure> {
        self.exchange(call, Some(fingerprint), Some((to, &[said])), from, |incoming, talk| {
            incoming.head(talk)?;
            incoming.body(talk)
        })
    }

    /// Sends one frame while `hear` receives another; the links must be open.
    ///
    /// What fits into the buffers of a link is sent first. More is sent by a thread of its own: the other side may be
    /// about to send as much.
    pub(super) fn exchange<T>(
        &mut self,
        call: &Call<'_>,
        fingerprint: Option<Fingerprint>,
        send: Option<(usize, &[&[u8]])>,
        from: usize,
        hear: impl FnOnce(&mut Incoming, &Talk<'_>) -> Result<T, Trouble>,
    ) -> Result<T, Failure> {
        let stop = AtomicBool::new(false);
        let mut talk = Talk { company: &self.company, sequence: self.calls, fingerprint: call.fingerprint(), by: call.by, stop: &stop };
        talk.fingerprint = fingerprint.unwrap_or(talk.fingerprint);
        let incoming = self.receivers[from].as_mut().expect("opened before");
        let bytes = send.map_or(0, |(_, payload)| payload.iter().map(|piece| piece.len()).sum());
        let result = match send {
            None => hear(incoming, &talk),
            Some((to, payload)) => {
                let outgoing = self.senders[to].as_mut().expect("opened before");
                if bytes <= SENT_AT_ONCE {
                    outgoing.send(&talk, &[], payload).and_then(|()| hear(incoming, &talk))
                } else {
                    let severers = &self.severers;
                    std::thread::scope(|scope| {
                        let talking = talk;
                        let stop = &stop;
                        let sending = scope.spawn(move || {
                            let sent = outgoing.send(&talking, &[], payload);
                            stop.fetch_or(sent.is_err(), AcqRel);
                            sent
                        });
                        let heard = hear(incoming, &talk);
                        if heard.as_ref().is_err_and(|trouble| !trouble.is_late()) {
                            // Nobody will take the rest, so the sender must not wait for it.
                            stop.store(true, Release);
                            severers.iter().for_each(|severer| severer.sever());
                        }
                        match (heard, sending.join().expect("no panic while sending")) {
                            (Ok(heard), Ok(())) => Ok(heard),
                            (Err(Trouble::Stopped), Err(trouble)) | (Ok(_), Err(trouble)) | (Err(trouble), _) => Err(trouble),
                        }
                    })
                }
            }
        };
        result.map_err(|trouble| self.failed(call, trouble))
    }
}

//! The thread that reads one member's letters while somebody awaits them.

use std::sync::PoisonError;
use std::time::Instant;

use syncline_cluster::{Deadline, Error};
use syncline_transport::{LinkError, RecvHalf};
use syncline_wire::Kind;

use super::{Desk, NAP, Office, Want};

impl Office {
    /// Reads what comes from `position`, until these letters are closed or the link fails.
    pub(super) fn read(&self, position: usize) {
        let mut half = None;
        while let Some(started) = self.somebody_waits(position) {
            match self.next(position, &mut half, started) {
                Ok(Some((tag, bytes))) => self.desk().deliver(position, tag, bytes),
                Ok(None) => {}
                Err(error) => {
                    self.give_up_on_the_late(position);
                    self.desk().fail(position, &error);
                }
            }
            self.give_up_on_the_late(position);
        }
    }

    /// Sleeps until somebody awaits a letter of `position`, and says since when. None when nobody will any more.
    fn somebody_waits(&self, position: usize) -> Option<Instant> {
        let mut desk = self.desk();
        loop {
            if desk.closed {
                return None;
            }
            if let Some(want) = desk.wants.iter().find(|want| want.may_come_from(position)) {
                return Some(want.started);
            }
            desk = self.news.wait(desk).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The next letter; None when none came for a moment.
    fn next(&self, position: usize, half: &mut Option<Box<dyn RecvHalf>>, started: Instant) -> Result<Option<(u64, Vec<u8>)>, Error> {
        let rank = self.group.ranks()[position];
        let lost = |error: &LinkError| self.vigil.link_failed("recv", rank, started, error);
        if half.is_none() {
            // The lower rank waits for the call of the higher one: in short naps, since whoever awaits a letter may give up.
            // A call may take its time on a busy machine, and is given up only when nobody needs it any more.
            let patience = if self.vigil.me() > rank { self.vigil.timeout() } else { NAP };
            let vain = || !self.desk().wants.iter().any(|want| want.may_come_from(position) && !want.by.expired());
            match self.ends(position, Deadline::after(patience), &vain) {
                Ok(mut ends) => *half = ends.receiver.take(),
                Err(Error::Timeout { .. }) if !self.vigil.is_over(rank) && !self.vigil.orphaned_or_leaving() => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        let Some(link) = half else { return Err(self.vigil.explain("recv", &[rank], started, "its link failed before")) };
        let head = match link.head(Deadline::after(NAP)) {
            Ok(head) => head,
            Err(LinkError::Timeout { half_written: false, .. }) if !self.vigil.orphaned_or_leaving() => {
                // What it sent before it ended has arrived by now, or never will.
                let over = self.vigil.is_over(rank) || self.vigil.hopeless();
                return if over { Err(self.vigil.explain("recv", &[rank], started, "it sent nothing")) } else { Ok(None) };
            }
            Err(error) => {
                *half = None;
                return Err(lost(&error));
            }
        };
        if head.header.kind != Kind::DATA || head.header.source != rank {
            return Err(Error::ContractMismatch {
                operation: "recv".into(),
                detail: format!("rank {rank} sent something that is no letter"),
            });
        }
        let body = link.body(Deadline::after(self.vigil.timeout()));
        match body {
            Ok(body) => Ok(Some((head.header.sequence, body))),
            Err(error) => {
                *half = None;
                Err(lost(&error))
            }
        }
    }

    /// Tells those whose time is over.
    fn give_up_on_the_late(&self, position: usize) {
        let late = self.desk().take_wants(|want| want.may_come_from(position) && want.by.expired());
        for want in late {
            let awaited: Vec<u32> = match want.from {
                Some(from) => vec![self.group.ranks()[from]],
                None => self.group.ranks().iter().copied().filter(|rank| *rank != self.vigil.me()).collect(),
            };
            want.promise.fulfil(Err(self.vigil.late("recv", &awaited, want.started, " to send")));
        }
    }
}

impl Want {
    fn may_come_from(&self, position: usize) -> bool {
        self.from.is_none_or(|from| from == position)
    }
}

impl Desk {
    /// The first letter with `tag` that `position` sent and nobody awaited.
    pub(super) fn take(&mut self, position: usize, tag: u64) -> Option<Vec<u8>> {
        let index = self.kept[position].iter().position(|(kept, _)| *kept == tag)?;
        self.kept[position].remove(index).map(|(_, bytes)| bytes)
    }

    /// Hands a letter to the first who awaits it, or keeps it.
    fn deliver(&mut self, position: usize, tag: u64, bytes: Vec<u8>) {
        match self.wants.iter().position(|want| want.tag == tag && want.may_come_from(position)) {
            Some(index) => self.wants.remove(index).promise.fulfil(Ok((bytes, position as u32))),
            None => self.kept[position].push_back((tag, bytes)),
        }
    }

    /// Tells everybody who awaits a letter of `position` that none will come.
    pub(super) fn fail(&mut self, position: usize, error: &Error) {
        for want in self.take_wants(|want| want.may_come_from(position)) {
            want.promise.fulfil(Err(error.clone()));
        }
    }

    fn take_wants(&mut self, which: impl Fn(&Want) -> bool) -> Vec<Want> {
        let (taken, left) = std::mem::take(&mut self.wants).into_iter().partition(which);
        self.wants = left;
        taken
    }
}

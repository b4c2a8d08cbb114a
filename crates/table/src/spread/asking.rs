//! What may have to wait for other workers: asked with the parts in hand, waited for without.
//!
//! A get of a sync or bounded table waits until others have added too. Meanwhile other threads of this worker add, get and come to a
//! barrier, as they do where the table is in shared memory; who waits keeps nothing but the numbers of its questions.

use std::sync::Arc;

use syncline_cluster::{Deadline, Error};

use super::estate::wait_for_verdicts;
use super::layout::{Piece, Places};
use super::messages::{Reply, Request};
use super::moving::{Target, id_bytes, mismatch, patience, receive_pairs, receive_rows, receive_words, rows, selection, unexpected};
use super::parts::{At, Member, Parts};
use super::reach::{Fate, Reach};
use super::replies::Question;
use super::words::Code;
use crate::share::Share;

/// One part that was asked.
pub(crate) enum Asked {
    /// Its share is in this process's memory; what is asked for is the state after so many adds of this worker.
    Here(Arc<dyn Share>, u64),
    /// The question went over a link.
    There(Question),
}

impl Parts {
    /// How many adds at one part a get contains that was called after `own_adds` of this worker. Where every add is one to every part they
    /// are the same ones; elsewhere a get waits for nobody.
    fn adds_at(&self, part: usize, own_adds: u64) -> u64 {
        let made = self.members[part].made;
        if self.ticks { made.min(own_adds) } else { made }
    }

    /// Asks every part, or takes note of it where it is in memory.
    pub(crate) fn ask_all(&mut self, request: impl Fn(&Member) -> Request, by: Deadline) -> Result<Vec<Asked>, Error> {
        let all = 0..self.members.len();
        all.map(|part| {
            let member = &self.members[part];
            self.ask(part, member.made, &request(member), &[], by)
        })
        .collect()
    }

    /// Asks one part, after so many adds there.
    pub(crate) fn ask(&mut self, part: usize, own_adds: u64, request: &Request, payload: &[&[u8]], by: Deadline) -> Result<Asked, Error> {
        match &mut self.members[part].at {
            At::Here(share) => Ok(Asked::Here(Arc::clone(share), own_adds)),
            At::There(line) => line.ask(request, payload, &*self.reach, by).map(Asked::There),
        }
    }

    /// Asks for rows after `own_adds` adds, in fewer bits where a `code` says so.
    pub(crate) fn ask_rows<'a>(
        &mut self,
        ids: Option<&'a [i64]>,
        code: Option<Code>,
        own_adds: u64,
        by: Deadline,
    ) -> Result<Fetch<'a>, Error> {
        let (row_bytes, priority) = (self.row_bytes, self.priority);
        // Words that cannot be cut travel as numbers, and are rounded here.
        let travels = code.filter(|code| self.layout.can_be_cut(*code, row_bytes / 4));
        let pieces = self.pieces("get", ids, false)?;
        let asked = pieces.iter().map(|piece| {
            let own_adds = self.adds_at(piece.part, own_adds);
            let request = match travels {
                Some(code) => Request::GetWords { own_adds, code, patience: patience(by), priority },
                None => Request::Get { own_adds, rows: rows(piece), patience: patience(by), priority },
            };
            self.ask(piece.part, own_adds, &request, &[&id_bytes(piece)], by)
        });
        let asked = asked.collect::<Result<Vec<_>, _>>()?;
        Ok(Fetch { pieces, asked, worker: self.worker, row_bytes, code, travels: travels.is_some(), reach: Arc::clone(&self.reach) })
    }

    /// Asks for what others changed after `own_adds` adds; `received` is how many answers each part has given.
    pub(crate) fn ask_changes(&mut self, received: &[u64], own_adds: u64, by: Deadline) -> Result<Changes, Error> {
        let asked = received.iter().enumerate().map(|(part, received)| {
            let own_adds = self.adds_at(part, own_adds);
            self.ask(part, own_adds, &Request::Changed { own_adds, received: *received, patience: patience(by) }, &[], by)
        });
        let asked = asked.collect::<Result<Vec<_>, _>>()?;
        Ok(Changes { asked, received: received.to_vec(), worker: self.worker, row_bytes: self.row_bytes, reach: Arc::clone(&self.reach) })
    }

    /// Asks to be told when all adds so far are applied everywhere.
    pub(crate) fn ask_settled(&mut self, by: Deadline) -> Result<Settling, Error> {
        let fate = |worker: &u32| self.reach.fate(self.workers[*worker as usize]);
        let lost: Vec<u32> = (0..self.workers.len() as u32).filter(|worker| fate(worker) == Fate::Lost).collect();
        let asked = match self.finished {
            true => Vec::new(), // what it added was taken over before its servers heard that it is done
            false => self.ask_all(|member| Request::Settle { sequence: member.made, patience: patience(by), lost: lost.clone() }, by)?,
        };
        Ok(Settling { asked, lost, worker: self.worker, workers: self.workers.clone(), reach: Arc::clone(&self.reach) })
    }
}

/// Rows that were asked for.
pub(crate) struct Fetch<'a> {
    pieces: Vec<Piece<'a>>,
    asked: Vec<Asked>,
    worker: u32,
    row_bytes: usize,
    code: Option<Code>,
    /// They come in the code.
    travels: bool,
    reach: Arc<dyn Reach>,
}

impl Fetch<'_> {
    /// Waits for the rows and puts them to their places in `out`, from all parts at the same time.
    pub(crate) fn bring(self, out: &mut [u8], by: Deadline) -> Result<(), Error> {
        for (piece, asked) in self.pieces.iter().zip(&self.asked) {
            if let Asked::Here(share, made) = asked {
                let mut target = Target::new(&piece.places, self.row_bytes);
                share.read(self.worker, *made, selection(piece), &mut |bytes| target.take(out, bytes), by)?;
                target.check("get")?;
                if let Some(code) = self.code.filter(|_| self.travels) {
                    code.round(&mut out[self.run(piece)])?;
                }
            }
        }
        for (piece, asked) in self.pieces.iter().zip(&self.asked) {
            if let Asked::There(question) = asked {
                match self.code.filter(|_| self.travels) {
                    Some(code) => receive_words(question, code, &mut out[self.run(piece)], &*self.reach, by)?,
                    None => receive_rows(question, piece, self.row_bytes, out, &*self.reach, by)?,
                }
            }
        }
        match self.code.filter(|_| !self.travels) {
            Some(code) => code.round(out),
            None => Ok(()),
        }
    }

    /// Where the bytes of a piece stand that is a whole part.
    fn run(&self, piece: &Piece<'_>) -> std::ops::Range<usize> {
        match &piece.places {
            Places::Run(run) => run.start * self.row_bytes..run.end * self.row_bytes,
            Places::Scattered(_) => 0..0, // a whole table is a run
        }
    }
}

/// Changed rows that were asked for.
pub(crate) struct Changes {
    asked: Vec<Asked>,
    received: Vec<u64>,
    worker: u32,
    row_bytes: usize,
    reach: Arc<dyn Reach>,
}

impl Changes {
    /// Waits for them, writes them into `out`, which holds the whole table, and returns their ids, ascending.
    pub(crate) fn bring(self, out: &mut [u8], by: Deadline) -> Result<Vec<i64>, Error> {
        const OPERATION: &str = "get_changed";
        let (row_bytes, mut changed) = (self.row_bytes, Vec::new());
        for (asked, received) in self.asked.iter().zip(&self.received) {
            let (ids, bytes) = match asked {
                Asked::Here(share, made) => share.read_changed(self.worker, *made, Some(*received), by)?,
                Asked::There(question) => receive_pairs(question, OPERATION, row_bytes, &*self.reach, by)?,
            };
            for (id, row) in ids.iter().zip(bytes.chunks_exact(row_bytes.max(1))) {
                let at = usize::try_from(*id).ok().and_then(|id| id.checked_mul(row_bytes)).unwrap_or(usize::MAX);
                let place = out.get_mut(at..).and_then(|rest| rest.get_mut(..row_bytes));
                place.ok_or_else(|| mismatch(OPERATION, format!("row {id} is outside of the table")))?.copy_from_slice(row);
            }
            changed.extend(ids);
        }
        Ok(changed)
    }
}

/// Adds that are to be applied.
pub(crate) struct Settling {
    asked: Vec<Asked>,
    lost: Vec<u32>,
    worker: u32,
    workers: Vec<u32>,
    reach: Arc<dyn Reach>,
}

impl Settling {
    /// Returns when they are.
    pub(crate) fn wait(self, by: Deadline) -> Result<(), Error> {
        hear_all(&self.asked, "flush", &*self.reach, by, |share, made| {
            share.settle(self.worker, made, by)?;
            wait_for_verdicts(self.worker, &self.workers, &self.lost, share, &*self.reach, by)
        })
    }
}

/// Does it here and hears from the others that it is done there.
pub(crate) fn hear_all(
    asked: &[Asked],
    operation: &str,
    reach: &dyn Reach,
    by: Deadline,
    here: impl Fn(&dyn Share, u64) -> Result<(), Error>,
) -> Result<(), Error> {
    asked.iter().try_for_each(|asked| match asked {
        Asked::Here(share, made) => here(&**share, *made),
        Asked::There(question) => match question.reply(operation, reach, by)?.reply {
            Reply::Done => Ok(()),
            ref other => Err(unexpected(operation, other)),
        },
    })
}

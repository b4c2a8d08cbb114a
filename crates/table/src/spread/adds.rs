//! One add over the parts of a table: sent to one of them, or staged at all and then decided by the first.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use syncline_cluster::{Deadline, Error};

use super::counting::publish;
use super::debts::Undecided;
use super::layout::{Piece, Places};
use super::messages::{Hold, Reply, Request};
use super::moving::{filler, gathered, id_bytes, patience, rows, selection, unexpected};
use super::parts::{At, Parts};
use super::protocol::{Adding, Step};
use super::words::Code;
use crate::AddOptions;
use crate::share::{Selection, Share};

/// How long a worker that has given up tries to tell the others so.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// What an add carries.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Load<'a> {
    /// Rows as the table has them.
    Rows(&'a [u8]),
    /// All of them, in few bits.
    Words(Code, &'a [u8]),
}

impl<'a> Load<'a> {
    /// The bytes for one part; `rows` is what the table has.
    fn bytes(&self, piece: &Piece<'_>, row_bytes: usize, rows: u64) -> Cow<'a, [u8]> {
        match (self, &piece.places, &piece.ids) {
            (Load::Words(code, words), Places::Run(run), None) => {
                let numbers = row_bytes / 4;
                code.cut(words, run.start * numbers..run.end * numbers, rows as usize * numbers)
            }
            (Load::Words(..), ..) => Cow::Borrowed(&[]), // a tick
            (Load::Rows(rows), places, _) => gathered(places, rows, row_bytes),
        }
    }

    fn request(&self, piece: &Piece<'_>, sequence: u64, options: &AddOptions, hold: Option<Hold>, by: Deadline) -> Request {
        match self {
            Load::Words(code, _) if piece.ids.is_none() => {
                Request::AddWords { sequence, code: *code, options: *options, hold, patience: patience(by) }
            }
            _ => Request::Add { sequence, rows: rows(piece), options: *options, hold, patience: patience(by) },
        }
    }

    /// Stages what concerns one part in memory.
    #[expect(clippy::too_many_arguments, reason = "those of `Share::stage`, and what the bytes are")]
    fn stage(
        &self,
        share: &dyn Share,
        worker: u32,
        sequence: u64,
        piece: &Piece<'_>,
        bytes: &[u8],
        options: &AddOptions,
        by: Deadline,
    ) -> Result<(), Error> {
        match self {
            Load::Words(code, _) if piece.ids.is_none() => {
                share.stage(worker, sequence, Selection::All, options, &mut |target| code.decode(bytes, target), by)
            }
            _ => share.stage(worker, sequence, selection(piece), options, &mut filler(bytes), by),
        }
    }
}

impl Parts {
    /// Adds `delta`: on several parts as one. Returns when it counts, or on one part elsewhere when it is on its way.
    pub(crate) fn add(&mut self, ids: Option<&[i64]>, delta: Load<'_>, options: &AddOptions, by: Deadline) -> Result<(), Error> {
        if self.finished {
            return Err(Error::Closed { operation: format!("add of {}", self.name) });
        }
        let pieces = self.pieces("add", ids, self.ticks)?;
        self.make_good(by)?;
        self.let_earlier_adds_arrive(&pieces, by)?;
        match &pieces[..] {
            [] => Ok(()),
            [piece] => self.add_to_one(piece, delta, options, by),
            _ => self.add_to_several(&pieces, delta, options, by),
        }
    }

    /// Adds to one part elsewhere what its link takes at once. The place of the rest, which must be [sent](Parts::add_rest) before
    /// anything else is done, or `None` when this is not the way to make this add (nothing has happened then).
    pub(crate) fn add_some(
        &mut self,
        ids: Option<&[i64]>,
        delta: &[u8],
        options: &AddOptions,
        patience_with_link: Duration,
        by: Deadline,
    ) -> Result<Option<Rest>, Error> {
        if self.finished {
            return Ok(None);
        }
        let pieces = self.pieces("add", ids, self.ticks)?;
        let [piece @ Piece { part, places: Places::Run(run), .. }] = &pieces[..] else { return Ok(None) };
        if !matches!(&self.members[*part].at, At::There(line) if line.takes_offers() && !line.would_wait()) {
            return Ok(None);
        }
        self.make_good(by)?;
        self.let_earlier_adds_arrive(&pieces, by)?;
        let bytes = run.start * self.row_bytes..run.end * self.row_bytes;
        let member = &mut self.members[*part];
        let At::There(line) = &mut member.at else { return Ok(None) };
        let sequence = member.made + 1;
        let request = Request::Add { sequence, rows: rows(piece), options: *options, hold: None, patience: patience(by) };
        let (small, large) = (id_bytes(piece), &delta[bytes.clone()]);
        let taken = line.offer(&request, Some(sequence), &small, large, patience_with_link, &*self.reach, by)?;
        member.made = sequence;
        Ok(Some(Rest { part: *part, bytes: bytes.start + taken..bytes.end }))
    }

    /// Sends what was left of an add.
    pub(crate) fn add_rest(&mut self, part: usize, bytes: &[u8], by: Deadline) -> Result<(), Error> {
        match &mut self.members[part].at {
            At::There(line) => line.rest("add", bytes, &*self.reach, by),
            At::Here(_) => Ok(()),
        }
    }

    /// Sends as much of it as goes until `by`: how much, and what stopped it. The link is as good as it was.
    pub(crate) fn add_more(&mut self, part: usize, bytes: &[u8], by: Deadline) -> (usize, Result<(), Error>) {
        match &mut self.members[part].at {
            At::There(line) => line.more("add", bytes, &*self.reach, by),
            At::Here(_) => (bytes.len(), Ok(())),
        }
    }

    /// Adds count in the order they were made, also over parts: what survives a death is a beginning of them, without holes.
    fn let_earlier_adds_arrive(&self, pieces: &[Piece<'_>], by: Deadline) -> Result<(), Error> {
        let alone = if let [piece] = pieces { Some(piece.part) } else { None };
        for (part, member) in self.members.iter().enumerate() {
            if let At::There(line) = &member.at
                && alone != Some(part)
            {
                line.replies().hear_adds(&*self.reach, by)?; // on its own link an add cannot overtake another
            }
        }
        Ok(())
    }

    fn add_to_one(&mut self, piece: &Piece<'_>, delta: Load<'_>, options: &AddOptions, by: Deadline) -> Result<(), Error> {
        let bytes = delta.bytes(piece, self.row_bytes, self.layout.rows().unwrap_or(0));
        let member = &mut self.members[piece.part];
        let sequence = member.made + 1;
        match &mut member.at {
            At::Here(share) => {
                delta.stage(&**share, self.worker, sequence, piece, &bytes, options, by)?;
                publish(&**share, self.worker, sequence)?;
            }
            At::There(line) => {
                let request = delta.request(piece, sequence, options, None, by);
                line.tell(&request, Some(sequence), &[&id_bytes(piece), &bytes], &*self.reach, by)?;
            }
        }
        member.made = sequence;
        Ok(())
    }

    fn add_to_several(&mut self, pieces: &[Piece<'_>], delta: Load<'_>, options: &AddOptions, by: Deadline) -> Result<(), Error> {
        let here = self.members.iter().position(|member| matches!(member.at, At::Here(_)));
        let mut adding = Adding::new(pieces.iter().map(|piece| piece.part).collect(), here);
        let primary = adding.primary();
        let hold = Hold { primary: primary as u32, sequence: self.members[primary].made + 1 };
        let outcome = self.stage_all(&mut adding, pieces, delta, options, hold, by);
        let decided = outcome.and_then(|steps| self.decide(&mut adding, &steps, by));
        match decided {
            Ok(()) => {
                pieces.iter().for_each(|piece| self.members[piece.part].made += 1);
                Ok(())
            }
            Err(struck) if adding.is_open() => {
                // Only the primary knows whether it counts: whoever comes next asks again.
                self.undecided = Some(Undecided { adding, touched: pieces.iter().map(|piece| piece.part).collect() });
                Err(struck.error)
            }
            Err(struck) => {
                let mut steps = adding.refused(struck.part);
                // Who only did not answer in time may have it, or is about to: what was sent arrives.
                if matches!(struck.error, Error::Interrupted { .. } | Error::Timeout { .. }) {
                    steps.push(Step::Discard(struck.part));
                }
                let given_up = by.interrupted() || by.expired();
                self.carry_out_quietly(&steps, if given_up { Deadline::after(LAST_WORDS) } else { by });
                Err(struck.error)
            }
        }
    }

    /// Brings the bytes to all parts; an error comes with the part that it struck.
    fn stage_all(
        &mut self,
        adding: &mut Adding,
        pieces: &[Piece<'_>],
        delta: Load<'_>,
        options: &AddOptions,
        hold: Hold,
        by: Deadline,
    ) -> Result<Vec<Step>, Box<Struck>> {
        let (reach, all) = (Arc::clone(&self.reach), self.layout.rows().unwrap_or(0));
        let mut questions = Vec::new();
        for piece in pieces {
            let member = &mut self.members[piece.part];
            if let At::There(line) = &mut member.at {
                let bytes = delta.bytes(piece, self.row_bytes, all);
                let request = delta.request(piece, member.made + 1, options, Some(hold), by);
                let asked = line.ask(&request, &[&id_bytes(piece), &bytes], &*reach, by);
                questions.push((piece.part, asked.map_err(|error| struck(piece.part, error))?));
            }
        }
        let mut steps = Vec::new();
        for piece in pieces {
            let member = &self.members[piece.part];
            if let At::Here(share) = &member.at {
                let bytes = delta.bytes(piece, self.row_bytes, all);
                let staged = delta.stage(&**share, self.worker, member.made + 1, piece, &bytes, options, by);
                staged.map_err(|error| struck(piece.part, error))?;
                steps = adding.staged(piece.part);
            }
        }
        for (part, question) in &questions {
            let arrival = question.reply("add", &*reach, by).map_err(|error| struck(*part, error))?;
            match &arrival.reply {
                Reply::Staged => steps = adding.staged(*part),
                other => return Err(struck(*part, unexpected("add", other))),
            }
        }
        Ok(steps)
    }

    /// Publishes at the primary, waits for its word, then publishes at the others.
    fn decide(&mut self, adding: &mut Adding, steps: &[Step], by: Deadline) -> Result<(), Box<Struck>> {
        let primary = adding.primary();
        debug_assert_eq!(steps, [Step::Publish(primary)]);
        self.publish_at(primary, by).map_err(|error| struck(primary, error))?;
        let rest = adding.published(primary);
        self.carry_out_quietly(&rest, by);
        Ok(())
    }

    /// Makes the add that `primary` holds count there. Asked a second time it changes nothing, and says the same.
    pub(super) fn publish_at(&mut self, primary: usize, by: Deadline) -> Result<(), Error> {
        let member = &mut self.members[primary];
        let sequence = member.made + 1;
        match &mut member.at {
            At::Here(share) => publish(&**share, self.worker, sequence),
            At::There(line) => {
                let question = line.ask(&Request::Commit { sequence }, &[], &*self.reach, by)?;
                question.reply("add", &*self.reach, by).map(drop)
            }
        }
    }

    /// Commits or drops what is staged elsewhere. What cannot be said now is [owed](Parts::make_good).
    pub(super) fn carry_out_quietly(&mut self, steps: &[Step], by: Deadline) {
        for step in steps {
            let (part, commits) = match step {
                Step::Publish(part) => (*part, true),
                Step::Discard(part) => (*part, false),
            };
            let member = &mut self.members[part];
            let sequence = member.made + 1;
            match &mut member.at {
                At::Here(share) if commits => {
                    if let Err(error) = publish(&**share, self.worker, sequence) {
                        self.failure.get_or_insert(error);
                    }
                }
                At::Here(share) => share.discard(self.worker, sequence),
                At::There(_) => {
                    let word = if commits { Request::Commit { sequence } } else { Request::Drop { sequence } };
                    self.say_or_owe(part, word, by);
                }
            }
        }
    }
}

/// What is left of an add: these bytes of its delta, for this part.
pub(crate) struct Rest {
    pub(crate) part: usize,
    pub(crate) bytes: std::ops::Range<usize>,
}

/// An error and the part that it struck.
struct Struck {
    part: usize,
    error: Error,
}

fn struck(part: usize, error: Error) -> Box<Struck> {
    Box::new(Struck { part, error })
}

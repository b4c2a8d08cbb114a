//! All parts of one table as one worker reaches them, and what is done to them one operation at a time.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use syncline_cluster::{Deadline, Error};

use super::estate::wait_for_verdicts;
use super::layout::{Layout, Piece, Places};
use super::line::Line;
use super::messages::{Hold, Reply, Request};
use super::moving::{
    Target, data, filler, gathered, id_bytes, mismatch, patience, receive_pairs, receive_rows, receive_words, rows, selection, unexpected,
    words,
};
use super::protocol::{Adding, Step};
use super::reach::{Fate, Reach};
use super::words::Code;
use crate::AddOptions;
use crate::share::{Selection, Share};

/// How long a worker that has given up tries to tell the others so.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// Ids or keys, and the bytes of their rows or values.
pub(crate) type Pairs = (Vec<i64>, Vec<u8>);

/// Where a part lives.
pub(crate) enum At {
    /// In memory that this process has mapped.
    Here(Arc<dyn Share>),
    /// Behind a link.
    There(Box<Line>),
}

/// One part, how many adds this worker has made there, and how many answers about changed rows it had from it.
pub(crate) struct Member {
    pub(crate) at: At,
    pub(crate) made: u64,
    pub(crate) received: u64,
}

/// The parts of one table, in the hands of one thread.
pub(crate) struct Parts {
    pub(crate) worker: u32,
    /// Ranks of all workers, by worker id.
    pub(crate) workers: Vec<u32>,
    pub(crate) name: String,
    pub(crate) layout: Layout,
    pub(crate) row_bytes: usize,
    pub(crate) ticks: bool,
    pub(crate) members: Vec<Member>,
    pub(crate) reach: Arc<dyn Reach>,
    /// What went wrong while nobody waited; the next call hears of it.
    pub(crate) failure: Option<Error>,
    /// Why nothing can be done any more.
    pub(crate) broken: Option<Error>,
    /// This worker said that it is done. Its servers may leave now.
    pub(crate) finished: bool,
    /// The turn of what is fetched, among all that servers send to this worker.
    pub(crate) priority: Option<i32>,
}

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
    /// The pieces of a request, or the error that names the bad id.
    pub(crate) fn pieces<'a>(&self, operation: &str, ids: Option<&'a [i64]>, everywhere: bool) -> Result<Vec<Piece<'a>>, Error> {
        split(&self.layout, &self.name, operation, ids, everywhere)
    }

    /// Adds `delta`: on several parts as one. Returns when it counts, or on one part elsewhere when it is on its way.
    pub(crate) fn add(&mut self, ids: Option<&[i64]>, delta: Load<'_>, options: &AddOptions, by: Deadline) -> Result<(), Error> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        if self.finished {
            return Err(Error::Closed { operation: format!("add of {}", self.name) });
        }
        self.forsake();
        let pieces = self.pieces("add", ids, self.ticks)?;
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
        if self.broken.is_some() || self.finished {
            return Ok(None);
        }
        let pieces = self.pieces("add", ids, self.ticks)?;
        let [piece @ Piece { part, places: Places::Run(run), .. }] = &pieces[..] else { return Ok(None) };
        if !matches!(&self.members[*part].at, At::There(line) if line.takes_offers() && !line.would_wait()) {
            return Ok(None);
        }
        self.forsake();
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

    /// Adds count in the order they were made, also over parts: what survives a death is a beginning of them, without holes.
    fn let_earlier_adds_arrive(&mut self, pieces: &[Piece<'_>], by: Deadline) -> Result<(), Error> {
        let alone = if let [piece] = pieces { Some(piece.part) } else { None };
        for (part, member) in self.members.iter_mut().enumerate() {
            if let At::There(line) = &mut member.at
                && alone != Some(part)
            {
                line.hear_adds(&*self.reach, by)?; // on its own link an add cannot overtake another
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
                share.publish(self.worker, sequence)?;
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
                // Only the primary knows whether it counts, and we lost its word: go no further.
                self.broken = Some(self.in_doubt(&struck.error));
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

    /// What later calls are told after an add of which nobody here knows whether it counts: not that they were interrupted themselves.
    fn in_doubt(&self, error: &Error) -> Error {
        match error {
            Error::Interrupted { .. } => Error::System {
                operation: self.name.clone(),
                detail:
                    "an earlier add was interrupted while its servers decided whether it counts; this process can no longer use the table\n\
                         hint: load a checkpoint in a new job, or let adds come to their end"
                        .into(),
            },
            error => error.clone(),
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
        for piece in pieces {
            let member = &mut self.members[piece.part];
            if let At::There(line) = &mut member.at {
                let bytes = delta.bytes(piece, self.row_bytes, all);
                let request = delta.request(piece, member.made + 1, options, Some(hold), by);
                line.ask(&request, &[&id_bytes(piece), &bytes], &*reach, by).map_err(|error| struck(piece.part, error))?;
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
        for piece in pieces {
            if let At::There(line) = &mut self.members[piece.part].at {
                match line.reply("add", &*reach, by) {
                    Ok(Reply::Staged) => steps = adding.staged(piece.part),
                    Ok(other) => return Err(struck(piece.part, unexpected("add", &other))),
                    Err(error) => return Err(struck(piece.part, error)),
                }
            }
        }
        Ok(steps)
    }

    /// Publishes at the primary, waits for its word, then publishes at the others.
    fn decide(&mut self, adding: &mut Adding, steps: &[Step], by: Deadline) -> Result<(), Box<Struck>> {
        let primary = adding.primary();
        debug_assert_eq!(steps, [Step::Publish(primary)]);
        let member = &mut self.members[primary];
        let sequence = member.made + 1;
        match &mut member.at {
            At::Here(share) => share.publish(self.worker, sequence).map_err(|error| struck(primary, error))?,
            At::There(line) => {
                let commit = Request::Commit { sequence };
                let asked = line.ask(&commit, &[], &*self.reach, by);
                let done = asked.and_then(|()| line.reply("add", &*self.reach, by));
                done.map_err(|error| struck(primary, error))?;
            }
        }
        let rest = adding.published(primary);
        self.carry_out_quietly(&rest, by);
        Ok(())
    }

    /// Commits or drops what is staged elsewhere. A link that fails here fails again at the next call, which then tells.
    fn carry_out_quietly(&mut self, steps: &[Step], by: Deadline) {
        for step in steps {
            let (part, commits) = match step {
                Step::Publish(part) => (*part, true),
                Step::Discard(part) => (*part, false),
            };
            let member = &mut self.members[part];
            let sequence = member.made + 1;
            let result = match &mut member.at {
                At::Here(share) if commits => share.publish(self.worker, sequence),
                At::Here(share) => {
                    share.discard(self.worker, sequence);
                    Ok(())
                }
                At::There(line) => {
                    line.forsake();
                    let request = if commits { Request::Commit { sequence } } else { Request::Drop { sequence } };
                    line.tell(&request, None, &[], &*self.reach, by)
                }
            };
            if let Err(error) = result {
                self.failure.get_or_insert(error);
            }
        }
    }

    /// Fetches rows into `out`, from all parts at the same time.
    pub(crate) fn get(&mut self, ids: Option<&[i64]>, out: &mut [u8], by: Deadline) -> Result<(), Error> {
        let pieces = self.pieces("get", ids, false)?;
        let row_bytes = self.row_bytes;
        for piece in &pieces {
            let member = &mut self.members[piece.part];
            if let At::There(line) = &mut member.at {
                let priority = self.priority;
                let request = Request::Get { own_adds: member.made, rows: rows(piece), patience: patience(by), priority };
                line.ask(&request, &[&id_bytes(piece)], &*self.reach, by)?;
            }
        }
        let fetched = pieces.iter().try_for_each(|piece| {
            let member = &self.members[piece.part];
            let At::Here(share) = &member.at else { return Ok(()) };
            let mut target = Target::new(&piece.places, row_bytes);
            share.read(self.worker, member.made, selection(piece), &mut |bytes| target.take(out, bytes), by)?;
            target.check("get")
        });
        let fetched = fetched.and_then(|()| {
            pieces.iter().try_for_each(|piece| match &mut self.members[piece.part].at {
                At::There(line) => receive_rows(line, piece, row_bytes, out, &*self.reach, by),
                At::Here(_) => Ok(()),
            })
        });
        self.forsake();
        fetched
    }

    /// Fetches the whole table in fewer bits into `out`, as f32 again.
    pub(crate) fn get_words(&mut self, code: Code, out: &mut [u8], by: Deadline) -> Result<(), Error> {
        if !self.layout.can_be_cut(code, self.row_bytes / 4) {
            self.get(None, out, by)?;
            return code.round(out);
        }
        let (pieces, row_bytes, priority) = (self.pieces("get", None, false)?, self.row_bytes, self.priority);
        for piece in &pieces {
            let member = &mut self.members[piece.part];
            if let At::There(line) = &mut member.at {
                let request = Request::GetWords { own_adds: member.made, code, patience: patience(by), priority };
                line.ask(&request, &[], &*self.reach, by)?;
            }
        }
        let place = |piece: &Piece<'_>| match &piece.places {
            Places::Run(run) => run.start * row_bytes..run.end * row_bytes,
            Places::Scattered(_) => 0..0, // a whole table is a run
        };
        let here = |member: &Member, piece: &Piece<'_>, out: &mut [u8]| {
            let At::Here(share) = &member.at else { return Ok(()) };
            let mut target = Target::new(&piece.places, row_bytes);
            share.read(self.worker, member.made, Selection::All, &mut |bytes| target.take(out, bytes), by)?;
            target.check("get")?;
            code.round(&mut out[place(piece)])
        };
        let fetched = pieces.iter().try_for_each(|piece| here(&self.members[piece.part], piece, out));
        let fetched = fetched.and_then(|()| {
            pieces.iter().try_for_each(|piece| match &mut self.members[piece.part].at {
                At::There(line) => receive_words(line, code, &mut out[place(piece)], &*self.reach, by),
                At::Here(_) => Ok(()),
            })
        });
        self.forsake();
        fetched
    }

    /// Whether a large frame would have to wait for its turn somewhere.
    pub(crate) fn would_wait(&self) -> bool {
        self.members.iter().any(|member| matches!(&member.at, At::There(line) if line.would_wait()))
    }

    /// From now on large frames of this table take turns with those of others; `None`: they do not.
    pub(crate) fn set_priority(&mut self, priority: Option<i32>) {
        self.priority = priority;
        for member in &mut self.members {
            if let At::There(line) = &mut member.at {
                line.set_priority(priority);
            }
        }
    }

    /// Fetches what others changed into `out`, which holds the whole table, and returns the ids, ascending.
    pub(crate) fn get_changed(&mut self, out: &mut [u8], by: Deadline) -> Result<Vec<i64>, Error> {
        const OPERATION: &str = "get_changed";
        let row_bytes = self.row_bytes;
        self.ask_all(|member| Request::Changed { own_adds: member.made, received: member.received, patience: patience(by) }, by)?;
        let mut changed = Vec::new();
        let result = self.members.iter_mut().try_for_each(|member| {
            let (ids, bytes) = match &mut member.at {
                At::Here(share) => share.read_changed(self.worker, member.made, Some(member.received), by)?,
                At::There(line) => receive_pairs(line, OPERATION, row_bytes, &*self.reach, by)?,
            };
            for (id, row) in ids.iter().zip(bytes.chunks_exact(row_bytes.max(1))) {
                let at = usize::try_from(*id).ok().and_then(|id| id.checked_mul(row_bytes)).unwrap_or(usize::MAX);
                let place = out.get_mut(at..).and_then(|rest| rest.get_mut(..row_bytes));
                place.ok_or_else(|| mismatch(OPERATION, format!("row {id} is outside of the table")))?.copy_from_slice(row);
            }
            changed.extend(ids);
            Ok(())
        });
        self.forsake();
        result?;
        // Only now: who fails on the way has told its caller of no row, of whichever part.
        self.members.iter_mut().for_each(|member| member.received += 1);
        Ok(changed)
    }

    /// Returns when all adds so far are applied everywhere.
    pub(crate) fn settle(&mut self, by: Deadline) -> Result<(), Error> {
        if self.finished {
            return Ok(()); // what it added was taken over before its servers heard that it is done
        }
        let fate = |worker: &u32| self.reach.fate(self.workers[*worker as usize]);
        let lost: Vec<u32> = (0..self.workers.len() as u32).filter(|worker| fate(worker) == Fate::Lost).collect();
        self.ask_all(|member| Request::Settle { sequence: member.made, patience: patience(by), lost: lost.clone() }, by)?;
        let (reach, workers) = (Arc::clone(&self.reach), self.workers.clone());
        self.hear_all("flush", by, |share, worker, made| {
            share.settle(worker, made, by)?;
            wait_for_verdicts(worker, &workers, &lost, share, &*reach, by)
        })
    }

    /// Nobody's clock waits for this worker any more. A second time does nothing.
    pub(crate) fn finish(&mut self, by: Deadline) -> Result<(), Error> {
        if std::mem::replace(&mut self.finished, true) {
            return Ok(());
        }
        self.ask_all(|_| Request::Finish, by)?;
        self.hear_all("finish", by, |share, worker, _| {
            share.finish(worker);
            Ok(())
        })
    }

    /// Sends a request to all parts elsewhere.
    fn ask_all(&mut self, request: impl Fn(&Member) -> Request, by: Deadline) -> Result<(), Error> {
        for member in &mut self.members {
            let request = request(member);
            if let At::There(line) = &mut member.at {
                line.ask(&request, &[], &*self.reach, by)?;
            }
        }
        Ok(())
    }

    /// Does it here and hears from the others that it is done there.
    fn hear_all(&mut self, operation: &str, by: Deadline, here: impl Fn(&dyn Share, u32, u64) -> Result<(), Error>) -> Result<(), Error> {
        let done = self.members.iter_mut().try_for_each(|member| match &mut member.at {
            At::Here(share) => here(&**share, self.worker, member.made),
            At::There(line) => match line.reply(operation, &*self.reach, by)? {
                Reply::Done => Ok(()),
                other => Err(unexpected(operation, &other)),
            },
        });
        self.forsake();
        done
    }

    /// How many adds of each worker count.
    pub(crate) fn clocks(&mut self, workers: u32, by: Deadline) -> Result<Vec<u64>, Error> {
        self.ask_all(|_| Request::Clocks, by)?;
        // Where every add ticks everywhere the part that is furthest behind tells; elsewhere the busiest one.
        let (first, combine): (u64, fn(u64, u64) -> u64) = if self.ticks { (u64::MAX, u64::min) } else { (0, u64::max) };
        let mut clocks = vec![first; workers as usize];
        let result = self.members.iter_mut().try_for_each(|member| {
            let counted: Vec<u64> = match &mut member.at {
                At::Here(share) => (0..workers).map(|worker| share.published(worker)).collect(),
                At::There(line) => {
                    let count = data(line.reply("clocks", &*self.reach, by)?, "clocks", line.left(), 8)?;
                    let mut bytes = vec![0; count * 8];
                    line.read("clocks", &mut bytes, &*self.reach, by)?;
                    words(&bytes).map(|word| word as u64).collect()
                }
            };
            clocks.iter_mut().zip(counted).for_each(|(clock, counted)| *clock = combine(*clock, counted));
            Ok(())
        });
        self.forsake();
        result.map(|()| clocks)
    }

    /// Raw copy of a lane from row `first` on. `lane_bytes` is what one row of it has.
    pub(crate) fn read_lane(&mut self, lane: usize, lane_bytes: usize, first: u64, out: &mut [u8], by: Deadline) -> Result<(), Error> {
        let cuts = self.cuts(lane_bytes, first, out.len())?;
        for (part, first, at) in &cuts {
            if let At::There(line) = &mut self.members[*part].at {
                let rows = (at.len() / lane_bytes) as u64;
                line.ask(&Request::ReadLane { lane: lane as u32, first_row: *first, rows, patience: patience(by) }, &[], &*self.reach, by)?;
            }
        }
        let result = cuts.iter().try_for_each(|(part, first, at)| match &mut self.members[*part].at {
            At::Here(share) => share.read_lane(lane, *first, &mut out[at.clone()], by),
            At::There(line) => {
                let count = data(line.reply("save", &*self.reach, by)?, "save", line.left(), lane_bytes)?;
                if count * lane_bytes != at.len() {
                    return Err(mismatch(
                        "save",
                        format!("{count} rows of lane {lane} came where {} were asked for", at.len() / lane_bytes),
                    ));
                }
                line.read("save", &mut out[at.clone()], &*self.reach, by)
            }
        });
        self.forsake();
        result
    }

    /// The reverse of [`read_lane`](Parts::read_lane).
    pub(crate) fn write_lane(&mut self, lane: usize, lane_bytes: usize, first: u64, bytes: &[u8], by: Deadline) -> Result<(), Error> {
        let cuts = self.cuts(lane_bytes, first, bytes.len())?;
        for (part, first, at) in &cuts {
            match &mut self.members[*part].at {
                At::Here(share) => share.write_lane(lane, *first, &bytes[at.clone()], by)?,
                At::There(line) => {
                    let request = Request::WriteLane { lane: lane as u32, first_row: *first, patience: patience(by) };
                    line.ask(&request, &[&bytes[at.clone()]], &*self.reach, by)?;
                }
            }
        }
        let result = cuts.iter().try_for_each(|(part, ..)| match &mut self.members[*part].at {
            At::Here(_) => Ok(()),
            At::There(line) => match line.reply("load", &*self.reach, by)? {
                Reply::Done => Ok(()),
                other => Err(unexpected("load", &other)),
            },
        });
        self.forsake();
        result
    }

    /// Which part holds which bytes of a copy of so many bytes of a lane from row `first` on: part, first row there, bytes.
    fn cuts(&self, lane_bytes: usize, first: u64, len: usize) -> Result<Vec<(usize, u64, std::ops::Range<usize>)>, Error> {
        let Layout::Ranges(ranges) = &self.layout else {
            return Err(mismatch("save", "a key-value table has no lanes".into()));
        };
        if lane_bytes == 0 || len == 0 {
            return Ok(Vec::new());
        }
        let end = first.saturating_add((len / lane_bytes) as u64);
        if !len.is_multiple_of(lane_bytes) || end > self.layout.rows().unwrap_or(0) {
            return Err(mismatch("save", format!("rows {first}..{end} in {len} bytes, of a lane with {lane_bytes} bytes per row")));
        }
        let cut = |(part, range): (usize, &std::ops::Range<u64>)| {
            let (start, stop) = (range.start.max(first), range.end.min(end));
            (start < stop).then(|| (part, start, (start - first) as usize * lane_bytes..(stop - first) as usize * lane_bytes))
        };
        Ok(ranges.iter().enumerate().filter_map(cut).collect())
    }

    /// All pairs of a key-value table, server after server, each by key.
    pub(crate) fn export(&mut self, here: impl Fn() -> Pairs, by: Deadline) -> Result<Vec<Pairs>, Error> {
        self.ask_all(|_| Request::Export, by)?;
        let result = self.members.iter_mut().map(|member| match &mut member.at {
            At::Here(_) => Ok(here()),
            At::There(line) => receive_pairs(line, "save", self.row_bytes, &*self.reach, by),
        });
        let result = result.collect();
        self.forsake();
        result
    }

    /// Gives every server its share of these pairs, and nothing else.
    pub(crate) fn import(&mut self, keys: &[i64], values: &[u8], here: impl Fn(&[i64], &[u8]), by: Deadline) -> Result<(), Error> {
        let pieces = self.pieces("load", Some(keys), true)?;
        for piece in &pieces {
            let bytes = gathered(&piece.places, values, self.row_bytes);
            match &mut self.members[piece.part].at {
                At::Here(_) => here(piece.ids.as_deref().unwrap_or_default(), &bytes),
                At::There(line) => {
                    line.ask(&Request::Import { pairs: piece.places.len() as u64 }, &[&id_bytes(piece), &bytes], &*self.reach, by)?;
                }
            }
        }
        self.hear_all("load", by, |_, _, _| Ok(()))
    }

    /// What went wrong while nobody waited, once. Numbers of adds that were refused are free again.
    pub(crate) fn surface(&mut self, by: Deadline) -> Result<(), Error> {
        for member in &mut self.members {
            if let At::There(line) = &mut member.at
                && let Some((add, error)) = line.take_refused()
            {
                line.hear_quiet(&*self.reach, by)?;
                let _ = line.take_refused();
                member.made = add.map_or(member.made, |add| member.made.min(add - 1));
                self.failure.get_or_insert(error);
            }
        }
        match self.failure.take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Returns when no add is under way.
    pub(crate) fn hear_adds(&mut self, by: Deadline) -> Result<(), Error> {
        for member in &mut self.members {
            if let At::There(line) = &mut member.at {
                line.hear_adds(&*self.reach, by)?;
            }
        }
        Ok(())
    }

    /// Whatever an earlier operation asked for and did not wait for to the end is nobody's business any more.
    pub(crate) fn forsake(&mut self) {
        for member in &mut self.members {
            if let At::There(line) = &mut member.at {
                line.forsake();
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

/// The pieces of a request, or the error that names the bad id.
pub(crate) fn split<'a>(
    layout: &Layout,
    name: &str,
    operation: &str,
    ids: Option<&'a [i64]>,
    everywhere: bool,
) -> Result<Vec<Piece<'a>>, Error> {
    layout.split(ids, everywhere).map_err(|bad| Error::UnknownKey {
        operation: format!("{operation} of {name}"),
        detail: format!("row {} does not exist: the table has {} rows", bad.id, bad.rows),
    })
}

//! Rows between the caller's buffers and the wire: gathered, handed out, received to their places.

use std::borrow::Cow;
use std::time::Duration;

use syncline_cluster::{Deadline, Error};

use super::layout::{Piece, Places};
use super::messages::{Reply, Rows};
use super::parts::Pairs;
use super::reach::Reach;
use super::replies::{Arrival, Question};
use super::words::Code;
use crate::share::Selection;

/// Which rows a piece asks for, as it travels.
pub(super) fn rows(piece: &Piece<'_>) -> Rows {
    piece.ids.as_ref().map_or(Rows::All, |ids| Rows::Listed(ids.len() as u64))
}

/// The same for a share in memory.
pub(super) fn selection<'a>(piece: &'a Piece<'_>) -> Selection<'a> {
    piece.ids.as_deref().map_or(Selection::All, Selection::Rows)
}

/// The ids of a piece as they travel.
pub(super) fn id_bytes(piece: &Piece<'_>) -> Vec<u8> {
    bytes_of_ids(piece.ids.as_deref().unwrap_or_default())
}

/// Ids as they travel.
pub(super) fn bytes_of_ids(ids: &[i64]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(ids.len() * 8);
    ids.iter().for_each(|id| bytes.extend_from_slice(&id.to_le_bytes()));
    bytes
}

/// The numbers that travelled as these bytes.
pub(super) fn words(bytes: &[u8]) -> impl Iterator<Item = i64> + '_ {
    bytes.chunks_exact(8).map(|word| i64::from_le_bytes(word.try_into().expect("eight bytes")))
}

/// The rows of a piece, next to each other.
pub(super) fn gathered<'a>(places: &Places, rows: &'a [u8], row_bytes: usize) -> Cow<'a, [u8]> {
    match places {
        Places::Run(run) => Cow::Borrowed(&rows[run.start * row_bytes..run.end * row_bytes]),
        Places::Scattered(places) => {
            let mut together = Vec::with_capacity(places.len() * row_bytes);
            places.iter().for_each(|place| together.extend_from_slice(&rows[place * row_bytes..][..row_bytes]));
            Cow::Owned(together)
        }
    }
}

/// Hands out `bytes` from the front, in whatever pieces they are asked for.
pub(super) fn filler(bytes: &[u8]) -> impl FnMut(&mut [u8]) -> Result<(), Error> + '_ {
    let mut rest = bytes;
    move |target| {
        let Some((piece, more)) = rest.split_at_checked(target.len()) else {
            return Err(mismatch("add", format!("{} bytes are wanted where {} are left", target.len(), rest.len())));
        };
        target.copy_from_slice(piece);
        rest = more;
        Ok(())
    }
}

/// Puts rows that come in order, in pieces of any size, to their places.
pub(super) struct Target<'a> {
    places: &'a Places,
    row_bytes: usize,
    taken: usize,
}

impl<'a> Target<'a> {
    pub(super) fn new(places: &'a Places, row_bytes: usize) -> Target<'a> {
        Target { places, row_bytes, taken: 0 }
    }

    pub(super) fn take(&mut self, out: &mut [u8], mut bytes: &[u8]) -> Result<(), Error> {
        if bytes.len() > self.places.len() * self.row_bytes - self.taken {
            return Err(mismatch("get", "more bytes came than were asked for".into()));
        }
        match self.places {
            Places::Run(run) => {
                out[run.start * self.row_bytes + self.taken..][..bytes.len()].copy_from_slice(bytes);
                self.taken += bytes.len();
            }
            Places::Scattered(places) => {
                while !bytes.is_empty() {
                    let (row, inside) = (self.taken / self.row_bytes, self.taken % self.row_bytes);
                    let (piece, rest) = bytes.split_at(bytes.len().min(self.row_bytes - inside));
                    out[places[row] * self.row_bytes + inside..][..piece.len()].copy_from_slice(piece);
                    self.taken += piece.len();
                    bytes = rest;
                }
            }
        }
        Ok(())
    }

    pub(super) fn check(&self, operation: &str) -> Result<(), Error> {
        let wanted = self.places.len() * self.row_bytes;
        if self.taken == wanted { Ok(()) } else { Err(mismatch(operation, format!("{} of {wanted} bytes came", self.taken))) }
    }
}

/// Reads the reply to a get: straight to its place where its rows are neighbours.
pub(super) fn receive_rows(
    question: &Question,
    piece: &Piece<'_>,
    row_bytes: usize,
    out: &mut [u8],
    reach: &dyn Reach,
    by: Deadline,
) -> Result<(), Error> {
    const CHUNK: usize = 1 << 20;
    let mut arrival = question.reply("get", reach, by)?;
    let count = data(&arrival, "get", row_bytes)?;
    if count != piece.places.len() {
        return Err(mismatch("get", format!("{count} rows came where {} were asked for", piece.places.len())));
    }
    if let Places::Run(run) = &piece.places {
        return arrival.read("get", &mut out[run.start * row_bytes..run.end * row_bytes], reach, by);
    }
    let mut target = Target::new(&piece.places, row_bytes);
    let mut chunk = vec![0; CHUNK.min(count * row_bytes)];
    while arrival.left() > 0 {
        let next = chunk.len().min(arrival.left() as usize);
        arrival.read("get", &mut chunk[..next], reach, by)?;
        target.take(out, &chunk[..next])?;
    }
    target.check("get")
}

/// Reads the reply to a get in fewer bits, straight to its place.
pub(super) fn receive_words(question: &Question, code: Code, out: &mut [u8], reach: &dyn Reach, by: Deadline) -> Result<(), Error> {
    let mut arrival = question.reply("get", reach, by)?;
    let (left, numbers) = (arrival.left(), out.len() / 4);
    match &arrival.reply {
        Reply::Data { rows } if *rows == numbers as u64 && code.takes(left, *rows) => {}
        Reply::Data { rows } => return Err(mismatch("get", format!("{rows} numbers in {left} bytes came where {numbers} were asked for"))),
        other => return Err(unexpected("get", other)),
    }
    code.decode_from(left as usize, out, &mut |room| arrival.read("get", room, reach, by))
}

/// Reads a reply of ids and rows.
pub(super) fn receive_pairs(
    question: &Question,
    operation: &str,
    row_bytes: usize,
    reach: &dyn Reach,
    by: Deadline,
) -> Result<Pairs, Error> {
    let mut arrival = question.reply(operation, reach, by)?;
    let count = data(&arrival, operation, 8 + row_bytes)?;
    let mut ids = vec![0; count * 8];
    arrival.read(operation, &mut ids, reach, by)?;
    let mut bytes = vec![0; count * row_bytes];
    arrival.read(operation, &mut bytes, reach, by)?;
    Ok((words(&ids).collect(), bytes))
}

/// How many rows a reply announces, if its payload has as many.
pub(super) fn data(arrival: &Arrival<'_>, operation: &str, row_bytes: usize) -> Result<usize, Error> {
    let left = arrival.left();
    match &arrival.reply {
        Reply::Data { rows } if rows.checked_mul(row_bytes as u64) == Some(left) => Ok(*rows as usize),
        Reply::Data { rows } => Err(mismatch(operation, format!("{rows} rows of {row_bytes} bytes were announced in {left} bytes"))),
        other => Err(unexpected(operation, other)),
    }
}

pub(super) fn unexpected(operation: &str, reply: &Reply) -> Error {
    Error::ContractMismatch { operation: operation.into(), detail: format!("a server answered {reply:?}") }
}

pub(super) fn mismatch(operation: &str, detail: String) -> Error {
    Error::ShapeMismatch { operation: operation.into(), detail }
}

/// What is left of a deadline, as it travels; a server waits no longer than a day for anybody.
pub(super) fn patience(by: Deadline) -> u32 {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    by.remaining().unwrap_or(DAY).min(DAY).as_millis() as u32
}

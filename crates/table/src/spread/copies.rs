//! Raw copies of a table's parts, for saves and loads: lanes of rows as they are, and pairs of keys and values.

use syncline_cluster::{Deadline, Error};

use super::asking::{Asked, hear_all};
use super::layout::Layout;
use super::messages::Request;
use super::moving::{data, gathered, id_bytes, mismatch, patience, receive_pairs};
use super::parts::{Pairs, Parts};

impl Parts {
    /// Raw copy of a lane from row `first` on. `lane_bytes` is what one row of it has.
    pub(crate) fn read_lane(&mut self, lane: usize, lane_bytes: usize, first: u64, out: &mut [u8], by: Deadline) -> Result<(), Error> {
        let cuts = self.cuts(lane_bytes, first, out.len())?;
        let mut asked = Vec::with_capacity(cuts.len());
        for (part, first_row, at) in &cuts {
            let rows = (at.len() / lane_bytes) as u64;
            asked.push(self.ask(
                *part,
                0,
                &Request::ReadLane { lane: lane as u32, first_row: *first_row, rows, patience: patience(by) },
                &[],
                by,
            )?);
        }
        cuts.iter().zip(&asked).try_for_each(|((_, first, at), asked)| match asked {
            Asked::Here(share, _) => share.read_lane(lane, *first, &mut out[at.clone()], by),
            Asked::There(question) => {
                let mut arrival = question.reply("save", &*self.reach, by)?;
                let count = data(&arrival, "save", lane_bytes)?;
                if count * lane_bytes != at.len() {
                    return Err(mismatch(
                        "save",
                        format!("{count} rows of lane {lane} came where {} were asked for", at.len() / lane_bytes),
                    ));
                }
                arrival.read("save", &mut out[at.clone()], &*self.reach, by)
            }
        })
    }

    /// The reverse of [`read_lane`](Parts::read_lane).
    pub(crate) fn write_lane(&mut self, lane: usize, lane_bytes: usize, first: u64, bytes: &[u8], by: Deadline) -> Result<(), Error> {
        let cuts = self.cuts(lane_bytes, first, bytes.len())?;
        let mut asked = Vec::with_capacity(cuts.len());
        for (part, first_row, at) in &cuts {
            let (piece, request) =
                (&bytes[at.clone()], Request::WriteLane { lane: lane as u32, first_row: *first_row, patience: patience(by) });
            let one = self.ask(*part, 0, &request, &[piece], by)?;
            if let Asked::Here(share, _) = &one {
                share.write_lane(lane, *first_row, piece, by)?;
            }
            asked.push(one);
        }
        hear_all(&asked, "load", &*self.reach, by, |_, _| Ok(()))
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
        let asked = self.ask_all(|_| Request::Export, by)?;
        let pairs = |asked: &Asked| match asked {
            Asked::Here(..) => Ok(here()),
            Asked::There(question) => receive_pairs(question, "save", self.row_bytes, &*self.reach, by),
        };
        asked.iter().map(pairs).collect()
    }

    /// Gives every server its share of these pairs, and nothing else.
    pub(crate) fn import(&mut self, keys: &[i64], values: &[u8], here: impl Fn(&[i64], &[u8]), by: Deadline) -> Result<(), Error> {
        let pieces = self.pieces("load", Some(keys), true)?;
        let mut asked = Vec::with_capacity(pieces.len());
        for piece in &pieces {
            let bytes = gathered(&piece.places, values, self.row_bytes);
            let request = Request::Import { pairs: piece.places.len() as u64 };
            let one = self.ask(piece.part, 0, &request, &[&id_bytes(piece), &bytes], by)?;
            if let Asked::Here(..) = one {
                here(piece.ids.as_deref().unwrap_or_default(), &bytes);
            }
            asked.push(one);
        }
        hear_all(&asked, "load", &*self.reach, by, |_, _| Ok(()))
    }
}

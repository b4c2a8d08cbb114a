//! Bytes that are passed on as they are: each member lays its own on its desk, chunk by chunk, and whoever wants them reads.

use std::ops::Range;

use super::head::Head;
use super::meeting::{CHUNK, Memory};
use super::{copy, garbled};
use crate::call::{Call, Failure};

impl Memory {
    /// Every member's bytes, those that `mine` lists one after the other, pass by: `read` sees each chunk with the member's
    /// position and where in its bytes the chunk begins. Before, `begin` hears how many bytes each member brings.
    fn stream<S>(
        &mut self,
        call: &Call<'_>,
        mine: &[&[u8]],
        begin: impl FnOnce(&[usize]) -> Result<S, Failure>,
        mut read: impl FnMut(&mut S, usize, usize, &[u8]) -> Result<(), Failure>,
    ) -> Result<S, Failure> {
        let total: usize = mine.iter().map(|piece| piece.len()).sum();
        let head = Head::of(call).with_length(total);
        let mut meeting = self.next();
        lay_out(self.own.room_for(meeting, 0..total.min(CHUNK)), mine, 0);
        self.come_with(&head);
        self.wait_and_agree(&head, call)?;
        let lengths: Vec<usize> = (0..self.members.len()).map(|index| self.head_of(index, meeting).length() as usize).collect();
        let longest = lengths.iter().copied().max().unwrap_or_default();
        let mut state = begin(&lengths)?;
        let mut at = 0;
        loop {
            for (index, length) in lengths.iter().enumerate().filter(|(_, length)| **length > at) {
                read(&mut state, index, at, self.members[index].desk.read(meeting, 0..(length - at).min(CHUNK)))?;
            }
            at += CHUNK;
            if at >= longest {
                return Ok(state);
            }
            meeting = self.next();
            lay_out(self.own.room_for(meeting, 0..total.saturating_sub(at).min(CHUNK)), mine, at);
            self.come();
            self.wait(call)?;
        }
    }

    /// Everybody's bytes, by position, for those who `want` them.
    pub(crate) fn gather(&mut self, call: &Call<'_>, mine: &[u8], want: bool) -> Result<Option<Vec<Vec<u8>>>, Failure> {
        let begin =
            |lengths: &[usize]| Ok(want.then(|| lengths.iter().map(|length| Vec::with_capacity(*length)).collect::<Vec<Vec<u8>>>()));
        self.stream(call, &[mine], begin, |all, index, _, bytes| {
            if let Some(all) = all {
                all[index].extend_from_slice(bytes);
            }
            Ok(())
        })
    }

    /// The root's message, of any length.
    pub(crate) fn broadcast_message(&mut self, call: &Call<'_>, message: &[u8], root: usize) -> Result<Vec<u8>, Failure> {
        let mine: &[u8] = if self.me == root { message } else { &[] };
        self.stream(
            call,
            &[mine],
            |lengths| Ok(Vec::with_capacity(lengths[root])),
            |all, index, _, bytes| {
                if index == root {
                    all.extend_from_slice(bytes);
                }
                Ok(())
            },
        )
    }

    /// Everybody's `array` becomes the root's.
    pub(crate) fn broadcast(&mut self, call: &Call<'_>, array: &mut [u8], root: usize) -> Result<(), Failure> {
        let (mut head, mut at) = (Some(Head::of(call)), 0);
        loop {
            let range = at..array.len().min(at + CHUNK);
            let meeting = self.next();
            if self.me == root {
                copy(self.own.room_for(meeting, 0..range.len()), &array[range.clone()]);
            }
            self.meet(call, head.take().as_ref(), 0)?;
            if self.me != root {
                copy(&mut array[range.clone()], self.members[root].desk.read(meeting, 0..range.len()));
            }
            at = range.end;
            if at == array.len() {
                return Ok(());
            }
        }
    }

    /// This position's part of what the root brings, one part for each.
    pub(crate) fn scatter(&mut self, call: &Call<'_>, parts: Option<&[&[u8]]>, root: usize) -> Result<Vec<u8>, Failure> {
        Ok(self.pass_parts(call, parts, |index| index == root)?.swap_remove(root))
    }

    /// What each position has for this one.
    pub(crate) fn all_to_all(&mut self, call: &Call<'_>, parts: &[&[u8]]) -> Result<Vec<Vec<u8>>, Failure> {
        self.pass_parts(call, Some(parts), |_| true)
    }

    /// Members who bring parts send a table of their lengths ahead of them; each reads its own of those for whom `from` is true.
    fn pass_parts(&mut self, call: &Call<'_>, parts: Option<&[&[u8]]>, from: impl Fn(usize) -> bool) -> Result<Vec<Vec<u8>>, Failure> {
        let (me, members) = (self.me, self.members.len());
        let table: Vec<u8> = parts.unwrap_or_default().iter().flat_map(|part| (part.len() as u64).to_le_bytes()).collect();
        let mut mine: Vec<&[u8]> = vec![&table];
        mine.extend(parts.unwrap_or_default());
        let begin = |_: &[usize]| Ok((0..members).map(|_| Incoming::default()).collect::<Vec<_>>());
        let all = self.stream(call, &mine, begin, |all: &mut Vec<Incoming>, index, at, bytes| match from(index) {
            true => all[index].take(at, bytes, members, me).ok_or_else(|| garbled(call.operation()).into()),
            false => Ok(()),
        })?;
        Ok(all.into_iter().map(|incoming| incoming.part).collect())
    }

    /// Returns how many contribute when all have come.
    pub(crate) fn roll_call(&mut self, call: &Call<'_>) -> Result<u32, Failure> {
        let head = Head::of(call);
        self.meet(call, Some(&head), 0)
    }
}

/// Copies what stands at `from` and behind in `pieces`, taken one after the other, until the room is full.
fn lay_out(room: &mut [u8], pieces: &[&[u8]], from: usize) {
    let (mut skip, mut rest) = (from, room);
    for piece in pieces {
        if skip >= piece.len() {
            skip -= piece.len();
            continue;
        }
        let now = rest.len().min(piece.len() - skip);
        let (room, behind) = rest.split_at_mut(now);
        copy(room, &piece[skip..skip + now]);
        (rest, skip) = (behind, 0);
    }
}

/// One member's parts as they pass by: the table of their lengths, then the parts, of which one is for us.
#[derive(Default)]
struct Incoming {
    table: Vec<u8>,
    /// Where our part stands in the member's bytes.
    range: Option<Range<usize>>,
    part: Vec<u8>,
}

impl Incoming {
    /// None when the lengths make no sense.
    fn take(&mut self, at: usize, bytes: &[u8], members: usize, me: usize) -> Option<()> {
        let table_len = members * 8;
        if self.table.len() < table_len {
            self.table.extend_from_slice(&bytes[..bytes.len().min(table_len - self.table.len())]);
        }
        if self.range.is_none() && self.table.len() == table_len {
            let length = |index: usize| {
                let word = self.table.as_chunks::<8>().0[index];
                usize::try_from(u64::from_le_bytes(word)).ok()
            };
            let start = (0..me).try_fold(table_len, |sum, index| sum.checked_add(length(index)?))?;
            self.range = Some(start..start.checked_add(length(me)?)?);
        }
        let Some(range) = &self.range else { return Some(()) };
        let (start, end) = (range.start.max(at), range.end.min(at + bytes.len()));
        if start < end {
            self.part.extend_from_slice(&bytes[start - at..end - at]);
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_laid_out_one_after_the_other_from_anywhere() {
        let pieces: [&[u8]; 4] = [b"abc", b"", b"de", b"fghij"];
        for from in 0..10 {
            for len in 0..=10 - from {
                let mut room = vec![0; len];
                lay_out(&mut room, &pieces, from);
                assert_eq!(room, b"abcdefghij"[from..from + len]);
            }
        }
    }

    #[test]
    fn a_part_is_found_however_its_bytes_are_cut() {
        let parts: [&[u8]; 3] = [b"first", b"", b"the third"];
        let table: Vec<u8> = parts.iter().flat_map(|part| (part.len() as u64).to_le_bytes()).collect();
        let stream: Vec<u8> = table.iter().copied().chain(parts.concat()).collect();
        for (me, cut) in (0..3).flat_map(|me| [1, 3, 8, 24, 25, 100].map(|cut| (me, cut))) {
            let mut incoming = Incoming::default();
            for (index, bytes) in stream.chunks(cut).enumerate() {
                incoming.take(index * cut, bytes, 3, me).expect("sound lengths");
            }
            assert_eq!(incoming.part, parts[me], "part {me} in pieces of {cut}");
        }
        assert!(Incoming::default().take(0, &[0xff; 24], 3, 1).is_none());
    }
}

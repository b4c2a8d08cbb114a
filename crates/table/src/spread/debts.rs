//! What a worker still owes to its parts: the end of an add that was called off, and words that could not be sent.
//!
//! Who stops waiting while the primary decides about an add does not know whether it counts. The primary does: a commit that comes again is
//! answered as the first one, so whoever comes next asks again, and the add goes on from there.
//!
//! When an add is decided its other parts are told to count or to drop it, and nobody waits for their replies. A word that the network did
//! not take, or that was called off, is owed: it goes before anything else does. Until then the part holds the add, and its number there
//! is not free.

use std::sync::atomic::Ordering::AcqRel;

use syncline_cluster::{Deadline, Error};

use super::line::Line;
use super::messages::Request;
use super::parts::{At, Parts};
use super::protocol::Adding;
use super::reach::Reach;

/// An add that the primary was told to count, and has not answered.
pub(crate) struct Undecided {
    pub(crate) adding: Adding,
    /// The parts that it touches.
    pub(crate) touched: Vec<usize>,
}

impl Parts {
    /// Ends what was left in the middle. What still cannot be ended stays as it was, and so does everything else.
    pub(crate) fn make_good(&mut self, by: Deadline) -> Result<(), Error> {
        if let Some(primary) = self.undecided.as_ref().map(|open| open.adding.primary()) {
            self.publish_at(primary, by)?;
            if let Some(mut open) = self.undecided.take() {
                let rest = open.adding.published(primary);
                self.carry_out_quietly(&rest, by);
                open.touched.iter().for_each(|part| self.members[*part].made += 1);
                self.issued.fetch_add(1, AcqRel);
            }
        }
        self.pay(by)
    }

    /// Says what could not be said before. What still cannot be said is owed as before.
    fn pay(&mut self, by: Deadline) -> Result<(), Error> {
        for member in &mut self.members {
            let (Some(word), At::There(line)) = (&member.owed, &mut member.at) else { continue };
            if let Err(error) = say(line, word, &*self.reach, by) {
                if line.replies().check().is_ok() {
                    return Err(error);
                }
                // Whoever loses the link settles what it holds, and this worker hears of it as of any loss.
                self.failure.get_or_insert(error);
            }
            member.owed = None;
        }
        Ok(())
    }

    /// Tells a part that its add counts or does not, or keeps the word for later.
    pub(super) fn say_or_owe(&mut self, part: usize, word: Request, by: Deadline) {
        let member = &mut self.members[part];
        let At::There(line) = &mut member.at else { return };
        if let Err(error) = say(line, &word, &*self.reach, by) {
            if line.replies().check().is_ok() {
                member.owed = Some(word);
            } else {
                self.failure.get_or_insert(error);
            }
        }
    }
}

/// A number that is dropped is free when the part has read so: until then a drop is under way as an add is. Otherwise the inquest after a
/// death might take what was dropped for the add that has its number now.
fn say(line: &mut Line, word: &Request, reach: &dyn Reach, by: Deadline) -> Result<(), Error> {
    let number = if let Request::Drop { sequence } = word { Some(*sequence) } else { None };
    line.tell(word, number, &[], reach, by)
}

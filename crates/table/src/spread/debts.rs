//! Words that a worker owes to parts elsewhere.
//!
//! When an add is decided its other parts are told to count or to drop it, and nobody waits for their replies. A word that the network did
//! not take, or that was called off, is owed: it goes before anything else does. Until then the part holds the add, and its number there
//! is not free.

use syncline_cluster::{Deadline, Error};

use super::line::Line;
use super::messages::Request;
use super::parts::{At, Parts};
use super::reach::Reach;

impl Parts {
    /// Says what could not be said before. What still cannot be said is owed as before.
    pub(crate) fn pay(&mut self, by: Deadline) -> Result<(), Error> {
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

//! What this process knows about the lives of the others.
//!
//! Many waits read it, few events write it: the watcher (a local process ended), the control link (the coordinator
//! says so), a failed operation. Reading costs one load, so that every wait can ask in its slow path.
//!
//! **Blame.** When rank 2 is killed, rank 1 fails and exits too, and rank 3 may see both deaths in one glance, or
//! rank 1's first. Therefore a failing process first writes down whom it blames, and whoever sees it end follows the
//! blame: all survivors name rank 2.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering::*};

const ALIVE: u8 = 0;
const LEFT: u8 = 1;
const DOWN: u8 = 2;

/// How a member's part in the job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fate {
    /// A sentence without its subject: `was killed by signal 9`.
    pub(crate) how: String,
    /// It is not dead as far as anybody knows, but nothing is heard of it.
    pub(crate) silent: bool,
    /// It ended because of this rank.
    pub(crate) blames: Option<u32>,
    /// Whoever tells it knows how it happened; a mere closed socket does not.
    pub(crate) exact: bool,
    /// Its process is certainly gone and writes nothing any more: the kernel or the launcher says so.
    pub(crate) ended: bool,
}

impl Fate {
    /// Its process is gone.
    pub(crate) fn gone(how: impl Into<String>) -> Self {
        Fate { how: how.into(), silent: false, blames: None, exact: false, ended: false }
    }

    /// It does not answer.
    pub(crate) fn silent(how: impl Into<String>) -> Self {
        Fate { how: how.into(), silent: true, blames: None, exact: false, ended: false }
    }
}

/// The fates of all ranks of a job.
#[derive(Debug)]
pub(crate) struct Fates {
    /// This process, which lives whatever the others say.
    me: u32,
    flags: Vec<AtomicU8>,
    /// Ranks whose process is certainly gone, whether they left politely or not.
    ended: Vec<AtomicBool>,
    downs: AtomicU32,
    /// Grows with everything that a wait may have to look at again.
    news: AtomicU32,
    /// In the order in which they became known.
    known: Mutex<Vec<(u32, Fate)>>,
}

impl Fates {
    /// Everybody lives.
    pub(crate) fn new(world: u32, me: u32) -> Self {
        Fates {
            me,
            flags: (0..world).map(|_| AtomicU8::new(ALIVE)).collect(),
            ended: (0..world).map(|_| AtomicBool::new(false)).collect(),
            downs: AtomicU32::new(0),
            news: AtomicU32::new(0),
            known: Mutex::new(Vec::new()),
        }
    }

    /// Whether anybody is known to be down.
    pub(crate) fn any_down(&self) -> bool {
        self.downs.load(Acquire) != 0 // pairs with the Release in `mark_down`
    }

    /// Grows with every death, and when the end of a process becomes certain.
    pub(crate) fn deaths(&self) -> u32 {
        self.news.load(Acquire) // pairs with the Release in `mark_down` and `mark_ended`
    }

    /// Whether the process of `rank` is certainly gone.
    pub(crate) fn has_ended(&self, rank: u32) -> bool {
        self.ended[rank as usize].load(Acquire)
    }

    /// Records that the process of `rank` is gone, however it went.
    pub(crate) fn mark_ended(&self, rank: u32) {
        if !self.ended[rank as usize].swap(true, AcqRel) {
            self.news.fetch_add(1, Release);
        }
    }

    /// Whether `rank` has left politely.
    pub(crate) fn has_left(&self, rank: u32) -> bool {
        self.flags[rank as usize].load(Acquire) == LEFT
    }

    /// Whether nothing more will come from `rank`.
    pub(crate) fn is_over(&self, rank: u32) -> bool {
        self.flags[rank as usize].load(Acquire) != ALIVE
    }

    /// Whether `rank` is known to be gone without having left.
    pub(crate) fn is_down(&self, rank: u32) -> bool {
        self.flags[rank as usize].load(Acquire) == DOWN
    }

    /// Records a death. The first account of it stands, unless a later one knows better how it happened. Returns whether
    /// the death was news.
    pub(crate) fn mark_down(&self, rank: u32, fate: Fate) -> bool {
        if fate.ended {
            self.mark_ended(rank);
        }
        let mut known = self.known.lock().expect("no panic while held");
        if self.is_over(rank) {
            if let Some((_, told)) = known.iter_mut().find(|(known, told)| *known == rank && !told.exact && fate.exact) {
                *told = Fate { blames: told.blames.or(fate.blames), ..fate };
            }
            return false;
        }
        // Whom it blames is down too, even if no other word of that has come yet; but not this process, which was only late.
        let is_news = |culprit: &u32| *culprit != rank && *culprit != self.me && !self.is_over(*culprit);
        if let Some(culprit) = fate.blames.filter(is_news) {
            let how = if fate.silent { "does not answer" } else { "is gone" };
            known.push((
                culprit,
                Fate { how: format!("{how}, says rank {rank}"), silent: fate.silent, blames: None, exact: false, ended: false },
            ));
            self.flags[culprit as usize].store(DOWN, Release);
            self.downs.fetch_add(1, Release);
            self.news.fetch_add(1, Release);
        }
        known.push((rank, fate));
        self.flags[rank as usize].store(DOWN, Release);
        self.downs.fetch_add(1, Release);
        self.news.fetch_add(1, Release);
        true
    }

    /// Records a polite departure.
    pub(crate) fn mark_left(&self, rank: u32) {
        let _known = self.known.lock().expect("no panic while held");
        let _ = self.flags[rank as usize].compare_exchange(ALIVE, LEFT, Release, Relaxed);
    }

    /// The rank all trouble began with among `concerned`, and its fate: blame is followed as far as there are fates. One that
    /// still blames somebody blames a rank that has none: it left in good order, or it is this process.
    pub(crate) fn culprit(&self, concerned: &[u32]) -> Option<(u32, Fate)> {
        let known = self.known.lock().expect("no panic while held");
        let mut suspect = known.iter().find(|(rank, _)| concerned.contains(rank))?;
        for _ in 0..known.len() {
            let Some(blamed) = suspect.1.blames else { break };
            let Some(next) = known.iter().find(|(rank, _)| *rank == blamed) else { break };
            suspect = next;
        }
        Some(suspect.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_account_of_a_death_stands() {
        let fates = Fates::new(3, 0);
        assert!(fates.mark_down(1, Fate::gone("was killed by signal 9")));
        assert!(!fates.mark_down(1, Fate::gone("closed its socket")));
        assert_eq!(fates.culprit(&[0, 1, 2]), Some((1, Fate::gone("was killed by signal 9"))));
    }

    #[test]
    fn an_exact_account_replaces_a_vague_one() {
        let fates = Fates::new(2, 0);
        fates.mark_down(1, Fate::gone("closed its socket"));
        assert!(!fates.mark_down(1, Fate { exact: true, ..Fate::gone("was killed by signal 9") }), "the death itself is no news");
        fates.mark_down(1, Fate { exact: true, ..Fate::gone("something else") });
        assert_eq!(fates.culprit(&[1]).map(|(_, fate)| fate.how), Some("was killed by signal 9".into()));
    }

    #[test]
    fn blame_is_followed_to_the_rank_it_began_with() {
        let fates = Fates::new(4, 0);
        fates.mark_down(1, Fate { blames: Some(2), ..Fate::gone("exited") });
        assert_eq!(fates.culprit(&[0, 1, 2, 3]).map(|(rank, _)| rank), Some(2));
        assert!(fates.any_down() && fates.is_over(2));
    }

    #[test]
    fn blame_that_leads_to_a_rank_without_a_fate_is_kept() {
        let fates = Fates::new(4, 3);
        fates.mark_left(2);
        fates.mark_down(1, Fate { blames: Some(2), ..Fate::gone("exited") });
        assert_eq!(fates.culprit(&[1]).map(|(rank, fate)| (rank, fate.blames)), Some((1, Some(2))), "rank 2 left in good order");
        fates.mark_down(0, Fate { blames: Some(3), ..Fate::gone("exited") });
        assert_eq!(fates.culprit(&[0]).map(|(rank, fate)| (rank, fate.blames)), Some((0, Some(3))));
        assert!(!fates.is_over(3), "this process lives, whatever others say");
    }

    #[test]
    fn a_death_before_its_blamer_is_told_once() {
        let fates = Fates::new(4, 0);
        fates.mark_down(2, Fate::gone("was killed by signal 9"));
        fates.mark_down(1, Fate { blames: Some(2), ..Fate::gone("exited") });
        assert_eq!(fates.culprit(&[0, 1, 3]), Some((2, Fate::gone("was killed by signal 9"))));
    }

    #[test]
    fn two_that_blame_each_other_do_not_spin() {
        let fates = Fates::new(3, 0);
        fates.mark_down(1, Fate { blames: Some(2), ..Fate::gone("exited") });
        fates.mark_down(2, Fate { blames: Some(1), ..Fate::gone("exited") });
        assert!(fates.culprit(&[0, 1, 2]).is_some());
    }

    #[test]
    fn an_end_is_certain_only_when_the_kernel_or_the_launcher_says_so() {
        let fates = Fates::new(4, 0);
        fates.mark_down(1, Fate::gone("closed its socket"));
        let before = fates.deaths();
        assert!(fates.is_over(1) && !fates.has_ended(1));
        fates.mark_down(1, Fate { ended: true, ..Fate::gone("died") });
        assert!(fates.has_ended(1) && fates.deaths() != before, "waits hear that it became certain");
        fates.mark_down(2, Fate { ended: true, blames: Some(3), ..Fate::gone("died") });
        assert!(fates.has_ended(2) && fates.is_over(3) && !fates.has_ended(3), "blame is hearsay");
    }

    #[test]
    fn who_left_politely_is_not_down() {
        let fates = Fates::new(2, 0);
        fates.mark_left(1);
        assert!(fates.has_left(1) && !fates.any_down());
        assert!(!fates.mark_down(1, Fate::gone("its process ended")), "ending after leaving is no death");
    }
}

//! What a leader of a host tells those who wait for it when its call fails among the leaders: whom it waited for.
//!
//! The others would find out by themselves about a death, but not about somebody who stays away: they would wait until their
//! own time is over, and blame the leader.

use syncline_cluster::{Error, Vigil};

use crate::call::Call;

/// The bit of a word that says that a rank did not come in time.
const LATE: u32 = 40;

/// The ranks because of which a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setback {
    /// They did not come in time, as opposed to being gone.
    late: bool,
    ranks: Vec<u32>,
}

impl Setback {
    /// Why a call failed, as far as others are to blame.
    pub(crate) fn of(error: &Error) -> Option<Setback> {
        match error {
            Error::Timeout { missing, .. } => Some(Setback { late: true, ranks: missing.iter().map(|who| who.rank).collect() }),
            Error::PeerLost { who, .. } => Some(Setback { late: false, ranks: vec![who.rank] }),
            _ => None,
        }
        .filter(|setback| !setback.ranks.is_empty())
    }

    /// The ranks did not come in time.
    pub(crate) fn late(ranks: Vec<u32>) -> Setback {
        Setback { late: true, ranks }
    }

    /// Those who did not come in time.
    pub(crate) fn missing(&self) -> Option<&[u32]> {
        self.late.then_some(&self.ranks)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let ranks = self.ranks.iter().flat_map(|rank| rank.to_le_bytes());
        [u8::from(self.late)].into_iter().chain(ranks).collect()
    }

    /// Whatever `teller` wrote: where it makes no sense, that one is to blame.
    pub(crate) fn decode(bytes: &[u8], teller: u32) -> Setback {
        match bytes {
            [late @ (0 | 1), ranks @ ..] if !ranks.is_empty() && ranks.len().is_multiple_of(4) => {
                let ranks = ranks.as_chunks::<4>().0.iter().map(|rank| u32::from_le_bytes(*rank)).collect();
                Setback { late: *late == 1, ranks }
            }
            _ => Setback { late: false, ranks: vec![teller] },
        }
    }

    /// The first of the ranks in one word; 0 when nobody is to blame.
    pub(crate) fn word(setback: Option<&Setback>) -> u64 {
        let first = |setback: &Setback| Some(u64::from(*setback.ranks.first()?) + 1 + (u64::from(setback.late) << LATE));
        setback.and_then(first).unwrap_or_default()
    }

    /// What [`word`](Setback::word) says.
    pub(crate) fn of_word(word: u64) -> Option<Setback> {
        let rank = u32::try_from((word & ((1 << LATE) - 1)).checked_sub(1)?).ok()?;
        Some(Setback { late: word >> LATE == 1, ranks: vec![rank] })
    }

    /// The error of `call` on a rank that was told.
    pub(crate) fn into_error(self, vigil: &Vigil, call: &Call<'_>) -> Error {
        let world = vigil.topology().world();
        let ranks: Vec<u32> = self.ranks.into_iter().filter(|rank| *rank < world).collect();
        match self.late {
            true => vigil.late(&call.operation(), &ranks, call.started, &format!(" to call {} too", call.what.name())),
            false => vigil.explain(&call.operation(), &ranks, call.started, "it did not come"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_come_back_and_nonsense_is_its_author_s_fault() {
        for setback in [Setback::late(vec![3, 70_000]), Setback { late: false, ranks: vec![0] }] {
            assert_eq!(Setback::decode(&setback.encode(), 9), setback);
        }
        for setback in [Setback::late(vec![u32::MAX]), Setback { late: false, ranks: vec![0] }] {
            assert_eq!(Setback::of_word(Setback::word(Some(&setback))), Some(setback));
        }
        assert_eq!((Setback::word(None), Setback::of_word(0)), (0, None));
        for nonsense in [&[][..], &[1], &[1, 0, 0, 0], &[2, 0, 0, 0, 0]] {
            assert_eq!(Setback::decode(nonsense, 9), Setback { late: false, ranks: vec![9] });
        }
    }
}

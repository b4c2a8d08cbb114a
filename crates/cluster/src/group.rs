//! Ranks that take part in one operation.

/// An ordered choice of ranks. All its members must build it from the same list.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Group {
    ranks: Vec<u32>,
    position: usize,
}

impl Group {
    /// The group of `ranks` as seen by `me`, in the order given. None when `me` is not in it or a rank stands twice.
    pub fn new(ranks: Vec<u32>, me: u32) -> Option<Group> {
        let position = ranks.iter().position(|rank| *rank == me)?;
        let mut sorted = ranks.clone();
        sorted.sort_unstable();
        sorted.windows(2).all(|pair| pair[0] != pair[1]).then_some(Group { ranks, position })
    }

    /// Everybody, in order.
    pub fn world(size: u32, me: u32) -> Group {
        Group { ranks: (0..size).collect(), position: me as usize }
    }

    /// The members' ranks, in the group's order.
    pub fn ranks(&self) -> &[u32] {
        &self.ranks
    }

    /// This process's place in the group.
    pub fn position(&self) -> usize {
        self.position
    }

    /// How many take part.
    pub fn len(&self) -> usize {
        self.ranks.len()
    }

    /// Never: this process is always in it.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// A name that all members derive alike, different for different lists.
    pub(crate) fn fingerprint(&self, operation: &str) -> syncline_wire::Fingerprint {
        let mut text = String::with_capacity(self.ranks.len() * 4);
        for rank in &self.ranks {
            text.push_str(&rank.to_string());
            text.push(',');
        }
        syncline_wire::Fingerprint::of(operation).name(&text).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_knows_its_order_and_refuses_strangers_and_twins() {
        let group = Group::new(vec![4, 2, 7], 2).expect("2 is in it");
        assert_eq!((group.position(), group.len()), (1, 3));
        assert!(Group::new(vec![4, 2], 3).is_none());
        assert!(Group::new(vec![4, 4], 4).is_none());
    }

    #[test]
    fn order_is_part_of_the_name() {
        let name = |ranks: &[u32]| Group::new(ranks.to_vec(), ranks[0]).expect("in it").fingerprint("barrier");
        assert_ne!(name(&[1, 2]), name(&[2, 1]));
        assert_ne!(name(&[1, 23]), name(&[12, 3]));
    }
}

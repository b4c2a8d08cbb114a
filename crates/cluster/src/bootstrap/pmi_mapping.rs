//! How PMI-1 spells which rank sits on which node: `(vector,(0,2,2),(2,1,1))`.
//!
//! Each block is (first node, number of nodes, ranks on each); ranks are counted through the blocks.

/// More ranks than any launcher starts; the numbers come from outside.
const MOST_RANKS: u64 = 1 << 20;

/// The node of each rank, or `None` for a text of another form.
pub(super) fn node_of_each_rank(text: &str) -> Option<Vec<u32>> {
    let blocks = text.trim().strip_prefix("(vector,(")?.strip_suffix("))")?;
    let mut nodes = Vec::new();
    for block in blocks.split("),(") {
        let numbers: Vec<u32> = block.split(',').map(|number| number.trim().parse().ok()).collect::<Option<_>>()?;
        let [first, count, ranks_each] = numbers[..] else { return None };
        let ranks = u64::from(count) * u64::from(ranks_each);
        if nodes.len() as u64 + ranks > MOST_RANKS || ranks == 0 {
            return None;
        }
        let end = first.checked_add(count)?;
        nodes.extend((first..end).flat_map(|node| (0..ranks_each).map(move |_| node)));
    }
    Some(nodes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_counted_through() {
        assert_eq!(node_of_each_rank("(vector,(0,2,2))").unwrap(), [0, 0, 1, 1]);
        assert_eq!(node_of_each_rank("(vector,(0,1,3),(1,2,1))").unwrap(), [0, 0, 0, 1, 2]);
        assert_eq!(node_of_each_rank("(vector,(0,2,1),(0,1,1))").unwrap(), [0, 1, 0]);
    }

    #[test]
    fn other_texts_and_huge_numbers_are_refused() {
        for text in [
            "",
            "(vector)",
            "(vector,(0,2))",
            "(vector,(0,2,2)",
            "(vector,(0,0,2))",
            "(vector,(0,4294967295,4294967295))",
            "(vector,(4294967295,2,1))",
        ] {
            assert_eq!(node_of_each_rank(text), None, "{text}");
        }
    }
}

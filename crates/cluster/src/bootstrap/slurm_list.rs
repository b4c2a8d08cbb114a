//! Slurm's two small grammars, as pure functions.
//!
//! ```text
//! tasks  := count [ "(x" repeat ")" ] { "," … }          4(x2),3,1(x5)      → 4 4 3 1 1 1 1 1
//! hosts  := { text | "[" range { "," range } "]" } { "," … }   n[01-03,07]-ib,gpu → n01-ib n02-ib n03-ib n07-ib gpu
//! range  := number [ "-" number ]                        leading zeros set the width
//! ```
//! Several brackets in one name multiply. What a list expands to is capped, for it comes from outside.

use super::BootstrapError;

/// Slurm itself allows 64 Ki hosts in one range (`MAX_RANGE`).
const MOST: usize = 1 << 16;

/// What is wrong with a list, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fault {
    problem: &'static str,
    offset: usize,
}

impl Fault {
    pub(super) fn of(self, variable: &str, value: &str) -> BootstrapError {
        BootstrapError::SlurmList { variable: variable.to_owned(), value: value.to_owned(), problem: self.problem, offset: self.offset }
    }
}

/// How many tasks each node has, node by node: the inverse of Slurm's run-length form `2(x3),1`.
pub(super) fn tasks_per_node(list: &str) -> Result<Vec<u32>, Fault> {
    let mut tasks = Vec::new();
    let mut offset = 0;
    for item in list.split(',') {
        let fault = |problem| Fault { problem, offset };
        let (count, repeat) = match item.split_once("(x") {
            None => (item, 1),
            Some((count, rest)) => {
                let repeat = rest.strip_suffix(')').ok_or(fault("a repeat is not closed"))?;
                (count, digits(repeat).ok_or(fault("a repeat is not a number"))? as usize)
            }
        };
        let count = digits(count).ok_or(fault("a number of tasks is expected"))?;
        if repeat == 0 || tasks.len() + repeat > MOST {
            return Err(fault("a node list has 1 to 65536 nodes"));
        }
        tasks.resize(tasks.len() + repeat, count);
        offset += item.len() + 1;
    }
    Ok(tasks)
}

/// The hosts of a list, in its order.
pub(super) fn hosts(list: &str) -> Result<Vec<String>, Fault> {
    let mut hosts = Vec::new();
    let mut start = 0;
    for end in top_level_commas(list)? {
        expand(&list[start..end], start, &mut hosts)?;
        start = end + 1;
    }
    Ok(hosts)
}

/// Where the items of a list end: commas outside brackets, and the end of the text.
fn top_level_commas(list: &str) -> Result<Vec<usize>, Fault> {
    let mut ends = Vec::new();
    let mut open = None;
    for (offset, byte) in list.bytes().enumerate() {
        match (byte, open) {
            (b'[', None) => open = Some(offset),
            (b'[', Some(_)) => return Err(Fault { problem: "brackets do not nest", offset }),
            (b']', None) => return Err(Fault { problem: "a bracket closes that was not opened", offset }),
            (b']', Some(_)) => open = None,
            (b',', None) => ends.push(offset),
            _ => {}
        }
    }
    if let Some(offset) = open {
        return Err(Fault { problem: "a bracket is not closed", offset });
    }
    ends.push(list.len());
    Ok(ends)
}

/// Adds what one item (`r[1-2]n[01-03]`) stands for; its brackets are known to match.
fn expand(item: &str, offset: usize, hosts: &mut Vec<String>) -> Result<(), Fault> {
    if item.is_empty() {
        return Err(Fault { problem: "a host name is expected", offset });
    }
    let mut names = vec![String::new()];
    let mut rest = item;
    while let Some((text, after)) = rest.split_once('[') {
        let (ranges, tail) = after.split_once(']').unwrap_or((after, ""));
        let at = offset + item.len() - after.len();
        let numbers = numbers(ranges, at)?;
        if names.len().saturating_mul(numbers.len()) > MOST {
            return Err(Fault { problem: "more than 65536 hosts", offset: at });
        }
        names = names.iter().flat_map(|name| numbers.iter().map(move |number| format!("{name}{text}{number}"))).collect();
        rest = tail;
    }
    if hosts.len() + names.len() > MOST {
        return Err(Fault { problem: "more than 65536 hosts", offset });
    }
    hosts.extend(names.into_iter().map(|name| name + rest));
    Ok(())
}

/// What stands between brackets: `01-03,07` → 01 02 03 07.
fn numbers(ranges: &str, mut offset: usize) -> Result<Vec<String>, Fault> {
    let mut numbers = Vec::new();
    for range in ranges.split(',') {
        let fault = |problem| Fault { problem, offset };
        let (low, high) = range.split_once('-').unwrap_or((range, range));
        let first = digits(low).ok_or(fault("a number is expected between brackets"))?;
        let last = digits(high).ok_or(fault("a number is expected between brackets"))?;
        if last < first {
            return Err(fault("a range runs backwards"));
        }
        if numbers.len() as u64 + u64::from(last - first) >= MOST as u64 {
            return Err(fault("more than 65536 hosts"));
        }
        let width = low.len();
        numbers.extend((first..=last).map(|number| format!("{number:0width$}")));
        offset += range.len() + 1;
    }
    Ok(numbers)
}

/// A number of digits only: no sign, no space, at most nine of them.
fn digits(text: &str) -> Option<u32> {
    let plain = !text.is_empty() && text.len() <= 9 && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn tasks_are_counted_node_by_node() {
        assert_eq!(tasks_per_node("2(x3),1").unwrap(), [2, 2, 2, 1]);
        assert_eq!(tasks_per_node("4(x2),3,1(x5)").unwrap(), [4, 4, 3, 1, 1, 1, 1, 1]);
        assert_eq!(tasks_per_node("6").unwrap(), [6]);
        for (wrong, offset) in [("", 0), ("2(x3", 0), ("2,(x3)", 2), ("2(x0)", 0), ("-1", 0), ("1,2(x99999)", 2), ("1(x999999999)", 0)] {
            assert_eq!(tasks_per_node(wrong).unwrap_err().offset, offset, "{wrong:?}");
        }
    }

    #[test]
    fn hosts_are_spelled_out() {
        for (list, expected) in [
            ("node1", "node1"),
            ("n[1-2]", "n1 n2"),
            ("n[01-03,07],gpu-[1-2]", "n01 n02 n03 n07 gpu-1 gpu-2"),
            ("n[9-11]", "n9 n10 n11"),
            ("n[009-011]", "n009 n010 n011"),
            ("r[1-2]n[1-2]-ib", "r1n1-ib r1n2-ib r2n1-ib r2n2-ib"),
            ("a,b,c[5]", "a b c5"),
        ] {
            assert_eq!(hosts(list).unwrap().join(" "), expected, "{list}");
        }
    }

    #[test]
    fn a_wrong_list_says_where() {
        for (list, offset) in [
            ("", 0),
            ("a,", 2),
            ("n[1-2", 1),
            ("n1]", 2),
            ("n[1-[2]]", 4),
            ("n[]", 2),
            ("n[1,x]", 4),
            ("n[3-1]", 2),
            ("n[0-65536]", 2),
            ("r[1-1000]n[1-1000]", 11),
            ("n[1-4294967296]", 2),
        ] {
            assert_eq!(hosts(list).unwrap_err().offset, offset, "{list:?}");
        }
    }

    proptest! {
        #[test]
        fn run_lengths_come_back(nodes in proptest::collection::vec((1u32..100, 1usize..20), 1..12)) {
            let list: Vec<String> = nodes.iter()
                .map(|&(tasks, repeat)| if repeat == 1 { tasks.to_string() } else { format!("{tasks}(x{repeat})") })
                .collect();
            let expected: Vec<u32> = nodes.iter().flat_map(|&(tasks, repeat)| vec![tasks; repeat]).collect();
            prop_assert_eq!(tasks_per_node(&list.join(",")).unwrap(), expected);
        }

        #[test]
        fn ranges_come_back(prefix in "[a-z-]{0,6}", suffix in "[a-z-]{0,4}", width in 1usize..6, low in 0u32..3000, count in 1u32..40) {
            let high = low + count - 1;
            let expected: Vec<String> = (low..=high).map(|n| format!("{prefix}{n:0width$}{suffix}")).collect();
            let list = format!("{prefix}[{low:0width$}-{high:0width$}]{suffix}");
            prop_assert_eq!(hosts(&list).unwrap(), expected);
        }

        #[test]
        fn plain_names_stay_as_they_are(names in proptest::collection::vec("[a-z][a-z0-9.-]{0,12}", 1..10)) {
            prop_assert_eq!(hosts(&names.join(",")).unwrap(), names);
        }

        #[test]
        fn no_text_panics_or_grows_beyond_the_cap(text in "[n0-9,\\[\\]()x-]{0,24}") {
            prop_assert!(hosts(&text).map_or(0, |hosts| hosts.len()) <= MOST);
            prop_assert!(tasks_per_node(&text).map_or(0, |tasks| tasks.len()) <= MOST);
        }

        #[test]
        fn any_text_is_taken_or_refused(text in "\\PC{0,40}") {
            let _ = hosts(&text);
            let _ = tasks_per_node(&text);
        }
    }
}

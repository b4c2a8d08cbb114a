//! Compares what the tables hold with what the diaries say.

use std::path::Path;
use std::time::Duration;

use super::{ARRAY, COLS, Order, ROWS, count, rows_of};

/// What one rank wrote down.
#[derive(Debug, Default)]
pub(crate) struct Diary {
    pub(crate) rank: u32,
    /// Its number among the workers, once the tables were there.
    pub(crate) worker: Option<u32>,
    /// Adds begun and adds acknowledged, to the array, the matrix and the keys.
    pub(crate) array: Adds,
    pub(crate) matrix: Adds,
    pub(crate) keys: Adds,
    pub(crate) done: bool,
    /// When it killed itself, in microseconds.
    pub(crate) died: Option<u64>,
    pub(crate) error: Option<Failure>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Adds {
    pub(crate) begun: u64,
    pub(crate) acknowledged: u64,
}

/// An error that ended a rank.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) kind: String,
    pub(crate) who: Option<u32>,
    pub(crate) at: u64,
    pub(crate) text: String,
}

impl Diary {
    pub(crate) fn read(folder: &Path, rank: u32) -> Diary {
        let text = std::fs::read_to_string(folder.join(format!("diary-{rank}"))).unwrap_or_default();
        let mut diary = Diary { rank, ..Diary::default() };
        for line in text.lines() {
            let words: Vec<&str> = line.splitn(5, ' ').collect();
            let number = |place: usize| words.get(place).and_then(|word| word.parse::<u64>().ok());
            match words[..] {
                ["ready", worker] => diary.worker = worker.parse().ok(),
                ["try", "array", _] => diary.array.begun = number(2).expect(line),
                ["ack", "array", _] => diary.array.acknowledged = number(2).expect(line),
                ["try", "matrix", _] => diary.matrix.begun = number(2).expect(line),
                ["ack", "matrix", _] => diary.matrix.acknowledged = number(2).expect(line),
                ["try", "keys", _] => diary.keys.begun = number(2).expect(line),
                ["ack", "keys", _] => diary.keys.acknowledged = number(2).expect(line),
                ["dies", _] => diary.died = number(1),
                ["done"] => diary.done = true,
                ["error", kind, who, _, text] => {
                    let (kind, who) = (kind.to_owned(), who.parse().ok());
                    diary.error = Some(Failure { kind, who, at: number(3).expect(line), text: text.to_owned() });
                }
                _ => panic!("rank {rank} wrote {line:?}"),
            }
        }
        diary
    }
}

/// What became of the add that a victim was in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InFlight {
    /// It was in none.
    None,
    Counted,
    Forgotten,
}

/// Every survivor came to its end, all hold the same tables, and these are the acknowledged adds of all and at most one
/// whole add more of the victim's, whose fate is returned. `what` begins the message of a failure.
pub(crate) fn assert_exact(order: &Order, workers: u32, what: &str) -> InFlight {
    let diaries: Vec<Diary> = (0..workers).map(|rank| Diary::read(&order.folder, rank)).collect();
    let victim = order.victim.map(|victim| victim.worker);
    for diary in diaries.iter().filter(|diary| Some(diary.rank) != victim) {
        assert!(diary.done, "{what}: rank {} did not come to its end: {diary:?}", diary.rank);
        let all = Adds { begun: order.steps, acknowledged: order.steps };
        assert_eq!((diary.array, diary.matrix), (all, all), "{what}: rank {}", diary.rank);
    }
    if let Some(victim) = victim {
        assert!(diaries[victim as usize].died.is_some_and(|_| !diaries[victim as usize].done), "{what}: the victim lives");
    }
    let survivor = (0..workers).find(|rank| Some(*rank) != victim).expect("somebody");
    let array = numbers(&order.folder, "array", survivor);
    let matrix = numbers(&order.folder, "matrix", survivor);
    for rank in (0..workers).filter(|rank| Some(*rank) != victim) {
        assert!(numbers(&order.folder, "array", rank) == array, "{what}: ranks {survivor} and {rank} see different arrays");
        assert!(numbers(&order.folder, "matrix", rank) == matrix, "{what}: ranks {survivor} and {rank} see different matrices");
    }
    assert_eq!((array.len(), matrix.len()), (ARRAY, ROWS * COLS));
    if let Some(place) = array.iter().position(|number| *number != array[0]) {
        panic!("{what}: half an add: element 0 is {:#x}, element {place} is {:#x}", array[0], array[place]);
    }
    for diary in &diaries {
        let found = count(array[0], diary.rank);
        let adds = diary.array;
        assert!((adds.acknowledged..=adds.begun).contains(&found), "{what}: the array has {found} adds of rank {}: {adds:?}", diary.rank);
    }
    let dead = victim.map(|victim| &diaries[victim as usize]);
    let in_array = victim.map_or(0, |victim| count(array[0], victim));
    let mut fates = vec![(dead.map_or(Adds::default(), |dead| dead.array), in_array)];
    let of_rows = dead.map_or(Adds::default(), |dead| dead.matrix);
    fates.push((of_rows, whole_adds(&matrix, COLS, order, workers, of_rows, &format!("{what}: the matrix"))));
    if order.folder.join(format!("keys-{survivor}")).exists() {
        let keys = numbers(&order.folder, "keys", survivor);
        for rank in (0..workers).filter(|rank| Some(*rank) != victim) {
            assert!(numbers(&order.folder, "keys", rank) == keys, "{what}: ranks {survivor} and {rank} see different keys");
        }
        let of_keys = dead.map_or(Adds::default(), |dead| dead.keys);
        fates.push((of_keys, whole_adds(&keys, 1, order, workers, of_keys, &format!("{what}: the keys"))));
    }
    match fates.into_iter().find(|(adds, _)| adds.begun > adds.acknowledged) {
        None => InFlight::None,
        Some((adds, found)) if found == adds.begun => InFlight::Counted,
        Some(_) => InFlight::Forgotten,
    }
}

/// How many adds of the victim these rows hold: with the last, unacknowledged one or without it, nothing between.
fn whole_adds(rows: &[i64], cols: usize, order: &Order, workers: u32, of_victim: Adds, what: &str) -> u64 {
    let victim = order.victim.map(|victim| victim.worker);
    assert!(of_victim.begun - of_victim.acknowledged <= 1, "{what}: an add at a time");
    let mut wrong = Vec::new();
    let found = (of_victim.acknowledged..=of_victim.begun).find(|steps| {
        let compared = rows_are(rows, cols, order, workers, victim, *steps);
        compared.map_err(|difference| wrong.push(difference)).is_ok()
    });
    found.unwrap_or_else(|| panic!("{what}: neither: {}", wrong.join("; ")))
}

fn rows_are(rows: &[i64], cols: usize, order: &Order, workers: u32, victim: Option<u32>, of_victim: u64) -> Result<(), String> {
    for worker in 0..workers {
        let steps = if Some(worker) == victim { of_victim } else { order.steps };
        let mut expected = vec![0; ROWS];
        (1..=steps).flat_map(|step| rows_of(worker, step)).for_each(|row| expected[row as usize] += 1);
        for (place, number) in rows.iter().enumerate() {
            let (row, found) = (place / cols, count(*number, worker));
            if found != expected[row] {
                let wanted = expected[row];
                return Err(format!("after {steps} adds of rank {worker}, row {row} column {}: {found} instead of {wanted}", place % cols));
            }
        }
    }
    Ok(())
}

/// Every survivor was told of the victim, by name, within `limit` of its death.
pub(crate) fn assert_told(order: &Order, workers: u32, limit: Duration, what: &str) {
    let victim = order.victim.expect("somebody was killed").worker;
    let died = Diary::read(&order.folder, victim).died.unwrap_or_else(|| panic!("{what}: the victim lives"));
    for rank in (0..workers).filter(|rank| *rank != victim) {
        let diary = Diary::read(&order.folder, rank);
        let error = diary.error.as_ref().unwrap_or_else(|| panic!("{what}: rank {rank} was told nothing: {diary:?}"));
        assert_eq!((error.kind.as_str(), error.who), ("PeerLost", Some(victim)), "{what}: rank {rank}: {}", error.text);
        let late = Duration::from_micros(error.at.saturating_sub(died));
        assert!(late <= limit, "{what}: rank {rank} noticed only after {late:?}: {}", error.text);
    }
}

fn numbers(folder: &Path, name: &str, rank: u32) -> Vec<i64> {
    let bytes = std::fs::read(folder.join(format!("{name}-{rank}"))).expect("every survivor wrote it");
    bytes.chunks_exact(8).map(|eight| i64::from_le_bytes(eight.try_into().expect("eight bytes"))).collect()
}

//! What gradients do to the tables of a family, and the board on which it is written for all processes of a host.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use syncline_cluster::{Deadline, Error};
use syncline_optimizer::{Lane, Method, Optimizer};
use syncline_shm::bulletin::{Bulletin, Number};
use syncline_shm::heap::Heap;
use syncline_shm::segment::SegmentError;
use syncline_tensor::DType;

use super::wide;

/// Boards are claimed under keys that no table has.
const KEY: u64 = u64::MAX - 3;

/// A rule as a table of some dtype follows it.
pub(crate) struct Rule {
    /// Chapters are generations: within one, states go on.
    pub(crate) number: Number,
    /// None: the sum of a round becomes the value.
    pub(crate) optimizer: Option<Optimizer>,
    /// The states it needs.
    pub(crate) lanes: Vec<Lane>,
    /// The lanes of the store that it changes: the values, and those of its states.
    pub(crate) touched: Vec<usize>,
}

impl Rule {
    /// The rule on this page of the board, as a table of `dtype` follows it; the newest if the page is gone, none at all for page 0.
    pub(super) fn read(board: &Bulletin, page: u64, dtype: DType, family: u32) -> Result<Rule, Error> {
        let mut found = board.read(page);
        // An add from before the first rule keeps to having none: all who apply it must come to the same.
        while found.is_none() && page != 0 && board.newest().page != 0 {
            found = board.read(board.newest().page); // None again only if it was replaced a thousand times meanwhile.
        }
        let Some((number, body)) = found else {
            return Ok(Rule { number: Number::default(), optimizer: None, lanes: Vec::new(), touched: vec![0] });
        };
        let nonsense = |why: String| Error::System {
            operation: format!("reading rule {} of family {family}", number.page),
            detail: format!("{why}\nhint: do all processes run the same version of Syncline?"),
        };
        let optimizer = match body.split_first() {
            Some((0, [])) => None,
            Some((1, message)) => Some(Optimizer::decode(message).map_err(|error| nonsense(error.to_string()))?),
            _ => return Err(nonsense(format!("{} bytes that are no rule", body.len()))),
        };
        let lanes = match &optimizer {
            Some(optimizer) if wide(dtype).is_some() => optimizer.lanes(dtype).map_err(|error| nonsense(error.to_string()))?,
            _ => Vec::new(),
        };
        let touched = (0..=lanes.len()).collect();
        Ok(Rule { number, optimizer, lanes, touched })
    }

    /// Whether it may have to measure the whole array first.
    pub(crate) fn needs_norms(&self) -> bool {
        self.optimizer.as_ref().is_some_and(Optimizer::needs_norms)
    }

    /// Whether every update makes the same step.
    pub(crate) fn is_steady(&self) -> bool {
        self.optimizer.as_ref().is_none_or(|optimizer| {
            let steady = matches!(
                optimizer.method,
                Method::Sgd { .. }
                    | Method::Nag { .. }
                    | Method::Signum { .. }
                    | Method::AdaGrad { .. }
                    | Method::RmsProp { .. }
                    | Method::AdaDelta { .. }
                    | Method::Ftrl { .. }
                    | Method::Test
            );
            steady && optimizer.settings.schedule.is_none()
        })
    }

    /// Which states it speaks of.
    pub(crate) fn generation(&self) -> u32 {
        self.number.chapter
    }
}

/// The board of a family, made by whoever comes first.
pub(crate) fn board(heap: &Heap, family: u32, by: Deadline) -> Result<Bulletin, Error> {
    let key = [KEY, u64::from(family)];
    let refused = |error: SegmentError| Error::System { operation: format!("the rules of family {family}"), detail: error.to_string() };
    loop {
        if let Some(found) = heap.find(key) {
            return Ok(Bulletin::new(&found.map_err(refused)?));
        }
        match heap.claim(key, Bulletin::bytes()) {
            Ok(segment) => return Ok(Bulletin::new(&segment)),
            Err(SegmentError::AlreadyThere { .. }) if !by.expired() => std::thread::sleep(Duration::from_micros(50)),
            Err(error) => return Err(refused(error)),
        }
    }
}

/// What a notice with this rule says.
pub(crate) fn to_body(rule: Option<&Optimizer>) -> Result<Vec<u8>, Error> {
    let Some(optimizer) = rule else { return Ok(vec![0]) };
    let message = optimizer.encode().map_err(|error| Error::Configuration { detail: format!("set_rule: {error}") })?;
    Ok([&[1], message.as_slice()].concat())
}

/// Makes `rule` the newest on the board, and returns its number and what hangs there now, for other hosts.
///
/// States go on where they are asked to and can: those of the rule before must be the same lanes.
pub(crate) fn set_rule(board: &Bulletin, rule: Option<&Optimizer>, keep_states: bool) -> Result<(Number, Vec<u8>), Error> {
    let body = to_body(rule)?;
    let before = board.newest();
    let keeps = keep_states && board.read(before.page).is_some_and(|(_, before)| have_the_same_states(&before, &body));
    let mut number = board.next(!keeps);
    if keeps && number.chapter != before.chapter {
        number = board.next(true); // Somebody else began a generation meanwhile, of states that may be other ones.
    }
    match board.pin(number, &body) {
        true => Ok((number, body)),
        false => Err(Error::Configuration { detail: format!("set_rule: {} bytes are too many for one rule", body.len()) }),
    }
}

/// Whether what stands in the lanes of the one means the same to the other.
fn have_the_same_states(one: &[u8], other: &[u8]) -> bool {
    let names = |body: &[u8]| -> Option<Vec<String>> {
        let rule = Optimizer::decode(body.get(1..)?).ok()?;
        // Of a half type, so that a master copy shows.
        Some(rule.lanes(DType::F16).map_or_else(|_| Vec::new(), |lanes| lanes.into_iter().map(|lane| lane.name).collect()))
    };
    names(one).is_some_and(|one| names(other) == Some(one))
}

/// What becomes of states when a rule comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Then {
    /// They go on, if the rule before keeps the same ones.
    GoOn,
    /// They begin anew.
    BeginAnew,
    /// They begin anew, unless the rule before is the same one and of at least this generation.
    BeginOnce(u32),
}

impl Then {
    /// The generation of a rule that follows on `last`.
    pub(super) fn chapter_after(self, last: Number, before: &[u8], body: &[u8]) -> u32 {
        match self {
            Then::GoOn if have_the_same_states(before, body) => last.chapter,
            Then::GoOn | Then::BeginAnew => last.chapter + 1,
            Then::BeginOnce(at_least) => (last.chapter + u32::from(before != body)).max(at_least).max(1),
        }
    }
}

/// The rules of a family in a job of several hosts: all processes hear them in one order and derive the same numbers.
#[derive(Default)]
pub(crate) struct Series {
    last: Option<(Number, Vec<u8>)>,
}

impl Series {
    /// Pins up the next rule on this host's board, unless a neighbour was faster.
    pub(crate) fn add(&mut self, board: &Bulletin, body: Vec<u8>, states: Then) -> Result<(), Error> {
        let nonsense = |detail: &str| Error::Configuration { detail: format!("set_rule: {detail}") };
        match body.split_first() {
            Some((0, [])) => {}
            Some((1, message)) => drop(Optimizer::decode(message).map_err(|error| nonsense(&error.to_string()))?),
            _ => return Err(nonsense("these bytes are no rule")),
        }
        let (last, before) = self.last.as_ref().map_or((Number::default(), &[][..]), |(last, before)| (*last, before));
        let number = Number { chapter: states.chapter_after(last, before, &body), page: last.page + 1 };
        if board.read(number.page).is_none() && !board.pin(number, &body) {
            return Err(nonsense(&format!("{} bytes are too many for one rule", body.len())));
        }
        self.last = Some((number, body));
        Ok(())
    }
}

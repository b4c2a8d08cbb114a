//! The surroundings of a process as a value: variables, user and ancestors.
//!
//! This is the only place of the crate that reads them from the system; detection works on the value.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;

use super::BootstrapError;

/// Deep enough for any shell wrapper, and a bound for a `/proc` that lies.
const DEEPEST_ANCESTRY: usize = 64;

/// What detection looks at.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Environment {
    variables: BTreeMap<String, String>,
    user: u32,
    ancestors: Vec<Ancestor>,
}

/// A process above this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ancestor {
    /// Its id in our pid namespace.
    pub pid: u32,
    /// Its name, at most 15 bytes as the kernel keeps it.
    pub name: String,
    /// When it started, in clock ticks since boot: with the pid it names one process for good.
    pub started: u64,
}

impl Environment {
    /// The real one of this process.
    pub fn current() -> Self {
        let variables =
            std::env::vars_os().map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned())).collect();
        Environment { variables, user: rustix::process::geteuid().as_raw(), ancestors: read_ancestors() }
    }

    /// An environment of these variables, user 0 and no ancestors.
    pub fn from_variables<N: Into<String>, V: Into<String>>(variables: impl IntoIterator<Item = (N, V)>) -> Self {
        let variables = variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        Environment { variables, ..Environment::default() }
    }

    /// The same with another user id.
    pub fn with_user(mut self, user: u32) -> Self {
        self.user = user;
        self
    }

    /// The same with these ancestors, nearest first.
    pub fn with_ancestors(mut self, ancestors: Vec<Ancestor>) -> Self {
        self.ancestors = ancestors;
        self
    }

    /// A variable's value.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// A variable's value, if there is anything in it: for names so general that others use them too.
    pub(super) fn filled(&self, name: &str) -> Option<&str> {
        self.get(name).filter(|value| !value.trim().is_empty())
    }

    /// A variable as a number; a value that is not one is an error, never "not set".
    pub(super) fn number(&self, name: &str) -> Result<Option<u32>, BootstrapError> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        match value.trim().parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(BootstrapError::NotUnderstood {
                variable: name.to_owned(),
                value: value.to_owned(),
                expected: "a whole number from 0 to 4294967295",
            }),
        }
    }

    /// A rank and the size it must be smaller than: both or neither, anything else is an error.
    pub(super) fn rank_and_size(&self, rank: &'static str, size: &'static str) -> Result<Option<(u32, u32)>, BootstrapError> {
        let half = |there: &str, missing| BootstrapError::HalfSet {
            variable: there.to_owned(),
            value: self.get(there).unwrap_or_default().to_owned(),
            missing,
        };
        match (self.number(rank)?, self.number(size)?) {
            (None, None) => Ok(None),
            (Some(_), None) => Err(half(rank, size)),
            (None, Some(_)) => Err(half(size, rank)),
            (Some(number), Some(limit)) if number >= limit => {
                Err(BootstrapError::TooLarge { variable: rank.to_owned(), value: number, limit_variable: size.to_owned(), limit })
            }
            (Some(number), Some(limit)) => Ok(Some((number, limit))),
        }
    }

    /// The effective user id.
    pub fn user(&self) -> u32 {
        self.user
    }

    /// The processes above this one, nearest first.
    pub fn ancestors(&self) -> &[Ancestor] {
        &self.ancestors
    }
}

impl fmt::Debug for Environment {
    /// Names only: values may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment")
            .field("variables", &self.variables.keys().collect::<Vec<_>>())
            .field("user", &self.user)
            .field("ancestors", &self.ancestors)
            .finish()
    }
}

/// Walks up `/proc` from our parent. What cannot be read ends the walk: a container may hide the rest.
fn read_ancestors() -> Vec<Ancestor> {
    let mut ancestors = Vec::new();
    let mut pid = rustix::process::getppid().map(|parent| parent.as_raw_nonzero().get().unsigned_abs());
    while let Some(current) = pid.filter(|_| ancestors.len() < DEEPEST_ANCESTRY) {
        let Some((ancestor, parent)) = fs::read_to_string(format!("/proc/{current}/stat")).ok().and_then(|stat| parse_stat(current, &stat))
        else {
            break;
        };
        ancestors.push(ancestor);
        pid = (parent > 0 && parent != current).then_some(parent);
    }
    ancestors
}

/// Reads one line of `/proc/PID/stat`: `pid (name) state parent …`, where the name may hold anything, `)` included.
fn parse_stat(pid: u32, stat: &str) -> Option<(Ancestor, u32)> {
    let (head, fields) = stat.rsplit_once(')')?;
    let (_, name) = head.split_once('(')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    // Fields 4 (parent) and 22 (start time) of proc(5); the list here begins with field 3.
    let parent = fields.get(1)?.parse().ok()?;
    let started = fields.get(19)?.parse().ok()?;
    Some((Ancestor { pid, name: name.to_owned(), started }, parent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_with_brackets_does_not_shift_the_fields() {
        let stat = "42 (a) b (c)) S 7 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 123795 9 9";
        let (ancestor, parent) = parse_stat(42, stat).unwrap();
        assert_eq!((ancestor.name.as_str(), ancestor.started, parent), ("a) b (c)", 123795, 7));
        assert!(parse_stat(42, "42 (sh").is_none());
        assert!(parse_stat(42, "42 (sh) S 7").is_none());
    }

    #[test]
    fn the_real_parent_comes_first() {
        let environment = Environment::current();
        let parent = rustix::process::getppid().unwrap().as_raw_nonzero().get();
        assert_eq!(environment.ancestors()[0].pid, parent as u32);
    }

    #[test]
    fn showing_an_environment_shows_no_values() {
        let environment = Environment::from_variables([("SYNCLINE_TOKEN", "hunter2")]);
        let shown = format!("{environment:?}");
        assert!(shown.contains("SYNCLINE_TOKEN") && !shown.contains("hunter2"), "{shown}");
    }
}

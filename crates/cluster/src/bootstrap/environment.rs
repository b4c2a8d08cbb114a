//! The surroundings of a process as a value: variables, user and ancestors.
//!
//! This is the only place of the crate that reads them from the system; detection works on the value.

use std::collections::BTreeMap;
use std::fmt;

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
        let variables = std::env::vars_os()
            .map(|(name, value)| {
                (
                    name.to_string_lossy().into_owned(),
                    value.to_string_lossy().into_owned(),
                )
            })
            .collect();
        Environment {
            variables,
            user: rustix::process::geteuid().as_raw(),
            ancestors: Vec::new(),
        }
    }

    /// An environment of these variables, user 0 and no ancestors.
    pub fn from_variables<N: Into<String>, V: Into<String>>(
        variables: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        let variables = variables
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        Environment {
            variables,
            ..Environment::default()
        }
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

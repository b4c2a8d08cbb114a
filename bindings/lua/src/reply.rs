//! How a native function answers: `true` and its results, or `false` and the words of an error.
//!
//! Lua's users expect errors that are strings and begin with the line of their own call, so raising is left to
//! `syncline/raise.lua`. What else is known of a failure is kept for `last_error`.

use std::cell::RefCell;

use mlua::{IntoLuaMulti, Lua, MultiValue, Table, Value};
use syncline::{Error, ErrorKind, ipc};

use crate::numbers::relieve;

/// A failed call.
#[derive(Debug, Clone, Default)]
pub(crate) struct Failure {
    kind: &'static str,
    text: String,
    rank: Option<u32>,
    host: Option<String>,
    pid: Option<u32>,
}

impl Failure {
    pub(crate) fn new(kind: &'static str, text: impl Into<String>) -> Failure {
        Failure { kind, text: text.into(), ..Failure::default() }
    }

    /// A failure of a crate's own error.
    pub(crate) fn of_kind(kind: ErrorKind, text: String) -> Failure {
        Failure::new(name_of(kind), text)
    }

    /// The same, and a process is to blame.
    pub(crate) fn by_process(self, pid: Option<u32>) -> Failure {
        Failure { pid, ..self }
    }

    /// An argument that cannot be.
    pub(crate) fn argument(text: impl Into<String>) -> Failure {
        Failure::new("ArgumentError", text)
    }

    pub(crate) fn shape(text: impl Into<String>) -> Failure {
        Failure::new("ShapeMismatch", text)
    }

    /// What a function of the user's raised; its words are passed on as they are.
    pub(crate) fn raised(error: &mlua::Error) -> Failure {
        Failure::new("", words(error))
    }

    pub(crate) fn text(&self) -> String {
        if self.kind.is_empty() { self.text.clone() } else { format!("{}: {}", self.kind, self.text) }
    }

    /// Its words; the rest is kept for `last_error`.
    pub(crate) fn told(self) -> String {
        let text = self.text();
        let _ = LAST.try_with(|last| last.replace(Some(self))); // at the very end of a thread there is nobody to ask for it
        text
    }
}

/// A result whose error is about shapes or types of numbers.
pub(crate) fn shaped<T, E: std::fmt::Display>(result: Result<T, E>) -> Result<T, Failure> {
    result.map_err(|error| Failure::shape(error.to_string()))
}

/// The words of an error of Lua's, without those that mlua adds.
fn words(error: &mlua::Error) -> String {
    match error {
        mlua::Error::RuntimeError(text) => text.split("\nstack traceback:").next().unwrap_or_default().to_owned(),
        mlua::Error::CallbackError { cause, .. } => words(cause),
        other => other.to_string(),
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let who = error.who();
        Failure {
            kind: name_of(error.kind()),
            text: error.to_string(),
            rank: who.map(|who| who.rank),
            host: who.map(|who| who.host.clone()).filter(|host| !host.is_empty()),
            pid: who.map(|who| who.pid).filter(|pid| *pid != 0),
        }
    }
}

impl From<syncline::collective::Error> for Failure {
    fn from(error: syncline::collective::Error) -> Failure {
        Failure::from(Error::from(error))
    }
}

impl From<ipc::Error> for Failure {
    fn from(error: ipc::Error) -> Failure {
        let whom = error.whom();
        // torch-ipc's words where it had some, so that programs that look for them find them.
        let text = match &error {
            ipc::Error::Closed { what, .. } if what.ends_with("has closed the connection") => {
                format!("{error}: remote peer disconnected")
            }
            ipc::Error::Timeout { operation: "clients", .. } => format!("server timed out waiting for clients to connect: {error}"),
            _ => error.to_string(),
        };
        Failure {
            kind: name_of(error.kind()),
            text,
            rank: None,
            host: whom.and_then(|whom| whom.host.clone()),
            pid: whom.and_then(|whom| whom.pid),
        }
    }
}

impl From<mlua::Error> for Failure {
    fn from(error: mlua::Error) -> Failure {
        Failure::raised(&error)
    }
}

fn name_of(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::PeerLost => "PeerLost",
        ErrorKind::Timeout => "Timeout",
        ErrorKind::ContractMismatch => "ContractMismatch",
        ErrorKind::Auth => "AuthError",
        ErrorKind::ShapeMismatch => "ShapeMismatch",
        ErrorKind::UnknownKey => "UnknownKey",
        ErrorKind::Closed => "Closed",
        ErrorKind::Interrupted => "Interrupted",
        ErrorKind::Configuration => "ConfigurationError",
        ErrorKind::Forked => "ForkError",
        // `System`, and whatever a later version adds before this table learns its name.
        _ => "SystemError",
    }
}

thread_local! {
    static LAST: RefCell<Option<Failure>> = const { RefCell::new(None) };
}

/// The answer of a native function.
pub(crate) fn reply<T: IntoLuaMulti>(lua: &Lua, outcome: Result<T, Failure>) -> mlua::Result<MultiValue> {
    relieve(lua);
    match outcome {
        Ok(results) => {
            let mut answer = results.into_lua_multi(lua)?;
            answer.push_front(Value::Boolean(true));
            Ok(answer)
        }
        Err(failure) => (false, failure.told()).into_lua_multi(lua),
    }
}

/// The words of this thread's last failure.
pub(crate) fn last_words(_: &Lua, (): ()) -> mlua::Result<Option<String>> {
    Ok(LAST.with_borrow(|last| last.as_ref().map(Failure::text)))
}

/// What is known of this thread's last failure: kind, text, and rank, host and pid of the culprit; nil before the first.
pub(crate) fn last_error(lua: &Lua, (): ()) -> mlua::Result<Option<Table>> {
    let Some(failure) = LAST.with_borrow(Clone::clone) else { return Ok(None) };
    let facts = lua.create_table()?;
    facts.set("kind", failure.kind)?;
    facts.set("text", failure.text)?;
    facts.set("rank", failure.rank)?;
    facts.set("host", failure.host)?;
    facts.set("pid", failure.pid)?;
    Ok(Some(facts))
}

//! One function on n threads, each with a Lua state of its own.

use std::error::Error;
use std::fmt;
use std::io::Write as _;
use std::sync::Arc;

use mlua::{Lua, MultiValue, UserData, UserDataRef, Value};
use syncline::ipc::{Map, MapError, map_extended};

use super::parcel::{Parcel, pack, pack_all};
use super::state::{Init, Origin, State};
use crate::arguments::Whole;
use crate::interrupt::no_deadline;
use crate::reply::Failure;

/// More threads than any program means; what asks for more has mixed something up.
const MOST: usize = 10_000;

pub(crate) struct Kept(Map<Vec<Parcel>>);

impl UserData for Kept {}

type Given = UserDataRef<Kept>;

/// A failure on its way out of a thread.
#[derive(Debug)]
pub(super) struct Told(String);

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Told {}

impl From<Failure> for Told {
    fn from(failure: Failure) -> Told {
        Told(failure.text())
    }
}

/// What failed in a thread, for its caller; said on stderr at once too, since the caller may ask late or never.
fn tell(failure: Failure) -> Told {
    let told = Told::from(failure);
    let _ = writeln!(std::io::stderr(), "{told}"); // there may be no stderr
    told
}

/// Starts `n` threads that call `f(…, id)`, after `init` if there is one.
pub(crate) fn start(lua: &Lua, (Whole(n), init, f, arguments): (Whole, Value, Value, MultiValue)) -> Result<Kept, Failure> {
    let n = usize::try_from(n).ok().filter(|n| *n <= MOST);
    let n = n.ok_or_else(|| Failure::argument(format!("map arg #1 expected a number of threads, from 0 to {MOST}")))?;
    let init = match init {
        Value::Nil => Init::Nothing,
        Value::String(source) => Init::Source(source.to_string_lossy()),
        function => Init::Function(Box::new(pack(lua, &function, "map", false)?)),
    };
    let mut call = vec![pack(lua, &f, "map", false)?];
    call.extend(pack_all(lua, &arguments, "map", false)?);
    let (origin, call) = (Origin::of(lua)?, Arc::new(call));
    let begin = move || -> Result<State, Told> {
        let state = State::fresh(&origin).map_err(tell)?;
        state.begin(&init).map_err(tell)?;
        Ok(state)
    };
    Ok(Kept(map_extended(n, begin, move |state: &mut State, id| state.call(&call, Some(id)).map_err(tell))))
}

impl From<MapError> for Failure {
    /// A thread's own words; where several have failed, those of the last one first.
    fn from(error: MapError) -> Failure {
        let Some((last, others)) = error.failures().split_last() else {
            return Failure::of_kind(error.kind(), error.to_string());
        };
        let mut text = last.cause.to_string();
        for other in others {
            text.push_str(&format!("\n(thread {} failed too: {})", other.id, other.cause));
        }
        Failure::new("", text)
    }
}

/// Waits for all; their results one after the other.
pub(crate) fn join(lua: &Lua, map: Given) -> Result<MultiValue, Failure> {
    let results = map.0.join(no_deadline())?;
    results.iter().flatten().map(|result| result.open(lua)).collect()
}

/// Raises what has failed so far.
pub(crate) fn check_errors(_: &Lua, map: Given) -> Result<(), Failure> {
    Ok(map.0.check_errors()?)
}

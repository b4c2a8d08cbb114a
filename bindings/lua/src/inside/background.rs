//! Tasks on threads that go on behind the program's back. A thread keeps its Lua state from task to task.

use std::cell::RefCell;

use mlua::{Lua, MultiValue, UserData, UserDataRef};
use syncline::ipc::{BackgroundTaskPool, TaskError};

use super::map::Told;
use super::parcel::{Parcel, pack_all};
use super::state::{Origin, State};
use crate::arguments::Whole;
use crate::interrupt::no_deadline;
use crate::reply::Failure;

/// As many threads as one pool may have.
const MOST: usize = 1_000;

pub(crate) struct Pool {
    tasks: BackgroundTaskPool<Vec<Parcel>>,
    origin: Origin,
}

impl UserData for Pool {}

type Given = UserDataRef<Pool>;

thread_local! {
    /// The state of a pool's thread.
    static STATE: RefCell<Option<State>> = const { RefCell::new(None) };
}

/// A pool of `n` threads; one that `closes` ends them with the last task.
pub(crate) fn open(lua: &Lua, (Whole(n), closes): (Whole, bool)) -> Result<Pool, Failure> {
    let n = usize::try_from(n).ok().filter(|n| (1..=MOST).contains(n));
    let n = n.ok_or_else(|| Failure::argument(format!("BackgroundTaskPool: a number of threads was expected, from 1 to {MOST}")))?;
    let tasks = if closes { BackgroundTaskPool::closing_on_last_task(n) } else { BackgroundTaskPool::new(n) };
    Ok(Pool { tasks: tasks?, origin: Origin::of(lua)? })
}

/// Adds a task: a function and its arguments. Its number: 1, 2, …
pub(crate) fn add(lua: &Lua, (pool, call): (Given, MultiValue)) -> Result<u64, Failure> {
    let (call, origin) = (pack_all(lua, &call, "addTask", false)?, pool.origin.clone());
    Ok(pool.tasks.add_task(move || {
        STATE
            .with_borrow_mut(|state| {
                if state.is_none() {
                    *state = Some(State::fresh(&origin)?);
                }
                let state = state.as_ref().ok_or_else(|| Failure::argument("a thread without a state"))?;
                state.call(&call, None)
            })
            .map_err(Told::from)
    })?)
}

impl From<TaskError> for Failure {
    fn from(error: TaskError) -> Failure {
        match &error {
            TaskError::Failed { cause, .. } => Failure::new("", cause.to_string()),
            _ => Failure::of_kind(error.kind(), error.to_string()),
        }
    }
}

/// A task's number as Lua gives it.
fn task(id: Option<Whole>) -> Result<Option<u64>, Failure> {
    id.map(|Whole(id)| u64::try_from(id).map_err(|_| Failure::argument(format!("{id} is no task's number")))).transpose()
}

pub(crate) fn has_task(_: &Lua, pool: Given) -> Result<bool, Failure> {
    Ok(pool.tasks.has_task())
}

pub(crate) fn is_done(_: &Lua, (pool, id): (Given, Option<Whole>)) -> Result<bool, Failure> {
    Ok(pool.tasks.is_done(task(id)?)?)
}

/// Waits for a task; all its results, once.
pub(crate) fn get_result(lua: &Lua, (pool, id): (Given, Option<Whole>)) -> Result<MultiValue, Failure> {
    let results = pool.tasks.get_result(task(id)?, no_deadline())?.unwrap_or_default();
    results.iter().map(|result| result.open(lua)).collect()
}

//! What a family of threads and processes shares: the promises of its objects, kept while members are killed.

mod channel;
mod child;
mod deposit;
mod fixes;
mod killed;
mod mutex;
mod processes;
mod shared_table;
mod soak;
mod workqueue;

use std::time::Duration;

use syncline_ipc::{Deadline, Value};

pub(crate) fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(30))
}

pub(crate) fn int(number: i64) -> Value<'static> {
    Value::Int(number)
}

pub(crate) fn as_int(value: &Value<'_>) -> i64 {
    let Value::Int(number) = value else { panic!("{value:?} is no number") };
    *number
}

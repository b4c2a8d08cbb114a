//! Handles: how an object of a family becomes a value, and a value leads to the object.

use std::sync::Arc;

use syncline_shm::estate::Held;
use syncline_wire::{Handle, HandleKind, Value};

use crate::{Error, Family};

/// A value that leads to an object and keeps it alive.
pub(crate) fn handle(family: &Family, held: &Arc<Held>, kind: HandleKind) -> Value<'static> {
    Value::Handle(Box::new(Handle { kind, family: family.id(), object: held.number(), keeper: Some(Arc::clone(held) as _) }))
}

/// The object that a handle of a kind leads to.
pub(crate) fn held_by(
    family: &Family,
    handle: &Value<'_>,
    wanted: HandleKind,
    kind: u8,
    operation: &'static str,
) -> Result<Arc<Held>, Error> {
    family.check(operation)?;
    let wrong = |detail: String| Error::Configuration { operation, detail };
    let Value::Handle(handle) = handle else {
        return Err(wrong(format!("a {} is no handle of a {}", handle.type_name(), wanted.name())));
    };
    if handle.kind != wanted {
        return Err(wrong(format!("the handle leads to a {}, not to a {}", handle.kind.name(), wanted.name())));
    }
    if handle.family != family.id() {
        return Err(wrong(format!("the {} belongs to another family", wanted.name())));
    }
    let held = family.estate().hold(handle.object).map_err(|error| Error::of_estate(operation, error))?;
    if held.kind() != kind {
        return Err(wrong(format!("the handle leads to something that is no {}", wanted.name())));
    }
    Ok(held)
}

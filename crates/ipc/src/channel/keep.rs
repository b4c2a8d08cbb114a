//! A value that is to stay in a local channel has to own, or share, all it has.

use syncline_shm::queue::MOST_INLINE;
use syncline_wire::Value;

use crate::deposit::objects_of;
use crate::{Error, Family, passing};

/// The same value, by itself: what it shares stays where it is, all else is copied. Refuses what could not be moved to shared memory.
pub(super) fn kept(family: &Family, value: &Value<'_>, operation: &'static str) -> Result<Value<'static>, Error> {
    passing::with_encoded(value, operation, |encoded| {
        let mut kept =
            if to_copy(value) > MOST_INLINE { passing::copied_into_block(family, encoded, operation)? } else { value.clone().into_owned() };
        keep_objects(family, &mut kept, operation)?;
        Ok(kept)
    })
}

/// Makes sure that a value which its owner gives away could travel, and that it keeps the objects it leads to.
pub(super) fn given(family: &Family, value: &mut Value<'static>, operation: &'static str) -> Result<(), Error> {
    passing::with_encoded(value, operation, |_| Ok(()))?;
    keep_objects(family, value, operation)
}

/// Handles of a family's objects hold them, whoever made the handle.
fn keep_objects(family: &Family, value: &mut Value<'static>, operation: &'static str) -> Result<(), Error> {
    let mut held = objects_of(family, value, operation)?.into_iter();
    value.visit_handles(&mut |handle| handle.keeper = held.next().map(|held| held as _));
    Ok(())
}

/// Bytes of tensors that only a copy would keep.
fn to_copy(value: &Value<'_>) -> usize {
    match value {
        Value::Tensor(tensor) if tensor.shared().is_none() => tensor.data().len(),
        Value::List(items) => items.iter().map(to_copy).sum(),
        Value::Map(pairs) => pairs.iter().map(|(key, value)| to_copy(key) + to_copy(value)).sum(),
        _ => 0,
    }
}

//! Values that are laid out once in a block of the family and read by everybody where they lie: marshalled ones, and large ones of
//! tables.

use std::sync::Arc;

use syncline_shm::estate::{Deposit, Held};
use syncline_wire::value::ALIGNMENT;
use syncline_wire::{EncodedValue, Limits, SharedBytes, Value};

use crate::{Error, Family, thread};

/// The objects that a value leads to, held until they are named.
pub(crate) fn objects_of(family: &Family, value: &Value<'_>, operation: &'static str) -> Result<Vec<Arc<Held>>, Error> {
    let hold = |handle: &&syncline_wire::Handle| {
        if handle.family != family.id() {
            let detail = format!("a {} of another family cannot be kept in this one", handle.kind.name());
            return Err(Error::Configuration { operation, detail });
        }
        family.estate().hold(handle.object).map_err(|error| Error::of_estate(operation, error))
    };
    value.handles().iter().map(hold).collect()
}

/// The one copy of a value. `held` are the objects it leads to.
pub(crate) fn laid_out(family: &Family, encoded: &EncodedValue<'_>, held: &[Arc<Held>], operation: &'static str) -> Result<Deposit, Error> {
    let meta = encoded.meta();
    let start = meta.len().next_multiple_of(ALIGNMENT);
    let len = start + encoded.payload_len() as usize;
    let objects: Vec<u64> = held.iter().map(|held| held.number()).collect();
    let fill = |bytes: &mut [u8]| {
        bytes[..meta.len()].copy_from_slice(meta);
        let mut at = start;
        for piece in encoded.payload() {
            bytes[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
    };
    Deposit::make(family.estate(), len, (meta.len() / 8) as u32, &objects, thread::me(), fill)
        .map_err(|error| Error::of_estate(operation, error))
}

/// The value of a deposit; its tensors lie where they were laid, and keep it. Also how many bytes there are.
pub(crate) fn deposited(family: &Family, held: Arc<Held>, operation: &'static str) -> Result<(Value<'static>, usize), Error> {
    let damaged = |detail: String| Error::Damaged { operation, detail };
    let deposit = Deposit::over(held).map_err(|error| damaged(error.to_string()))?;
    let meta_len = deposit.meta_words() as usize * 8;
    let bytes = SharedBytes::new(Arc::new(deposit));
    let payload = bytes.slice(meta_len.next_multiple_of(ALIGNMENT)..bytes.len());
    let payload = payload.ok_or_else(|| damaged(format!("{meta_len} bytes of meta in a deposit of {}", bytes.len())))?;
    let value = Value::decode_shared(&bytes[..meta_len], &payload, &Limits::default());
    let mut value = value.map_err(|error| damaged(error.to_string()))?;
    value.visit_handles(&mut |handle| {
        // While the deposit is held, so is what it names.
        if handle.family == family.id() {
            handle.keeper = family.estate().hold(handle.object).ok().map(|held| held as _);
        }
    });
    let len = bytes.len();
    Ok((value, len))
}

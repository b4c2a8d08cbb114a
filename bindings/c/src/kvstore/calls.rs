//! Init, push, pull and their relatives. Lists are parallel, as in MXNet's own C interface: the i-th key belongs to the i-th array, and a key
//! that stands several times in a row has several.

use syncline::kvstore::{Key, Output, Pull, Push, RowPull, Value};

use super::arrays::{Lent, Target, check_targets, collide, keys, lent, one_lent, one_target, syncline_kv_array, syncline_kv_key, targets};
use super::rows::syncline_rows;
use super::{Patient, STORES, syncline_kvstore};
use crate::border::{guarded, with_site};
use crate::failure::{Failure, syncline_status};
use crate::memory;

/// Makes `count` keys with these values. Every worker makes the same ones, in any order, before its first push of them; worker 0's values count.
///
/// # Safety
/// `keys` has `count` keys and `values` as many arrays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_kvstore_init(
    store: *mut syncline_kvstore,
    keys: *const syncline_kv_key,
    values: *const syncline_kv_array,
    count: usize,
) -> syncline_status {
    guarded(|| {
        let kept = STORES.get(store)?;
        // SAFETY: the caller's promise.
        let (keys, values) = unsafe { listed(keys, values, count) }?;
        init(&kept, &keys, &values)
    })
}

/// Adds up the values of each key and lets the updater, the optimizer or nobody decide what they do to the stored one.
///
/// # Safety
/// As syncline_kvstore_init.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_kvstore_push(
    store: *mut syncline_kvstore,
    keys: *const syncline_kv_key,
    values: *const syncline_kv_array,
    count: usize,
) -> syncline_status {
    guarded(|| {
        let kept = STORES.get(store)?;
        if count == 1 {
            // SAFETY: the caller's promise.
            let (key, value) = unsafe { one_lent(keys, values) }?;
            return Ok(kept.store.raw().push(&[Push { key: &key, values: &[value.value()] }], kept.by())?);
        }
        // SAFETY: the caller's promise.
        let (keys, values) = unsafe { listed(keys, values, count) }?;
        with_pushes(&keys, &values, |pushes| Ok(kept.store.raw().push(pushes, kept.by())?))
    })
}

/// Copies stored values into `outs`. Contains every earlier push of this worker. With `ignore_sparse` not 0 row-sparse outputs are left alone.
///
/// # Safety
/// As syncline_kvstore_init, with room for what is written; nobody else uses it meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_kvstore_pull(
    store: *mut syncline_kvstore,
    keys: *const syncline_kv_key,
    outs: *const syncline_kv_array,
    count: usize,
    ignore_sparse: i32,
) -> syncline_status {
    guarded(|| {
        let (kept, ignored) = (STORES.get(store)?, ignore_sparse != 0);
        if count == 1 {
            // SAFETY: the caller's promise.
            let (key, mut out) = unsafe { one_target(keys, outs) }?;
            kept.store.raw().pull(&mut [Pull { key: &key, outputs: &mut [out.output()?] }], ignored, kept.by())?;
            return if ignored { Ok(()) } else { out.finish() };
        }
        // SAFETY: the caller's promise.
        let (keys, mut outs) = unsafe { (self::keys(keys, count)?, targets(outs, count)?) };
        with_pulls(&keys, &mut outs, |pulls| Ok(kept.store.raw().pull(pulls, ignored, kept.by())?))?;
        finish(outs, ignored)
    })
}

/// Pushes `values` and copies what is stored then into `outs`, which may be the values themselves; NULL means those.
///
/// # Safety
/// As syncline_kvstore_push and syncline_kvstore_pull, for `num_values` keys and values and `num_outs` keys and outputs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_kvstore_pushpull(
    store: *mut syncline_kvstore,
    keys: *const syncline_kv_key,
    values: *const syncline_kv_array,
    num_values: usize,
    out_keys: *const syncline_kv_key,
    outs: *const syncline_kv_array,
    num_outs: usize,
) -> syncline_status {
    guarded(|| {
        let kept = STORES.get(store)?;
        let (out_keys, outs, num_outs) = if outs.is_null() { (keys, values, num_values) } else { (out_keys, outs, num_outs) };
        // SAFETY: the caller's promise.
        let (keys, values) = unsafe { listed(keys, values, num_values) }?;
        // SAFETY: the caller's promise.
        let out_keys = unsafe { self::keys(out_keys, num_outs) }?;
        // SAFETY: the caller's promise.
        if unsafe { collide(&values, outs, num_outs) }? {
            // Refused before anything was pushed.
            // SAFETY: the caller's promise.
            unsafe { check_targets(outs, num_outs) }?;
            with_pushes(&keys, &values, |pushes| Ok(kept.store.raw().push(pushes, kept.by())?))?;
            // What was pushed has been copied before the first number is written over it.
            drop(values);
            // SAFETY: the caller's promise, and nobody reads the values any more.
            let mut outs = unsafe { targets(outs, num_outs) }?;
            with_pulls(&out_keys, &mut outs, |pulls| Ok(kept.store.raw().pull(pulls, true, kept.by())?))?;
            return finish(outs, true);
        }
        // SAFETY: the caller's promise, and no output lies where a value does.
        let mut outs = unsafe { targets(outs, num_outs) }?;
        with_pushes(&keys, &values, |pushes| {
            with_pulls(&out_keys, &mut outs, |pulls| Ok(kept.store.raw().push_pull(pushes, pulls, kept.by())?))
        })?;
        finish(outs, true)
    })
}

/// Makes keys, as syncline_kvstore_init, and copies worker 0's values into `outs`; those may be the values themselves.
///
/// # Safety
/// As syncline_kvstore_pushpull.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_kvstore_broadcast(
    store: *mut syncline_kvstore,
    keys: *const syncline_kv_key,
    values: *const syncline_kv_array,
    num_values: usize,
    out_keys: *const syncline_kv_key,
    outs: *const syncline_kv_array,
    num_outs: usize,
) -> syncline_status {
    guarded(|| {
        let kept = STORES.get(store)?;
        let (out_keys, outs, num_outs) = if outs.is_null() { (keys, values, num_values) } else { (out_keys, outs, num_outs) };
        // SAFETY: the caller's promise.
        unsafe { check_targets(outs, num_outs) }?;
        // SAFETY: the caller's promise.
        let (keys, values) = unsafe { listed(keys, values, num_values) }?;
        init(&kept, &keys, &values)?;
        drop(values);
        // SAFETY: the caller's promise, and nobody reads the values any more.
        let (out_keys, mut outs) = unsafe { (self::keys(out_keys, num_outs)?, targets(outs, num_outs)?) };
        with_pulls(&out_keys, &mut outs, |pulls| Ok(kept.store.raw().pull(pulls, true, kept.by())?))?;
        finish(outs, true)
    })
}

/// The rows that are wanted of one key.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct syncline_kv_rows {
    /// Which key.
    key: syncline_kv_key,
    /// The ids, in any order; repeated ones count once.
    ids: *const i64,
    /// How many there are.
    num_ids: usize,
    /// What is filled with exactly these rows.
    out: *mut syncline_rows,
}

/// Fills `count` row-sparse arrays with exactly the rows that are wanted, of keys that were made with rows.
///
/// # Safety
/// `wanted` has `count` wishes, each with its ids.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_kvstore_row_sparse_pull(
    store: *mut syncline_kvstore,
    wanted: *const syncline_kv_rows,
    count: usize,
) -> syncline_status {
    guarded(|| {
        let kept = STORES.get(store)?;
        // SAFETY: the caller's promise.
        let wanted = unsafe { memory::values(wanted, count, "wanted") }?;
        let mut wishes = Vec::with_capacity(count);
        for wish in wanted {
            if wish.out.is_null() {
                return Err(Failure::argument("the output is no row-sparse array; syncline_kvstore_pull fills dense ones"));
            }
            let array = syncline_kv_array { dtype: 0, axes: 0, dims: std::ptr::null(), data: std::ptr::null_mut(), rows: wish.out };
            // SAFETY: the caller's promise; of the array only the handle is looked at.
            let (key, ids, out) = unsafe {
                (self::keys(&raw const wish.key, 1)?, memory::values(wish.ids, wish.num_ids, "ids")?, targets(&raw const array, 1)?)
            };
            wishes.push((key, ids, out));
        }
        let mut outputs = Vec::with_capacity(count);
        for (key, ids, out) in &mut wishes {
            outputs.push((&key[0], *ids, out.iter_mut().map(Target::output).collect::<Result<Vec<Output<'_>>, Failure>>()?));
        }
        let mut pulls: Vec<RowPull<'_, '_>> =
            outputs.iter_mut().map(|(key, ids, outputs)| RowPull { key, ids, outputs: outputs.as_mut_slice() }).collect();
        kept.store.raw().row_sparse_pull(&mut pulls, kept.by())?;
        drop(pulls);
        drop(outputs);
        wishes.into_iter().flat_map(|(_, _, out)| out).try_for_each(Target::finish)
    })
}

/// # Safety
/// As syncline_kvstore_init.
pub(crate) unsafe fn listed<'a>(
    keys: *const syncline_kv_key,
    values: *const syncline_kv_array,
    count: usize,
) -> Result<(Vec<Key>, Vec<Lent<'a>>), Failure> {
    // SAFETY: the caller's promise.
    unsafe { Ok((self::keys(keys, count)?, lent(values, count)?)) }
}

fn init(kept: &Patient, keys: &[Key], values: &[Lent<'_>]) -> Result<(), Failure> {
    let pairs: Vec<(&Key, Value<'_>)> = keys.iter().zip(values).map(|(key, value)| (key, value.value())).collect();
    Ok(with_site(|site| kept.store.raw().init(&pairs, site, kept.by()))?)
}

/// Lends the values of neighbours with the same key together.
pub(crate) fn with_pushes<T>(
    keys: &[Key],
    values: &[Lent<'_>],
    call: impl FnOnce(&[Push<'_>]) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let values: Vec<Value<'_>> = values.iter().map(Lent::value).collect();
    let mut rest = values.as_slice();
    let mut pushes = Vec::with_capacity(keys.len());
    for alike in keys.chunk_by(|one, next| one == next) {
        let (mine, others) = rest.split_at(alike.len());
        pushes.push(Push { key: &alike[0], values: mine });
        rest = others;
    }
    call(&pushes)
}

fn with_pulls(keys: &[Key], outs: &mut [Target<'_>], call: impl FnOnce(&mut [Pull<'_, '_>]) -> Result<(), Failure>) -> Result<(), Failure> {
    let mut outputs = outs.iter_mut().map(Target::output).collect::<Result<Vec<Output<'_>>, Failure>>()?;
    let mut rest = outputs.as_mut_slice();
    let mut pulls = Vec::with_capacity(keys.len());
    for alike in keys.chunk_by(|one, next| one == next) {
        let (mine, others) = rest.split_at_mut(alike.len());
        pulls.push(Pull { key: &alike[0], outputs: mine });
        rest = others;
    }
    call(&mut pulls)
}

/// Hands over what was filled; rows that were left alone stay as they are.
fn finish(outs: Vec<Target<'_>>, rows_were_left_alone: bool) -> Result<(), Failure> {
    if rows_were_left_alone { Ok(()) } else { outs.into_iter().try_for_each(Target::finish) }
}

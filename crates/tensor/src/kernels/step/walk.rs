//! Walks the buffers of a step: in place where all of them hold aligned numbers that are computed with as they are,
//! else through short copies that stay in the first-level cache.

use std::marker::PhantomData;

use super::super::dispatch::{Isa, SimdLevel, Work};
use super::super::lanes::Sink;
use super::StepBuffers;
use super::rules::{Place, Real, Rule};
use crate::Element;

/// Numbers copied at a time.
const BLOCK: usize = 256;

/// All lengths were checked.
pub(super) fn walk<T: Element<Wide: Real>, R: Rule<T::Wide>>(level: SimdLevel, rule: R, buffers: StepBuffers<'_>) {
    match in_place::<T, R>(rule, buffers) {
        Ok(work) => level.run(work),
        Err(buffers) => level.run(ThroughCopies::<T, R> { rule, buffers, _numbers: PhantomData }),
    }
}

/// The work on the buffers themselves, or the buffers back.
fn in_place<T: Element<Wide: Real>, R>(rule: R, buffers: StepBuffers<'_>) -> Result<InPlace<'_, T::Wide, R>, StepBuffers<'_>> {
    let StepBuffers { old, delta, new, backup, state_old, state_new } = &buffers;
    let aligned = is_aligned::<T>(old) && is_aligned::<T>(delta) && is_aligned::<T>(new);
    let aligned = aligned && is_aligned::<T>(backup) && is_aligned::<T>(state_old) && is_aligned::<T>(state_new);
    if T::DTYPE != T::Wide::DTYPE || !aligned {
        return Err(buffers);
    }
    let StepBuffers { old, delta, new, backup, state_old, state_new } = buffers;
    let from = From { x: typed(old), d: typed(delta), backup: typed(backup), state: typed(state_old) };
    Ok(InPlace { rule, from, into: Into { x: typed_mut(new), state: typed_mut(state_new) } })
}

/// What is empty lies anywhere.
fn is_aligned<T: Element>(bytes: &[u8]) -> bool {
    bytes.is_empty() || bytemuck::try_cast_slice::<u8, T>(bytes).is_ok()
}

fn typed<T: Element>(bytes: &[u8]) -> &[T] {
    if bytes.is_empty() { &[] } else { bytemuck::cast_slice(bytes) }
}

fn typed_mut<T: Element>(bytes: &mut [u8]) -> &mut [T] {
    if bytes.is_empty() { &mut [] } else { bytemuck::cast_slice_mut(bytes) }
}

struct From<'a, W> {
    x: &'a [W],
    d: &'a [W],
    backup: &'a [W],
    state: &'a [W],
}

struct Into<'a, W> {
    x: &'a mut [W],
    state: &'a mut [W],
}

struct InPlace<'a, W, R> {
    rule: R,
    from: From<'a, W>,
    into: Into<'a, W>,
}

impl<W: Real, R: Rule<W>> Work for InPlace<'_, W, R> {
    #[inline(always)]
    fn run<I: Isa>(self, _: I) {
        step(self.rule, self.from, self.into);
    }
}

/// The loop itself. The slices are cut to one length first, so that no index needs a check inside it.
#[inline(always)]
fn step<W: Real, R: Rule<W>>(rule: R, from: From<'_, W>, into: Into<'_, W>) {
    let count = into.x.len();
    let (new_x, x, d) = (&mut into.x[..count], &from.x[..count], &from.d[..count]);
    let backup = &from.backup[..if R::HAS_BACKUP { count } else { 0 }];
    let state = &from.state[..if R::HAS_STATE { count } else { 0 }];
    let new_state = &mut into.state[..if R::HAS_STATE { count } else { 0 }];
    for index in 0..count {
        let place = Place {
            x: x[index],
            d: d[index],
            backup: if R::HAS_BACKUP { backup[index] } else { W::from_i64(0) },
            state: if R::HAS_STATE { state[index] } else { W::from_i64(0) },
        };
        let (next_x, next_state) = rule.apply(place);
        new_x[index] = next_x;
        if R::HAS_STATE {
            new_state[index] = next_state;
        }
    }
}

struct ThroughCopies<'a, T, R> {
    rule: R,
    buffers: StepBuffers<'a>,
    _numbers: PhantomData<T>,
}

impl<T: Element<Wide: Real>, R: Rule<T::Wide>> Work for ThroughCopies<'_, T, R> {
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let StepBuffers { old, delta, new, backup, state_old, state_new } = self.buffers;
        let count = new.len() / size_of::<T>();
        let (narrow, wide) = (size_of::<T>(), size_of::<T::Wide>());
        let zeros = || [<T::Wide as bytemuck::Zeroable>::zeroed(); BLOCK];
        let (mut x, mut d, mut b, mut s) = (zeros(), zeros(), zeros(), zeros());
        let (mut new_x, mut new_s) = (zeros(), zeros());
        for start in (0..count).step_by(BLOCK) {
            let end = count.min(start + BLOCK);
            let numbers = start * narrow..end * narrow;
            let states = start * wide..end * wide;
            let length = end - start;
            load::<T, I>(isa, &old[numbers.clone()], &mut x[..length]);
            load::<T, I>(isa, &delta[numbers.clone()], &mut d[..length]);
            if R::HAS_BACKUP {
                load::<T, I>(isa, &backup[numbers.clone()], &mut b[..length]);
            }
            if R::HAS_STATE {
                bytemuck::cast_slice_mut(&mut s[..length]).copy_from_slice(&state_old[states.clone()]);
            }
            let from = From { x: &x[..length], d: &d[..length], backup: &b[..length], state: &s[..length] };
            step(self.rule, from, Into { x: &mut new_x[..length], state: &mut new_s[..length] });
            store::<T, I>(isa, &new_x[..length], &mut new[numbers]);
            if R::HAS_STATE {
                state_new[states].copy_from_slice(bytemuck::cast_slice(&new_s[..length]));
            }
        }
    }
}

/// At most [`BLOCK`] numbers, widened.
#[inline(always)]
fn load<T: Element, I: Isa>(isa: I, bytes: &[u8], wide: &mut [T::Wide]) {
    if let Ok(numbers) = bytemuck::try_cast_slice::<u8, T>(bytes) {
        return T::widened(isa, numbers, IntoCopy { rest: wide });
    }
    let mut copy = [T::zeroed(); BLOCK];
    let copy = &mut copy[..wide.len()];
    bytemuck::cast_slice_mut(copy).copy_from_slice(bytes);
    T::widened(isa, copy, IntoCopy { rest: wide });
}

/// At most [`BLOCK`] numbers, rounded to the type they are kept in.
#[inline(always)]
fn store<T: Element, I: Isa>(isa: I, wide: &[T::Wide], bytes: &mut [u8]) {
    if let Ok(numbers) = bytemuck::try_cast_slice_mut::<u8, T>(bytes) {
        return T::store(isa, wide, numbers);
    }
    let mut copy = [T::zeroed(); BLOCK];
    let copy = &mut copy[..wide.len()];
    T::store(isa, wide, copy);
    bytes.copy_from_slice(bytemuck::cast_slice(copy));
}

struct IntoCopy<'a, W> {
    rest: &'a mut [W],
}

impl<W: Copy> Sink<W> for IntoCopy<'_, W> {
    #[inline(always)]
    fn take<I: Isa>(&mut self, _: I, block: &[W]) {
        let (copy, rest) = std::mem::take(&mut self.rest).split_at_mut(block.len());
        copy.copy_from_slice(block);
        self.rest = rest;
    }
}

//! The loops over many numbers: in place where everything is aligned and of one type, else through short copies that stay in the first-level cache.

use syncline_tensor::kernels::{Binary, Loop, SimdLevel, cast, combine_into_both};
use syncline_tensor::{DType, TensorError};

use crate::real::Real;
use crate::rules::Rule;

/// Numbers copied at a time.
pub(crate) const CHUNK: usize = 512;

/// Bytes that a rule works on; all lengths agree. `main` is what is computed with: the master copy if there is one, else the weight itself.
pub(crate) struct Numbers<'a, 's> {
    pub(crate) dtype: DType,
    pub(crate) weight: &'a mut [u8],
    pub(crate) grad_dtype: DType,
    pub(crate) grad: &'a [u8],
    pub(crate) master: Option<&'a mut [u8]>,
    pub(crate) states: &'a mut [&'s mut [u8]],
}

/// One step for each number.
pub(crate) fn walk<W: Real, R: Rule<W>>(level: SimdLevel, rule: R, numbers: Numbers<'_, '_>) -> Result<(), TensorError> {
    let Numbers { dtype, weight, grad_dtype, grad, master, states } = numbers;
    debug_assert_eq!(states.len(), R::STATES);
    let as_it_is = master.is_none() && dtype == W::WIDE && grad_dtype == W::WIDE;
    if let (true, Some(w), Some(g)) = (as_it_is, typed_mut::<W>(weight), typed::<W>(grad)) {
        let mut lanes = states.iter_mut().map(|state| typed_mut::<W>(state));
        let mut next = || lanes.next().unwrap_or(Some(&mut []));
        if let (Some(a), Some(b), Some(c)) = (next(), next(), next()) {
            level.run_loop(Walk { rule, w, g, a, b, c });
            return Ok(());
        }
    }
    walk_in_copies(level, rule, Numbers { dtype, weight, grad_dtype, grad, master, states })
}

/// One step of a rule without states for each number. The rule is lent: a copy of its words, stored a moment ago one by one, could not be loaded together.
#[inline]
pub(crate) fn step_each<W: Real, R: Rule<W>>(level: SimdLevel, rule: &R, w: &mut [W], g: &[W]) {
    level.run_loop(StepEach { rule, w, g });
}

/// The same for numbers of `old`, written to `new`.
#[inline]
pub(crate) fn step_each_from<W: Real, R: Rule<W>>(level: SimdLevel, rule: &R, old: &[W], new: &mut [W], g: &[W]) {
    level.run_loop(StepEachFrom { rule, old, new, g });
}

struct StepEach<'a, W, R> {
    rule: &'a R,
    w: &'a mut [W],
    g: &'a [W],
}

impl<W: Real, R: Rule<W>> Loop for StepEach<'_, W, R> {
    #[inline(always)]
    fn run(self) {
        none(*self.rule, self.w, self.g);
    }
}

struct StepEachFrom<'a, W, R> {
    rule: &'a R,
    old: &'a [W],
    new: &'a mut [W],
    g: &'a [W],
}

impl<W: Real, R: Rule<W>> Loop for StepEachFrom<'_, W, R> {
    #[inline(always)]
    fn run(self) {
        from(*self.rule, self.old, self.new, self.g);
    }
}

/// A second place for new weights.
#[derive(Debug)]
pub struct Also<'a> {
    /// As long as the weights.
    pub bytes: &'a mut [u8],
    /// No cache holds the array that this is a part of: its lines are written past it.
    pub past_cache: bool,
}

/// One step of a rule without states for each number of `old`, written to `new` and to `also`; false, and nothing done, where a type or an alignment does
/// not allow it.
pub(crate) fn walk_from<W: Real, R: Rule<W>>(
    level: SimdLevel,
    rule: R,
    old: &[u8],
    new: &mut [u8],
    grad: &[u8],
    also: Option<&mut Also<'_>>,
) -> bool {
    debug_assert_eq!(R::STATES, 0);
    let (Some(old), Some(new), Some(g)) = (typed::<W>(old), typed_mut::<W>(new), typed::<W>(grad)) else { return false };
    match also {
        None => step_each_from(level, &rule, old, new, g),
        Some(also) => combine_into_both(level, Stateless(rule), new, also.bytes, also.past_cache, old, g),
    }
    true
}

/// A rule without states, as an operation on two numbers.
#[derive(Clone, Copy)]
struct Stateless<R>(R);

impl<W: Real, R: Rule<W>> Binary<W> for Stateless<R> {
    #[inline(always)]
    fn apply(self, weight: W, gradient: W) -> W {
        self.0.apply(weight, gradient, [W::ZERO; 3]).0
    }
}

/// The same by way of short copies. Apart, because the room for them would make every call touch the pages of its stack: 0.3 µs for each row.
#[inline(never)]
fn walk_in_copies<W: Real, R: Rule<W>>(level: SimdLevel, rule: R, numbers: Numbers<'_, '_>) -> Result<(), TensorError> {
    let Numbers { dtype, weight, grad_dtype, grad, mut master, states } = numbers;
    let (narrow, of_grad, wide) = (dtype.size(), grad_dtype.size(), size_of::<W>());
    let count = weight.len() / narrow;
    let mut copies = [[W::ZERO; CHUNK]; 5];
    for start in (0..count).step_by(CHUNK) {
        let length = CHUNK.min(count - start);
        let range = |size: usize| start * size..(start + length) * size;
        let [w, g, lanes @ ..] = &mut copies;
        let (w, g) = (&mut w[..length], &mut g[..length]);
        match &master {
            Some(master) => bytes_of(w).copy_from_slice(&master[range(wide)]),
            None => cast(dtype, &weight[range(narrow)], W::WIDE, bytes_of(w))?,
        }
        cast(grad_dtype, &grad[range(of_grad)], W::WIDE, bytes_of(g))?;
        for (lane, state) in lanes.iter_mut().zip(states.iter()) {
            bytes_of(&mut lane[..length]).copy_from_slice(&state[range(wide)]);
        }
        let [a, b, c] = lanes;
        level.run_loop(Walk { rule, w, g, a: &mut a[..length], b: &mut b[..length], c: &mut c[..length] });
        cast(W::WIDE, bytes_of(w), dtype, &mut weight[range(narrow)])?;
        if let Some(master) = &mut master {
            master[range(wide)].copy_from_slice(bytes_of(w));
        }
        for (lane, state) in lanes.iter_mut().zip(states.iter_mut()) {
            state[range(wide)].copy_from_slice(bytes_of(&mut lane[..length]));
        }
    }
    Ok(())
}

pub(crate) fn bytes_of<W: Real>(numbers: &mut [W]) -> &mut [u8] {
    bytemuck::cast_slice_mut(numbers)
}

fn typed<W: Real>(bytes: &[u8]) -> Option<&[W]> {
    if bytes.is_empty() { Some(&[]) } else { bytemuck::try_cast_slice(bytes).ok() }
}

fn typed_mut<W: Real>(bytes: &mut [u8]) -> Option<&mut [W]> {
    if bytes.is_empty() { Some(&mut []) } else { bytemuck::try_cast_slice_mut(bytes).ok() }
}

struct Walk<'a, W, R> {
    rule: R,
    w: &'a mut [W],
    g: &'a [W],
    a: &'a mut [W],
    b: &'a mut [W],
    c: &'a mut [W],
}

impl<W: Real, R: Rule<W>> Loop for Walk<'_, W, R> {
    #[inline(always)]
    fn run(self) {
        let Walk { rule, w, g, a, b, c } = self;
        match R::STATES {
            0 => none(rule, w, g),
            1 => one(rule, w, g, a),
            2 => two(rule, w, g, a, b),
            _ => three(rule, w, g, a, b, c),
        }
    }
}

#[inline(always)]
fn from<W: Real, R: Rule<W>>(rule: R, old: &[W], new: &mut [W], g: &[W]) {
    let (old, g) = (&old[..new.len()], &g[..new.len()]);
    for i in 0..new.len() {
        new[i] = rule.apply(old[i], g[i], [W::ZERO; 3]).0;
    }
}

// One function per number of states, with one parameter each: as parameters the compiler knows that no two of them overlap, in an array it would
// not, and would give up on vectorising. The slices are cut to one length first, so that no index needs a check.

#[inline(always)]
fn none<W: Real, R: Rule<W>>(rule: R, w: &mut [W], g: &[W]) {
    let g = &g[..w.len()];
    for i in 0..w.len() {
        w[i] = rule.apply(w[i], g[i], [W::ZERO; 3]).0;
    }
}

#[inline(always)]
fn one<W: Real, R: Rule<W>>(rule: R, w: &mut [W], g: &[W], a: &mut [W]) {
    let (g, a) = (&g[..w.len()], &mut a[..w.len()]);
    for i in 0..w.len() {
        (w[i], [a[i], ..]) = rule.apply(w[i], g[i], [a[i], W::ZERO, W::ZERO]);
    }
}

#[inline(always)]
fn two<W: Real, R: Rule<W>>(rule: R, w: &mut [W], g: &[W], a: &mut [W], b: &mut [W]) {
    let (g, a, b) = (&g[..w.len()], &mut a[..w.len()], &mut b[..w.len()]);
    for i in 0..w.len() {
        (w[i], [a[i], b[i], _]) = rule.apply(w[i], g[i], [a[i], b[i], W::ZERO]);
    }
}

#[inline(always)]
fn three<W: Real, R: Rule<W>>(rule: R, w: &mut [W], g: &[W], a: &mut [W], b: &mut [W], c: &mut [W]) {
    let (g, a, b, c) = (&g[..w.len()], &mut a[..w.len()], &mut b[..w.len()], &mut c[..w.len()]);
    for i in 0..w.len() {
        (w[i], [a[i], b[i], c[i]]) = rule.apply(w[i], g[i], [a[i], b[i], c[i]]);
    }
}

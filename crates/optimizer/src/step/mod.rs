//! One update of one key: resolved once, then applied to any of its blocks.
//!
//! ```text
//! optimizer.begin(key) ─▶ Step ─┬──────────────────────────────▶ apply(block) for each block, in any order
//!                               └ needs_norms: measure(block)… ─▶ merge ─▶ with_norms ─▶ apply(block)…
//! ```
//! A block may be any part of the array: what becomes of a number depends on the number and on its place, never on the block it came in.

mod measure;
mod plain;
mod resolve;

use std::ops::Range;
use std::sync::Arc;

use syncline_tensor::DType;
use syncline_tensor::kernels::{SimdLevel, copy_past_cache, simd_level};

use crate::OptimizerError;
use crate::expression::{MAX_STATES, Program};
use crate::noise::Noise;
use crate::optimizer::wide;
use crate::real::Real;
use crate::rules::{self, Common, Rule};
use crate::walk::{Also, CHUNK, Numbers, bytes_of, walk, walk_from};
use plain::Plain;
pub(crate) use resolve::resolve;

/// The master copy, and the states of an expression or the three of any other method.
const MAX_LANES: usize = 1 + MAX_STATES;

/// What one update does to a number, all multipliers, schedules and corrections worked out.
#[derive(Clone, Debug)]
pub struct Step {
    name: &'static str,
    lanes: usize,
    master: bool,
    lazy: bool,
    common: Common,
    kernel: Kernel,
    needs_norms: bool,
    /// The rule, made once for all numbers, where it is one that most small steps are.
    plain: Option<Plain>,
}

/// Which rule, with the numbers that only it has.
#[derive(Clone, Debug)]
enum Kernel {
    Sgd,
    SgdKept,
    SgdMomentum { momentum: f64 },
    Nag { momentum: f64 },
    SignSgd,
    Signum { momentum: f64, wd_lh: f64 },
    Ftml { betas: [f64; 2], epsilon: f64 },
    Dcasgd { lamda: f64, momentum: f64 },
    Sgld { noise: Noise },
    Adam { beta1: f64, beta2: f64, epsilon: f64 },
    AdamOfRows { beta1: f64, beta2: f64, epsilon: f64 },
    NagOfRows { momentum: f64 },
    AdamW { beta1: f64, beta2: f64, epsilon: f64, decay: f64 },
    AdaGrad { epsilon: f64 },
    RmsProp { gamma1: f64, gamma2: Option<f64>, epsilon: f64, clip_weights: Option<f64> },
    AdaDelta { rho: f64, epsilon: f64 },
    Ftrl { lamda1: f64, beta: f64 },
    Adamax { beta1: f64, beta2: f64 },
    Nadam { betas: [f64; 2], epsilon: f64, corrections: [f64; 3], shares: [f64; 2] },
    Lamb { betas: [f64; 2], epsilon: f64, bounds: [Option<f64>; 2], bias_correction: bool },
    Lars { momentum: f64, eta: f64, epsilon: f64 },
    Test,
    Custom { program: Arc<Program> },
}

/// A part of a weight with the same part of its gradient and lanes. Bytes may begin anywhere.
#[derive(Debug)]
pub struct Block<'a, 's> {
    /// Of the weight.
    pub dtype: DType,
    /// The place of the block's first number in the whole array.
    pub at: u64,
    /// The numbers to change.
    pub weight: &'a mut [u8],
    /// The weight's dtype, or the type it is computed in.
    pub grad_dtype: DType,
    /// As many numbers as the weight, or, for rows, as many as those rows.
    pub grad: &'a [u8],
    /// The lanes of [`Optimizer::lanes`](crate::Optimizer::lanes), in that order.
    pub states: &'a mut [&'s mut [u8]],
}

impl<'a, 's> Block<'a, 's> {
    /// The whole array at once, its gradient of the same dtype.
    pub fn whole(dtype: DType, weight: &'a mut [u8], grad: &'a [u8], states: &'a mut [&'s mut [u8]]) -> Block<'a, 's> {
        Block { dtype, at: 0, weight, grad_dtype: dtype, grad, states }
    }
}

/// The rows of a row-sparse gradient.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// Numbers per row.
    pub row_len: usize,
    /// Which rows of the whole array: ascending, each once, all inside of the block.
    pub ids: &'a [u64],
}

impl Step {
    /// Whether [`measure`](Self::measure) must see the whole array first.
    pub fn needs_norms(&self) -> bool {
        self.needs_norms
    }

    /// Whether rows that a sparse gradient does not have stay untouched; otherwise they get a gradient of zero.
    pub fn is_lazy(&self) -> bool {
        self.lazy
    }

    /// The rate of this step, before corrections of the method: schedule and multiplier included.
    pub fn learning_rate(&self) -> f64 {
        self.common.lr
    }

    /// Changes the weights and states of a block.
    ///
    /// # Errors
    /// A dtype, length or number of states that does not fit, or missing norms; then nothing has changed.
    #[inline]
    pub fn apply(&self, block: Block<'_, '_>) -> Result<(), OptimizerError> {
        self.apply_at(simd_level(), block)
    }

    /// [`apply`](Self::apply) at a given level of instructions: the bits are the same.
    #[inline]
    pub fn apply_at(&self, level: SimdLevel, mut block: Block<'_, '_>) -> Result<(), OptimizerError> {
        if let Some(plain) = &self.plain
            && plain.apply(level, &mut block)
        {
            return Ok(());
        }
        self.apply_any(level, block)
    }

    fn apply_any(&self, level: SimdLevel, block: Block<'_, '_>) -> Result<(), OptimizerError> {
        let count = self.check(&block)?;
        self.check_len("the gradient", count * block.grad_dtype.size(), block.grad.len())?;
        self.run(level, block)
    }

    /// [`apply`](Self::apply) to weights that stand elsewhere: `block.weight` gets what becomes of `old`, and `also` the same. States are changed in place.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    #[inline]
    pub fn apply_from(&self, old: &[u8], mut block: Block<'_, '_>, also: Option<Also<'_>>) -> Result<(), OptimizerError> {
        if let (Some(plain), None) = (&self.plain, &also)
            && plain.apply_from(simd_level(), old, &mut block)
        {
            return Ok(());
        }
        self.apply_any_from(old, block, also)
    }

    fn apply_any_from(&self, old: &[u8], block: Block<'_, '_>, mut also: Option<Also<'_>>) -> Result<(), OptimizerError> {
        let (level, count) = (simd_level(), self.check(&block)?);
        self.check_len("the gradient", count * block.grad_dtype.size(), block.grad.len())?;
        self.check_len("the old weight", block.weight.len(), old.len())?;
        if let Some(also) = &also {
            self.check_len("the second place", block.weight.len(), also.bytes.len())?;
        }
        if block.grad_dtype == block.dtype {
            let stepped = match block.dtype {
                DType::F32 => self.run_from::<f32>(level, old, block.weight, block.grad, also.as_mut()),
                DType::F64 => self.run_from::<f64>(level, old, block.weight, block.grad, also.as_mut()),
                _ => false,
            };
            if stepped {
                return Ok(());
            }
        }
        let Block { weight, .. } = block;
        weight.copy_from_slice(old);
        self.run(level, Block { weight: &mut *weight, ..block })?;
        match also {
            Some(Also { bytes, past_cache: true }) => copy_past_cache(bytes, weight),
            Some(Also { bytes, past_cache: false }) => bytes.copy_from_slice(weight),
            None => {}
        }
        Ok(())
    }

    /// Plain descent, which most small steps are, without a copy of the weights first; false for other rules.
    fn run_from<W: Real>(&self, level: SimdLevel, old: &[u8], new: &mut [u8], grad: &[u8], also: Option<&mut Also<'_>>) -> bool {
        let common = &self.common;
        match (&self.kernel, common.clips()) {
            (Kernel::Sgd, false) => walk_from::<W, _>(level, rules::Sgd::<W, false>::new(common), old, new, grad, also),
            (Kernel::Sgd, true) => walk_from::<W, _>(level, rules::Sgd::<W, true>::new(common), old, new, grad, also),
            (Kernel::SgdKept, false) => walk_from::<W, _>(level, rules::SgdKept::<W, false>::new(common), old, new, grad, also),
            (Kernel::SgdKept, true) => walk_from::<W, _>(level, rules::SgdKept::<W, true>::new(common), old, new, grad, also),
            _ => false,
        }
    }

    /// Changes the weights and states of some rows of a block; `block.at` is where its first row begins.
    ///
    /// A method that is not lazy changes all rows of the block, as if the gradient were zero in those that are absent.
    ///
    /// # Errors
    /// As [`apply`](Self::apply), and [`OptimizerError::Row`] for rows that do not ascend or lie outside.
    pub fn apply_rows(&self, rows: Rows<'_>, mut block: Block<'_, '_>) -> Result<(), OptimizerError> {
        let level = simd_level();
        let this = self.of_rows();
        let count = self.check(&block)?;
        let Rows { row_len, ids } = rows;
        let of_row = row_len * block.grad_dtype.size();
        self.check_len("the gradient", ids.len() * of_row, block.grad.len())?;
        if row_len == 0 {
            return Ok(());
        }
        self.check_len("a block of whole rows", count / row_len * row_len * block.dtype.size(), block.weight.len())?;
        let (first, held) = (block.at / row_len as u64, (count / row_len) as u64);
        for (place, row) in ids.iter().enumerate() {
            let why = match row.checked_sub(first) {
                Some(inside) if inside < held => (place > 0 && ids[place - 1] >= *row).then_some("rows must ascend, each once"),
                _ => Some("it lies outside of the block"),
            };
            if let Some(why) = why {
                return Err(OptimizerError::Row { row: *row, place, why });
            }
        }
        // Rows that follow each other are one block.
        let (mut place, mut next) = (0, 0);
        while place < ids.len() {
            let run = 1 + ids[place..].windows(2).take_while(|pair| pair[0] + 1 == pair[1]).count();
            let start = (ids[place] - first) as usize;
            this.untouched(level, &mut block, next * row_len..start * row_len)?;
            let grad = &block.grad[place * of_row..(place + run) * of_row];
            let grad_dtype = block.grad_dtype;
            this.part(level, &mut block, start * row_len..(start + run) * row_len, grad_dtype, grad)?;
            (place, next) = (place + run, start + run);
        }
        this.untouched(level, &mut block, next * row_len..count)
    }

    /// The same step with the roundings that MXNet's operators for rows have: they differ from the dense ones in a last bit here and there.
    #[must_use]
    pub fn of_rows(&self) -> Step {
        let kernel = match self.kernel {
            Kernel::Sgd => Kernel::SgdKept,
            Kernel::Nag { momentum } => Kernel::NagOfRows { momentum },
            Kernel::Adam { beta1, beta2, epsilon } if !self.lazy => Kernel::AdamOfRows { beta1, beta2, epsilon },
            _ => self.kernel.clone(),
        };
        let plain = Plain::of(&kernel, &self.common);
        Step { kernel, plain, ..self.clone() }
    }

    /// A part of a block with a gradient of its own.
    fn part(
        &self,
        level: SimdLevel,
        block: &mut Block<'_, '_>,
        numbers: Range<usize>,
        grad_dtype: DType,
        grad: &[u8],
    ) -> Result<(), OptimizerError> {
        let bytes = |size: usize| numbers.start * size..numbers.end * size;
        let wide = wide(self.name, block.dtype)?.size();
        let mut states: [&mut [u8]; MAX_LANES] = Default::default();
        for (part, state) in states.iter_mut().zip(block.states.iter_mut()) {
            *part = &mut state[bytes(wide)];
        }
        let at = block.at + numbers.start as u64;
        let weight = &mut block.weight[bytes(block.dtype.size())];
        self.run(level, Block { dtype: block.dtype, at, weight, grad_dtype, grad, states: &mut states[..self.lanes_for(block.dtype)] })
    }

    /// Numbers for which no gradient came: a lazy method leaves them, another takes it for zero.
    #[inline(never)]
    fn untouched(&self, level: SimdLevel, block: &mut Block<'_, '_>, numbers: Range<usize>) -> Result<(), OptimizerError> {
        if self.lazy {
            return Ok(());
        }
        let (dtype, zeros) = (block.grad_dtype, [0u64; CHUNK]);
        for start in numbers.clone().step_by(CHUNK) {
            let end = numbers.end.min(start + CHUNK);
            let zeros: &[u8] = bytemuck::cast_slice(&zeros);
            self.part(level, block, start..end, dtype, &zeros[..(end - start) * dtype.size()])?;
        }
        Ok(())
    }

    /// How many numbers the block has, if everything but its gradient fits.
    #[inline]
    fn check(&self, block: &Block<'_, '_>) -> Result<usize, OptimizerError> {
        let wide = wide(self.name, block.dtype)?;
        if block.grad_dtype != block.dtype && block.grad_dtype != wide {
            return Err(OptimizerError::GradientDType { weight: block.dtype, wide, found: block.grad_dtype });
        }
        let lanes = self.lanes_for(block.dtype);
        if block.states.len() != lanes {
            return Err(OptimizerError::States { optimizer: self.name, expected: lanes, found: block.states.len() });
        }
        let count = block.weight.len() / block.dtype.size();
        self.check_len("the weight", count * block.dtype.size(), block.weight.len())?;
        for (index, state) in block.states.iter().enumerate() {
            if state.len() != count * wide.size() {
                return self.check_len(&format!("state {index}"), count * wide.size(), state.len()).map(|()| count);
            }
        }
        if self.needs_norms {
            return Err(OptimizerError::NormsMissing { optimizer: self.name });
        }
        Ok(count)
    }

    #[inline]
    fn check_len(&self, what: &str, expected: usize, found: usize) -> Result<(), OptimizerError> {
        if found == expected { Ok(()) } else { Err(OptimizerError::Length { what: what.to_owned(), expected, found }) }
    }

    fn has_master(&self, dtype: DType) -> bool {
        self.master && matches!(dtype, DType::F16 | DType::BF16)
    }

    fn lanes_for(&self, dtype: DType) -> usize {
        self.lanes + usize::from(self.has_master(dtype))
    }

    /// Everything was checked.
    fn run(&self, level: SimdLevel, block: Block<'_, '_>) -> Result<(), OptimizerError> {
        match block.dtype {
            DType::F64 => self.run_in::<f64>(level, block),
            _ => self.run_in::<f32>(level, block),
        }
    }

    fn run_in<W: Real>(&self, level: SimdLevel, block: Block<'_, '_>) -> Result<(), OptimizerError> {
        let Block { dtype, at, weight, grad_dtype, grad, states } = block;
        let (master, states) = match states {
            [master, states @ ..] if self.has_master(dtype) => (Some(&mut **master), states),
            states => (None, states),
        };
        let numbers = Numbers { dtype, weight, grad_dtype, grad, master, states };
        let common = &self.common;
        /// A rule that has a loop with clipping and one without.
        macro_rules! by_clipping {
            ($Rule:ident($($argument:expr),*)) => {
                match common.clips() {
                    true => by::<W, _>(level, rules::$Rule::<W, true>::new(common $(, $argument)*), numbers),
                    false => by::<W, _>(level, rules::$Rule::<W, false>::new(common $(, $argument)*), numbers),
                }
            };
        }
        match &self.kernel {
            Kernel::Sgd => by_clipping!(Sgd()),
            Kernel::SgdKept => by_clipping!(SgdKept()),
            Kernel::SgdMomentum { momentum } => by_clipping!(SgdMomentum(*momentum)),
            Kernel::Nag { momentum } => by::<W, _>(level, rules::Nag::new(common, *momentum), numbers),
            Kernel::NagOfRows { momentum } => by::<W, _>(level, rules::NagOfRows(rules::Nag::new(common, *momentum)), numbers),
            Kernel::SignSgd => by::<W, _>(level, rules::SignSgd::new(common), numbers),
            Kernel::Signum { momentum, wd_lh } => by_clipping!(Signum(*momentum, *wd_lh)),
            Kernel::Ftml { betas, epsilon } => by::<W, _>(level, rules::Ftml::new(common, *betas, *epsilon), numbers),
            Kernel::Dcasgd { lamda, momentum } if *momentum == 0.0 => by::<W, _>(level, rules::Dcasgd::new(common, *lamda), numbers),
            Kernel::Dcasgd { lamda, momentum } => by::<W, _>(level, rules::DcasgdMomentum::new(common, *lamda, *momentum), numbers),
            Kernel::Sgld { noise } => noisy::<W>(level, rules::Sgld::new(common), *noise, at, numbers),
            Kernel::Adam { beta1, beta2, epsilon } => by::<W, _>(level, rules::Adam::new(common, *beta1, *beta2, *epsilon), numbers),
            Kernel::AdamOfRows { beta1, beta2, epsilon } => {
                by::<W, _>(level, rules::AdamOfRows(rules::Adam::new(common, *beta1, *beta2, *epsilon)), numbers)
            }
            Kernel::AdamW { beta1, beta2, epsilon, decay } => {
                by::<W, _>(level, rules::AdamW::new(common, *beta1, *beta2, *epsilon, *decay), numbers)
            }
            Kernel::AdaGrad { epsilon } => by::<W, _>(level, rules::AdaGrad::new(common, *epsilon), numbers),
            Kernel::RmsProp { gamma1, gamma2: None, epsilon, clip_weights } => {
                by::<W, _>(level, rules::RmsProp::new(common, *gamma1, *epsilon, *clip_weights), numbers)
            }
            Kernel::RmsProp { gamma1, gamma2: Some(gamma2), epsilon, clip_weights } => {
                by::<W, _>(level, rules::RmsPropCentered::new(common, *gamma1, *gamma2, *epsilon, *clip_weights), numbers)
            }
            Kernel::AdaDelta { rho, epsilon } => by::<W, _>(level, rules::AdaDelta::new(common, *rho, *epsilon), numbers),
            Kernel::Ftrl { lamda1, beta } => by::<W, _>(level, rules::Ftrl::new(common, *lamda1, *beta), numbers),
            Kernel::Adamax { beta1, beta2 } => by::<W, _>(level, rules::Adamax::new(common, *beta1, *beta2), numbers),
            Kernel::Nadam { betas, epsilon, corrections, shares } => {
                by::<W, _>(level, rules::Nadam::new(common, *betas, *epsilon, *corrections, *shares), numbers)
            }
            Kernel::Lamb { betas, epsilon, bias_correction, .. } => {
                by::<W, _>(level, rules::Lamb::new(common, *betas, *epsilon, *bias_correction), numbers)
            }
            Kernel::Lars { momentum, .. } if *momentum == 0.0 => by_clipping!(Sgd()),
            Kernel::Lars { momentum, .. } => by_clipping!(SgdMomentum(*momentum)),
            Kernel::Test => by::<W, _>(level, rules::Test::new(common), numbers),
            Kernel::Custom { program } => Ok(program.run::<W>(level, common, numbers)?),
        }
    }
}

fn by<W: Real, R: Rule<W>>(level: SimdLevel, rule: R, numbers: Numbers<'_, '_>) -> Result<(), OptimizerError> {
    Ok(walk::<W, R>(level, rule, numbers)?)
}

/// As [`by`], with noise for the places of the block in the place of a state.
#[inline(never)]
fn noisy<W: Real>(level: SimdLevel, rule: rules::Sgld<W>, noise: Noise, at: u64, numbers: Numbers<'_, '_>) -> Result<(), OptimizerError> {
    let Numbers { dtype, weight, grad_dtype, grad, mut master, .. } = numbers;
    let count = weight.len() / dtype.size();
    let mut normals = [W::ZERO; CHUNK];
    for start in (0..count).step_by(CHUNK) {
        let end = count.min(start + CHUNK);
        let normals = &mut normals[..end - start];
        for (place, normal) in normals.iter_mut().enumerate() {
            *normal = W::of(noise.normal(at + (start + place) as u64));
        }
        let bytes = |size: usize| start * size..end * size;
        let numbers = Numbers {
            dtype,
            weight: &mut weight[bytes(dtype.size())],
            grad_dtype,
            grad: &grad[bytes(grad_dtype.size())],
            master: master.as_mut().map(|master| &mut master[bytes(size_of::<W>())]),
            states: &mut [bytes_of(normals)],
        };
        walk::<W, _>(level, rule, numbers)?;
    }
    Ok(())
}

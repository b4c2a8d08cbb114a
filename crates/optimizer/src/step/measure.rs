//! The first pass of steps that follow norms: LAMB that of its update, LARS that of the gradient, both that of the weight.

use syncline_tensor::DType;
use syncline_tensor::kernels::{Loop, SimdLevel, cast, simd_level};

use super::{Block, Kernel, Step};
use crate::OptimizerError;
use crate::norms::{CELL, ExactSum, Norms};
use crate::real::Real;
use crate::rules::Lamb;
use crate::walk::bytes_of;

impl Step {
    /// Measures a block and changes nothing. Blocks begin at multiples of [`CELL`] numbers and may come in any order, from any process.
    ///
    /// # Errors
    /// As [`apply`](Self::apply), and [`OptimizerError::Unaligned`].
    pub fn measure(&self, block: &Block<'_, '_>) -> Result<Norms, OptimizerError> {
        if !self.needs_norms {
            return Ok(Norms::default());
        }
        let unmeasured = Step { needs_norms: false, ..self.clone() };
        let count = unmeasured.check(block)?;
        self.check_len("the gradient", count * block.grad_dtype.size(), block.grad.len())?;
        if !block.at.is_multiple_of(CELL as u64) {
            return Err(OptimizerError::Unaligned { at: block.at, cell: CELL });
        }
        match block.dtype {
            DType::F64 => self.measure_in::<f64>(simd_level(), block, count),
            _ => self.measure_in::<f32>(simd_level(), block, count),
        }
    }

    /// The step with the norms of the whole array.
    #[must_use]
    pub fn with_norms(&self, norms: &Norms) -> Step {
        self.with_norm_values(norms.values())
    }

    /// The same from what [`Norms::values`] said.
    #[must_use]
    pub fn with_norm_values(&self, [weight, update]: [f64; 2]) -> Step {
        let mut step = Step { needs_norms: false, ..self.clone() };
        match self.kernel {
            _ if !self.needs_norms => {}
            Kernel::Lamb { bounds: [lower, upper], .. } => {
                let bounded = lower.map_or(weight, |lower| weight.max(lower));
                let bounded = upper.map_or(bounded, |upper| bounded.min(upper));
                // Without weight or update there is nothing to be in proportion to. A NaN is no zero and stays visible.
                step.common.lr *= if bounded == 0.0 || update == 0.0 { 1.0 } else { bounded / update };
            }
            Kernel::Lars { eta, epsilon, .. } => {
                let update = update * self.common.rescale.abs();
                let ratio = eta * weight / (update + self.common.wd * weight + epsilon);
                step.common.lr *= if weight == 0.0 || update == 0.0 { 1.0 } else { ratio };
            }
            _ => {}
        }
        step
    }

    fn measure_in<W: Real>(&self, level: SimdLevel, block: &Block<'_, '_>, count: usize) -> Result<Norms, OptimizerError> {
        let (dtype, grad_dtype) = (block.dtype, block.grad_dtype);
        let (master, states) = match &*block.states {
            [master, states @ ..] if self.has_master(dtype) => (Some(master), states),
            states => (None, states),
        };
        let lamb = match self.kernel {
            Kernel::Lamb { betas, epsilon, bias_correction, .. } => Some(Lamb::<W>::new(&self.common, betas, epsilon, bias_correction)),
            _ => None,
        };
        let mut norms = Norms::default();
        let mut copies = [[W::ZERO; CELL]; 4];
        for start in (0..count).step_by(CELL) {
            let length = CELL.min(count - start);
            let range = |size: usize| start * size..(start + length) * size;
            let [w, g, a, b] = &mut copies;
            match master {
                Some(master) => bytes_of(&mut w[..length]).copy_from_slice(&master[range(size_of::<W>())]),
                None => cast(dtype, &block.weight[range(dtype.size())], W::WIDE, bytes_of(&mut w[..length]))?,
            }
            cast(grad_dtype, &block.grad[range(grad_dtype.size())], W::WIDE, bytes_of(&mut g[..length]))?;
            if let (Some(rule), [mean, var]) = (lamb, states) {
                bytes_of(&mut a[..length]).copy_from_slice(&mean[range(size_of::<W>())]);
                bytes_of(&mut b[..length]).copy_from_slice(&var[range(size_of::<W>())]);
                level.run_loop(Directions { rule, w: &w[..length], g: &mut g[..length], mean: &a[..length], var: &b[..length] });
            }
            sum_cell(level, &w[..length], &mut norms.weight);
            sum_cell(level, &g[..length], &mut norms.update);
        }
        Ok(norms)
    }
}

fn sum_cell<W: Real>(level: SimdLevel, numbers: &[W], sum: &mut ExactSum) {
    let mut lanes = [0.0; LANES];
    level.run_loop(Squares { numbers, lanes: &mut lanes });
    sum.add(lanes.iter().sum());
}

/// Partial sums that run beside each other: fixed, so that the widest instructions and the narrowest add in the same order.
const LANES: usize = 16;

struct Squares<'a, W> {
    numbers: &'a [W],
    lanes: &'a mut [f64; LANES],
}

impl<W: Real> Loop for Squares<'_, W> {
    #[inline(always)]
    fn run(self) {
        let (whole, tail) = self.numbers.as_chunks::<LANES>();
        let mut lanes = [0.0; LANES];
        for numbers in whole {
            for (lane, number) in lanes.iter_mut().zip(numbers) {
                *lane += number.to_f64() * number.to_f64();
            }
        }
        for (lane, number) in lanes.iter_mut().zip(tail) {
            *lane += number.to_f64() * number.to_f64();
        }
        *self.lanes = lanes;
    }
}

/// Turns gradients into directions, in place.
struct Directions<'a, W> {
    rule: Lamb<W>,
    w: &'a [W],
    g: &'a mut [W],
    mean: &'a [W],
    var: &'a [W],
}

impl<W: Real> Loop for Directions<'_, W> {
    #[inline(always)]
    fn run(self) {
        let count = self.g.len();
        let (w, mean, var) = (&self.w[..count], &self.mean[..count], &self.var[..count]);
        for (i, g) in self.g.iter_mut().enumerate() {
            *g = self.rule.direction(w[i], *g, mean[i], var[i]).0;
        }
    }
}

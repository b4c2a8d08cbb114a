//! Runs a program over blocks of numbers.

use syncline_tensor::TensorError;
use syncline_tensor::kernels::{Loop, SimdLevel, cast};

use super::BLOCK;
use super::compile::{Operand, Operation, Program, Scalar};
use super::parse::Function;
use crate::real::Real;
use crate::rules::Common;
use crate::walk::{Numbers, bytes_of};

impl Program {
    /// One update of these numbers. Everything was checked: lengths agree, and there are as many states as the program has.
    pub(crate) fn run<W: Real>(&self, level: SimdLevel, common: &Common, numbers: Numbers<'_, '_>) -> Result<(), TensorError> {
        let Numbers { dtype, weight, grad_dtype, grad, mut master, states } = numbers;
        let scalars = self.scalars::<W>(common);
        let (narrow, of_grad, wide) = (dtype.size(), grad_dtype.size(), size_of::<W>());
        let count = weight.len() / narrow;
        let mut registers = vec![Box::new([W::ZERO; BLOCK]); self.registers];
        let mut spare = Box::new([W::ZERO; BLOCK]);
        for start in (0..count).step_by(BLOCK) {
            let length = BLOCK.min(count - start);
            let range = |size: usize| start * size..(start + length) * size;
            match &master {
                Some(master) => bytes_of(&mut registers[0][..length]).copy_from_slice(&master[range(wide)]),
                None => cast(dtype, &weight[range(narrow)], W::WIDE, bytes_of(&mut registers[0][..length]))?,
            }
            cast(grad_dtype, &grad[range(of_grad)], W::WIDE, bytes_of(&mut registers[1][..length]))?;
            for (register, state) in registers[2..].iter_mut().zip(states.iter()) {
                bytes_of(&mut register[..length]).copy_from_slice(&state[range(wide)]);
            }
            let (scale, bound) = (W::of(common.rescale), W::of(common.clip));
            level.run_loop(Execute {
                operations: &self.operations,
                scalars: &scalars,
                registers: &mut registers,
                spare: &mut spare,
                scale,
                bound,
            });
            let (new_weight, new_states) = self.results.split_first().expect("w is always a result");
            let mut spread = [W::ZERO; BLOCK];
            let new_weight = result(new_weight, &registers, &scalars, &mut spread);
            cast(W::WIDE, &new_weight[..length * wide], dtype, &mut weight[range(narrow)])?;
            if let Some(master) = &mut master {
                master[range(wide)].copy_from_slice(&new_weight[..length * wide]);
            }
            for (state, new_state) in states.iter_mut().zip(new_states) {
                state[range(wide)].copy_from_slice(&result(new_state, &registers, &scalars, &mut spread)[..length * wide]);
            }
        }
        Ok(())
    }

    fn scalars<W: Real>(&self, common: &Common) -> Vec<W> {
        let mut values: Vec<W> = Vec::with_capacity(self.scalars.len());
        for scalar in &self.scalars {
            values.push(match scalar {
                Scalar::Number(number) => W::of(*number),
                Scalar::LearningRate => W::of(common.lr),
                Scalar::WeightDecay => W::of(common.wd),
                Scalar::Count => W::of(common.count as f64),
                Scalar::Computed { function, from } => compute(*function, from.map(|index| values[index as usize])),
            });
        }
        values
    }
}

/// The bytes of a result; one that is the same for all numbers is spread out first.
fn result<'a, W: Real>(operand: &Operand, registers: &'a [Box<[W; BLOCK]>], scalars: &[W], spread: &'a mut [W; BLOCK]) -> &'a [u8] {
    match operand {
        Operand::Register(register) => bytemuck::cast_slice(&registers[*register as usize][..]),
        Operand::Scalar(scalar) => {
            spread.fill(scalars[*scalar as usize]);
            bytes_of(spread)
        }
    }
}

/// What a function makes of its arguments; the definition that all else must equal.
#[inline(always)]
pub(super) fn compute<W: Real>(function: Function, [a, b, c]: [W; 3]) -> W {
    let truth = |holds: bool| if holds { W::ONE } else { W::ZERO };
    match function {
        Function::Negate => -a,
        Function::Abs => a.magnitude(),
        Function::Sqrt => a.root(),
        Function::Exp => a.exp(),
        Function::Log => a.ln(),
        Function::Sign => a.sign(),
        Function::Add => a + b,
        Function::Subtract => a - b,
        Function::Multiply => a * b,
        Function::Divide => a / b,
        Function::Min => smaller(a, b),
        Function::Max => larger(a, b),
        Function::Less => truth(a < b),
        Function::LessOrEqual => truth(a <= b),
        Function::Greater => truth(a > b),
        Function::GreaterOrEqual => truth(a >= b),
        Function::Equal => truth(a == b),
        Function::NotEqual => truth(a != b),
        Function::Where => choose(a, b, c),
    }
}

#[inline(always)]
fn smaller<W: Real>(a: W, b: W) -> W {
    if a < b { a } else { b }
}

#[inline(always)]
fn larger<W: Real>(a: W, b: W) -> W {
    if a > b { a } else { b }
}

#[inline(always)]
fn choose<W: Real>(a: W, b: W, c: W) -> W {
    if a != W::ZERO { b } else { c }
}

struct Execute<'a, W> {
    operations: &'a [Operation],
    scalars: &'a [W],
    registers: &'a mut [Box<[W; BLOCK]>],
    spare: &'a mut Box<[W; BLOCK]>,
    scale: W,
    bound: W,
}

impl<W: Real> Loop for Execute<'_, W> {
    #[inline(always)]
    fn run(self) {
        let Execute { operations, scalars, registers, spare, scale, bound } = self;
        registers[1].iter_mut().for_each(|g| *g = (scale * *g).clipped(bound));
        let filled = |scalar: u16| [scalars[scalar as usize]; BLOCK];
        let mut scratch = [[W::ZERO; BLOCK]; 3];
        for operation in operations {
            // A scalar among registers is spread out first: a store per number, in the first-level cache.
            for (scratch, operand) in scratch.iter_mut().zip(operation.from) {
                if let Operand::Scalar(scalar) = operand {
                    *scratch = filled(scalar);
                }
            }
            let [a, b, c] = [0, 1, 2].map(|index| match operation.from[index] {
                Operand::Register(register) => &*registers[register as usize],
                Operand::Scalar(_) => &scratch[index],
            });
            match operation.function {
                Function::Negate => one(spare, a, |a| -a),
                Function::Abs => one(spare, a, W::magnitude),
                Function::Sqrt => one(spare, a, W::root),
                Function::Exp => one(spare, a, W::exp),
                Function::Log => one(spare, a, W::ln),
                Function::Sign => one(spare, a, W::sign),
                Function::Add => two(spare, a, b, |a, b| a + b),
                Function::Subtract => two(spare, a, b, |a, b| a - b),
                Function::Multiply => two(spare, a, b, |a, b| a * b),
                Function::Divide => two(spare, a, b, |a, b| a / b),
                Function::Min => two(spare, a, b, smaller),
                Function::Max => two(spare, a, b, larger),
                Function::Where => {
                    for (to, ((a, b), c)) in spare.iter_mut().zip(a.iter().zip(b).zip(c)) {
                        *to = choose(*a, *b, *c);
                    }
                }
                comparison => two(spare, a, b, |a, b| compute(comparison, [a, b, b])),
            }
            std::mem::swap(spare, &mut registers[operation.to as usize]);
        }
    }
}

#[inline(always)]
fn one<W: Real>(to: &mut [W; BLOCK], a: &[W; BLOCK], function: impl Fn(W) -> W) {
    for (to, a) in to.iter_mut().zip(a) {
        *to = function(*a);
    }
}

#[inline(always)]
fn two<W: Real>(to: &mut [W; BLOCK], a: &[W; BLOCK], b: &[W; BLOCK], function: impl Fn(W, W) -> W) {
    for (to, (a, b)) in to.iter_mut().zip(a.iter().zip(b)) {
        *to = function(*a, *b);
    }
}

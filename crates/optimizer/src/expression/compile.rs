//! From trees to operations on registers, with every name looked up and every cap kept.
//!
//! What is the same for all numbers of a step (numbers, parameters, lr, wd, t, and what is computed from them) is a *scalar*, computed once per step. All
//! else lives in registers of [`BLOCK`](super::BLOCK) numbers; a register is free again after the last operation that reads it.

use std::collections::BTreeMap;

use super::parse::{FUNCTIONS, Function, Statement, Tree, parse};
use super::{ExpressionError, MAX_OPERATIONS, MAX_REGISTERS, MAX_STATES};

/// Where an operand comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operand {
    Scalar(u16),
    Register(u16),
}

/// `to = function(operands)`; those that a function does not have repeat the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Operation {
    pub(super) function: Function,
    pub(super) to: u16,
    pub(super) from: [Operand; 3],
}

/// How a scalar comes about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Scalar {
    Number(f64),
    LearningRate,
    WeightDecay,
    Count,
    Computed { function: Function, from: [u16; 3] },
}

/// A checked update, ready to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    pub(super) scalars: Vec<Scalar>,
    pub(super) operations: Vec<Operation>,
    /// Registers: w, g, the states, then what is computed.
    pub(super) registers: usize,
    states: Vec<String>,
    /// What w and the states are afterwards.
    pub(super) results: Vec<Operand>,
}

impl Program {
    /// Reads and checks a text; `parameters` are names for numbers.
    ///
    /// # Errors
    /// What is wrong and where.
    pub fn parse(text: &str, parameters: &BTreeMap<String, f64>) -> Result<Program, ExpressionError> {
        let statements = parse(text)?;
        let mut compiler = Compiler::new(text, parameters)?;
        compiler.find_states(&statements)?;
        for statement in &statements {
            compiler.statement(statement)?;
        }
        compiler.finish()
    }

    /// The names of what is kept from one update to the next, in the order in which they are first read.
    pub fn states(&self) -> impl Iterator<Item = &str> {
        self.states.iter().map(String::as_str)
    }
}

/// Names that have a meaning of their own.
const OWN: [&str; 5] = ["w", "g", "lr", "wd", "t"];

struct Compiler<'a> {
    source: &'a str,
    parameters: &'a BTreeMap<String, f64>,
    scalars: Vec<Scalar>,
    operations: Vec<Operation>,
    states: Vec<&'a str>,
    /// What each name is at this point.
    names: BTreeMap<&'a str, Operand>,
}

impl<'a> Compiler<'a> {
    fn new(source: &'a str, parameters: &'a BTreeMap<String, f64>) -> Result<Compiler<'a>, ExpressionError> {
        for (name, number) in parameters {
            let taken = OWN.contains(&name.as_str()) || FUNCTIONS.contains(&name.as_str());
            let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            if taken || !is_name {
                let why = if taken { "has a meaning of its own" } else { "is no name" };
                return Err(ExpressionError::new(source, 0, format!("a parameter cannot be called `{}`: that {why}", name.escape_debug())));
            }
            if !number.is_finite() {
                return Err(ExpressionError::new(source, 0, format!("parameter `{name}` is {number}, must be finite")));
            }
        }
        let mut compiler =
            Compiler { source, parameters, scalars: Vec::new(), operations: Vec::new(), states: Vec::new(), names: BTreeMap::new() };
        compiler.names.insert("w", Operand::Register(0));
        compiler.names.insert("g", Operand::Register(1));
        Ok(compiler)
    }

    fn refuse<T>(&self, at: usize, what: impl Into<String>) -> Result<T, ExpressionError> {
        Err(ExpressionError::new(self.source, at, what))
    }

    /// States are read before they are written; every other name must be written before it is read.
    fn find_states(&mut self, statements: &[Statement<'a>]) -> Result<(), ExpressionError> {
        let mut written: Vec<&str> = Vec::new();
        for statement in statements {
            let mut read = Vec::new();
            names_in(&statement.value, &mut read);
            for (name, at) in read {
                let known =
                    OWN.contains(&name) || self.parameters.contains_key(name) || written.contains(&name) || self.states.contains(&name);
                if known {
                    continue;
                }
                if !statements.iter().any(|statement| statement.name == name) {
                    let what = format!("nothing is called `{name}`; there are w, g, lr, wd, t, parameters, and names assigned before");
                    return self.refuse(at, what);
                }
                if self.states.len() == MAX_STATES {
                    return self.refuse(at, format!("`{name}` is one state too many, at most {MAX_STATES} are allowed"));
                }
                self.states.push(name);
            }
            let name = statement.name;
            if name != "w" && (OWN.contains(&name) || self.parameters.contains_key(name)) {
                return self.refuse(statement.at, format!("`{name}` can only be read"));
            }
            if FUNCTIONS.contains(&name) {
                return self.refuse(statement.at, format!("`{name}` is a function"));
            }
            written.push(name);
        }
        if !written.contains(&"w") {
            return self.refuse(0, "nothing is assigned to w, so this update would change nothing");
        }
        for (index, state) in self.states.iter().enumerate() {
            self.names.insert(state, Operand::Register(2 + index as u16));
        }
        Ok(())
    }

    fn statement(&mut self, statement: &Statement<'a>) -> Result<(), ExpressionError> {
        let value = self.tree(&statement.value, statement.at)?;
        self.names.insert(statement.name, value);
        Ok(())
    }

    fn tree(&mut self, tree: &Tree<'a>, at: usize) -> Result<Operand, ExpressionError> {
        Ok(match tree {
            Tree::Number(number) => self.scalar(Scalar::Number(*number), at)?,
            Tree::Name("lr", at) => self.scalar(Scalar::LearningRate, *at)?,
            Tree::Name("wd", at) => self.scalar(Scalar::WeightDecay, *at)?,
            Tree::Name("t", at) => self.scalar(Scalar::Count, *at)?,
            Tree::Name(name, at) => match (self.names.get(name), self.parameters.get(*name)) {
                (Some(operand), _) => *operand,
                (None, Some(number)) => self.scalar(Scalar::Number(*number), *at)?,
                (None, None) => return self.refuse(*at, format!("nothing is called `{name}`")),
            },
            Tree::Call(function, arguments) => {
                let mut from = [Operand::Scalar(0); 3];
                for (operand, argument) in from.iter_mut().zip(arguments) {
                    *operand = self.tree(argument, at)?;
                }
                let first = from[0];
                from[arguments.len()..].fill(first);
                match from {
                    [Operand::Scalar(a), Operand::Scalar(b), Operand::Scalar(c)] => {
                        self.scalar(Scalar::Computed { function: *function, from: [a, b, c] }, at)?
                    }
                    _ => self.operation(*function, from, at)?,
                }
            }
        })
    }

    fn scalar(&mut self, scalar: Scalar, at: usize) -> Result<Operand, ExpressionError> {
        // Bits tell numbers apart, so that 0 and −0 stay two.
        let same = |known: &Scalar| match (known, &scalar) {
            (Scalar::Number(a), Scalar::Number(b)) => a.to_bits() == b.to_bits(),
            (known, scalar) => known == scalar,
        };
        let index = match self.scalars.iter().position(same) {
            Some(index) => index,
            None if self.scalars.len() == MAX_OPERATIONS => return self.too_long(at),
            None => {
                self.scalars.push(scalar);
                self.scalars.len() - 1
            }
        };
        Ok(Operand::Scalar(index as u16))
    }

    /// For now each operation has a register of its own; `finish` shares them.
    fn operation(&mut self, function: Function, from: [Operand; 3], at: usize) -> Result<Operand, ExpressionError> {
        if self.operations.len() == MAX_OPERATIONS {
            return self.too_long(at);
        }
        let to = self.inputs() + self.operations.len() as u16;
        self.operations.push(Operation { function, to, from });
        Ok(Operand::Register(to))
    }

    fn too_long<T>(&self, at: usize) -> Result<T, ExpressionError> {
        self.refuse(at, format!("more than {MAX_OPERATIONS} operations"))
    }

    /// Registers that hold something before the first operation: w, g and the states.
    fn inputs(&self) -> u16 {
        2 + self.states.len() as u16
    }

    fn finish(mut self) -> Result<Program, ExpressionError> {
        let changed = ["w"].into_iter().chain(self.states.iter().copied());
        let mut results: Vec<Operand> = changed.map(|name| self.names[name]).collect();
        let inputs = self.inputs() as usize;
        // The last operation that reads each register; what is a result is read after all of them.
        let mut last_read = vec![0; inputs + self.operations.len()];
        for (index, operation) in self.operations.iter().enumerate() {
            for operand in operation.from {
                if let Operand::Register(register) = operand {
                    last_read[register as usize] = index;
                }
            }
        }
        for operand in &results {
            if let Operand::Register(register) = operand {
                last_read[*register as usize] = usize::MAX;
            }
        }
        let mut home: Vec<u16> = (0..inputs as u16).collect();
        let mut free: Vec<u16> = Vec::new();
        let mut registers = inputs;
        for (index, operation) in self.operations.iter_mut().enumerate() {
            let mut ended: Vec<u16> = Vec::new();
            for operand in &mut operation.from {
                if let Operand::Register(register) = operand {
                    let moved = home[*register as usize];
                    if last_read[*register as usize] == index && !ended.contains(&moved) {
                        ended.push(moved);
                    }
                    *register = moved;
                }
            }
            // The result is written elsewhere and swapped in, so it may take the place of what it was computed from.
            free.append(&mut ended);
            operation.to = free.pop().unwrap_or_else(|| {
                registers += 1;
                registers as u16 - 1
            });
            if registers > MAX_REGISTERS {
                return Err(ExpressionError::new(self.source, 0, format!("more than {MAX_REGISTERS} values are needed at the same time")));
            }
            home.push(operation.to);
            // What nothing reads is overwritten at once.
            if last_read[inputs + index] == 0 {
                free.push(operation.to);
            }
        }
        for operand in &mut results {
            if let Operand::Register(register) = operand {
                *register = home[*register as usize];
            }
        }
        let states = self.states.iter().map(|name| (*name).to_owned()).collect();
        Ok(Program { scalars: self.scalars, operations: self.operations, registers, states, results })
    }
}

fn names_in<'a>(tree: &Tree<'a>, found: &mut Vec<(&'a str, usize)>) {
    match tree {
        Tree::Number(_) => {}
        Tree::Name(name, at) => found.push((name, *at)),
        Tree::Call(_, arguments) => arguments.iter().for_each(|argument| names_in(argument, found)),
    }
}

//! From words to trees. Names are not looked up yet.

use super::token::{Placed, Token, tokens};
use super::{ExpressionError, MAX_DEPTH, MAX_OPERATIONS};

/// `name = value`, with the operator of `+=` and its like already inside of the value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Statement<'a> {
    pub(super) name: &'a str,
    pub(super) at: usize,
    pub(super) value: Tree<'a>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Tree<'a> {
    Number(f64),
    Name(&'a str, usize),
    /// A function of one, two or three arguments.
    Call(Function, Vec<Tree<'a>>),
}

/// Everything that computes, operators included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Negate,
    Abs,
    Sqrt,
    Exp,
    Log,
    Sign,
    Add,
    Subtract,
    Multiply,
    Divide,
    Min,
    Max,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    NotEqual,
    Where,
}

pub(super) fn parse(source: &str) -> Result<Vec<Statement<'_>>, ExpressionError> {
    let tokens = tokens(source)?;
    let mut parser = Parser { source, tokens: &tokens, next: 0, depth: 0, calls: 0 };
    let mut statements = Vec::new();
    loop {
        while parser.take(";") {}
        if parser.peek().0 == Token::End {
            break;
        }
        statements.push(parser.statement()?);
        if parser.peek().0 != Token::End && !parser.take(";") {
            return parser.unexpected("`;` or the end");
        }
    }
    if statements.is_empty() {
        return Err(ExpressionError::new(source, 0, "the text is empty; an update assigns to w"));
    }
    Ok(statements)
}

struct Parser<'a, 't> {
    source: &'a str,
    tokens: &'t [Placed<'a>],
    next: usize,
    depth: usize,
    /// How many operations there are so far: no tree is deeper than that.
    calls: usize,
}

impl<'a> Parser<'a, '_> {
    fn peek(&self) -> Placed<'a> {
        self.tokens[self.next]
    }

    /// Steps over a sign if it is the next token.
    fn take(&mut self, sign: &str) -> bool {
        let found = matches!(self.peek().0, Token::Sign(next) if next == sign);
        self.next += usize::from(found);
        found
    }

    fn take_any<T: Copy>(&mut self, signs: &[(&str, T)]) -> Option<T> {
        signs.iter().find(|(sign, _)| self.take(sign)).map(|(_, meaning)| *meaning)
    }

    fn calling(&mut self, function: Function, arguments: Vec<Tree<'a>>) -> Result<Tree<'a>, ExpressionError> {
        self.calls += 1;
        if self.calls > MAX_OPERATIONS {
            return Err(ExpressionError::new(self.source, self.peek().1, format!("more than {MAX_OPERATIONS} operations")));
        }
        Ok(Tree::Call(function, arguments))
    }

    fn unexpected<T>(&self, wanted: &str) -> Result<T, ExpressionError> {
        let (token, at) = self.peek();
        let found = match token {
            Token::Number(number) => format!("`{number}`"),
            Token::Name(name) => format!("`{name}`"),
            Token::Sign(sign) => format!("`{sign}`"),
            Token::End => "the end".to_owned(),
        };
        Err(ExpressionError::new(self.source, at, format!("{wanted} should stand here, not {found}")))
    }

    fn statement(&mut self) -> Result<Statement<'a>, ExpressionError> {
        let (Token::Name(name), at) = self.peek() else { return self.unexpected("a name to assign to") };
        self.next += 1;
        let changes = [("+=", Function::Add), ("-=", Function::Subtract), ("*=", Function::Multiply), ("/=", Function::Divide)];
        let change = self.take_any(&changes);
        if change.is_none() && !self.take("=") {
            return self.unexpected("`=`");
        }
        let value = self.expression()?;
        let value = match change {
            Some(function) => self.calling(function, vec![Tree::Name(name, at), value])?,
            None => value,
        };
        Ok(Statement { name, at, value })
    }

    fn expression(&mut self) -> Result<Tree<'a>, ExpressionError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(ExpressionError::new(self.source, self.peek().1, format!("more than {MAX_DEPTH} levels inside of each other")));
        }
        let left = self.sum()?;
        let comparisons = [
            ("<=", Function::LessOrEqual),
            (">=", Function::GreaterOrEqual),
            ("==", Function::Equal),
            ("!=", Function::NotEqual),
            ("<", Function::Less),
            (">", Function::Greater),
        ];
        let tree = match self.take_any(&comparisons) {
            Some(comparison) => {
                let right = self.sum()?;
                self.calling(comparison, vec![left, right])?
            }
            None => left,
        };
        self.depth -= 1;
        Ok(tree)
    }

    fn sum(&mut self) -> Result<Tree<'a>, ExpressionError> {
        let mut left = self.term()?;
        while let Some(function) = self.take_any(&[("+", Function::Add), ("-", Function::Subtract)]) {
            let right = self.term()?;
            left = self.calling(function, vec![left, right])?;
        }
        Ok(left)
    }

    fn term(&mut self) -> Result<Tree<'a>, ExpressionError> {
        let mut left = self.factor()?;
        while let Some(function) = self.take_any(&[("*", Function::Multiply), ("/", Function::Divide)]) {
            let right = self.factor()?;
            left = self.calling(function, vec![left, right])?;
        }
        Ok(left)
    }

    fn factor(&mut self) -> Result<Tree<'a>, ExpressionError> {
        // Signs in a row are a loop, not a recursion: only parentheses are limited.
        let mut negative = false;
        while self.take("-") {
            negative = !negative;
        }
        let tree = self.operand()?;
        Ok(match tree {
            tree if !negative => tree,
            Tree::Number(number) => Tree::Number(-number),
            tree => self.calling(Function::Negate, vec![tree])?,
        })
    }

    fn operand(&mut self) -> Result<Tree<'a>, ExpressionError> {
        let (token, at) = self.peek();
        match token {
            Token::Number(number) => {
                self.next += 1;
                Ok(Tree::Number(number))
            }
            Token::Name(name) => {
                self.next += 1;
                if self.take("(") { self.call(name, at) } else { Ok(Tree::Name(name, at)) }
            }
            Token::Sign("(") => {
                self.next += 1;
                let inner = self.expression()?;
                if self.take(")") { Ok(inner) } else { self.unexpected("`)`") }
            }
            _ => self.unexpected("a number, a name or `(`"),
        }
    }

    fn call(&mut self, name: &'a str, at: usize) -> Result<Tree<'a>, ExpressionError> {
        let mut arguments = Vec::new();
        if !self.take(")") {
            loop {
                arguments.push(self.expression()?);
                if self.take(")") {
                    break;
                }
                if !self.take(",") {
                    return self.unexpected("`,` or `)`");
                }
            }
        }
        let refuse = |what: String| Err(ExpressionError::new(self.source, at, what));
        let (function, wanted) = match name {
            "abs" => (Function::Abs, 1),
            "sqrt" => (Function::Sqrt, 1),
            "exp" => (Function::Exp, 1),
            "log" => (Function::Log, 1),
            "sign" => (Function::Sign, 1),
            "min" => (Function::Min, 2),
            "max" => (Function::Max, 2),
            "where" => (Function::Where, 3),
            "clip" => (Function::Max, 3),
            _ => return refuse(format!("no function is called `{name}`; there are abs, sqrt, exp, log, sign, min, max, where, clip")),
        };
        if arguments.len() != wanted {
            return refuse(format!("`{name}` takes {wanted} arguments, not {}", arguments.len()));
        }
        if name == "clip" {
            let (high, low) = (arguments.pop().expect("three"), arguments.pop().expect("two"));
            let limited = self.calling(Function::Min, vec![high, arguments.pop().expect("one")])?;
            return self.calling(Function::Max, vec![low, limited]);
        }
        self.calling(function, arguments)
    }
}

/// The names that functions have, which therefore nothing else may have.
pub(super) const FUNCTIONS: [&str; 9] = ["abs", "sqrt", "exp", "log", "sign", "min", "max", "where", "clip"];

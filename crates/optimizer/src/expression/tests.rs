//! Programs against a naive evaluation of the same trees, number by number; and what is refused, with the place.

use std::collections::BTreeMap;

use proptest::prelude::*;
use syncline_tensor::DType;
use syncline_tensor::kernels::SimdLevel;

use super::parse::{Tree, parse};
use super::run::compute;
use super::{MAX_TEXT, Program};
use crate::rules::Common;
use crate::walk::Numbers;

const COMMON: Common = Common { lr: 0.1, wd: 0.01, rescale: 1.0, clip: f64::INFINITY, count: 3 };

fn parameters() -> BTreeMap<String, f64> {
    BTreeMap::from([("beta".to_owned(), 0.9), ("eps".to_owned(), 1e-3)])
}

/// Walks the tree for one number.
fn value(tree: &Tree<'_>, names: &BTreeMap<String, f64>) -> f64 {
    match tree {
        Tree::Number(number) => *number,
        Tree::Name(name, _) => names[*name],
        Tree::Call(function, arguments) => {
            let arguments: Vec<f64> = arguments.iter().map(|argument| value(argument, names)).collect();
            let at = |index: usize| arguments.get(index).copied().unwrap_or(arguments[0]);
            compute(*function, [at(0), at(1), at(2)])
        }
    }
}

/// The update of one number, statement by statement.
fn naive(text: &str, states: &[String], w: f64, g: f64, kept: &mut [f64]) -> f64 {
    let mut names: BTreeMap<String, f64> = parameters();
    let own = [("w", w), ("g", g), ("lr", COMMON.lr), ("wd", COMMON.wd), ("t", COMMON.count as f64)];
    names.extend(own.map(|(name, number)| (name.to_owned(), number)));
    names.extend(states.iter().cloned().zip(kept.iter().copied()));
    for statement in parse(text).unwrap() {
        let value = value(&statement.value, &names);
        names.insert(statement.name.to_owned(), value);
    }
    for (kept, state) in kept.iter_mut().zip(states) {
        *kept = names[state];
    }
    names["w"]
}

fn compare(text: &str, count: usize) {
    let program = Program::parse(text, &parameters()).unwrap();
    let states: Vec<String> = program.states().map(str::to_owned).collect();
    let number = |i: usize, salt: usize| ((i * 7919 + salt * 104_729) % 2003) as f64 / 500.0 - 2.0;
    let weights: Vec<f64> = (0..count).map(|i| number(i, 1)).collect();
    let grads: Vec<f64> = (0..count).map(|i| number(i, 2)).collect();
    let lanes: Vec<Vec<f64>> = (0..states.len()).map(|lane| (0..count).map(|i| number(i, 3 + lane)).collect()).collect();
    for level in SimdLevel::available() {
        let (mut found, mut found_lanes) = (weights.clone(), lanes.clone());
        let mut slices: Vec<&mut [u8]> = found_lanes.iter_mut().map(|lane| bytemuck::cast_slice_mut(lane)).collect();
        let numbers = Numbers {
            dtype: DType::F64,
            weight: bytemuck::cast_slice_mut(&mut found),
            grad_dtype: DType::F64,
            grad: bytemuck::cast_slice(&grads),
            master: None,
            states: &mut slices,
        };
        program.run::<f64>(level, &COMMON, numbers).unwrap();
        for i in 0..count {
            let mut kept: Vec<f64> = lanes.iter().map(|lane| lane[i]).collect();
            let wanted = naive(text, &states, weights[i], grads[i], &mut kept);
            let same = |a: f64, b: f64| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
            assert!(same(found[i], wanted), "{text}: number {i} is {}, should be {wanted} at {level}", found[i]);
            for (lane, kept) in found_lanes.iter().zip(kept) {
                assert!(same(lane[i], kept), "{text}: a state of number {i} is {}, should be {kept}", lane[i]);
            }
        }
    }
}

#[test]
fn programs_equal_their_naive_evaluation() {
    for text in [
        "w -= lr * (g + wd*w)",
        "m = beta*m + g; w -= lr * (m + wd * w)",
        "m = beta*m + (1-beta)*g; v = 0.99*v + 0.01*g*g; w -= lr*m/(sqrt(v)+eps)",
        "h = where(g > 0, g, -g); w = where(h >= 1.5, w - lr*sign(g), w)",
        "w = clip(w - g, -1, 1)",
        "x = exp(min(g, 1)); y = log(abs(w) + 1); w = x / (x + y) - -max(w, y)",
        "w = 3",
        "old = w; w = previous; previous = old",
        "a = b; b = c; c = a; w += a == b; w *= (a != c) + (a <= 1) + (b < 0)",
        "w = -(-w) - - - g",
        "w = t * lr / 2 * w\nw /= 1 + eps",
        "unused = g * g; w = w",
    ] {
        for count in [0, 1, 255, 256, 257, 1000] {
            compare(text, count);
        }
    }
}

#[test]
fn what_is_wrong_is_shown_where_it_is() {
    let error = |text: &str| Program::parse(text, &parameters()).unwrap_err();
    for (text, column, what) in [
        ("", 1, "empty"),
        ("w = ", 5, "a number, a name or `(` should stand here, not the end"),
        ("w = g $ 2", 7, "`$` has no meaning here"),
        ("w = (g", 7, "`)` should stand here"),
        ("w = g)", 6, "`;` or the end should stand here, not `)`"),
        ("w + 1", 3, "`=` should stand here, not `+`"),
        ("3 = w", 1, "a name to assign to should stand here"),
        ("w = foo", 5, "nothing is called `foo`"),
        ("w = tanh(g)", 5, "no function is called `tanh`"),
        ("w = min(g)", 5, "`min` takes 2 arguments, not 1"),
        ("w = w; g = 1", 8, "`g` can only be read"),
        ("lr = 1; w = g", 1, "`lr` can only be read"),
        ("beta = 1; w = g", 1, "`beta` can only be read"),
        ("min = 1; w = g", 1, "`min` is a function"),
        ("m = g", 1, "nothing is assigned to w"),
        ("w = 1e999", 5, "too large"),
        ("w = a+b+c+d+e+f+h+i+j; a=g;b=g;c=g;d=g;e=g;f=g;h=g;i=g;j=g", 21, "one state too many"),
    ] {
        let error = error(text);
        assert!(error.what.contains(what), "{text}: {error}");
        assert_eq!(error.column, column, "{text}: {error}");
        let caret = error.to_string().lines().last().unwrap().find('^').unwrap();
        assert_eq!(caret, 2 + column - 1, "{error}");
    }
    let on_line_two = error("m = g\nw = mm");
    assert_eq!((on_line_two.line, on_line_two.column, on_line_two.text.as_str()), (2, 5, "w = mm"));
}

#[test]
fn nothing_is_longer_or_deeper_than_its_cap() {
    let refused = |text: &str, what: &str| {
        let error = Program::parse(text, &parameters()).unwrap_err();
        assert!(error.what.contains(what), "{error}");
    };
    refused(&format!("w = {}g{}", "(".repeat(65), ")".repeat(65)), "levels inside of each other");
    refused(&format!("w = g{}", " + g".repeat(300)), "more than 256 operations");
    refused(&"w".repeat(MAX_TEXT + 1), "at most 4096");
    let many: String = (0..70).map(|i| format!("v{i} = g*{i};")).collect();
    let all: String = (0..70).map(|i| format!("+v{i}")).collect();
    refused(&format!("{many} w = g{all}"), "values are needed at the same time");
    assert!(Program::parse(&format!("w = {}g", "-".repeat(3000)), &parameters()).is_ok());
    for name in ["w", "min", "a b", "", "ä"] {
        assert!(Program::parse("w = g", &BTreeMap::from([(name.to_owned(), 1.0)])).is_err(), "{name}");
    }
}

#[test]
fn registers_are_shared() {
    let long = format!("w = g{}", " * w + g".repeat(40));
    let program = Program::parse(&long, &parameters()).unwrap();
    assert!(program.registers <= 4, "{}", program.registers);
}

/// A text that the grammar allows, from a stream of choices.
fn text_from(choices: &[u8]) -> String {
    fn operand(choices: &mut impl Iterator<Item = u8>, depth: u8) -> String {
        let leaf = |choice: u8| ["w", "g", "lr", "t", "m", "v", "beta", "0.5", "2", "x"][choice as usize % 10].to_owned();
        let Some(choice) = choices.next() else { return "g".to_owned() };
        if depth == 0 {
            return leaf(choice);
        }
        let mut inner = || operand(choices, depth - 1);
        match choice % 14 {
            0 => format!("({} + {})", inner(), inner()),
            1 => format!("({} - {})", inner(), inner()),
            2 => format!("{} * {}", inner(), inner()),
            3 => format!("({}) / ({})", inner(), inner()),
            4 => format!("-{}", inner()),
            5 => format!("min({}, {})", inner(), inner()),
            6 => format!("max({}, {})", inner(), inner()),
            7 => format!("where({} < {}, {}, {})", inner(), inner(), inner(), inner()),
            8 => format!("sqrt(abs({}))", inner()),
            9 => format!("exp(clip({}, -3, 3))", inner()),
            10 => format!("log(1 + abs({}))", inner()),
            11 => format!("sign({})", inner()),
            _ => leaf(choice),
        }
    }
    let mut choices = choices.iter().copied();
    let mut expression = || operand(&mut choices, 3);
    format!(
        "x = g; m = {}; w -= {}; v = {}; x = {}; w += {}; m += {}",
        expression(),
        expression(),
        expression(),
        expression(),
        expression(),
        expression()
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_program_equals_its_naive_evaluation(choices in prop::collection::vec(any::<u8>(), 0..120), count in 0usize..300) {
        let text = text_from(&choices);
        if Program::parse(&text, &parameters()).is_ok() {
            compare(&text, count);
        }
    }

    #[test]
    fn any_text_is_a_program_or_an_error_that_can_be_shown(text in "[wgm01.+*/()<=;, \n-]{0,80}|\\PC{0,40}") {
        match Program::parse(&text, &parameters()) {
            Ok(program) => prop_assert!(program.states().count() <= 8),
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }
}

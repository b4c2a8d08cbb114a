//! From characters to words.

use super::{ExpressionError, MAX_TEXT};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Token<'a> {
    Number(f64),
    Name(&'a str),
    /// An operator or a punctuation mark.
    Sign(&'static str),
    End,
}

/// A token and the byte it begins at.
pub(super) type Placed<'a> = (Token<'a>, usize);

const SIGNS: [&str; 20] = ["+=", "-=", "*=", "/=", "<=", ">=", "==", "!=", "+", "-", "*", "/", "<", ">", "=", "(", ")", ",", ";", "\n"];

/// All tokens of a text, [`Token::End`] last. A line ends a statement as a semicolon does.
pub(super) fn tokens(source: &str) -> Result<Vec<Placed<'_>>, ExpressionError> {
    if source.len() > MAX_TEXT {
        return Err(ExpressionError::new(source, MAX_TEXT, format!("the text has {} bytes, at most {MAX_TEXT} are allowed", source.len())));
    }
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(first) = source[at..].chars().next() {
        let rest = &source[at..];
        if first != '\n' && first.is_whitespace() {
            at += first.len_utf8();
        } else if first.is_ascii_digit() || (first == '.' && rest[1..].starts_with(|c: char| c.is_ascii_digit())) {
            let length = number_length(rest);
            let number: f64 =
                rest[..length].parse().map_err(|_| ExpressionError::new(source, at, format!("`{}` is no number", &rest[..length])))?;
            if !number.is_finite() {
                return Err(ExpressionError::new(source, at, format!("`{}` is too large", &rest[..length])));
            }
            tokens.push((Token::Number(number), at));
            at += length;
        } else if first.is_ascii_alphabetic() || first == '_' {
            let length = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            tokens.push((Token::Name(&rest[..length]), at));
            at += length;
        } else if let Some(sign) = SIGNS.into_iter().find(|sign| rest.starts_with(sign)) {
            tokens.push((Token::Sign(if sign == "\n" { ";" } else { sign }), at));
            at += sign.len();
        } else {
            return Err(ExpressionError::new(source, at, format!("`{}` has no meaning here", first.escape_debug())));
        }
    }
    tokens.push((Token::End, source.len()));
    Ok(tokens)
}

/// Digits, a fraction, an exponent.
fn number_length(text: &str) -> usize {
    let digits = |from: usize| text[from..].bytes().take_while(u8::is_ascii_digit).count();
    let mut length = digits(0);
    if text[length..].starts_with('.') {
        length += 1;
        length += digits(length);
    }
    if text[length..].starts_with(['e', 'E']) {
        let sign = usize::from(text[length + 1..].starts_with(['+', '-']));
        let exponent = digits(length + 1 + sign);
        if exponent > 0 {
            length += 1 + sign + exponent;
        }
    }
    length
}

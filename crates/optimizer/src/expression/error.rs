//! What is wrong with a text, and where: the message ends with the line and a caret under the column.

/// Why a text is no update.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}\n{}", self.shown())]
pub struct ExpressionError {
    /// In words.
    pub what: String,
    /// The line it is in, counted from 1.
    pub line: usize,
    /// The column it begins at, counted in characters from 1.
    pub column: usize,
    /// The text of that line.
    pub text: String,
}

impl ExpressionError {
    /// At byte `at` of `source`.
    pub(super) fn new(source: &str, at: usize, what: impl Into<String>) -> ExpressionError {
        let before = source.get(..at).unwrap_or(source);
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let text = source[start..].lines().next().unwrap_or_default();
        ExpressionError {
            what: what.into(),
            line: before.matches('\n').count() + 1,
            column: before[start..].chars().count() + 1,
            text: text.to_owned(),
        }
    }

    /// The line, cut around the column if it is long, and the caret.
    fn shown(&self) -> String {
        const AROUND: usize = 60;
        let skipped = (self.column - 1).saturating_sub(AROUND);
        let part: String = self.text.chars().skip(skipped).take(2 * AROUND).map(|c| if c.is_control() { ' ' } else { c }).collect();
        format!("  {part}\n  {}^", " ".repeat(self.column - 1 - skipped))
    }
}

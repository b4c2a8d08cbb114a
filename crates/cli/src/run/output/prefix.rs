//! The `[rank 3] ` before each line, and whether it is coloured.

use anstyle::{AnsiColor, Style};

use crate::run::options::ColorChoice;

/// Told apart on dark and on light backgrounds; neither black nor white, and red is left to errors.
const COLOURS: [AnsiColor; 10] = [
    AnsiColor::Cyan,
    AnsiColor::Green,
    AnsiColor::Yellow,
    AnsiColor::Magenta,
    AnsiColor::Blue,
    AnsiColor::BrightCyan,
    AnsiColor::BrightGreen,
    AnsiColor::BrightYellow,
    AnsiColor::BrightMagenta,
    AnsiColor::BrightBlue,
];

/// How prefixes look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::run) enum Prefixes {
    None,
    Plain,
    /// Coloured on a terminal.
    Auto,
    Coloured,
}

impl Prefixes {
    pub(in crate::run) fn chosen(no_prefix: bool, color: ColorChoice) -> Prefixes {
        let filled = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        match color {
            _ if no_prefix => Prefixes::None,
            ColorChoice::Always => Prefixes::Coloured,
            ColorChoice::Never => Prefixes::Plain,
            ColorChoice::Auto if filled("NO_COLOR") || filled("CI") => Prefixes::Plain,
            ColorChoice::Auto => Prefixes::Auto,
        }
    }

    pub(super) fn of(self, rank: u32, on_terminal: bool) -> Vec<u8> {
        match self {
            Prefixes::None => String::new(),
            Prefixes::Auto if on_terminal => coloured(rank),
            Prefixes::Coloured => coloured(rank),
            Prefixes::Plain | Prefixes::Auto => format!("[rank {rank}] "),
        }
        .into_bytes()
    }
}

fn coloured(rank: u32) -> String {
    let style = Style::new().fg_color(Some(COLOURS[rank as usize % COLOURS.len()].into()));
    format!("{style}[rank {rank}]{style:#} ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_is_for_terminals_unless_asked_for() {
        let plain = b"[rank 1] ".to_vec();
        let green = b"\x1b[32m[rank 1]\x1b[0m ".to_vec();
        assert_eq!(Prefixes::Auto.of(1, false), plain);
        assert_eq!(Prefixes::Auto.of(1, true), green);
        assert_eq!(Prefixes::Plain.of(1, true), plain);
        assert_eq!(Prefixes::Coloured.of(1, false), green);
        assert_eq!(Prefixes::None.of(1, true), b"");
    }
}

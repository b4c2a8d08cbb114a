//! Plans as text: a line per position, its steps from left to right.

use std::fmt;

use super::{Deed, Load, Plan, Then};

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} in {}", self.title, counted(self.pieces, "piece"))?;
        let width = self.ranks.saturating_sub(1).to_string().len();
        for (position, steps) in self.steps.iter().enumerate() {
            let steps: Vec<String> =
                steps.iter().map(|deeds| deeds.iter().map(|deed| self.deed(deed)).collect::<Vec<_>>().join(" & ")).collect();
            let steps = if steps.is_empty() { "nothing to do".into() } else { steps.join("; ") };
            writeln!(f, "{position:>width$}: {steps}")?;
        }
        Ok(())
    }
}

impl Plan {
    fn deed(&self, deed: &Deed) -> String {
        match deed {
            Deed::Send { to, load } => format!("→{to}{}", self.load(load)),
            Deed::Receive { from, load, then } => {
                let then = match then {
                    Then::Replace => "take",
                    Then::FoldLeft => "fold before mine",
                    Then::FoldRight => "fold",
                    Then::Hold => "hold",
                };
                format!("←{from}{} {then}", self.load(load))
            }
            Deed::Fold(pieces) => format!("fold all{}", self.pieces_text(pieces)),
        }
    }

    fn load(&self, load: &Load) -> String {
        let whose = match load {
            Load::Pieces { .. } => String::new(),
            Load::Contributions { first, count: 1, .. } => format!(" of {first}"),
            Load::Contributions { first, count, .. } => format!(" of {first}…{}", (first + count - 1) % self.ranks),
        };
        format!("{}{whose}", self.pieces_text(load.pieces()))
    }

    fn pieces_text(&self, pieces: &std::ops::Range<usize>) -> String {
        match pieces.len() {
            _ if self.pieces == 1 => String::new(),
            1 => format!(" [{}]", pieces.start),
            _ => format!(" [{}…{}]", pieces.start, pieces.end - 1),
        }
    }
}

fn counted(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

//! Measured figures in steps of two, so that noise seldom changes a choice and ranks can hold the very same numbers.
//!
//! What ranks measure differs from run to run and from link to link. A choice that followed every digit would flip with the
//! weather; two ranks that choose differently would wait for each other for ever. So figures are rounded to powers of two,
//! travel as two bytes, and the slower of two grades is what holds for both: a maximum of whole numbers, the same everywhere.

use super::cost::Figures;

/// What is known of one link or of several, as exponents of two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grades {
    /// A step takes 2^alpha nanoseconds.
    pub alpha: u8,
    /// A byte takes 2^beta picoseconds.
    pub beta: u8,
}

/// More than an hour for a step, or a second for a byte: no link is slower.
const SLOWEST: u8 = 42;

impl Grades {
    /// The nearest grades.
    pub fn of(figures: Figures) -> Grades {
        // A logarithm of nothing is minus infinity, one of nonsense no number; both become 0.
        let exponent = |units: f64| units.log2().round().clamp(0.0, f64::from(SLOWEST)) as u8;
        Grades { alpha: exponent(figures.alpha * 1e9), beta: exponent(figures.beta * 1e12) }
    }

    /// The slower of two in each respect.
    #[must_use]
    pub fn slower(self, other: Grades) -> Grades {
        Grades { alpha: self.alpha.max(other.alpha), beta: self.beta.max(other.beta) }
    }

    /// As the model wants them.
    pub fn figures(self) -> Figures {
        let power = |exponent: u8| (1u64 << exponent.min(SLOWEST)) as f64;
        Figures { alpha: power(self.alpha) / 1e9, beta: power(self.beta) / 1e12 }
    }

    /// As they travel.
    pub fn to_bytes(self) -> [u8; 2] {
        [self.alpha, self.beta]
    }

    /// What came; none if no rank says such a thing.
    pub fn from_bytes(bytes: &[u8]) -> Option<Grades> {
        match *bytes {
            [alpha, beta] if alpha.max(beta) <= SLOWEST => Some(Grades { alpha, beta }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_within_a_step_of_what_was_measured_and_stay_there() {
        for figures in [Figures::TCP, Figures::MEMORY, Figures { alpha: 0.2, beta: 1e-6 }] {
            let graded = Grades::of(figures).figures();
            for (rounded, exact) in [(graded.alpha, figures.alpha), (graded.beta, figures.beta)] {
                assert!((0.70..1.42).contains(&(rounded / exact)), "{rounded} for {exact}");
            }
            assert_eq!(Grades::of(graded).figures(), graded);
        }
    }

    #[test]
    fn noise_is_rounded_away() {
        let grades = Grades::of(Figures { alpha: 33e-6, beta: 0.5e-9 });
        for noise in [0.75, 0.9, 1.1, 1.35] {
            assert_eq!(Grades::of(Figures { alpha: 33e-6 * noise, beta: 0.5e-9 * noise }), grades);
        }
    }

    #[test]
    fn nonsense_is_a_grade_too_and_strange_bytes_are_none() {
        for nonsense in [0.0, -1.0, f64::NAN] {
            assert_eq!(Grades::of(Figures { alpha: nonsense, beta: nonsense }), Grades::default());
        }
        let slowest = Grades::of(Figures { alpha: f64::INFINITY, beta: f64::INFINITY });
        assert!(slowest.figures().alpha.is_finite());
        assert_eq!(Grades::from_bytes(&slowest.to_bytes()), Some(slowest));
        assert_eq!(Grades::from_bytes(&[SLOWEST + 1, 0]), None);
        assert_eq!(Grades::from_bytes(&[0]), None);
    }

    #[test]
    fn the_slowest_wins_in_each_respect() {
        let (far, thin) = (Grades { alpha: 20, beta: 7 }, Grades { alpha: 14, beta: 13 });
        assert_eq!(far.slower(thin), Grades { alpha: 20, beta: 13 });
        assert_eq!(thin.slower(far), far.slower(thin));
    }
}

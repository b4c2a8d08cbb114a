//! What can be wrong with a quantizer, its buffers or the bytes it is asked to decode.

/// Why a quantizer refused; nothing was written.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum QuantizeError {
    /// A parameter makes no sense.
    #[error("{quantizer}: {parameter} is {value}, must be {must}")]
    Parameter {
        /// Which code.
        quantizer: &'static str,
        /// Which of its parameters.
        parameter: &'static str,
        /// What it was.
        value: f32,
        /// What it must be.
        must: &'static str,
    },
    /// The residual belongs to another gradient.
    #[error("the gradient has {gradient} numbers, its residual {residual}")]
    Residual {
        /// Numbers of the gradient.
        gradient: usize,
        /// Numbers of the residual.
        residual: usize,
    },
    /// The bytes are too few or too many.
    #[error("{quantizer}: {numbers} numbers take {expected} bytes, not {found}")]
    Bytes {
        /// Which code.
        quantizer: &'static str,
        /// How many numbers there are.
        numbers: usize,
        /// How many bytes they take.
        expected: usize,
        /// How many there are.
        found: usize,
    },
    /// No encoder writes such bytes.
    #[error("{quantizer}: byte {at} is no part of a code: {why}")]
    Malformed {
        /// Which code.
        quantizer: &'static str,
        /// Where the offending field begins.
        at: usize,
        /// What is wrong with it.
        why: &'static str,
    },
}

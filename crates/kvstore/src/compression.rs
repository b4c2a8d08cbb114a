//! Gradients in few bits: which code, and what it has not said yet.
//!
//! Each sender keeps a residual per key: what the code could not say of a gradient is said with the next ones (error feedback).

use std::sync::{Mutex, MutexGuard, PoisonError};

use syncline_cluster::Error;
use syncline_tensor::DType;
use syncline_tensor::kernels::quantize::{Decode, Quantizer};

use crate::gradient::Gradient;
use crate::value::KeySpec;

/// How the pushes of a store are made smaller, and whether its pulls are too.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compression {
    /// The code.
    pub quantizer: Quantizer,
    /// Whether values that are pulled travel in this code as well: `fp16`, `bf16` and `int8` only.
    pub pulls: bool,
}

impl Compression {
    /// From the words that users write: `type` (`2bit 1bit fp16 bf16 int8 topk`), `threshold` [0.5] for bits, `ratio` [0.01] for `topk`, and
    /// `pull` [false]. Words that mean nothing are ignored, as MXNet ignores them, with a line of log.
    ///
    /// # Errors
    /// `Configuration` without a type, for one that is unknown, and for numbers that make no sense.
    ///
    /// ```
    /// use syncline_kvstore::Compression;
    ///
    /// let compression = Compression::from_words(&[("type", "2bit"), ("threshold", "0.25")])?;
    /// assert_eq!(compression.quantizer.name(), "2bit");
    /// assert!(Compression::from_words(&[("type", "3bit")]).is_err());
    /// # Ok::<(), syncline_cluster::Error>(())
    /// ```
    pub fn from_words(words: &[(&str, &str)]) -> Result<Compression, Error> {
        let find = |name: &str| words.iter().rev().find(|(word, _)| *word == name).map(|(_, value)| value.trim());
        let number = |name: &str, default: f32| match find(name).map(str::parse::<f32>) {
            None => Ok(default),
            Some(Ok(number)) => Ok(number),
            Some(Err(_)) => refused(format!("{name} is {:?}, must be a number", find(name).unwrap_or_default())),
        };
        for (word, value) in words.iter().filter(|(word, _)| !["type", "threshold", "ratio", "pull"].contains(word)) {
            tracing::warn!("set_gradient_compression: {word} = {value} means nothing to it");
        }
        let Some(name) = find("type") else { return refused("it needs a type: 2bit, 1bit, fp16, bf16, int8 or topk".into()) };
        let quantizer = match name.to_lowercase().as_str() {
            "2bit" => Quantizer::TwoBit { threshold: number("threshold", 0.5)? },
            "1bit" => Quantizer::OneBit { threshold: number("threshold", 0.5)? },
            "fp16" | "float16" => Quantizer::F16,
            "bf16" | "bfloat16" => Quantizer::BF16,
            "int8" => Quantizer::Int8,
            "topk" => Quantizer::TopK { ratio: number("ratio", 0.01)? },
            _ => return refused(format!("Unknown type for gradient compression {name}\nhint: 2bit, 1bit, fp16, bf16, int8 or topk")),
        };
        quantizer.check().or_else(|error| refused(error.to_string()))?;
        let pulls = match find("pull").map(str::to_lowercase).as_deref() {
            None | Some("0" | "false" | "none") => false,
            Some("1" | "true") => true,
            Some(other) => return refused(format!("pull is {other:?}, must be true or false")),
        };
        if pulls && !matches!(quantizer, Quantizer::F16 | Quantizer::BF16 | Quantizer::Int8) {
            return refused(format!("values cannot be pulled in {name}\nhint: fp16, bf16 and int8 keep what a weight needs"));
        }
        Ok(Compression { quantizer, pulls })
    }
}

fn refused<T>(detail: String) -> Result<T, Error> {
    Err(Error::Configuration { detail: format!("set_gradient_compression: {detail}") })
}

/// What the senders of one key have not said yet: one residual each, in order of device; a worker of a distributed store has one.
#[derive(Debug, Default)]
pub(crate) struct Residuals {
    held: Mutex<Vec<Vec<f32>>>,
}

impl Residuals {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Vec<Vec<f32>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the code says of `gradient` plus the residual of `sender`; the rest stays there.
    pub(crate) fn encode(&self, quantizer: Quantizer, spec: &KeySpec, sender: usize, gradient: &[u8]) -> Vec<u8> {
        let mut held = self.lock();
        let mut words = vec![0; quantizer.encoded_len(spec.elements())];
        let residual = residual_of(&mut held, spec, sender);
        with_numbers(gradient, |numbers| quantizer.encode(numbers, residual, &mut words)).expect("checked sizes and parameters");
        words
    }

    /// The same, turned back into numbers: what the others would see.
    pub(crate) fn through(&self, quantizer: Quantizer, spec: &KeySpec, sender: usize, gradient: &[u8]) -> Vec<f32> {
        let words = self.encode(quantizer, spec, sender, gradient);
        let mut numbers = vec![0.0f32; spec.elements()];
        quantizer.decode(&words, &mut numbers, Decode::Overwrite).expect("its own words");
        numbers
    }
}

fn residual_of<'r>(held: &'r mut Vec<Vec<f32>>, spec: &KeySpec, sender: usize) -> &'r mut [f32] {
    if held.len() <= sender {
        held.resize(sender + 1, Vec::new());
    }
    held[sender].resize(spec.elements(), 0.0);
    &mut held[sender]
}

/// Lends bytes, which may begin anywhere, as numbers.
fn with_numbers<T>(bytes: &[u8], body: impl FnOnce(&[f32]) -> T) -> T {
    match bytemuck::try_cast_slice(bytes) {
        Ok(numbers) => body(numbers),
        Err(_) => body(&bytemuck::pod_collect_to_vec::<u8, f32>(bytes)),
    }
}

/// Refuses what cannot be compressed, before anything changes.
pub(crate) fn check(operation: &str, spec: &KeySpec, gradients_are_dense: bool) -> Result<(), Error> {
    let refused = |what: String| Err(Error::Configuration { detail: format!("{operation}: key {}: {what}", spec.key) });
    if spec.dtype != DType::F32 {
        return refused(format!("gradient compression is for float32, not {}", spec.dtype));
    }
    if !gradients_are_dense {
        return refused("gradient compression is not for row-sparse values".into());
    }
    Ok(())
}

/// The sum of what each device's code says of its value.
pub(crate) fn sum_of_devices(quantizer: Quantizer, spec: &KeySpec, residuals: &Residuals, values: &[Gradient<'_>]) -> Vec<u8> {
    let mut total: Option<Vec<f32>> = None;
    for (device, value) in values.iter().enumerate() {
        let Gradient::Dense(bytes) = value else { continue };
        let said = residuals.through(quantizer, spec, device, bytes);
        match &mut total {
            None => total = Some(said),
            Some(total) => total.iter_mut().zip(said).for_each(|(sum, more)| *sum += more),
        }
    }
    bytemuck::cast_slice(&total.unwrap_or_else(|| vec![0.0; spec.elements()])).to_vec()
}

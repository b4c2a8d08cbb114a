//! An optimizer: what it is, what it keeps, how it travels, and how an update begins.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use syncline_tensor::DType;

use crate::expression::Program;
use crate::step::{Step, resolve};
use crate::{Key, Method, OptimizerError, Schedule};

/// What all optimizers have in common.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// The rate; absent, that of the schedule, or else the method's own. A rate that is given replaces the schedule's base rate.
    pub learning_rate: Option<f64>,
    /// Weight decay.
    pub wd: f64,
    /// What gradients are multiplied with first.
    pub rescale_grad: f64,
    /// Gradients are kept within plus and minus this.
    pub clip_gradient: Option<f64>,
    /// How the rate follows the number of updates.
    pub schedule: Option<Schedule>,
    /// Where update counts begin.
    pub begin_num_update: u64,
    /// Whether half weights have a master copy in f32.
    pub multi_precision: bool,
    /// The rate of a key, relative to the others'.
    pub lr_mult: BTreeMap<Key, f64>,
    /// The weight decay of a key, relative to the others'.
    pub wd_mult: BTreeMap<Key, f64>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            learning_rate: None,
            wd: 0.0,
            rescale_grad: 1.0,
            clip_gradient: None,
            schedule: None,
            begin_num_update: 0,
            multi_precision: false,
            lr_mult: BTreeMap::new(),
            wd_mult: BTreeMap::new(),
        }
    }
}

/// A method with its settings, checked: plain data that may travel.
#[derive(Clone, Debug)]
pub struct Optimizer {
    /// Which, with its own numbers.
    pub method: Method,
    /// What all have in common. Changing them here skips the checks of [`Optimizer::new`].
    pub settings: Settings,
    program: Option<Arc<Program>>,
}

impl PartialEq for Optimizer {
    fn eq(&self, other: &Optimizer) -> bool {
        (&self.method, &self.settings) == (&other.method, &other.settings)
    }
}

/// How far an optimizer has come over all keys: what schedules look at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The largest update count of any key.
    pub num_update: u64,
}

/// The few numbers that a key has beside its lanes. They belong into checkpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KeyState {
    /// Updates so far, counted from `begin_num_update`; absent before the first.
    pub count: Option<u64>,
    /// Nadam's product of momenta; absent before the first.
    pub m_schedule: Option<f64>,
    /// The rate of the last update, for the momentum correction of LARS.
    pub last_rate: Option<f64>,
}

/// What a lane holds before the first update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Zeros.
    Zeros,
    /// The weights, cast to the lane's dtype.
    Weights,
}

/// An array of the weight's size that an optimizer keeps beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane {
    /// As checkpoints call it.
    pub name: String,
    /// f32 or f64.
    pub dtype: DType,
    /// What it begins as.
    pub start: Start,
}

/// The type that weights of a dtype are computed in.
pub(crate) fn wide(optimizer: &'static str, dtype: DType) -> Result<DType, OptimizerError> {
    match dtype {
        DType::F32 | DType::F16 | DType::BF16 => Ok(DType::F32),
        DType::F64 => Ok(DType::F64),
        dtype => Err(OptimizerError::NeedsFloat { optimizer, dtype }),
    }
}

/// What an encoded optimizer may weigh.
const MESSAGE_MAX: usize = 1 << 20;
/// The first byte of a message.
const MESSAGE_VERSION: u8 = 1;

impl Optimizer {
    /// A method with settings.
    ///
    /// # Errors
    /// [`OptimizerError::BadOption`] for a number that makes no sense, [`OptimizerError::Expression`] for a formula that is none.
    pub fn new(method: Method, settings: Settings) -> Result<Optimizer, OptimizerError> {
        let refuse = |option: String, found: f64, must| {
            Err(OptimizerError::BadOption { optimizer: method.name(), option, found: found.to_string(), must })
        };
        if let Some((option, found, must)) = method.objection() {
            return refuse(option.to_owned(), found, must);
        }
        let rate = settings.learning_rate.unwrap_or(0.0);
        let clip = settings.clip_gradient.unwrap_or(1.0);
        let finite = [("learning_rate", rate), ("wd", settings.wd), ("rescale_grad", settings.rescale_grad)];
        if let Some((option, found)) = finite.into_iter().find(|(_, number)| !number.is_finite()) {
            return refuse(option.to_owned(), found, "finite");
        }
        if clip.is_nan() || clip <= 0.0 {
            return refuse("clip_gradient".to_owned(), clip, "above 0");
        }
        for (option, multipliers) in [("lr_mult", &settings.lr_mult), ("wd_mult", &settings.wd_mult)] {
            if let Some((key, number)) = multipliers.iter().find(|(_, number)| !number.is_finite()) {
                return refuse(format!("{option}[{key}]"), *number, "finite");
            }
        }
        if let Some(schedule) = &settings.schedule {
            schedule.check()?;
        }
        let program = match &method {
            Method::Custom { text, parameters } => Some(Arc::new(Program::parse(text, parameters)?)),
            _ => None,
        };
        Ok(Optimizer { method, settings, program })
    }

    /// The arrays that weights of this dtype need beside them, in the order in which steps want them.
    ///
    /// Lanes are of the type that the weight is computed in: f64 for f64, f32 for all others. With `multi_precision` a half weight has its master
    /// copy in front.
    ///
    /// # Errors
    /// [`OptimizerError::NeedsFloat`]
    pub fn lanes(&self, dtype: DType) -> Result<Vec<Lane>, OptimizerError> {
        let wide = wide(self.method.name(), dtype)?;
        let lane = |name: &str, start| Lane { name: name.to_owned(), dtype: wide, start };
        let zeros = |names: &[&str]| names.iter().map(|name| lane(name, Start::Zeros)).collect::<Vec<_>>();
        let with_momentum = |momentum: f64| if momentum != 0.0 { zeros(&["momentum"]) } else { Vec::new() };
        let mut lanes = if self.has_master(dtype) { vec![lane("master", Start::Weights)] } else { Vec::new() };
        lanes.extend(match &self.method {
            Method::Sgd { momentum, .. } | Method::Nag { momentum } | Method::Signum { momentum, .. } | Method::Lars { momentum, .. } => {
                with_momentum(*momentum)
            }
            Method::Dcasgd { momentum, .. } => {
                let mut lanes = vec![lane("previous", Start::Weights)];
                lanes.extend(with_momentum(*momentum));
                lanes
            }
            Method::Ftml { .. } => zeros(&["d", "v", "z"]),
            Method::Adam { .. } | Method::AdamW { .. } | Method::Nadam { .. } | Method::Lamb { .. } => zeros(&["mean", "var"]),
            Method::Adamax { .. } => zeros(&["mean", "largest"]),
            Method::AdaGrad { .. } => zeros(&["history"]),
            Method::RmsProp { centered: false, .. } => zeros(&["n"]),
            Method::RmsProp { centered: true, .. } => zeros(&["n", "g", "delta"]),
            Method::AdaDelta { .. } => zeros(&["acc_g", "acc_delta"]),
            Method::Ftrl { .. } => zeros(&["z", "n"]),
            Method::Test => zeros(&["weight"]),
            Method::Sgld { .. } => Vec::new(),
            Method::Custom { .. } => {
                self.program.iter().flat_map(|program| program.states()).map(|name| lane(name, Start::Zeros)).collect()
            }
        });
        Ok(lanes)
    }

    /// How many lanes there are without a master copy; every step asks, so nothing is made for the answer.
    pub(crate) fn states(&self) -> usize {
        let with_momentum = |momentum: f64| usize::from(momentum != 0.0);
        match &self.method {
            Method::Sgd { momentum, .. } | Method::Nag { momentum } | Method::Signum { momentum, .. } | Method::Lars { momentum, .. } => {
                with_momentum(*momentum)
            }
            Method::Dcasgd { momentum, .. } => 1 + with_momentum(*momentum),
            Method::Adam { .. } | Method::AdamW { .. } | Method::Nadam { .. } | Method::Lamb { .. } | Method::Adamax { .. } => 2,
            Method::AdaDelta { .. } | Method::Ftrl { .. } => 2,
            Method::AdaGrad { .. } | Method::RmsProp { centered: false, .. } | Method::Test => 1,
            Method::Ftml { .. } | Method::RmsProp { centered: true, .. } => 3,
            Method::Sgld { .. } => 0,
            Method::Custom { .. } => self.program.as_ref().map_or(0, |program| program.states().count()),
        }
    }

    /// Whether weights of this dtype are kept a second time, in f32.
    pub(crate) fn has_master(&self, dtype: DType) -> bool {
        self.settings.multi_precision && matches!(dtype, DType::F16 | DType::BF16)
    }

    /// Whether its steps follow norms of the whole array: then one that lives in several places cannot be stepped place by place.
    pub fn needs_norms(&self) -> bool {
        matches!(self.method, Method::Lamb { .. } | Method::Lars { .. })
    }

    /// Whether steps by several gradients are one step by their sum, but for rounding: what is neither decayed nor clipped nor remembered.
    pub fn adds_up(&self) -> bool {
        let Settings { wd, clip_gradient: None, schedule: None, .. } = self.settings else { return false };
        match self.method {
            Method::Sgd { momentum, .. } => momentum == 0.0 && wd == 0.0,
            Method::Test => true,
            _ => false,
        }
    }

    /// The rate that key updates have after so many of them, before multipliers.
    pub fn learning_rate(&self, updates: u64) -> f64 {
        match (&self.settings.schedule, self.settings.learning_rate) {
            (Some(schedule), None) => schedule.rate(updates),
            (Some(schedule), Some(base_lr)) => Schedule { base_lr, ..schedule.clone() }.rate(updates),
            (None, rate) => rate.unwrap_or(self.method.default_rate()),
        }
    }

    /// Changes the rate from now on.
    ///
    /// # Errors
    /// With a schedule the rate is its business; and it must be finite.
    pub fn set_learning_rate(&mut self, rate: f64) -> Result<(), OptimizerError> {
        let refuse = |must| {
            let option = "learning_rate".to_owned();
            Err(OptimizerError::BadOption { optimizer: self.method.name(), option, found: rate.to_string(), must })
        };
        if self.settings.schedule.is_some() {
            return refuse("left to the schedule of this optimizer");
        }
        if !rate.is_finite() {
            return refuse("finite");
        }
        self.settings.learning_rate = Some(rate);
        Ok(())
    }

    /// No weight decay for names that end neither in `_weight` nor in `_gamma`, unless they have a multiplier already: what MXNet's trainers do.
    pub fn spare_biases<'a>(&mut self, names: impl IntoIterator<Item = &'a str>) {
        let spared = names.into_iter().filter(|name| !name.ends_with("_weight") && !name.ends_with("_gamma"));
        for name in spared {
            self.settings.wd_mult.entry(Key::from(name)).or_insert(0.0);
        }
    }

    /// Counts an update of `key` and says what it will do. All blocks of the key then take this one [`Step`].
    pub fn begin(&self, key: &Key, progress: &mut Progress, state: &mut KeyState) -> Step {
        let count = state.count.unwrap_or(self.settings.begin_num_update).saturating_add(1);
        state.count = Some(count);
        progress.num_update = progress.num_update.max(count);
        let rate = self.learning_rate(progress.num_update);
        let lr = rate * self.settings.lr_mult.get(key).copied().unwrap_or(1.0);
        let wd = self.settings.wd * self.settings.wd_mult.get(key).copied().unwrap_or(1.0);
        let last_rate = state.last_rate.replace(rate).unwrap_or(rate);
        let momentum_change = if last_rate == 0.0 { 1.0 } else { rate / last_rate };
        resolve(self, key, count, (lr, wd), momentum_change, &mut state.m_schedule)
    }

    /// What a key's state is after so many updates by this optimizer alone, going on from an earlier such state: for whoever knows the count
    /// of an update but did not see the ones before.
    pub fn state_after(&self, updates: u64, earlier: KeyState) -> KeyState {
        let count = self.settings.begin_num_update.saturating_add(updates);
        if updates == 0 {
            return KeyState::default();
        }
        let from = earlier.count.filter(|earlier| *earlier <= count && *earlier >= self.settings.begin_num_update);
        let (from, product) = from.map_or((self.settings.begin_num_update, None), |from| (from, earlier.m_schedule));
        let m_schedule = match &self.method {
            Method::Nadam { beta1, schedule_decay, .. } => {
                let momentum = |t: u64| beta1 * (1.0 - 0.5 * 0.96f64.powf(t as f64 * schedule_decay));
                Some((from + 1..=count).fold(product.unwrap_or(1.0), |product, t| product * momentum(t)))
            }
            _ => None,
        };
        KeyState { count: Some(count), m_schedule, last_rate: Some(self.learning_rate(count)) }
    }

    pub(crate) fn program(&self) -> Option<Arc<Program>> {
        self.program.clone()
    }

    /// As bytes that any version of this library either understands or refuses.
    ///
    /// # Errors
    /// [`OptimizerError::Message`] when multipliers for very many keys make it larger than 1 MiB.
    ///
    /// ```
    /// use syncline_optimizer::Optimizer;
    ///
    /// let adam = Optimizer::create("adam", &[("wd", 0.01.into())])?;
    /// assert_eq!(Optimizer::decode(&adam.encode()?)?, adam);
    /// assert!(Optimizer::decode(&[9, 9, 9]).is_err());
    /// # Ok::<(), syncline_optimizer::OptimizerError>(())
    /// ```
    pub fn encode(&self) -> Result<Vec<u8>, OptimizerError> {
        let message = |why: String| OptimizerError::Message { why };
        let body = postcard::to_allocvec(&(&self.method, &self.settings)).map_err(|error| message(error.to_string()))?;
        if body.len() >= MESSAGE_MAX {
            return Err(message(format!("{} bytes, at most {MESSAGE_MAX}", body.len() + 1)));
        }
        Ok([&[MESSAGE_VERSION], body.as_slice()].concat())
    }

    /// From bytes that somebody sent: everything is checked, as by [`Optimizer::new`].
    ///
    /// # Errors
    /// [`OptimizerError::Message`] for bytes of another version or of none, and all that `new` refuses.
    pub fn decode(bytes: &[u8]) -> Result<Optimizer, OptimizerError> {
        let message = |why: String| OptimizerError::Message { why };
        if bytes.len() > MESSAGE_MAX {
            return Err(message(format!("{} bytes, at most {MESSAGE_MAX}", bytes.len())));
        }
        let Some((&MESSAGE_VERSION, body)) = bytes.split_first() else {
            return Err(message(format!("version {:?}, this library speaks {MESSAGE_VERSION}", bytes.first())));
        };
        let ((method, settings), rest) = postcard::take_from_bytes(body).map_err(|error| message(error.to_string()))?;
        if !rest.is_empty() {
            return Err(message(format!("{} bytes too many", rest.len())));
        }
        Optimizer::new(method, settings)
    }
}

//! What a session is told before it opens: the job it belongs to and how patient it is.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `SYNCLINE_TIMEOUT` | seconds to wait for somebody who neither comes nor dies | 30 |
//! | `SYNCLINE_TRANSPORT` | `auto`, `shm`, `unix` or `tcp` | auto |
//! | `SYNCLINE_ENCRYPT` | `off` sends traffic between hosts in the clear | on |
//! | `SYNCLINE_ON_PEER_LOSS` | `continue` lets the others go on when a worker dies | fail |
//! | `SYNCLINE_PLAN` | the plan of collective operations, whatever it costs | the cheapest |
//! | `SYNCLINE_INTERFACE` | offer only interfaces whose names begin so | all |
//! | `MXNET_KVSTORE_BIGARRAY_BOUND` | arrays of a key-value store with fewer numbers live whole with one server | 1000000 |
//!
//! The launcher's own variables are read in `syncline_cluster::bootstrap`.

use std::time::Duration;

use syncline_cluster::bootstrap::{self, Arguments, Environment, Launch};
use syncline_cluster::{OnPeerLoss, Role, Settings, TransportChoice};
use syncline_collective::{PlanName, PlanSettings};
use syncline_kvstore::Member;

use crate::Error;

/// How to open a [`Session`](crate::Session).
#[derive(Debug, Clone)]
pub struct Config {
    pub(crate) launch: Launch,
    pub(crate) settings: Settings,
    pub(crate) sync: bool,
    pub(crate) plan: PlanSettings,
    /// Arrays of a key-value store with fewer numbers live whole with one server.
    pub(crate) whole_below: u64,
}

impl Config {
    /// What this process's environment says.
    ///
    /// # Errors
    /// Variables that are half set or make no sense are an error that names them, never a silent world of one.
    pub fn from_env() -> Result<Config, Error> {
        Config::from_environment(&Environment::current(), &Arguments::default())
    }

    /// What `environment` says, with `arguments` winning over it.
    pub fn from_environment(environment: &Environment, arguments: &Arguments) -> Result<Config, Error> {
        let launch = bootstrap::find(environment, arguments).map_err(|error| Error::configuration(error.to_string()))?;
        Ok(Config {
            launch,
            settings: settings(environment)?,
            sync: false,
            plan: plan(environment)?,
            whole_below: whole_below(environment)?,
        })
    }

    /// Only the settings: timeout, transport, encryption, interfaces.
    pub fn settings_from_env() -> Result<Settings, Error> {
        settings(&Environment::current())
    }

    /// A world of one, whatever the environment says.
    pub fn solo() -> Config {
        let nothing = Environment::from_variables::<String, String>([]);
        let launch = bootstrap::find(&nothing, &Arguments::default()).expect("an empty environment is a world of one");
        Config { launch, settings: Settings::default(), sync: false, plan: PlanSettings::default(), whole_below: Member::WHOLE_BELOW }
    }

    /// A world of one with the settings of `environment`, for a job that its program describes itself.
    pub(crate) fn free_standing(environment: &Environment) -> Result<Config, Error> {
        Ok(Config { settings: settings(environment)?, plan: plan(environment)?, whole_below: whole_below(environment)?, ..Config::solo() })
    }

    /// How long to wait for somebody who neither comes nor dies.
    pub fn timeout(mut self, timeout: Duration) -> Config {
        self.settings.timeout = timeout;
        self
    }

    /// Whether tables are in sync mode unless they say otherwise; they are not without this.
    pub fn sync(mut self, sync: bool) -> Config {
        self.sync = sync;
        self
    }

    /// What may carry links.
    pub fn transport(mut self, choice: TransportChoice) -> Config {
        self.settings.transport = choice;
        self
    }

    /// What this process does in the job, whatever the environment says of it.
    pub fn role(mut self, role: Role) -> Config {
        self.launch.role = role;
        self
    }

    /// What the death of a worker means for the others: it takes all workers to go on, and dedicated servers do as they do.
    pub fn on_peer_loss(mut self, choice: OnPeerLoss) -> Config {
        self.settings.on_peer_loss = choice;
        self
    }

    /// Which plan collective operations go by; the cheapest without this.
    pub fn plan(mut self, plan: PlanSettings) -> Config {
        self.plan = plan;
        self
    }

    /// What the environment told about the job.
    pub fn launch(&self) -> &Launch {
        &self.launch
    }

    /// How this process would behave in it.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }
}

fn plan(environment: &Environment) -> Result<PlanSettings, Error> {
    let mut plan = PlanSettings::default();
    if let Some(text) = environment.get("SYNCLINE_PLAN") {
        plan.forced = Some(PlanName::parse(text).map_err(|error| Error::configuration(format!("SYNCLINE_PLAN={text}: {error}")))?);
    }
    Ok(plan)
}

fn whole_below(environment: &Environment) -> Result<u64, Error> {
    const NAME: &str = "MXNET_KVSTORE_BIGARRAY_BOUND";
    let Some(text) = environment.get(NAME) else { return Ok(Member::WHOLE_BELOW) };
    text.trim().parse().map_err(|_| Error::configuration(format!("{NAME}={text} is no number of elements")))
}

fn settings(environment: &Environment) -> Result<Settings, Error> {
    let mut settings = Settings::default();
    if let Some(text) = environment.get("SYNCLINE_TIMEOUT") {
        let seconds = text.trim().parse::<f64>().ok().filter(|seconds| *seconds > 0.0 && *seconds <= 1e7);
        let seconds = seconds.ok_or_else(|| Error::configuration(format!("SYNCLINE_TIMEOUT={text} is no number of seconds above 0")))?;
        settings.timeout = Duration::from_secs_f64(seconds);
    }
    if let Some(text) = environment.get("SYNCLINE_TRANSPORT") {
        settings.transport = text.parse().map_err(Error::configuration)?;
    }
    if let Some(text) = environment.get("SYNCLINE_ON_PEER_LOSS") {
        settings.on_peer_loss = text.parse().map_err(Error::configuration)?;
    }
    if let Some(text) = environment.get("SYNCLINE_ENCRYPT") {
        settings.encrypt = match text.trim().to_ascii_lowercase().as_str() {
            "on" | "1" | "true" | "yes" => true,
            "off" | "0" | "false" | "no" => false,
            _ => return Err(Error::configuration(format!("SYNCLINE_ENCRYPT={text} is neither on nor off"))),
        };
    }
    settings.interface = environment.get("SYNCLINE_INTERFACE").map(str::to_owned);
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Config, Error> {
        let environment = Environment::from_variables(pairs.iter().copied());
        Config::from_environment(&environment, &Arguments::default())
    }

    #[test]
    fn an_empty_environment_is_a_patient_world_of_one() {
        let config = read(&[]).expect("nothing is wrong with nothing");
        assert_eq!((config.launch.world, config.settings.timeout), (1, Duration::from_secs(30)));
    }

    #[test]
    fn nonsense_names_the_variable_and_its_value() {
        for (name, value) in [
            ("SYNCLINE_TIMEOUT", "soon"),
            ("SYNCLINE_TIMEOUT", "-1"),
            ("SYNCLINE_TRANSPORT", "pigeon"),
            ("SYNCLINE_ENCRYPT", "maybe"),
            ("SYNCLINE_ON_PEER_LOSS", "cry"),
            ("SYNCLINE_PLAN", "hope"),
            ("MXNET_KVSTORE_BIGARRAY_BOUND", "many"),
        ] {
            let error = read(&[(name, value)]).expect_err("refused").to_string();
            assert!(error.contains(name) && error.contains(value), "{error}");
        }
    }
}

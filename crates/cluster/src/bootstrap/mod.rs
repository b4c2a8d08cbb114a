//! Finds out which job this process belongs to: the environment goes in, a [`Launch`] comes out.
//!
//! ```
//! use syncline_cluster::bootstrap::{self, Arguments, Environment, Launcher};
//!
//! let environment = Environment::from_variables([
//!     ("SYNCLINE_RANK", "2"),
//!     ("SYNCLINE_WORLD_SIZE", "4"),
//!     ("SYNCLINE_RENDEZVOUS", "tcp://10.0.0.1:5000"),
//!     ("SYNCLINE_TOKEN", "a secret of this job"),
//! ]);
//! let launch = bootstrap::find(&environment, &Arguments::default())?;
//! assert_eq!((launch.launcher, launch.rank, launch.world), (Launcher::Explicit, Some(2), 4));
//! # Ok::<(), bootstrap::BootstrapError>(())
//! ```
//! Each launcher is one file with one function `detect`, and one line in `LAUNCHERS`. Detection is pure. What touches the system is
//! used later, by the meeting: [`TokenOrigin::resolve`], [`mod@file`], [`pmi`] and [`address`]. Variables and traps: the README beside this file.

pub mod address;
mod arguments;
mod derive;
mod environment;
mod error;
pub mod file;
mod invitation;
mod launch;
mod meeting;
pub mod pmi;
mod pmi_mapping;
mod private_file;
mod slurm_list;
mod token;
pub mod tree;
mod user_key;

mod dmlc;
mod explicit;
mod hydra;
mod kubernetes;
mod openmpi;
mod pmix;
mod slurm;
mod torchrun;

pub use arguments::Arguments;
pub use environment::{Ancestor, Environment};
pub use error::{BootstrapError, TokenError};
pub use invitation::{Invitation, InvitationError, LocalDoor};
pub use launch::{HostSpan, Launch, Launcher, Role};
pub use meeting::Meeting;
pub use token::{Token, TokenOrigin};

use explicit::Wishes;

/// One launcher's question: is this process mine?
type Detect = fn(&Environment) -> Option<Result<Launch, BootstrapError>>;

/// Who is asked, in this order. A set of variables that describes a launcher inside another one comes first.
const LAUNCHERS: [Detect; 8] =
    [explicit::detect, torchrun::detect, openmpi::detect, pmix::detect, hydra::detect, slurm::detect, dmlc::detect, kubernetes::detect];

/// Finds the job of this process: explicit arguments first, then the launchers in order, then a world of one.
///
/// Variables that are half set, contradict each other or are no numbers are errors: a process that was meant to be one of
/// many never runs alone by accident.
pub fn find(environment: &Environment, arguments: &Arguments) -> Result<Launch, BootstrapError> {
    let (mut launch, wishes) = match arguments.launch()? {
        // Who passes rank and world decides alone: an inherited SYNCLINE_RENDEZVOUS belongs to another world.
        Some(launch) => {
            let token = Wishes::read(environment)?.token;
            (launch, Wishes { token, ..Wishes::default() })
        }
        None => (find_launcher(environment)?, Wishes::read(environment)?),
    };
    if arguments.rank.is_none() {
        agree_on_world(&launch, "SYNCLINE_WORLD_SIZE", environment.number("SYNCLINE_WORLD_SIZE")?)?;
        agree_on_world(&launch, "the world argument", arguments.world)?;
    }
    if let Some(role) = arguments.role.or(wishes.role).filter(|_| launch.role != Role::Coordinator) {
        launch.role = role;
    }
    launch.local_rank = arguments.local_rank.or(launch.local_rank);
    launch.local_size = arguments.local_size.or(launch.local_size);
    if let Some(epoch) = arguments.epoch.or(wishes.epoch) {
        launch.epoch = epoch;
    }
    if let Some(meeting) = arguments.meeting.clone().or(wishes.meeting) {
        launch.meet_at(meeting);
    }
    launch.settle_hosts()?;
    launch.token = match arguments.token.clone().or(wishes.token) {
        Some(token) => TokenOrigin::Given(token),
        None => launch.token_origin(environment),
    };
    Ok(launch)
}

/// The launch that the environment's launcher describes, before anything given beside it counts.
fn find_launcher(environment: &Environment) -> Result<Launch, BootstrapError> {
    if let Some(found) = LAUNCHERS.iter().find_map(|detect| detect(environment)) {
        return found;
    }
    explicit::leftover(environment)?;
    torchrun::leftover(environment)?;
    let because = match slurm::not_a_step(environment) {
        Some(reason) => reason,
        None => "no launcher's variables are set".into(),
    };
    Ok(Launch::new(Launcher::Solo, 0, 1, because))
}

/// A size that was given beside a launcher's own must be the same.
fn agree_on_world(launch: &Launch, variable: &str, size: Option<u32>) -> Result<(), BootstrapError> {
    match size {
        Some(size) if size != launch.world => Err(BootstrapError::Contradiction {
            variable: variable.to_owned(),
            value: size.to_string(),
            other: format!("the world of {}", launch.launcher),
            other_value: launch.world.to_string(),
        }),
        _ => Ok(()),
    }
}

//! What the program itself says about the job; it goes before every variable.

use super::{BootstrapError, Launch, Launcher, Meeting, Role, Token};

/// Explicit arguments. Whatever is `None` is found in the environment.
///
/// `rank` and `world` belong together; the others may also be given on top of what a launcher says.
#[derive(Debug, Clone, Default)]
pub struct Arguments {
    /// This process's number.
    pub rank: Option<u32>,
    /// How many ranks there are.
    pub world: Option<u32>,
    /// This process's number on its host.
    pub local_rank: Option<u32>,
    /// How many ranks share this host.
    pub local_size: Option<u32>,
    /// What this process does.
    pub role: Option<Role>,
    /// Where to meet.
    pub meeting: Option<Meeting>,
    /// The job's secret.
    pub token: Option<Token>,
    /// Which life of the job this is.
    pub epoch: Option<u32>,
}

impl Arguments {
    /// A world of one, whatever the environment says.
    pub fn solo() -> Self {
        Arguments { rank: Some(0), world: Some(1), ..Arguments::default() }
    }

    /// The text form of a rendezvous, as `SYNCLINE_RENDEZVOUS` has it.
    pub fn rendezvous(mut self, text: &str) -> Result<Self, BootstrapError> {
        self.meeting = Some(text.parse()?);
        Ok(self)
    }

    /// The launch these arguments describe alone; `None` when they only add to what a launcher says.
    pub(super) fn launch(&self) -> Result<Option<Launch>, BootstrapError> {
        let Some(rank) = self.rank else {
            return Ok(None);
        };
        let half = |missing| BootstrapError::HalfSet { variable: "the rank argument".into(), value: rank.to_string(), missing };
        let world = self.world.ok_or(half("the world argument"))?;
        if rank >= world {
            return Err(BootstrapError::TooLarge {
                variable: "the rank argument".into(),
                value: rank,
                limit_variable: "the world argument".into(),
                limit: world,
            });
        }
        if world > 1 && self.meeting.is_none() {
            return Err(half("the rendezvous argument"));
        }
        let because = format!("the program passed rank {rank} of {world}");
        Ok(Some(Launch::new(Launcher::Arguments, rank, world, because)))
    }
}

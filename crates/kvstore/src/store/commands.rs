//! Commands to servers, by the numbers that MXNet gives them. Nothing that is sent is ever executed.

use syncline_cluster::{Deadline, Error};
use syncline_optimizer::Optimizer;

use super::KvStore;
use crate::compression::Compression;
use crate::memory::not_updating;

impl KvStore {
    /// Sends a command and returns what became of it, in words.
    ///
    /// | head | body | effect |
    /// |---|---|---|
    /// | 0 | an optimizer as [`Optimizer::encode`] writes it | [`set_optimizer`](Self::set_optimizer) |
    /// | 1 | | the optimizer keeps f32 copies of half weights, and its states begin anew |
    /// | 2 | | nothing: servers end with their job |
    /// | 3 | | nothing: the type of the store says whether it is synchronous |
    /// | 4 | `type,threshold`, for example `2bit,0.5` | [`set_gradient_compression`](Self::set_gradient_compression), for this worker |
    /// | 5 | | nothing: servers are not profiled |
    ///
    /// Any other number is answered and ignored.
    ///
    /// # Errors
    /// `Configuration` for a body that is not what the command needs; nothing has changed then.
    pub fn send_command_to_servers(&self, head: i64, body: &[u8], by: Deadline) -> Result<String, Error> {
        const WHAT: &str = "send_command_to_servers";
        not_updating(WHAT)?;
        let refused = |detail: String| Error::Configuration { detail: format!("{WHAT}({head}): {detail}") };
        Ok(match head {
            0 => {
                let optimizer = Optimizer::decode(body)
                    .map_err(|error| refused(format!("{error}\nhint: an optimizer travels as data, never as code")))?;
                let answer = format!("command 0: the optimizer is {}", optimizer.method.name());
                self.set_optimizer(optimizer, by)?;
                answer
            }
            1 => {
                let Some(mut optimizer) = self.optimizer(by)? else {
                    return Err(refused("there is no optimizer\nhint: call set_optimizer first".into()));
                };
                if !optimizer.settings.multi_precision {
                    optimizer.settings.multi_precision = true;
                    self.set_optimizer(optimizer, by)?;
                }
                "command 1: half weights have f32 copies".into()
            }
            2 => "command 2 ignored: servers end with their job".into(),
            3 => format!("command 3 ignored: a store of type {} is as synchronous as its type says", self.kind().name()),
            4 => {
                let text = std::str::from_utf8(body).map_err(|error| refused(error.to_string()))?;
                let (name, threshold) = text.split_once(',').unwrap_or((text, "0.5"));
                let compression = Compression::from_words(&[("type", name.trim()), ("threshold", threshold.trim())])?;
                self.set_gradient_compression(compression)?;
                format!("command 4: this worker pushes in {}", compression.quantizer.name())
            }
            5 => "command 5 ignored: servers are not profiled".into(),
            _ => format!("command {head} ignored: no server knows it; its {} bytes were not looked at", body.len()),
        })
    }
}

//! The words of the control link: one message a frame, and what each means for a member.

use std::fmt;

use syncline_shm::wait::Deadline;
use syncline_transport::{LinkError, OutFrame, RecvHalf, SendHalf};
use syncline_wire::message::{Blame, Control, DownCause};
use syncline_wire::{Kind, Limits, WireError};

use crate::fate::Fate;

/// Why a control message did not come or go.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ControlError {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("a malformed control message: {0}")]
    Malformed(#[from] WireError),
    #[error("a frame of kind {0:?} where a control message was due")]
    OtherKind(Kind),
}

pub(crate) fn send_control(sender: &mut dyn SendHalf, message: &Control, deadline: Deadline) -> Result<(), ControlError> {
    let meta = message.encode(&Limits::default())?;
    let frame = OutFrame { meta: &meta, ..OutFrame::new(Kind::CONTROL) };
    Ok(sender.send(&frame, deadline)?)
}

pub(crate) fn receive_control(receiver: &mut dyn RecvHalf, deadline: Deadline) -> Result<Control, ControlError> {
    let head = receiver.head(deadline)?;
    if head.header.kind != Kind::CONTROL {
        return Err(ControlError::OtherKind(head.header.kind));
    }
    receiver.skip_body(deadline)?;
    Ok(Control::decode(&head.meta, &Limits::default())?)
}

/// The fate that a `Down` message describes.
pub(crate) fn fate_of(cause: &DownCause, detail: &str, reported_by: Option<u32>, blames: Option<Blame>) -> Fate {
    let mut how = Sentence(cause).to_string();
    if !detail.is_empty() && !matches!(cause, DownCause::Disconnected) {
        how.push_str(": ");
        how.push_str(detail);
    }
    if let Some(reporter) = reported_by {
        how.push_str(&format!(" (reported by rank {reporter})"));
    }
    let silent = blames.map_or(matches!(cause, DownCause::Silent { .. }), |blame| blame.silent);
    let exact = !matches!(cause, DownCause::Disconnected);
    Fate { how, silent, blames: blames.map(|blame| blame.rank), exact, ended: false }
}

/// A cause as the rest of a sentence that begins with the rank.
struct Sentence<'a>(&'a DownCause);

impl fmt::Display for Sentence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            DownCause::Killed { signal } => write!(f, "was killed by signal {signal}{}", signal_name(*signal)),
            DownCause::Exited { code: 0 } => write!(f, "ended without leaving the job"),
            DownCause::Exited { code } => write!(f, "failed (exit code {code})"),
            DownCause::Disconnected => write!(f, "is gone, its connection closed"),
            DownCause::Silent { millis } => write!(f, "has been silent for {:.1} s", *millis as f64 / 1000.0),
        }
    }
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        1 => " (SIGHUP)",
        2 => " (SIGINT)",
        4 => " (SIGILL)",
        6 => " (SIGABRT)",
        7 => " (SIGBUS)",
        8 => " (SIGFPE)",
        9 => " (SIGKILL)",
        11 => " (SIGSEGV)",
        13 => " (SIGPIPE)",
        15 => " (SIGTERM)",
        _ => "",
    }
}

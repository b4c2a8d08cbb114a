//! The conversation on the control connection, from `Join` to `AllLeft`.

use serde::{Deserialize, Serialize};

use super::{MAX_NAME, MAX_ROSTER, MemberInfo, cap};
use crate::Limits;
use crate::codec::{decode_message, encode_message};
use crate::error::{Result, WireError};

/// The longest text meant for people (a reason, a detail), in bytes.
pub const MAX_TEXT: usize = 4096;
/// The most bytes a worker may add to a proposal.
pub const MAX_PROPOSAL: usize = 64 << 10;
/// The most bytes of a notice.
pub const MAX_NOTICE: usize = 1 << 20;

/// One message between a member and the coordinator.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Control {
    /// Member: let me in.
    Join {
        /// Who I am; the rank is open if the launcher gave none.
        member: MemberInfo<Option<u32>>,
        /// How many members I expect.
        world: u32,
        /// Which life of the job I was started for.
        epoch: u32,
        /// What started me (`syncline run`, `mpirun`, …), for the error that names a missing rank.
        started_by: String,
        /// For how long I wait for the others; `None` leaves it to the coordinator.
        patience_ms: Option<u64>,
    },
    /// Coordinator: everyone is here, this is who they are.
    Welcome {
        /// The rank you have from now on.
        rank: u32,
        /// The life of the job that begins.
        epoch: u32,
        /// The job's id.
        job: [u8; 16],
        /// After how long a silent member counts as lost.
        timeout_ms: u64,
        /// All members, by rank.
        roster: Vec<MemberInfo>,
    },
    /// Coordinator: you cannot join.
    Refused {
        /// Why, for people.
        reason: String,
    },
    /// Either: I am alive.
    Heartbeat {
        /// Counts up, so that a stuck sender can be told from a lost message.
        count: u64,
    },
    /// Either: a member is gone.
    Down {
        /// Which.
        rank: u32,
        /// How it went.
        cause: DownCause,
        /// More about it, for people.
        detail: String,
        /// Who noticed; `None` if the coordinator did itself.
        reported_by: Option<u32>,
        /// Whom it blamed before it went.
        blames: Option<Blame>,
        /// Where it ran, for people who do not know its roster yet; empty if it never came.
        host_name: String,
        /// Its process id; 0 if it never came.
        pid: u32,
    },
    /// Member: I am done and leave in good order.
    Leaving,
    /// Coordinator: a member left in good order.
    Left {
        /// Which.
        rank: u32,
    },
    /// Coordinator: everyone has left; the job is over.
    AllLeft,
    /// Member: an operation of mine failed because of this one. I may go on, but if I end, that is why.
    Blaming(Blame),
    /// Member: I fail, and the others should hear it from me.
    Abort {
        /// Who else is to blame, if anyone.
        blame: Option<Blame>,
        /// Why, for people.
        reason: String,
    },
    /// Coordinator: the world did not meet in time.
    StartTimeout {
        /// Those that came.
        arrived: Vec<MemberInfo>,
        /// Ranks that did not.
        missing: Vec<u32>,
        /// How each missing rank was expected to start, for people.
        text: String,
    },
    /// Coordinator: the process of a member that is gone has certainly ended; the launcher saw it.
    Ended {
        /// Which.
        rank: u32,
    },
    /// Worker: this is my n-th call that all workers must make alike.
    Propose {
        /// Which call.
        number: u64,
        /// What must be the same on all workers.
        fingerprint: [u8; 16],
        /// The call and where it was made, for people.
        call: Call,
        /// What the lowest worker's goes to all members.
        payload: Vec<u8>,
    },
    /// Coordinator: all workers have made the same call.
    Agreed {
        /// Which call.
        number: u64,
        /// The call in the words of the lowest worker.
        operation: String,
        /// What the lowest worker brought.
        payload: Vec<u8>,
    },
    /// Coordinator: two workers have made different calls.
    Disagreed {
        /// Which call.
        number: u64,
        /// The lowest worker and its call.
        one: (u32, Call),
        /// The first that differs from it.
        other: (u32, Call),
    },
    /// Worker: who has not made this call yet?
    AskMissing {
        /// Which call.
        number: u64,
    },
    /// Coordinator: these have not.
    Missing {
        /// Which call.
        number: u64,
        /// Who.
        ranks: Vec<u32>,
    },
    /// Member, before it joins: when a worker dies, I go on without it. Coordinator, before its welcome: all workers do.
    GoesOn,
    /// Member: all members should hear this.
    Post {
        /// Which of this member's notices.
        number: u64,
        /// What the layer above wants to say.
        payload: Vec<u8>,
    },
    /// Coordinator: a member posted this. All members, that one too, hear all notices in the same order.
    Posted {
        /// Who.
        from: u32,
        /// Which of its notices.
        number: u64,
        /// What it says.
        payload: Vec<u8>,
    },
    /// Member: what this notice asks for is done, or why not. The coordinator passes it on to who posted it.
    Answer {
        /// Who posted the notice; on its way back, who answers.
        rank: u32,
        /// Which of its notices.
        number: u64,
        /// Why not, for people; empty when it is done.
        refusal: String,
    },
}

/// A call as people know it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Call {
    /// What was called, for example `array of 10 float32`.
    pub operation: String,
    /// Where, for example `train.py:14`; may be empty.
    pub site: String,
}

/// Why a member failed: another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Blame {
    /// Which.
    pub rank: u32,
    /// It does not answer, as opposed to being gone.
    pub silent: bool,
}

/// How a member was lost.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum DownCause {
    /// A signal ended it.
    Killed {
        /// Which.
        signal: i32,
    },
    /// It ended by itself without leaving the job.
    Exited {
        /// With this code.
        code: i32,
    },
    /// Its connection closed, and nothing more is known.
    Disconnected,
    /// It stopped answering.
    Silent {
        /// For so long.
        millis: u64,
    },
}

impl Control {
    /// The bytes that travel, if every text and list is within its cap and the whole within `limits`.
    pub fn encode(&self, limits: &Limits) -> Result<Vec<u8>> {
        self.check()?;
        encode_message("control message", self, limits.max_meta as usize)
    }

    /// Reads a message from outside; what is returned has passed the same checks that `encode` makes.
    pub fn decode(bytes: &[u8], limits: &Limits) -> Result<Control> {
        let message: Control = decode_message("control message", bytes, limits.max_meta as usize)?;
        message.check()?;
        Ok(message)
    }

    /// The message's name, for logs.
    pub fn name(&self) -> &'static str {
        match self {
            Control::Join { .. } => "join",
            Control::Welcome { .. } => "welcome",
            Control::Refused { .. } => "refused",
            Control::Heartbeat { .. } => "heartbeat",
            Control::Down { .. } => "down",
            Control::Leaving => "leaving",
            Control::Left { .. } => "left",
            Control::AllLeft => "all left",
            Control::Blaming(_) => "blaming",
            Control::Abort { .. } => "abort",
            Control::StartTimeout { .. } => "start timeout",
            Control::Ended { .. } => "ended",
            Control::Propose { .. } => "propose",
            Control::Agreed { .. } => "agreed",
            Control::Disagreed { .. } => "disagreed",
            Control::AskMissing { .. } => "ask missing",
            Control::Missing { .. } => "missing",
            Control::GoesOn => "goes on",
            Control::Post { .. } => "post",
            Control::Posted { .. } => "posted",
            Control::Answer { .. } => "answer",
        }
    }

    fn check(&self) -> Result<()> {
        match self {
            Control::Join { member, world, epoch: _, started_by, patience_ms: _ } => {
                member.check()?;
                cap("name of a launcher", started_by.len(), MAX_NAME)?;
                check_world(*world)?;
                if member.rank.is_some_and(|rank| rank >= *world) {
                    return Err(WireError::Field { message: "join", field: "rank", cause: "is outside of its world" });
                }
                Ok(())
            }
            Control::Welcome { rank: _, epoch: _, job: _, timeout_ms: _, roster } => {
                cap("roster", roster.len(), MAX_ROSTER)?;
                roster.iter().try_for_each(MemberInfo::check)
            }
            Control::Refused { reason } | Control::Abort { reason, .. } => check_text(reason),
            Control::Down { detail, host_name, .. } => {
                cap("host name", host_name.len(), MAX_NAME)?;
                check_text(detail)
            }
            Control::StartTimeout { arrived, missing, text } => {
                cap("roster", arrived.len(), MAX_ROSTER)?;
                arrived.iter().try_for_each(MemberInfo::check)?;
                check_ranks(missing)?;
                check_text(text)
            }
            Control::Propose { number: _, fingerprint: _, call, payload } => {
                call.check()?;
                cap("payload of a proposal", payload.len(), MAX_PROPOSAL)
            }
            Control::Agreed { number: _, operation, payload } => {
                check_text(operation)?;
                cap("payload of a proposal", payload.len(), MAX_PROPOSAL)
            }
            Control::Disagreed { number: _, one, other } => {
                one.1.check()?;
                other.1.check()
            }
            Control::Missing { number: _, ranks } => check_ranks(ranks),
            Control::Post { number: _, payload } | Control::Posted { from: _, number: _, payload } => {
                cap("payload of a notice", payload.len(), MAX_NOTICE)
            }
            Control::Answer { rank: _, number: _, refusal } => check_text(refusal),
            Control::AskMissing { number: _ }
            | Control::Heartbeat { count: _ }
            | Control::GoesOn
            | Control::Leaving
            | Control::Left { rank: _ }
            | Control::AllLeft
            | Control::Blaming(_)
            | Control::Ended { rank: _ } => Ok(()),
        }
    }
}

impl Call {
    fn check(&self) -> Result<()> {
        check_text(&self.operation)?;
        check_text(&self.site)
    }
}

fn check_world(world: u32) -> Result<()> {
    cap("world", world as usize, MAX_ROSTER)?;
    if world == 0 {
        return Err(WireError::Field { message: "control message", field: "world", cause: "is empty" });
    }
    Ok(())
}

fn check_ranks(ranks: &[u32]) -> Result<()> {
    cap("list of ranks", ranks.len(), MAX_ROSTER)
}

fn check_text(text: &str) -> Result<()> {
    cap("text", text.len(), MAX_TEXT)
}

/// `text`, cut to [`MAX_TEXT`] bytes if it is longer, with an ellipsis in place of the rest.
///
/// For whoever reports an error: the report must not fail because the error was wordy.
/// ```
/// use syncline_wire::message::{MAX_TEXT, clip_text};
///
/// assert_eq!(clip_text("no route to host"), "no route to host");
/// assert!(clip_text("é".repeat(MAX_TEXT)).len() <= MAX_TEXT);
/// ```
pub fn clip_text(text: impl Into<String>) -> String {
    const ELLIPSIS: &str = "…";
    let mut text = text.into();
    if text.len() > MAX_TEXT {
        let mut end = MAX_TEXT - ELLIPSIS.len();
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push_str(ELLIPSIS);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{HostId, MAX_ADDRESSES, RoleCode};

    fn member(rank: u32) -> MemberInfo {
        MemberInfo {
            rank,
            role: RoleCode::Both,
            pid: 4242,
            pid_space: 4026531836,
            host: HostId { boot: [7; 16], network: 4_026_531_840 },
            host_name: "node-a".into(),
            unix_name: "syncline-4242".into(),
            addresses: vec!["10.0.0.1:4000".parse().unwrap(), "[fd00::1]:4000".parse().unwrap()],
            instance: [9; 16],
            local_rank_hint: Some(rank),
        }
    }

    fn join(member: MemberInfo<Option<u32>>) -> Control {
        Control::Join { member, world: 4, epoch: 1, started_by: "syncline run".into(), patience_ms: Some(30_000) }
    }

    /// Encodes without asking `check`, as a hostile peer would.
    fn unchecked(message: &Control) -> Vec<u8> {
        encode_message("control message", message, usize::MAX).unwrap()
    }

    #[track_caller]
    fn refused_on_both_sides(message: Control, why: WireError) {
        assert_eq!(message.encode(&Limits::default()), Err(why.clone()));
        assert_eq!(Control::decode(&unchecked(&message), &Limits::default()), Err(why));
    }

    #[test]
    fn a_join_without_a_rank_is_welcome_and_one_outside_its_world_is_not() {
        let open = join(member(0).with_rank(None));
        assert_eq!(Control::decode(&open.encode(&Limits::default()).unwrap(), &Limits::default()), Ok(open));
        refused_on_both_sides(
            join(member(0).with_rank(Some(4))),
            WireError::Field { message: "join", field: "rank", cause: "is outside of its world" },
        );
    }

    #[test]
    fn names_texts_and_lists_are_capped() {
        let long_name = MemberInfo { host_name: "x".repeat(MAX_NAME + 1), ..member(0) };
        refused_on_both_sides(join(long_name.with_rank(None)), WireError::TooLarge { part: "host name", len: 256, max: 255 });
        let many = MemberInfo { addresses: vec!["10.0.0.1:1".parse().unwrap(); MAX_ADDRESSES + 1], ..member(0) };
        refused_on_both_sides(
            Control::Welcome { rank: 0, epoch: 1, job: [0; 16], timeout_ms: 30_000, roster: vec![member(0), many] },
            WireError::TooLarge { part: "list of a member's addresses", len: 65, max: 64 },
        );
        refused_on_both_sides(
            Control::Abort { blame: Some(Blame { rank: 2, silent: true }), reason: "r".repeat(MAX_TEXT + 1) },
            WireError::TooLarge { part: "text", len: 4097, max: 4096 },
        );
        refused_on_both_sides(
            Control::StartTimeout { arrived: Vec::new(), missing: vec![0; MAX_ROSTER + 1], text: String::new() },
            WireError::TooLarge { part: "list of ranks", len: 65_537, max: 65_536 },
        );
    }

    #[test]
    fn proposals_are_capped() {
        let call = |operation: &str| Call { operation: operation.into(), site: "train.py:14".into() };
        let propose = |call, size| Control::Propose { number: 1, fingerprint: [1; 16], call, payload: vec![0; size] };
        assert!(propose(call("array"), MAX_PROPOSAL).encode(&Limits::default()).is_ok());
        refused_on_both_sides(
            propose(call("array"), MAX_PROPOSAL + 1),
            WireError::TooLarge { part: "payload of a proposal", len: 65_537, max: 65_536 },
        );
        refused_on_both_sides(propose(call(&"x".repeat(MAX_TEXT + 1)), 0), WireError::TooLarge { part: "text", len: 4097, max: 4096 });
        refused_on_both_sides(
            Control::Disagreed { number: 1, one: (0, call("a")), other: (1, call(&"x".repeat(MAX_TEXT + 1))) },
            WireError::TooLarge { part: "text", len: 4097, max: 4096 },
        );
    }

    #[test]
    fn a_world_of_none_or_of_millions_is_refused() {
        let with_world =
            |world| Control::Join { member: member(0).with_rank(None), world, epoch: 0, started_by: String::new(), patience_ms: None };
        refused_on_both_sides(with_world(0), WireError::Field { message: "control message", field: "world", cause: "is empty" });
        refused_on_both_sides(with_world(1 << 20), WireError::TooLarge { part: "world", len: 1 << 20, max: 65_536 });
    }

    #[test]
    fn an_unknown_role_is_refused() {
        let mut bytes = unchecked(&join(member(0).with_rank(None)));
        assert_eq!(bytes[..3], [0, 0, 3], "variant Join, no rank, role both");
        bytes[2] = 4;
        assert!(matches!(Control::decode(&bytes, &Limits::default()), Err(WireError::Message { message: "control message", .. })));
    }

    #[test]
    fn an_unknown_message_is_refused() {
        assert!(matches!(Control::decode(&[99], &Limits::default()), Err(WireError::Message { .. })));
        assert!(matches!(Control::decode(&[], &Limits::default()), Err(WireError::Message { .. })));
    }

    #[test]
    fn a_clipped_text_can_always_be_sent() {
        for text in ["a".repeat(MAX_TEXT), "a".repeat(MAX_TEXT + 1), "é".repeat(MAX_TEXT), "🦀".repeat(MAX_TEXT)] {
            let abort = Control::Abort { blame: None, reason: clip_text(text) };
            assert!(abort.encode(&Limits::default()).is_ok());
        }
    }
}

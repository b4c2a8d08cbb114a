//! Collectives of ranks on several hosts: inside each host first, then one leader per host.
//!
//! What is large goes between hosts once in each direction; see [`plan::hosts`](crate::plan::hosts) for the picture and the cost. Messages
//! that a user's function merges go along [`plan::host_tree`](crate::plan::host_tree), over links also inside a host. What has no use for leaders (gathers, scatters, exchanges of all with all) goes over links between all members, after the same roll
//! call; so do reductions in which the order shows where the hosts of the group interleave, because only the order of the group
//! gives the bits that every other way gives.

mod layout;
mod near;
#[cfg(test)]
mod suite;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use syncline_cluster::{Deadline, Error, Group, Vigil};
use syncline_tensor::DType;
use syncline_tensor::kernels::{ReduceOp, reduce_many_into};

use crate::call::{Call, Failure, What};
use crate::links::{Ledger, Mesh, Numbers, Refusal, Relay, finish};
use crate::plan::PlanSettings;
use crate::setback::Setback;
use layout::Layout;
pub(crate) use layout::by_host;

/// What travels between hosts at a time: one meeting inside a host.
const SEGMENT: usize = 512 << 10;
/// Segments that are between hosts while the next are collected.
const AHEAD: usize = 4;
/// How long a leader whose own members stayed away tries to tell the other leaders.
const LAST_WORDS: Duration = Duration::from_millis(300);
/// Contributions of a whole host up to this size go to all leaders, which fold them all.
const SMALL: usize = 16 << 10;

/// What ranks of one host do among themselves, the leader being the first. All of them make the same calls.
pub(crate) trait Neighbours {
    /// Returns how many contribute when all have come; calls that differ are `Agreed`.
    fn roll_call(&mut self, call: &Call<'_>) -> Result<u32, Failure>;
    /// Everybody's bytes, in order, for those who `want` them.
    fn gather(&mut self, call: &Call<'_>, mine: &[u8], want: bool) -> Result<Option<Vec<Vec<u8>>>, Failure>;
    /// Everybody's `array` becomes that of `root`.
    fn broadcast(&mut self, call: &Call<'_>, array: &mut [u8], root: usize) -> Result<(), Failure>;
    /// The message of `root`, of any length.
    fn broadcast_message(&mut self, call: &Call<'_>, message: &[u8], root: usize) -> Result<Vec<u8>, Failure>;
    /// The first cannot go on: whoever waits for it fails for the same reason.
    fn tell(&mut self, setback: &Setback);
}

/// A group whose members sit on several hosts.
pub(crate) struct Hosts<N> {
    layout: Layout,
    /// Those of this host; none where this rank is alone on it.
    here: Option<Group>,
    /// What joins them, from the first call on.
    near: Option<N>,
    /// The leaders, where this rank is one.
    leaders: Option<Mesh>,
}

impl<N: Neighbours> Hosts<N> {
    /// The members of `group`, of which those in one of `neighbourhoods` share memory. Nothing is opened yet.
    pub(crate) fn new(vigil: &Vigil, group: &Group, neighbourhoods: &[Vec<u32>], settings: &PlanSettings) -> Hosts<N> {
        let layout = Layout::of(group, neighbourhoods);
        let ranks = |positions: &[usize]| positions.iter().map(|position| group.ranks()[*position]).collect::<Vec<u32>>();
        let here = Group::new(ranks(&layout.hosts[layout.host]), vigil.me()).filter(|here| here.len() > 1);
        let leaders = Group::new(ranks(&layout.leaders()), vigil.me());
        let leaders = leaders.map(|leaders| Mesh::new(vigil.clone(), leaders, "leaders", settings.clone()).speaking_for(group.ranks()));
        Hosts { layout, here, near: None, leaders }
    }

    /// Whether `group` has use for leaders: it sits on several hosts, and not alone on each.
    pub(crate) fn suit(group: &Group, neighbourhoods: &[Vec<u32>]) -> bool {
        let layout = Layout::of(group, neighbourhoods);
        layout.hosts.len() > 1 && layout.largest() > 1
    }

    /// Has `join` make what joins the members on this host, before the first call.
    pub(crate) fn settle(&mut self, join: impl FnOnce(&Group) -> Result<N, Error>) -> Result<(), Error> {
        if let (None, Some(here)) = (&self.near, &self.here) {
            self.near = Some(join(here)?);
        }
        Ok(())
    }

    /// Where the traffic between leaders is counted, where this rank is one.
    pub(crate) fn ledger(&self) -> Option<Arc<Ledger>> {
        self.leaders.as_ref().map(Mesh::ledger)
    }

    /// Whether host by host is not the order of the group, and `what` would show it.
    pub(crate) fn would_shuffle(&self, what: &What<'_>) -> bool {
        self.layout.interleaved && what.shows_order()
    }

    /// The links between all members, for what has no use for leaders, once all have come to `call`.
    pub(crate) fn then_links<'a>(&mut self, call: &Call<'_>, links: &'a mut Mesh) -> Result<&'a mut Mesh, Failure> {
        self.roll_call(call)?;
        Ok(links)
    }

    /// Returns how many contribute when all members have come. An error is the same on all.
    pub(crate) fn roll_call(&mut self, call: &Call<'_>) -> Result<u32, Failure> {
        let heard = match &mut self.near {
            Some(near) => match near.roll_call(call) {
                Ok(contributors) => Ok(contributors),
                Err(Failure::Agreed(error)) => Err(error),
                Err(Failure::Astray(error)) => {
                    let error = self.tell_leaders(call, error);
                    return Err(cut_off(&mut self.leaders, Failure::Astray(error)));
                }
            },
            None => Ok(u32::from(call.contributes)),
        };
        let mut verdict = None;
        if let Some(leaders) = &mut self.leaders {
            let (count, refusal) = match heard {
                Ok(count) => (count, None),
                Err(error) => (0, Some(Refusal::of(&error))),
            };
            verdict = Some(leaders.agree(call, count, refusal, &[]));
        }
        let Some(near) = &mut self.near else { return verdict.expect("who is alone leads") };
        let words = match verdict {
            Some(Err(Failure::Astray(error))) => return Err(failed_among_leaders(near, error)),
            Some(Err(Failure::Agreed(error))) => Refusal::of(&error).encode(),
            Some(Ok(count)) => count.to_le_bytes().to_vec(),
            None => Vec::new(),
        };
        // The calls may differ here, and that is what the message is about; its own number tells nobody anything.
        let told = Call { number: 0, what: What::Verdict { name: call.what.name() }, ..*call };
        let words = near.broadcast_message(&told, &words, 0).map_err(|failure| match failure {
            Failure::Agreed(error) => Failure::Agreed(call.renamed(error)),
            Failure::Astray(error) => Failure::Astray(call.renamed(error)),
        })?;
        match words[..] {
            [a, b, c, d] => Ok(u32::from_le_bytes([a, b, c, d])),
            _ => Err(Failure::Agreed(Refusal::decode(&words).into_error(&call.operation()))),
        }
    }

    /// Members of this host stayed away: the other hosts wait for them too, and are told.
    fn tell_leaders(&mut self, call: &Call<'_>, error: Error) -> Error {
        if let (Some(leaders), Some(setback)) = (&mut self.leaders, Setback::of(&error))
            && let Some(missing) = setback.missing()
        {
            let last = Call { by: Deadline::after(LAST_WORDS), ..*call };
            // Whether they hear it or not, this rank's own error stands.
            let _ = leaders.agree(&last, 0, None, missing);
        }
        error
    }

    /// Combines `array` over all members, in place; returns how many contribute.
    pub(crate) fn all_reduce(&mut self, array: &mut [u8], dtype: DType, op: ReduceOp, call: &Call<'_>) -> Result<u32, Failure> {
        let contributors = self.roll_call(call)?;
        self.reduce_more(call, contributors, array, dtype, op)?;
        Ok(contributors)
    }

    /// Combines one more array in the same call, after the roll call.
    pub(crate) fn reduce_more(
        &mut self,
        call: &Call<'_>,
        contributors: u32,
        array: &mut [u8],
        dtype: DType,
        op: ReduceOp,
    ) -> Result<(), Failure> {
        if array.len() * self.layout.largest() <= SMALL {
            self.all_reduce_small(array, dtype, op, call)?;
        } else {
            self.all_reduce_large(array, Numbers { dtype, op }, call)?;
        }
        finish(array, dtype, op, contributors);
        Ok(())
    }

    /// Combines `array` over all members into the array of `root`.
    pub(crate) fn reduce(&mut self, array: &mut [u8], dtype: DType, op: ReduceOp, root: usize, call: &Call<'_>) -> Result<(), Failure> {
        if self.layout.position == root {
            return self.all_reduce(array, dtype, op, call).map(drop);
        }
        self.all_reduce(&mut array.to_vec(), dtype, op, call).map(drop)
    }

    /// Makes everybody's `array` that of `root`.
    pub(crate) fn broadcast(&mut self, array: &mut [u8], root: usize, call: &Call<'_>) -> Result<(), Failure> {
        self.roll_call(call)?;
        let (host, place) = self.layout.place(root);
        let home = host == self.layout.host;
        if home && let Some(near) = &mut self.near {
            near.broadcast(call, array, place).map_err(|failure| cut_off(&mut self.leaders, failure))?;
        }
        if let Some(leaders) = &mut self.leaders {
            leaders.broadcast(array, host, call).map_err(|failure| told(&mut self.near, failure))?;
        }
        if !home && let Some(near) = &mut self.near {
            near.broadcast(call, array, 0)?;
        }
        Ok(())
    }

    /// Hands the message of `root` to everybody: inside its host, from leader to leaders, inside the others.
    pub(crate) fn broadcast_message(&mut self, message: &[u8], root: usize, call: &Call<'_>) -> Result<Vec<u8>, Failure> {
        self.roll_call(call)?;
        let (host, place) = self.layout.place(root);
        let home = host == self.layout.host;
        let mut known = match &mut self.near {
            Some(near) if home => near.broadcast_message(call, message, place).map_err(|failure| cut_off(&mut self.leaders, failure))?,
            // Alone on its host, so this is the root itself; elsewhere nobody knows it yet.
            _ if home => message.to_vec(),
            _ => Vec::new(),
        };
        if let Some(leaders) = &mut self.leaders {
            let heard = leaders.broadcast_message(home.then_some(&known), host, call);
            known = heard.map_err(|failure| told(&mut self.near, failure))?;
        }
        match &mut self.near {
            Some(near) if !home => near.broadcast_message(call, &known, 0),
            _ => Ok(known),
        }
    }

    /// Returns when every member has called it.
    pub(crate) fn barrier(&mut self, call: &Call<'_>) -> Result<(), Failure> {
        self.roll_call(call).map(drop)
    }

    fn all_reduce_small(&mut self, array: &mut [u8], dtype: DType, op: ReduceOp, call: &Call<'_>) -> Result<(), Failure> {
        let leads = self.leaders.is_some();
        let brought = match &mut self.near {
            Some(near) => near.gather(call, array, leads).map_err(|failure| cut_off(&mut self.leaders, failure))?,
            None => Some(vec![array.to_vec()]),
        };
        if let Some((leaders, brought)) = self.leaders.as_mut().zip(brought) {
            let all = leaders.all_gather(&brought.concat(), call).map_err(|failure| told(&mut self.near, failure))?;
            let sources: Vec<&[u8]> = match array.len() {
                0 => vec![&[]],
                len => all.iter().flat_map(|host| host.chunks(len)).collect(),
            };
            let folded = reduce_many_into(op, dtype, array, &sources);
            folded.map_err(|error| Error::System { operation: call.operation(), detail: error.to_string() })?;
        }
        match &mut self.near {
            Some(near) => near.broadcast(call, array, 0),
            None => Ok(()),
        }
    }

    /// Segment by segment: while one is between the hosts the next are collected.
    fn all_reduce_large(&mut self, array: &mut [u8], numbers: Numbers, call: &Call<'_>) -> Result<(), Failure> {
        let ranges: Vec<Range<usize>> = (0..array.len()).step_by(SEGMENT).map(|start| start..array.len().min(start + SEGMENT)).collect();
        let near = &mut self.near;
        let Some(leaders) = &mut self.leaders else {
            let near = near.as_mut().expect("who does not lead has a leader");
            for turn in 0..ranges.len() + AHEAD {
                if let Some(range) = ranges.get(turn) {
                    near.gather(call, &array[range.clone()], false)?;
                }
                if let Some(range) = turn.checked_sub(AHEAD).and_then(|turn| ranges.get(turn)) {
                    near.broadcast(call, &mut array[range.clone()], 0)?;
                }
            }
            return Ok(());
        };
        let segments: Vec<usize> = ranges.iter().map(Range::len).collect();
        let (before, here, all) = self.layout.counts();
        let relay = Relay { numbers, segments: &segments, before, here, all };
        let relayed = leaders.relay(call, &relay, |desk| {
            for turn in 0..ranges.len() + AHEAD {
                if let Some(range) = ranges.get(turn) {
                    let mine = &array[range.clone()];
                    desk.supply(match near {
                        Some(near) => near.gather(call, mine, true)?.unwrap_or_default(),
                        None => vec![mine.to_vec()],
                    });
                }
                if let Some(range) = turn.checked_sub(AHEAD).and_then(|turn| ranges.get(turn)) {
                    // Without a result the relay has failed, and its own error is the one that counts.
                    let gone = || Failure::Astray(Error::Closed { operation: call.operation() });
                    array[range.clone()].copy_from_slice(&desk.result().ok_or_else(gone)?);
                    if let Some(near) = near {
                        near.broadcast(call, &mut array[range.clone()], 0)?;
                    }
                }
            }
            Ok(())
        });
        relayed.map_err(|failure| told(near, failure))
    }
}

/// A failure inside a host; leaders that wait for its leader are woken, and look for whoever is gone.
fn cut_off(leaders: &mut Option<Mesh>, failure: Failure) -> Failure {
    if let (Some(leaders), Failure::Astray(error)) = (leaders, &failure)
        && !matches!(error, Error::Timeout { .. })
    {
        // Who is only late makes everybody late; a link that is closed would make this leader look guilty.
        leaders.close();
    }
    failure
}

/// A failure among the leaders, of which the leader's neighbours have been told.
fn told<N: Neighbours>(near: &mut Option<N>, failure: Failure) -> Failure {
    match (near, failure) {
        (Some(near), Failure::Astray(error)) => failed_among_leaders(near, error),
        (_, failure) => failure,
    }
}

fn failed_among_leaders<N: Neighbours>(near: &mut N, error: Error) -> Failure {
    if let Some(setback) = Setback::of(&error) {
        near.tell(&setback);
    }
    Failure::Astray(error)
}

//! Figures that are measured: all ranks hold the same, a slow link changes the plan and never the result.

use std::os::fd::BorrowedFd;
use std::thread::sleep;
use std::time::{Duration, Instant};

use syncline_cluster::{Deadline, ErrorKind, TransportChoice};
use syncline_tensor::DType;
use syncline_tensor::kernels::ReduceOp;
use syncline_transport::{LinkError, OutFrame, SendHalf, Sending};

use super::roll::Bring;
use super::suite::{Rank, among, in_tcp};
use crate::call::{Failure, What};
use crate::plan::PlanName;
use crate::plan::cost::{Figures, choose};
use crate::plan::grades::Grades;
use crate::rehearsal::{left_fold, numbers, soon};

const OP: ReduceOp = ReduceOp::Sum;
/// So many numbers of 4 bytes that four ranks halve and double on near links, and only double on far ones unless these are
/// also hundreds of times thinner.
const COUNT: usize = 20 << 10;

/// A way on which every frame takes so much longer.
struct Far {
    half: Box<dyn SendHalf>,
    delay: Duration,
}

impl SendHalf for Far {
    fn send(&mut self, frame: &OutFrame<'_>, deadline: Deadline) -> Result<(), LinkError> {
        sleep(self.delay);
        self.half.send(frame, deadline)
    }

    fn begin(&mut self, frame: &OutFrame<'_>, total: u64, deadline: Deadline) -> Result<(), LinkError> {
        sleep(self.delay);
        self.half.begin(frame, total, deadline)
    }

    fn piece(&mut self, bytes: &[u8], deadline: Deadline) -> Result<(), LinkError> {
        self.half.piece(bytes, deadline)
    }

    fn advance(&mut self, frame: &OutFrame<'_>, sending: &mut Sending) -> Result<bool, LinkError> {
        self.half.advance(frame, sending)
    }

    fn pollable(&self) -> Option<BorrowedFd<'_>> {
        self.half.pollable()
    }

    fn takes_offers(&self) -> bool {
        self.half.takes_offers()
    }

    fn offer(&mut self, bytes: &[u8], patience: Duration) -> Result<usize, LinkError> {
        self.half.offer(bytes, patience)
    }
}

/// Makes the way from this rank to `position` a far one.
fn put_far(rank: &mut Rank, position: usize, delay: Duration) {
    let call = rank.call(What::Barrier);
    rank.mesh.barrier(&call).expect("all come");
    rank.mesh.senders[position] = rank.mesh.senders[position].take().map(|mut outgoing| {
        outgoing.half = Box::new(Far { half: outgoing.half, delay });
        outgoing
    });
}

/// What was agreed on, and what the rank chooses for [`COUNT`] integers by it.
fn chosen(rank: &mut Rank) -> (Figures, PlanName) {
    let figures = rank.mesh.ledger().figures().expect("measured");
    let call = rank.call(What::Barrier);
    let name = rank.mesh.chosen(COUNT * 4, DType::I32, OP, &call).expect("known already");
    (figures, name)
}

fn sum_integers(rank: &mut Rank, ranks: usize) {
    let mut array = numbers(rank.mesh.position(), COUNT, DType::I32);
    rank.all_reduce(&mut array, DType::I32, OP).expect("a sum");
    assert!(array == left_fold(ranks, COUNT, DType::I32, OP), "on {ranks} ranks");
}

#[test]
fn all_ranks_agree_on_the_very_same_figures_and_measure_once() {
    let carriers = [TransportChoice::Tcp, TransportChoice::Auto, TransportChoice::Unix];
    for (ranks, transport) in (2..=9).zip(carriers.into_iter().cycle()) {
        let found = among("figures", ranks, transport, |rank| {
            sum_integers(rank, ranks);
            let first = chosen(rank);
            sum_integers(rank, ranks);
            assert_eq!(chosen(rank), first);
            rank.job.leave(soon()).expect("a polite end");
            first
        });
        assert!(found.iter().all(|one| *one == found[0]), "{ranks} ranks over {transport}: {found:?}");
        let (figures, name) = found[0];
        assert_eq!(Grades::of(figures).figures(), figures);
        assert_eq!(choose(COUNT * 4, ranks, true, 2, figures), name);
    }
}

#[test]
fn one_far_link_changes_the_plan_of_all_and_not_the_result() {
    const DELAY: Duration = Duration::from_millis(25);
    let near = choose(COUNT * 4, 4, true, 2, Figures::TCP);
    assert_ne!(near, PlanName::Doubling);
    // Between the first pair, the second ones, and those at the ends; from the one who measures and from the other.
    for (from, to) in [(0, 1), (2, 1), (3, 0)] {
        let found = in_tcp(&format!("far{from}{to}"), 4, |rank| {
            put_far(rank, if rank.mesh.position() == from { to } else { rank.mesh.position() }, DELAY);
            sum_integers(rank, 4);
            chosen(rank)
        });
        for (figures, name) in found {
            assert!(figures.alpha > DELAY.as_secs_f64() / 3.0, "{figures}");
            assert_eq!(name, PlanName::Doubling, "{figures}");
        }
    }
}

#[test]
fn nothing_is_measured_where_there_is_no_choice() {
    in_tcp("settled", 3, |rank| {
        let me = rank.mesh.position();
        for (count, dtype, forced) in [(10, DType::I32, None), (200_000, DType::F32, None), (COUNT, DType::I32, Some(PlanName::Ring))] {
            rank.mesh.settings.forced = forced;
            let mut array = numbers(me, count, dtype);
            rank.all_reduce(&mut array, dtype, OP).expect("a sum");
            assert_eq!(rank.mesh.ledger().figures(), None, "{count} {dtype}");
        }
    });
}

#[test]
fn whoever_dies_while_links_are_measured_is_named_by_all_survivors() {
    for (ranks, victim) in [(2, 0), (3, 2), (4, 1)] {
        let errors = among(&format!("measuring-{victim}"), ranks, TransportChoice::Tcp, |rank| {
            let me = rank.mesh.position();
            let mut array = numbers(me, COUNT, DType::I32);
            if me == victim {
                let call = rank.call(What::AllReduce { dtype: DType::I32, op: OP, count: COUNT });
                rank.mesh.roll(&call, Bring::later(&array)).expect("all come");
                return None;
            }
            let since = Instant::now();
            match rank.all_reduce(&mut array, DType::I32, OP) {
                Err(Failure::Astray(error)) => {
                    assert!(since.elapsed() < Duration::from_secs(5), "after {:?}: {error}", since.elapsed());
                    rank.job.abort("it failed");
                    Some(error)
                }
                other => panic!("rank {me} of {ranks}: {other:?}"),
            }
        });
        for error in errors.iter().flatten() {
            let named = (error.kind(), error.who().map(|who| who.rank));
            assert_eq!(named, (ErrorKind::PeerLost, Some(victim as u32)), "{error}");
        }
        assert_eq!(errors.iter().flatten().count(), ranks - 1);
    }
}

//! Listens to the coordinator for the life of a seat and writes down what it says about the others.

use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::time::Instant;

use syncline_shm::wait::Deadline;
use syncline_transport::RecvHalf;
use syncline_wire::message::Control;

use crate::agree::Agreement;
use crate::control::{fate_of, receive_control};
use crate::fate::Fate;
use crate::notices::Notice;
use crate::seat::Seat;

/// Runs until the seat leaves or the coordinator is gone.
pub(crate) fn listen(seat: &Arc<Seat>, mut receiver: Box<dyn RecvHalf>) {
    loop {
        match receive_control(receiver.as_mut(), Deadline::never()) {
            Ok(message) => {
                if let Some(line) = &seat.control {
                    *line.last_heard.lock().expect("no panic while held") = Instant::now();
                }
                take_note(seat, message);
            }
            Err(_) if seat.leaving.load(Acquire) => return,
            Err(error) => {
                coordinator_lost(seat, Fate::gone(format!("is gone: its control link ended ({error})")));
                return;
            }
        }
    }
}

fn take_note(seat: &Seat, message: Control) {
    match message {
        Control::Down { rank, cause, detail, reported_by, blames, .. } if rank < seat.topology.world() && rank != seat.me => {
            // A neighbour's last word may stand on the board and not yet with the coordinator.
            let blames = blames.or_else(|| seat.blame_on_board(rank));
            seat.bury(rank, fate_of(&cause, &detail, reported_by, blames));
            seat.told.store(true, Release); // pairs with the Acquire in `Seat::let_others_hear`
        }
        Control::Ended { rank } if rank < seat.topology.world() && rank != seat.me => seat.fates.mark_ended(rank),
        Control::Left { rank } if rank < seat.topology.world() && rank != seat.me => seat.fates.mark_left(rank),
        Control::AllLeft => (0..seat.topology.world()).filter(|rank| *rank != seat.me).for_each(|rank| seat.fates.mark_left(rank)),
        Control::Agreed { number, operation, payload } => {
            seat.ledger().agreed(Agreement { number, operation, payload }, seat.topology.role(seat.me).works());
        }
        Control::Disagreed { number, one, other } => seat.ledger().disagreed(number, one, other),
        Control::Missing { number, ranks } => seat.ledger().missing(number, ranks),
        Control::Posted { from, number, payload } => seat.notices().posted(Notice { from, number, payload }),
        Control::Answer { rank, number, refusal } => seat.notices().answered(rank, number, refusal),
        Control::Heartbeat { .. } => return,
        other => {
            tracing::debug!("the coordinator says {other:?}, which means nothing now");
            return;
        }
    }
    seat.ring();
}

/// The coordinator's host is rank 0, unless the launcher hosts it.
pub(crate) fn coordinator_lost(seat: &Seat, fate: Fate) {
    seat.coordinator_lost.store(true, Release);
    if seat.launcher.hosts_coordinator() {
        seat.orphaned.store(true, Release);
    } else if seat.me != 0 {
        let blames = seat.blame_on_board(0).map(|blame| blame.rank);
        seat.bury(0, Fate { blames, ..fate });
    }
    seat.ring();
}

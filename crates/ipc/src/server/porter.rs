//! The one thread of a server: keeps the door, and goes on with messages that were too much for their readers.
//!
//! It is here so that a client's connect returns although the server's own thread is busy, which the kernel's
//! queue would do for a bare socket but not for a proof of the token.

use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use syncline_transport::{Deadline, Door, DoorEvent};

use super::hall::Hall;
use crate::hello::Hello;

/// How often slow readers are looked at while there are any.
const TICK: Duration = Duration::from_millis(10);

pub(super) fn start(mut door: Door, hall: Arc<Hall>) -> io::Result<JoinHandle<()>> {
    Builder::new().name("syncline-ipc".into()).stack_size(256 << 10).spawn(move || {
        while !hall.is_closed() {
            let debts = hall.debts();
            for seat in &debts {
                seat.pipe.settle();
            }
            let patience = if debts.is_empty() { Deadline::never() } else { Deadline::after(TICK) };
            for event in door.step(patience) {
                receive(&hall, event);
            }
        }
    })
}

fn receive(hall: &Hall, event: DoorEvent) {
    let worth_a_line = event.is_worth_a_line();
    match event {
        DoorEvent::Visitor { hello, connection, .. } => match Hello::decode(&hello) {
            Some(hello) => hall.enter(connection, hello),
            None => tracing::warn!("ipc: {} holds the token but is no client; sent away", connection.peer()),
        },
        DoorEvent::Refused { from, why, count } => {
            hall.refused(format!("{from}: {why}"));
            if worth_a_line {
                tracing::warn!("ipc: sent away {from}: {why} (number {count} from there)");
            }
        }
        _ => {}
    }
}

//! A worker that dies between the moment its add counts and the moment it is in the table, while all others only wait.
#![cfg(debug_assertions)] // Release builds have no moments.

use std::process::exit;
use std::time::Duration;

use syncline::{AddOptions, Config, DType, Deadline, Error, Session, Spec};
use syncline_shm::mortality;

/// Set to the moment of its add at which the last worker dies: the others print what they find.
pub(crate) const MOMENT: &str = "TABLES_LATE_DEATH";

/// Large enough that each server's half is not applied at once.
const NUMBERS: usize = 200_000;

/// The body of each test binary's `as_a_rank`.
pub(crate) fn die_if_asked() {
    let Ok(moment) = std::env::var(MOMENT) else { return };
    match die(moment.parse().expect("the test wrote it")) {
        Ok(()) => exit(0),
        Err(error) => {
            println!("failed: {error}");
            exit(3)
        }
    }
}

fn die(moment: u64) -> Result<(), Error> {
    let session = Session::open(Config::from_env()?)?;
    let by = || Deadline::after(session.timeout());
    let table = session.create_table(Spec::array(NUMBERS as u64).with_dtype(DType::I64), None)?;
    session.barrier()?;
    if session.worker_id() == Some(session.num_workers() - 1) {
        mortality::die_at(moment);
        table.add(&1i64.to_le_bytes().repeat(NUMBERS), None, &AddOptions::default(), true, by())?;
        return Ok(()); // It never comes here.
    }
    // Whoever comes to a part of the table looks after the dead first. Here nobody does until servers have looked of their own accord: ten times a second.
    std::thread::sleep(Duration::from_millis(500));
    session.barrier()?; // Everybody who lives is here.
    let mut bytes = vec![0; 8 * NUMBERS];
    table.get(&mut bytes, None, by())?;
    let numbers = || bytes.chunks_exact(8).map(|number| i64::from_le_bytes(number.try_into().expect("eight bytes")));
    println!("\nfound {} to {}", numbers().min().unwrap_or(-1), numbers().max().unwrap_or(-1));
    session.shutdown()
}

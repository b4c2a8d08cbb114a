//! Workers of several threads as real processes: what works where tables are in shared memory works over links too.
//!
//! The rank program is this test binary itself, started again for its test `as_a_rank`.

use std::process::{Command, exit};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use syncline::{AddOptions, Config, Consistency, Deadline, Error, Session, Spec, Table};
use syncline_testkit::ranks::{Process, eventually};

/// Set for the processes that are ranks.
const RANK: &str = "TABLES_THREADS_RANK";
/// A table of a few stripes.
const NUMBERS: usize = 50_000;
const PASSES: usize = 5;
const THREADS: usize = 6;

/// Set when a get is known to wait: it asks its deadline whether it was called off.
static WAITS: AtomicBool = AtomicBool::new(false);

fn waits() -> bool {
    WAITS.store(true, SeqCst);
    false
}

#[test]
fn as_a_rank() {
    if std::env::var_os(RANK).is_none() {
        return;
    }
    match work() {
        Ok(()) => exit(0),
        Err(error) => {
            println!("failed: {error}");
            exit(3)
        }
    }
}

fn work() -> Result<(), Error> {
    let session = Session::open(Config::from_env()?)?;
    let by = || Deadline::after(session.timeout());
    let delta = 1.0_f32.to_le_bytes().repeat(NUMBERS);
    let add = |table: &Table| table.add(&delta, None, &AddOptions::default(), false, by());
    let get = |table: &Table, by: Deadline| {
        let mut out = vec![0; 4 * NUMBERS];
        table.get(&mut out, None, by).map(|()| f32::from_le_bytes([out[0], out[1], out[2], out[3]]))
    };
    let spec = || Spec::array(NUMBERS as u64).with_consistency(Consistency::Sync);
    let tables = [session.create_table(spec(), None)?, session.create_table(spec(), None)?];
    // Worker 1 waits for an add that worker 0 makes behind a barrier.
    if session.rank() == 0 {
        session.barrier()?;
        add(&tables[0])?;
    } else {
        add(&tables[0])?;
        std::thread::scope(|scope| {
            let got = scope.spawn(|| get(&tables[0], by().with_interrupt(waits)));
            eventually("the get waits", Duration::from_secs(10), || WAITS.load(SeqCst));
            session.barrier()?;
            assert_eq!(got.join().expect("no panic")?, 2.0);
            Ok::<(), Error>(())
        })?;
    }
    // A get waits for as many adds as its worker has made, so all threads come to the end of a pass before the next one begins.
    for _ in 0..PASSES {
        std::thread::scope(|scope| {
            let thread = || tables.iter().try_for_each(|table| add(table).and_then(|()| get(table, by()).map(drop)));
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(thread)).collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
        })?;
    }
    let each = 2.0 * (PASSES * THREADS) as f32;
    println!("found {} and {}", get(&tables[0], by())? == each + 2.0, get(&tables[1], by())? == each);
    session.shutdown()
}

#[test]
fn threads_of_a_worker_do_not_wait_for_each_others_gets() {
    for transport in ["auto", "unix", "tcp"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_syncline"));
        command.args(["run", "-n", "2", "--timeout", "20", "--"]).arg(std::env::current_exe().expect("this test"));
        command.args(["as_a_rank", "--exact", "--nocapture"]).env(RANK, "1").env("SYNCLINE_TRANSPORT", transport);
        let ending = Process::start("syncline run", &mut command).finish_within(Duration::from_secs(60));
        assert!(ending.status.success(), "{transport}: {}{}", ending.stdout, ending.stderr);
        assert_eq!(ending.stdout.matches("found true and true").count(), 2, "{transport}: {}{}", ending.stdout, ending.stderr);
    }
}

//! What each rank of such a job does.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::exit;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::{Signal, getpid, kill_process};
use syncline::{AddOptions, Config, Consistency, DType, Deadline, Error, Session, Spec, Table, Updater};
use syncline_optimizer::Optimizer;

use super::{ARRAY, COLS, GRADIENTS, KEYS, Mode, ORDER, Order, ROWS, rows_of, unit};

/// The body of each test binary's `as_a_rank`.
pub(crate) fn work_if_asked() {
    let Ok(order) = std::env::var(ORDER) else { return };
    let order: Order = order.parse().expect("the test wrote it");
    let rank = std::env::var("SYNCLINE_RANK").expect("a launcher or the test sets it");
    let mut diary = Diary::open(&order.folder, &rank);
    if let Err(error) = work(&order, &mut diary) {
        let who = error.who().map_or("nobody".to_owned(), |who| who.rank.to_string());
        diary.note(&format!("error {:?} {who} {} {}", error.kind(), micros(), error.to_string().replace('\n', " | ")));
        exit(3);
    }
    exit(0); // The harness has nothing to add.
}

fn work(order: &Order, diary: &mut Diary) -> Result<(), Error> {
    let session = Session::open(Config::from_env()?)?;
    let worker = session.worker_id().expect("servers run another program");
    let consistency = match order.mode {
        Mode::Async => Consistency::Async,
        Mode::Sync => Consistency::Sync,
        Mode::Bounded => Consistency::Bounded(2),
    };
    let by = || Deadline::after(session.timeout());
    let gradients = std::env::var_os(GRADIENTS).is_some();
    if gradients && worker == 0 {
        // A step adds what it is given, so that the same sums tell what was lost or came twice.
        let adds = Optimizer::create("sgd", &[("learning_rate", (-1.0).into())]).expect("a sound optimizer");
        session.tables().set_rule(0, Some(adds), false, by())?;
    }
    let create = |spec: Spec, name: &str| {
        let spec = spec.with_consistency(consistency).named(name);
        match gradients {
            true => Ok(session.tables().create_named(spec.with_dtype(DType::F64).with_updater(Updater::Gradient), None, "here", by())?),
            false => session.create_table(spec.with_dtype(DType::I64), None),
        }
    };
    let array = create(Spec::array(ARRAY as u64), "array")?;
    let matrix = create(Spec::matrix(ROWS as u64, COLS as u64), "matrix")?;
    let keys = Spec::keys().with_dtype(DType::I64).with_consistency(consistency).named("keys");
    let keys = std::env::var_os(KEYS).map(|_| session.create_table(keys, None)).transpose()?;
    session.barrier()?;
    diary.note(&format!("ready {worker}"));

    let victim = order.victim.filter(|victim| victim.worker == worker);
    let unit = if gradients { (unit(worker) as f64).to_le_bytes() } else { unit(worker).to_le_bytes() };
    let all = unit.repeat(ARRAY);
    let some = unit.repeat(rows_of(worker, 1).len() * COLS);
    let mut seen = vec![0; all.len()];
    // How long adds took so far, to the array, the matrix and the keys.
    let mut lengths = [Vec::new(), Vec::new(), Vec::new()];
    for step in 1.. {
        if step > order.steps && !order.endless {
            break;
        }
        // On a busy machine death may be late; nobody outruns it.
        while victim.is_some_and(|victim| step > victim.step + 1) {
            thread::park();
        }
        // In sync and bounded mode it is the gets that wait for the others.
        if order.mode != Mode::Async || step % 8 == 1 {
            array.get(&mut seen, None, by())?;
        }
        if order.mode == Mode::Sync {
            let first = &seen[..8];
            assert!(seen.chunks_exact(8).all(|number| number == first), "worker {worker}, step {step}: half a round");
        }
        let rows = rows_of(worker, step);
        let mut adds = vec![(&array, "array", &all[..], None), (&matrix, "matrix", &some[..], Some(&rows[..]))];
        adds.extend(keys.as_ref().map(|keys| (keys, "keys", &some[..rows.len() * 8], Some(&rows[..]))));
        let last = adds.len() - 1;
        for (number, (table, name, delta, rows)) in adds.into_iter().enumerate() {
            diary.note(&format!("try {name} {step}"));
            let start = Instant::now();
            if let Some(victim) = victim.filter(|victim| victim.step == step && victim.target.min(last) == number) {
                die_after(usual(&mut lengths[number]) * victim.thousandths as u32 / 1000, start, diary);
            }
            match (name, rows) {
                ("keys", Some(keys)) => table.add_keys(keys, delta, true, by())?,
                _ => table.add(delta, rows, &AddOptions::default(), true, by())?,
            }
            lengths[number].push(start.elapsed());
            diary.note(&format!("ack {name} {step}"));
        }
        if order.endless && step % 16 == 0 {
            session.barrier()?;
        }
    }
    while victim.is_some() {
        thread::park();
    }
    session.barrier()?;
    for (table, name) in [(&array, "array"), (&matrix, "matrix")] {
        keep(table, &session, &order.folder.join(format!("{name}-{}", diary.rank)))?;
    }
    if let Some(keys) = keys {
        let mut bytes = vec![0; ROWS * 8];
        keys.get_keys(&(0..ROWS as i64).collect::<Vec<_>>(), &mut bytes, by())?;
        std::fs::write(order.folder.join(format!("keys-{}", diary.rank)), bytes).expect("the test's folder can be written");
    }
    diary.note("done");
    session.shutdown()
}

/// The whole table as it is for this worker, in a file.
fn keep(table: &Table, session: &Session, path: &Path) -> Result<(), Error> {
    let mut bytes = vec![0; table.spec().bytes()];
    table.get(&mut bytes, None, Deadline::after(session.timeout()))?;
    if table.spec().dtype() == DType::F64 {
        for number in bytes.chunks_exact_mut(8) {
            let whole = f64::from_le_bytes((&*number).try_into().expect("eight bytes")) as i64;
            number.copy_from_slice(&whole.to_le_bytes());
        }
    }
    std::fs::write(path, bytes).expect("the test's folder can be written");
    Ok(())
}

/// The median, which one slow add does not move.
fn usual(lengths: &mut [Duration]) -> Duration {
    lengths.sort_unstable();
    lengths[lengths.len() / 2]
}

/// Kills this process so long after `start`, wherever it is by then. The diary says when.
fn die_after(delay: Duration, start: Instant, diary: &Diary) {
    let mut file = diary.file.try_clone().expect("a file can be shared");
    thread::spawn(move || {
        // Shorter than any sleep: a kill in the middle of an add has to be aimed.
        while start.elapsed() < delay {
            std::hint::spin_loop();
        }
        let _ = file.write_all(format!("dies {}\n", micros()).as_bytes());
        let _ = kill_process(getpid(), Signal::KILL);
    });
}

/// A file that gets a line at a time, each in one write.
struct Diary {
    file: File,
    rank: String,
}

impl Diary {
    fn open(folder: &Path, rank: &str) -> Diary {
        let path = folder.join(format!("diary-{rank}"));
        let file = OpenOptions::new().append(true).create(true).open(path).expect("the test's folder can be written");
        Diary { file, rank: rank.to_owned() }
    }

    fn note(&mut self, line: &str) {
        self.file.write_all(format!("{line}\n").as_bytes()).expect("the test's folder can be written");
    }
}

fn micros() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is set").as_micros()
}

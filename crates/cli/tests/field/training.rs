//! A small training in sync mode whose numbers depend on every rounding, so that a different order of adds would show.

use std::process::exit;

use syncline::{AddOptions, Config, Consistency, Deadline, Error, Session, Spec, Table, Updater};

use super::rank::MARK;

/// The environment variable that says how many rounds to train.
pub(crate) const TRAIN: &str = "TABLES_TRAIN";

const SIZE: u64 = 40_000;
const ROWS: u64 = 500;
const COLS: u64 = 33;

/// Trains if the environment says so, and says what came out.
pub(crate) fn train_if_asked() {
    let Ok(rounds) = std::env::var(TRAIN) else { return };
    match train(rounds.parse().expect("a number")) {
        Ok(sum) => println!("\n{MARK}trained {sum}"),
        Err(error) => {
            println!("\n{MARK}failed {error}");
            exit(3);
        }
    }
    exit(0); // The harness has nothing to add.
}

fn train(rounds: u32) -> Result<String, Error> {
    let session = Session::open(Config::from_env()?)?;
    let worker = session.worker_id().expect("servers run another program");
    let by = || Deadline::after(session.timeout());
    let sync = |spec: Spec, name: &str| spec.with_consistency(Consistency::Sync).named(name);
    let start: Vec<u8> = (0..SIZE).flat_map(|index| ((index as f32) * 0.37).sin().to_le_bytes()).collect();
    let array = session.create_table(sync(Spec::array(SIZE), "array"), Some(&start))?;
    let momentum = Spec::matrix(ROWS, COLS).with_updater(Updater::MomentumSgd);
    let matrix = session.create_table(sync(momentum, "matrix"), None)?;
    let options = AddOptions::default();
    for round in 0..rounds {
        let step =
            |value: f32, index: usize| (value * 1.7 + (index as f32) * 0.001 + worker as f32 * 0.3).sin() * 0.01 / (1.0 + round as f32);
        let values = get(&array, None, by())?;
        let delta: Vec<u8> = values.iter().enumerate().flat_map(|(index, value)| step(*value, index).to_le_bytes()).collect();
        array.add(&delta, None, &options, false, by())?;
        // Workers meet in some rows and not in others, and not all of them add to every server.
        let rows: Vec<i64> = (0..40).map(|place| ((place * (worker as i64 + 3) + i64::from(round) * 7) % ROWS as i64).abs()).collect();
        let values = get(&matrix, Some(&rows), by())?;
        let delta: Vec<u8> = values.iter().enumerate().flat_map(|(index, value)| step(*value, index).to_le_bytes()).collect();
        matrix.add(&delta, Some(&rows), &options, round % 3 == 0, by())?;
    }
    session.barrier()?;
    let bits: Vec<u32> = [get(&array, None, by())?, get(&matrix, None, by())?].concat().iter().map(|value| value.to_bits()).collect();
    assert!(bits.iter().any(|bits| *bits != 0));
    session.shutdown()?;
    // FNV, over every bit of every number.
    let sum = bits.iter().fold(0xcbf2_9ce4_8422_2325_u64, |sum, bits| (sum ^ u64::from(*bits)).wrapping_mul(0x0100_0000_01b3));
    Ok(format!("{sum:016x}"))
}

fn get(table: &Table, rows: Option<&[i64]>, by: Deadline) -> Result<Vec<f32>, Error> {
    let count = rows.map_or(table.spec().bytes(), |rows| rows.len() * table.spec().row_bytes());
    let mut bytes = vec![0; count];
    table.get(&mut bytes, rows, by)?;
    Ok(bytes.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().expect("four bytes"))).collect())
}

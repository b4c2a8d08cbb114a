//! How fast rows move over a socket, beside the same bytes without a table. Run by hand:
//! `cargo test --release -p syncline-table throughput -- --ignored --nocapture`

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use syncline_cluster::{Deadline, Error};
use syncline_tensor::DType;
use syncline_tensor::kernels::{ReduceOp, reduce_into};
use syncline_transport::OutFrame;
use syncline_wire::{Fingerprint, Kind};

use super::world::{FIRST_SERVER, Hub, Plan, soon};
use crate::share::{LaneInfo, Selection, Share};
use crate::spread::{Form, Layout, Places, Service, Spread};
use crate::{AddOptions, Consistency};

/// A share of one worker with an outbox: staged in place, applied and read in stripes.
struct Flat {
    rows: u64,
    state: Mutex<State>,
}

struct State {
    outbox: Vec<u8>,
    values: Vec<u8>,
    staged: u64,
    published: u64,
    applied: u64,
}

const STRIPE: usize = 64 << 10;

impl State {
    fn apply(&mut self) {
        if self.applied < self.published {
            for (held, delta) in self.values.chunks_mut(STRIPE).zip(self.outbox.chunks(STRIPE)) {
                reduce_into(ReduceOp::Sum, DType::F32, held, delta).expect("same lengths");
            }
            self.applied = self.published;
        }
    }
}

impl Share for Flat {
    fn rows(&self) -> Range<u64> {
        0..self.rows
    }
    fn stage(
        &self,
        _: u32,
        sequence: u64,
        _: Selection<'_>,
        _: &AddOptions,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<(), Error>,
        _: Deadline,
    ) -> Result<(), Error> {
        let mut state = self.state.lock().expect("no panic");
        state.apply();
        fill(&mut state.outbox)?;
        state.staged = sequence;
        Ok(())
    }
    fn publish(&self, _: u32, sequence: u64) -> Result<(), Error> {
        self.state.lock().expect("no panic").published = sequence;
        Ok(())
    }
    fn discard(&self, _: u32, _: u64) {}
    fn published(&self, _: u32) -> u64 {
        self.state.lock().expect("no panic").published
    }
    fn settle(&self, _: u32, _: u64, _: Deadline) -> Result<(), Error> {
        self.state.lock().expect("no panic").apply();
        Ok(())
    }
    fn read(&self, _: u32, _: u64, _: Selection<'_>, sink: &mut dyn FnMut(&[u8]) -> Result<(), Error>, _: Deadline) -> Result<(), Error> {
        let mut state = self.state.lock().expect("no panic");
        state.apply();
        let mut copy = vec![0; STRIPE];
        state.values.chunks(STRIPE).try_for_each(|stripe| {
            copy[..stripe.len()].copy_from_slice(stripe); // as a reader of shared memory must
            sink(&copy[..stripe.len()])
        })
    }
    fn read_changed(&self, _: u32, _: u64, _: Option<u64>, _: Deadline) -> Result<(Vec<i64>, Vec<u8>), Error> {
        unreachable!("not measured")
    }
    fn finish(&self, _: u32) {}
    fn unfinished(&self) -> Vec<u32> {
        Vec::new()
    }
    fn lanes(&self) -> Vec<LaneInfo> {
        Vec::new()
    }
    fn read_lane(&self, _: usize, _: u64, _: &mut [u8], _: Deadline) -> Result<(), Error> {
        unreachable!("not measured")
    }
    fn write_lane(&self, _: usize, _: u64, _: &[u8], _: Deadline) -> Result<(), Error> {
        unreachable!("not measured")
    }
}

/// There and back again without a table: seconds per round of `len` bytes each way.
fn raw(len: usize, rounds: usize) -> f64 {
    let hub = Hub::new(Plan::new(&[0..1], 1, Consistency::Async).timeout, true);
    let purpose = Fingerprint::of("raw").finish();
    let (mut here, mut there) =
        (hub.seat(0).link(1, purpose, soon()).expect("a link"), hub.seat(1).link(0, purpose, soon()).expect("a link"));
    let echo = std::thread::spawn(move || {
        let mut buffer = vec![0; len];
        for _ in 0..rounds {
            there.head(soon()).expect("a frame");
            there.body_into(&mut buffer, soon()).expect("its body");
            there.send(&OutFrame { payload: &[&buffer], ..OutFrame::new(Kind::DATA) }, soon()).expect("sent");
        }
    });
    let (out, mut back) = (vec![1; len], vec![0; len]);
    let mut best = f64::MAX;
    for _ in 0..rounds {
        let start = Instant::now();
        here.send(&OutFrame { payload: &[&out], ..OutFrame::new(Kind::DATA) }, soon()).expect("sent");
        here.head(soon()).expect("a frame");
        here.body_into(&mut back, soon()).expect("its body");
        best = best.min(start.elapsed().as_secs_f64());
    }
    echo.join().expect("no panic");
    best
}

#[test]
#[ignore = "a measurement"]
fn throughput_of_add_and_get_over_tcp() {
    for megabytes in [1, 16, 64] {
        let (len, rounds) = (megabytes << 20, 1200 / megabytes.max(16));
        let rows = (len / 4) as u64;
        let share: Arc<dyn Share> = Arc::new(Flat {
            rows,
            state: Mutex::new(State { outbox: vec![0; len], values: vec![0; len], staged: 0, published: 0, applied: 0 }),
        });
        let places = Arc::new(Places {
            table: Fingerprint::of("t").finish(),
            name: "table t".into(),
            servers: vec![vec![FIRST_SERVER]],
            workers: vec![0],
        });
        let hub = Hub::new(Plan::new(&[0..1], 1, Consistency::Async).timeout, true);
        let form = Form { layout: Layout::Ranges(vec![0..rows]), row_bytes: 4, everywhere: false, lanes: Vec::new() };
        let service = Service {
            places: Arc::clone(&places),
            index: 0,
            share,
            keys: None,
            row_bytes: 4,
            consistency: Consistency::Async,
            worker: 0,
            reach: hub.seat(FIRST_SERVER),
            floats: true,
            gate: Arc::default(),
        };
        let service = service.start().expect("a thread");
        let table = Spread::open(places, 0, form, vec![None], hub.seat(0), &Default::default(), soon()).expect("a table");
        let (delta, mut out) = (vec![0; len], vec![0; len]);
        let options = AddOptions::default();
        let mut best = [f64::MAX; 3];
        let mut bare = f64::MAX;
        for _ in 0..rounds {
            bare = bare.min(raw(len, 3));
            let start = Instant::now();
            table.add(&delta, None, &options, false, soon()).expect("added");
            table.get(&mut out, None, soon()).expect("got");
            best[0] = best[0].min(start.elapsed().as_secs_f64());
            let start = Instant::now();
            table.add_get(&delta, &mut out, None, &options, soon()).expect("both");
            best[1] = best[1].min(start.elapsed().as_secs_f64());
            let start = Instant::now();
            table.get(&mut out, None, soon()).expect("got");
            best[2] = best[2].min(start.elapsed().as_secs_f64());
        }
        let ms = |seconds: f64| seconds * 1e3;
        println!(
            "{megabytes} MB: raw {:.2} ms · add+get {:.2} ({:.2}) · add_get {:.2} ({:.2}) · get {:.2} ({:.2} of half)",
            ms(bare),
            ms(best[0]),
            bare / best[0],
            ms(best[1]),
            bare / best[1],
            ms(best[2]),
            bare / 2.0 / best[2]
        );
        drop(table);
        service.join().expect("no panic");
    }
}

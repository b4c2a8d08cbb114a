//! Random programs of several workers over several shares in a simulated network, with deaths, against a sequential model.
//!
//! A worker takes one step at a time, so that it can die between any two: between two stages, between the moment of truth and
//! the others' commits, between an add and its get. `SYNCLINE_SIM_SEEDS=100000 cargo test -p syncline-table simulated` runs more.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use syncline_cluster::Deadline;
use syncline_tensor::DType;
use syncline_testkit::sim::{Chance, Node, Outbox, Sim, Weather};

use super::naive::Naive;
use super::world::{bytes, numbers};
use crate::share::{Selection, Share};
use crate::spread::Layout;
use crate::spread::layout::{Piece, Places};
use crate::spread::messages::{Bounds, Hold, Reply, Request, Rows};
use crate::spread::moving::{bytes_of_ids, words};
use crate::spread::protocol::{Adding, Answer, Inquest, Report, Step, Ward};
use crate::{AddOptions, Consistency};

/// What travels: numbers, metas and payloads as on a link, and the words of an inquest.
enum Word {
    Request(u64, Vec<u8>, Vec<u8>),
    Reply(u64, Vec<u8>, Vec<u8>),
    Report(usize, Report),
    Verdict(usize, bool),
}

/// One line of a worker's program.
#[derive(Clone)]
enum Op {
    Add(Option<Vec<i64>>, Vec<i64>),
    Get(Option<Vec<i64>>),
    /// As if another thread did it: the program goes on meanwhile.
    GetBeside(Option<Vec<i64>>),
}

/// What a get saw.
struct Seen {
    own_adds: usize,
    /// Adds that this worker had begun when the last of it came.
    until: usize,
    ids: Vec<i64>,
    values: Vec<i64>,
}

#[derive(Clone)]
struct World {
    layout: Layout,
    consistency: Consistency,
    workers: usize,
    shares: Vec<Arc<Naive>>,
}

impl World {
    fn server(&self, share: usize) -> usize {
        self.workers + share
    }

    fn row_bytes(&self) -> usize {
        self.workers * 8
    }

    fn all_ids(&self) -> Vec<i64> {
        (0..self.layout.rows().expect("rows") as i64).collect()
    }
}

/// A step that a worker takes at one moment.
enum Todo {
    Send(usize, Request, Vec<u8>, Due),
    StageHere(usize, Option<Vec<i64>>, Vec<u8>),
    PublishHere(usize),
}

/// What the next reply of a share is for.
enum Due {
    Stage,
    Commit,
    Add,
    /// Of the get with this number.
    Get(usize, Places),
    Finish,
}

struct Worker {
    id: usize,
    here: Option<usize>,
    world: World,
    program: VecDeque<Op>,
    chance: Chance,
    todo: VecDeque<Todo>,
    /// By share, with the numbers of the requests.
    due: Vec<Vec<(u64, Due)>>,
    /// By share: requests so far.
    asked: Vec<u64>,
    made: Vec<u64>,
    adding: Option<(Adding, Vec<usize>)>,
    /// Gets that are under way: their numbers, parts that have not come, and what has.
    gets: Vec<(usize, usize, Seen)>,
    begun: usize,
    /// The get that the program waits for.
    waits_for: Option<usize>,
    issued: usize,
    finished: bool,
    seen: Vec<Seen>,
    /// Replies that came before one to an earlier request.
    overtaken: usize,
}

impl Worker {
    /// Begins the next line of the program when the last is done.
    fn proceed(&mut self) {
        while self.todo.is_empty() && self.adding.is_none() && self.waits_for.is_none() && !self.finished {
            let adds_elsewhere = |but: Option<usize>| {
                self.due.iter().enumerate().any(|(part, due)| Some(part) != but && due.iter().any(|(_, due)| matches!(due, Due::Add)))
            };
            let next = self.program.front().cloned();
            let beside = matches!(next, Some(Op::GetBeside(_)));
            match next {
                Some(Op::Add(ids, delta)) => {
                    let everywhere = self.world.consistency != Consistency::Async;
                    let pieces = self.world.layout.split(ids.as_deref(), everywhere).expect("good ids");
                    if adds_elsewhere(if let [piece] = &pieces[..] { Some(piece.part) } else { None }) {
                        return;
                    }
                    self.program.pop_front();
                    self.issued += 1;
                    self.begin_add(&pieces, &delta);
                }
                Some(Op::Get(ids) | Op::GetBeside(ids)) => {
                    self.program.pop_front();
                    let pieces = self.world.layout.split(ids.as_deref(), false).expect("good ids");
                    let ids = ids.clone().unwrap_or_else(|| self.world.all_ids());
                    let values = vec![0; ids.len() * self.world.workers];
                    self.begun += 1;
                    let number = self.begun;
                    self.waits_for = (!beside).then_some(number);
                    self.gets.push((number, pieces.len(), Seen { own_adds: self.issued, until: 0, ids, values }));
                    for piece in &pieces {
                        self.begin_get(number, piece);
                    }
                    self.end_get(number, 0);
                }
                None if !self.gets.is_empty() => return,
                None => {
                    self.finished = true;
                    for part in 0..self.made.len() {
                        match self.here == Some(part) {
                            true => self.world.shares[part].finish(self.id as u32),
                            false => self.todo.push_back(Todo::Send(part, Request::Finish, Vec::new(), Due::Finish)),
                        }
                    }
                }
            }
        }
    }

    fn begin_add(&mut self, pieces: &[Piece<'_>], delta: &[i64]) {
        let (row, touched): (usize, Vec<usize>) = (self.world.workers, pieces.iter().map(|piece| piece.part).collect());
        let several = pieces.len() > 1;
        let Some(first) = touched.first() else { return };
        let adding = several.then(|| Adding::new(touched.clone(), self.here));
        let primary = adding.as_ref().map_or(*first, Adding::primary);
        let hold = several.then(|| Hold { primary: primary as u32, sequence: self.made[primary] + 1 });
        for piece in pieces {
            let places: Vec<usize> = match &piece.places {
                Places::Run(run) => run.clone().collect(),
                Places::Scattered(places) => places.clone(),
            };
            let rows: Vec<i64> = places.iter().flat_map(|place| delta[place * row..][..row].to_vec()).collect();
            let ids = piece.ids.as_deref().map(<[i64]>::to_vec);
            if self.here == Some(piece.part) {
                self.todo.push_back(Todo::StageHere(piece.part, ids, bytes(&rows)));
                if !several {
                    self.todo.push_back(Todo::PublishHere(piece.part));
                }
                continue;
            }
            let listed = ids.as_ref().map_or(Rows::All, |ids| Rows::Listed(ids.len() as u64));
            let sequence = self.made[piece.part] + 1;
            let request = Request::Add { sequence, rows: listed, options: AddOptions::default(), hold, patience: 0 };
            let due = if several { Due::Stage } else { Due::Add };
            self.todo.push_back(Todo::Send(piece.part, request, [bytes_of_ids(&ids.unwrap_or_default()), bytes(&rows)].concat(), due));
            if !several {
                self.made[piece.part] += 1;
            }
        }
        self.adding = adding.map(|adding| (adding, touched));
    }

    fn begin_get(&mut self, number: usize, piece: &Piece<'_>) {
        let ids = piece.ids.as_deref();
        let due = Due::Get(number, piece.places.clone());
        if self.here == Some(piece.part) {
            // Shared memory is read at a later moment too, when it may be: see `poll_here`. What is due there is the state after so many adds.
            self.due[piece.part].push((self.made[piece.part], due));
            return;
        }
        let rows = ids.map_or(Rows::All, |ids| Rows::Listed(ids.len() as u64));
        let request = Request::Get { own_adds: self.made[piece.part], rows, patience: 0, priority: None };
        self.todo.push_back(Todo::Send(piece.part, request, bytes_of_ids(ids.unwrap_or_default()), due));
    }

    fn end_get(&mut self, number: usize, parts: usize) {
        let Some(at) = self.gets.iter().position(|(other, ..)| *other == number) else { return };
        self.gets[at].1 -= parts;
        if self.gets[at].1 == 0 {
            let (_, _, seen) = self.gets.remove(at);
            self.seen.push(Seen { until: self.issued, ..seen });
            self.waits_for.take_if(|waits_for| *waits_for == number);
        }
    }

    /// Reads the own memory for gets that wait for it, if the clocks allow.
    fn poll_here(&mut self) {
        let Some(part) = self.here else { return };
        let mut at = 0;
        while let Some((own_adds, due)) = self.due[part].get(at) {
            let Due::Get(number, places) = due else { panic!("only gets wait for memory") };
            let (_, _, seen) = self.gets.iter().find(|(other, ..)| other == number).expect("it is under way");
            let ids: Vec<i64> = match places {
                Places::Run(run) => run.clone().map(|place| seen.ids[place]).collect(),
                Places::Scattered(places) => places.iter().map(|place| seen.ids[*place]).collect(),
            };
            match self.world.shares[part].try_read(*own_adds, Selection::Rows(&ids)) {
                Some(rows) => {
                    let (_, Due::Get(number, places)) = self.due[part].remove(at) else { return };
                    self.take_rows(number, &places, &rows);
                }
                None => at += 1,
            }
        }
    }

    fn take_rows(&mut self, number: usize, places: &Places, rows: &[u8]) {
        let row = self.world.workers;
        let values = numbers(rows);
        if let Some((_, _, seen)) = self.gets.iter_mut().find(|(other, ..)| *other == number) {
            let places: Vec<usize> = match places {
                Places::Run(run) => run.clone().collect(),
                Places::Scattered(places) => places.clone(),
            };
            assert_eq!(values.len(), places.len() * row);
            for (place, new) in places.iter().zip(values.chunks(row)) {
                seen.values[place * row..][..row].copy_from_slice(new);
            }
        }
        self.end_get(number, 1);
    }

    fn carry_out(&mut self, steps: Vec<Step>) {
        for step in steps {
            let Step::Publish(part) = step else { panic!("nobody refuses here") };
            self.todo.push_back(match self.here == Some(part) {
                true => Todo::PublishHere(part),
                false => Todo::Send(part, Request::Commit { sequence: self.made[part] + 1 }, Vec::new(), Due::Commit),
            });
        }
    }

    fn published(&mut self, part: usize) {
        let Some((adding, touched)) = &mut self.adding else { return };
        let steps = adding.published(part);
        if adding.counts() {
            let touched = std::mem::take(touched);
            self.adding = None;
            self.carry_out(steps);
            touched.iter().for_each(|part| self.made[*part] += 1);
        }
    }

    fn step(&mut self, out: &mut Outbox<Word>) {
        match self.todo.pop_front() {
            Some(Todo::Send(part, request, payload, due)) => {
                self.asked[part] += 1;
                self.due[part].push((self.asked[part], due));
                out.send(self.world.server(part), Word::Request(self.asked[part], request.encode(), payload));
            }
            Some(Todo::StageHere(part, ids, rows)) => {
                let selection = ids.as_deref().map_or(Selection::All, Selection::Rows);
                let mut rest = &rows[..];
                let mut fill = |target: &mut [u8]| {
                    let (piece, more) = rest.split_at(target.len());
                    target.copy_from_slice(piece);
                    rest = more;
                    Ok(())
                };
                let share = &self.world.shares[part];
                share
                    .stage(self.id as u32, self.made[part] + 1, selection, &AddOptions::default(), &mut fill, Deadline::never())
                    .expect("staged");
                if let Some((adding, _)) = &mut self.adding {
                    let steps = adding.staged(part);
                    self.carry_out(steps);
                }
            }
            Some(Todo::PublishHere(part)) => {
                self.world.shares[part].publish(self.id as u32, self.made[part] + 1).expect("staged before");
                if self.adding.is_none() {
                    self.made[part] += 1;
                } else {
                    self.published(part);
                }
            }
            None => {}
        }
    }

    fn next_moment(&mut self, now: Duration, out: &mut Outbox<Word>) {
        self.poll_here();
        self.proceed();
        if !self.todo.is_empty() || self.due.iter().any(|due| !due.is_empty()) {
            out.alarm_at(now + self.chance.duration(Duration::from_micros(10), Duration::from_millis(5)));
        }
    }

    fn reply(&mut self, part: usize, number: u64, meta: &[u8], payload: &[u8]) {
        let reply = Reply::decode(meta).expect("a reply");
        let at = self.due[part].iter().position(|(due, _)| *due == number).expect("a reply to something");
        self.overtaken += usize::from(at > 0);
        match (self.due[part].remove(at).1, reply) {
            (Due::Stage, Reply::Staged) => {
                let (adding, _) = self.adding.as_mut().expect("staging");
                let steps = adding.staged(part);
                self.carry_out(steps);
            }
            (Due::Commit, Reply::Done) => self.published(part),
            (Due::Add | Due::Finish, Reply::Done) => {}
            (Due::Get(number, places), Reply::Data { .. }) => self.take_rows(number, &places, payload),
            (_, other) => panic!("worker {} was answered {other:?}", self.id),
        }
    }
}

struct Server {
    index: usize,
    world: World,
    /// By worker: what it asked and was not answered.
    asked: Vec<VecDeque<(u64, Request, Vec<u8>)>>,
    wards: Vec<Ward>,
    gone: Vec<bool>,
    inquests: Vec<Inquest>,
    chance: Chance,
}

impl Server {
    fn share(&self) -> &Arc<Naive> {
        &self.world.shares[self.index]
    }

    /// Answers whatever can be answered; a get that has to wait is overtaken.
    fn work(&mut self, out: &mut Outbox<Word>) {
        loop {
            let mut any = false;
            for worker in 0..self.asked.len() {
                let mut at = 0;
                while let Some((number, request, payload)) = self.asked[worker].get(at).cloned() {
                    let Some((reply, rows)) = self.answer(worker, &request, &payload) else {
                        at += 1;
                        continue;
                    };
                    self.asked[worker].remove(at);
                    if !self.gone[worker] {
                        out.send(worker, Word::Reply(number, reply.encode(), rows));
                    }
                    any = true;
                }
            }
            if !any {
                return;
            }
        }
    }

    fn answer(&mut self, worker: usize, request: &Request, payload: &[u8]) -> Option<(Reply, Vec<u8>)> {
        let share = Arc::clone(self.share());
        let (id, ward) = (worker as u32, &mut self.wards[worker]);
        let ids_of = |rows: &Rows| match rows {
            Rows::All => (None, payload),
            Rows::Listed(count) => {
                let (ids, rest) = payload.split_at(*count as usize * 8);
                (Some(words(ids).collect::<Vec<i64>>()), rest)
            }
        };
        Some((
            match request {
                Request::Add { sequence, rows, hold, .. } => {
                    assert_eq!(ward.add(*sequence), Answer::Go, "worker {worker}");
                    let (ids, mut rest) = ids_of(rows);
                    let mut fill = |target: &mut [u8]| {
                        let (piece, more) = rest.split_at(target.len());
                        target.copy_from_slice(piece);
                        rest = more;
                        Ok(())
                    };
                    let selection = ids.as_deref().map_or(Selection::All, Selection::Rows);
                    share.stage(id, *sequence, selection, &AddOptions::default(), &mut fill, Deadline::never()).expect("staged");
                    match hold {
                        Some(hold) => {
                            ward.took(*sequence, *hold);
                            Reply::Staged
                        }
                        None => {
                            share.publish(id, *sequence).expect("staged");
                            ward.counted(*sequence);
                            Reply::Done
                        }
                    }
                }
                Request::Commit { sequence } => {
                    assert_eq!(ward.commit(*sequence), Answer::Go);
                    share.publish(id, *sequence).expect("held");
                    ward.counted(*sequence);
                    Reply::Done
                }
                Request::Get { own_adds, rows, .. } => {
                    let (ids, _) = ids_of(rows);
                    let rows = share.try_read(*own_adds, ids.as_deref().map_or(Selection::All, Selection::Rows))?;
                    return Some((Reply::Data { rows: (rows.len() / self.world.row_bytes()) as u64 }, rows));
                }
                Request::Finish => {
                    share.finish(id);
                    Reply::Done
                }
                other => panic!("{other:?} in a simulated program"),
            },
            Vec::new(),
        ))
    }

    /// The worker is dead and its last word read, or lost with the link.
    fn bury(&mut self, worker: usize, out: &mut Outbox<Word>) {
        self.gone[worker] = true;
        if self.chance.below(2) == 0 {
            self.asked[worker].clear();
        }
        self.work(out);
        self.asked[worker].clear();
        let held = self.wards[worker].held().map(|(_, hold)| hold);
        let report = Report { share: self.index as u32, published: self.share().published(worker as u32), held };
        let report = Report::decode(&report.encode()).expect("it comes back");
        out.send(self.world.server(0), Word::Report(worker, report));
    }
}

enum Participant {
    Worker(Box<Worker>),
    Server(Server),
}

impl Node<Word> for Participant {
    fn start(&mut self, now: Duration, out: &mut Outbox<Word>) {
        match self {
            Participant::Worker(worker) => worker.next_moment(now, out),
            // Rounds also end in shared memory, without a message; the server looks from time to time.
            Participant::Server(_) => out.alarm_at(now + Duration::from_millis(20)),
        }
    }

    fn message(&mut self, from: usize, word: Word, now: Duration, out: &mut Outbox<Word>) {
        match (self, word) {
            (Participant::Worker(worker), Word::Reply(number, meta, payload)) => {
                worker.reply(from - worker.world.workers, number, &meta, &payload);
                worker.next_moment(now, out);
            }
            (Participant::Server(server), Word::Request(number, meta, payload)) => {
                let held = server.share().rows();
                let bounds = Bounds { row_bytes: server.world.row_bytes() as u64, rows: Some(held.end - held.start), floats: false };
                let request = Request::decode(&meta, payload.len() as u64, &bounds).expect("a good request");
                server.asked[from].push_back((number, request, payload));
                server.work(out);
            }
            (Participant::Server(server), Word::Report(worker, report)) => {
                if server.inquests[worker].hear(report) {
                    for share in 0..server.world.shares.len() {
                        out.send(server.world.server(share), Word::Verdict(worker, server.inquests[worker].counts(share)));
                    }
                }
            }
            (Participant::Server(server), Word::Verdict(worker, counts)) => {
                if let Some((sequence, _)) = server.wards[worker].held() {
                    match counts {
                        true => server.share().publish(worker as u32, sequence).expect("held"),
                        false => server.share().discard(worker as u32, sequence),
                    }
                }
                server.share().finish(worker as u32);
                server.work(out);
            }
            _ => panic!("a word to the wrong one"),
        }
    }

    fn closed(&mut self, peer: usize, _: Duration, out: &mut Outbox<Word>) {
        if let Participant::Server(server) = self {
            server.bury(peer, out);
        }
    }

    fn alarm(&mut self, now: Duration, out: &mut Outbox<Word>) {
        match self {
            Participant::Worker(worker) => {
                worker.step(out);
                worker.next_moment(now, out);
            }
            Participant::Server(server) => {
                server.work(out);
                if now < END {
                    out.alarm_at(now + Duration::from_millis(20));
                }
            }
        }
    }
}

const END: Duration = Duration::from_secs(10);

/// One history. Worker w's adds change column w only, so that what a get saw of each worker can be told apart.
fn history(seed: u64) -> usize {
    let mut chance = Chance::new(seed);
    let (workers, shares) = (1 + chance.below(4) as usize, 1 + chance.below(3) as usize);
    let consistency = [Consistency::Async, Consistency::Sync, Consistency::Bounded(1 + chance.below(2) as u32)][chance.below(3) as usize];
    let mut end = 0;
    let ranges: Vec<std::ops::Range<u64>> = (0..shares)
        .map(|share| {
            let start = end;
            end += chance.below(4) + u64::from(share == 0);
            start..end
        })
        .collect();
    let naive = |range: &std::ops::Range<u64>| Arc::new(Naive::new(range.clone(), workers, DType::I64, consistency, workers));
    let world = World { layout: Layout::Ranges(ranges.clone()), consistency, workers, shares: ranges.iter().map(naive).collect() };
    let rows = end;
    let program = |id: usize, chance: &mut Chance| {
        let some = |chance: &mut Chance| {
            (chance.below(3) > 0).then(|| (0..chance.below(5)).map(|_| chance.below(rows) as i64).collect::<Vec<i64>>())
        };
        let line = |chance: &mut Chance| match chance.below(6) {
            0 | 1 => Op::Get(some(chance)),
            2 => Op::GetBeside(some(chance)),
            _ => {
                let ids = some(chance);
                let count = ids.as_ref().map_or(rows as usize, Vec::len);
                let mut delta = vec![0; count * workers];
                delta.chunks_mut(workers).for_each(|row| row[id] = 1 + chance.below(1 << 40) as i64);
                Op::Add(ids, delta)
            }
        };
        (0..chance.below(14)).map(|_| line(chance)).collect::<VecDeque<Op>>()
    };
    let programs: Vec<VecDeque<Op>> = (0..workers).map(|id| program(id, &mut chance)).collect();
    let mut nodes = Vec::new();
    for (id, program) in programs.iter().enumerate() {
        let here = (chance.below(3) == 0).then(|| chance.below(shares as u64) as usize);
        nodes.push(Participant::Worker(Box::new(Worker {
            id,
            here,
            world: world.clone(),
            program: program.clone(),
            chance: Chance::new(chance.bits()),
            todo: VecDeque::new(),
            due: (0..shares).map(|_| Vec::new()).collect(),
            asked: vec![0; shares],
            made: vec![0; shares],
            adding: None,
            gets: Vec::new(),
            begun: 0,
            waits_for: None,
            issued: 0,
            finished: false,
            seen: Vec::new(),
            overtaken: 0,
        })));
    }
    for index in 0..shares {
        nodes.push(Participant::Server(Server {
            index,
            world: world.clone(),
            asked: vec![VecDeque::new(); workers],
            wards: vec![Ward::new(0); workers],
            gone: vec![false; workers],
            inquests: vec![Inquest::new(shares); workers],
            chance: Chance::new(chance.bits()),
        }));
    }
    let start_spread = Duration::from_millis(20);
    let weather = Weather { delay: (Duration::from_micros(10), Duration::from_millis(8)), reorder: false, start_spread };
    let mut sim = Sim::new(seed, weather, nodes);
    let victims: Vec<usize> = (0..workers).filter(|_| chance.below(4) == 0).collect();
    for victim in &victims {
        // After the last start, when it has begun.
        let moment = start_spread + chance.duration(Duration::ZERO, Duration::from_millis(150));
        sim.crash_at(moment, *victim);
    }
    sim.run(END + Duration::from_secs(1));
    let worker = |id: usize| match sim.node(id) {
        Participant::Worker(worker) => &**worker,
        Participant::Server(_) => unreachable!("servers come after the workers"),
    };
    let workers: Vec<&Worker> = (0..workers).map(worker).collect();
    check(seed, &world, &programs, &victims, &workers);
    workers.iter().map(|worker| worker.overtaken).sum()
}

/// What row `id` holds in column `worker` after its first `adds` adds.
fn model(programs: &[VecDeque<Op>], worker: usize, adds: usize, id: i64) -> i64 {
    let row = programs.len();
    let all = programs[worker].iter().filter_map(|op| if let Op::Add(ids, delta) = op { Some((ids, delta)) } else { None });
    all.take(adds)
        .map(|(ids, delta)| match ids {
            None => delta[id as usize * row + worker],
            Some(ids) => ids.iter().enumerate().filter(|(_, other)| **other == id).map(|(place, _)| delta[place * row + worker]).sum(),
        })
        .sum()
}

fn check(seed: u64, world: &World, programs: &[VecDeque<Op>], victims: &[usize], workers: &[&Worker]) {
    let total = |worker: usize| programs[worker].iter().filter(|op| matches!(op, Op::Add(..))).count();
    let stored: Vec<i64> = world.shares.iter().flat_map(|share| numbers(&share.values())).collect();
    // How many adds of each worker the table holds: all of a survivor, a beginning of a victim's.
    let mut counted = Vec::new();
    for (id, worker) in workers.iter().enumerate() {
        let holds =
            |adds: usize| world.all_ids().iter().all(|row| stored[*row as usize * programs.len() + id] == model(programs, id, adds, *row));
        if victims.contains(&id) {
            // Adds of no row change nothing, so several counts may fit; the last one is the one a later get must agree with.
            let fits = (0..=worker.issued).rev().find(|adds| holds(*adds));
            counted.push(fits.unwrap_or_else(|| panic!("seed {seed}: victim {id} left a part of an add: {stored:?}")));
        } else {
            assert!(
                worker.finished && worker.todo.is_empty(),
                "seed {seed}: worker {id} got stuck with {} lines left",
                worker.program.len()
            );
            assert!(holds(total(id)), "seed {seed}: an add of worker {id} is missing or there twice");
            counted.push(total(id));
        }
    }
    for (id, worker) in workers.iter().enumerate() {
        for seen in &worker.seen {
            for (place, row) in seen.ids.iter().enumerate() {
                for (other, counted) in counted.iter().copied().enumerate() {
                    let value = seen.values[place * programs.len() + other];
                    let after = |adds: usize| model(programs, other, adds, *row);
                    // Beside a get its worker may have gone on.
                    let mut own = seen.own_adds..=seen.until;
                    let possible = match world.consistency {
                        _ if other == id && world.consistency != Consistency::Sync => own.any(|adds| value == after(adds)),
                        Consistency::Sync => own.any(|adds| value == after(adds.min(counted))),
                        Consistency::Async => (0..=counted).any(|adds| value == after(adds)),
                        Consistency::Bounded(bound) => {
                            let least = seen.own_adds.saturating_sub(bound as usize).min(counted);
                            (least..=counted).any(|adds| value == after(adds))
                        }
                    };
                    assert!(possible, "seed {seed}: worker {id} after {} adds saw {value} of worker {other} in row {row}", seen.own_adds);
                }
            }
        }
    }
}

#[test]
fn whole_adds_and_right_gets_in_every_history() {
    let seeds = std::env::var("SYNCLINE_SIM_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(2000_u64);
    let overtaken: usize = (0..seeds).map(history).sum();
    assert!(overtaken > seeds as usize / 20, "{overtaken} replies overtook others: gets that wait are what this is about");
}

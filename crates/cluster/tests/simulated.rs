//! The coordinator in a simulated network: thousands of histories on virtual time, each repeatable by its seed.
//!
//! `SYNCLINE_SIM_SEEDS=100000 cargo test -p syncline-cluster --test simulated` runs more of them.

use std::time::Duration;

use syncline_cluster::DownCause;
use syncline_cluster::coordinator::{Action, Event, Spec, State, heartbeat_interval};
use syncline_testkit::sim::{Node, Outbox, Sim, Weather};
use syncline_wire::message::{Call, Control, HostId, MemberInfo, RoleCode};

const TIMEOUT: Duration = Duration::from_secs(10);
const COORDINATOR: usize = 0;

/// Node 0 runs the state; node i + 1 is the member with rank i.
enum Participant {
    Coordinator(State),
    Member(Member),
}

#[derive(Default)]
struct Member {
    rank: u32,
    world: u32,
    epoch: u32,
    roster: Option<usize>,
    missing: Option<Vec<u32>>,
    down: Vec<(u32, Duration, DownCause)>,
    refused: Option<String>,
    all_left: bool,
    leaves_at: Option<Duration>,
    left: bool,
    /// The calls it makes, one after the other, each a kind that should be the same everywhere.
    calls: Vec<u8>,
    agreed: Vec<(u64, Vec<u8>)>,
    disagreed: Option<(u64, u32, u32)>,
}

impl Node<Control> for Participant {
    fn start(&mut self, now: Duration, out: &mut Outbox<Control>) {
        if let Participant::Member(member) = self {
            out.send(COORDINATOR, member.join());
            out.alarm_at(now + heartbeat_interval(TIMEOUT));
        }
    }

    fn message(&mut self, from: usize, message: Control, now: Duration, out: &mut Outbox<Control>) {
        match self {
            Participant::Coordinator(state) => {
                let actions = state.on(Event::Said { connection: from as u64, local: false, message }, now);
                carry_out(state, actions, out);
            }
            Participant::Member(member) => {
                let next = matches!(message, Control::Welcome { .. } | Control::Agreed { .. });
                member.hear(message, now);
                if next && let Some(kind) = member.calls.get(member.agreed.len()) {
                    out.send(COORDINATOR, member.propose(*kind));
                }
            }
        }
    }

    fn closed(&mut self, peer: usize, now: Duration, out: &mut Outbox<Control>) {
        if let Participant::Coordinator(state) = self {
            let actions = state.on(Event::Closed { connection: peer as u64, detail: "closed".into() }, now);
            carry_out(state, actions, out);
        }
    }

    fn alarm(&mut self, now: Duration, out: &mut Outbox<Control>) {
        match self {
            Participant::Coordinator(state) => {
                let actions = state.on(Event::Tick, now);
                carry_out(state, actions, out);
            }
            Participant::Member(member) => {
                if member.leaves_at.is_some_and(|moment| now >= moment) && member.roster.is_some() && !member.left {
                    member.left = true;
                    out.send(COORDINATOR, Control::Leaving);
                }
                out.send(COORDINATOR, Control::Heartbeat { count: 1 });
                out.alarm_at(now + heartbeat_interval(TIMEOUT));
            }
        }
    }
}

fn carry_out(state: &State, actions: Vec<Action>, out: &mut Outbox<Control>) {
    for action in actions {
        if let Action::Send { connection, message } = action {
            out.send(connection as usize, message);
        }
    }
    if let Some(tick) = state.next_tick() {
        out.alarm_at(tick);
    }
}

impl Member {
    fn join(&self) -> Control {
        let member = MemberInfo {
            rank: Some(self.rank),
            role: RoleCode::Both,
            pid: 1000 + self.rank,
            pid_space: 1,
            host: HostId { boot: [0; 16], network: 1 },
            host_name: "simulated".into(),
            unix_name: String::new(),
            addresses: Vec::new(),
            instance: [self.rank as u8; 16],
            local_rank_hint: None,
        };
        Control::Join { member, world: self.world, epoch: self.epoch, started_by: "sim".into(), patience_ms: None }
    }

    fn hear(&mut self, message: Control, now: Duration) {
        match message {
            Control::Welcome { roster, .. } => self.roster = Some(roster.len()),
            Control::StartTimeout { missing, .. } => self.missing = Some(missing),
            Control::Down { rank, cause, .. } => self.down.push((rank, now, cause)),
            Control::Refused { reason } => drop(self.refused.get_or_insert(reason)),
            Control::AllLeft => self.all_left = true,
            Control::Agreed { number, payload, .. } => self.agreed.push((number, payload)),
            Control::Disagreed { number, one, other } => self.disagreed = Some((number, one.0, other.0)),
            _ => {}
        }
    }

    fn propose(&self, kind: u8) -> Control {
        let number = self.agreed.len() as u64 + 1;
        let call = Call { operation: format!("kind {kind}"), site: format!("rank{}.py:{number}", self.rank) };
        Control::Propose { number, fingerprint: [kind; 16], call, payload: vec![self.rank as u8, kind] }
    }
}

fn cluster(seed: u64, world: u32, prepare: impl Fn(&mut Member)) -> Sim<Participant, Control> {
    let spec = Spec {
        workers: world,
        servers: 0,
        epoch: 3,
        job: [7; 16],
        timeout: TIMEOUT,
        knows_exits: false,
        how_ranks_start: (0..world).map(|rank| format!("start it with SYNCLINE_RANK={rank}")).collect(),
    };
    let mut nodes = vec![Participant::Coordinator(State::new(spec))];
    for rank in 0..world {
        let mut member = Member { rank, world, epoch: 3, ..Member::default() };
        prepare(&mut member);
        nodes.push(Participant::Member(member));
    }
    Sim::new(seed, Weather::rough(), nodes)
}

fn member(sim: &Sim<Participant, Control>, rank: u32) -> &Member {
    match sim.node(rank as usize + 1) {
        Participant::Member(member) => member,
        Participant::Coordinator(_) => unreachable!("node 0 is not a rank"),
    }
}

fn seeds() -> std::ops::Range<u64> {
    0..std::env::var("SYNCLINE_SIM_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(2000)
}

#[test]
fn everybody_who_starts_is_welcomed_with_the_whole_roster() {
    for seed in seeds() {
        let world = 1 + (seed % 9) as u32;
        let mut sim = cluster(seed, world, |_| {});
        sim.run(Duration::from_secs(30));
        for rank in 0..world {
            let member = member(&sim, rank);
            assert_eq!(member.roster, Some(world as usize), "seed {seed}, rank {rank}");
            assert!(member.down.is_empty(), "seed {seed}: nobody died, yet rank {rank} heard of {:?}", member.down);
        }
    }
}

#[test]
fn a_crash_at_any_moment_reaches_every_survivor_and_names_the_right_rank() {
    for seed in seeds() {
        let world = 2 + (seed % 7) as u32;
        let mut sim = cluster(seed, world, |_| {});
        let victim = sim.chance().below(u64::from(world)) as u32;
        let moment = sim.chance().duration(Duration::ZERO, Duration::from_secs(1));
        sim.crash_at(moment, victim as usize + 1);
        sim.run(Duration::from_secs(30));
        for rank in (0..world).filter(|rank| *rank != victim) {
            let member = member(&sim, rank);
            let by_death = member.down.first().map(|(rank, _, _)| *rank);
            let by_absence = member.missing.as_ref().map(|missing| missing.contains(&victim));
            assert!(
                by_death == Some(victim) || by_absence == Some(true),
                "seed {seed}: rank {victim} crashed at {moment:?}, rank {rank} heard of {by_death:?} and {by_absence:?}"
            );
            if let Some((_, noticed, _)) = member.down.first() {
                assert!(*noticed <= moment + Duration::from_secs(1), "seed {seed}: noticed only at {noticed:?}");
            }
        }
    }
}

#[test]
fn a_member_that_is_cut_off_in_silence_is_reported_within_the_timeout() {
    for seed in seeds().step_by(5) {
        let world = 2 + (seed % 5) as u32;
        let mut sim = cluster(seed, world, |_| {});
        let victim = sim.chance().below(u64::from(world)) as u32;
        let moment = Duration::from_secs(2) + sim.chance().duration(Duration::ZERO, Duration::from_secs(5));
        sim.cut_at(moment, COORDINATOR, victim as usize + 1);
        sim.run(Duration::from_secs(60));
        for rank in (0..world).filter(|rank| *rank != victim) {
            let down = &member(&sim, rank).down;
            assert_eq!(down.len(), 1, "seed {seed}: one report and no more");
            let (culprit, noticed, cause) = &down[0];
            assert_eq!(*culprit, victim, "seed {seed}");
            assert!(matches!(cause, DownCause::Silent { .. }), "seed {seed}: {cause:?}");
            let latest = moment + TIMEOUT; // before those give up who wait for somebody that waits for it
            assert!(*noticed <= latest, "seed {seed}: cut at {moment:?}, noticed at {noticed:?}");
        }
    }
}

#[test]
fn a_short_cut_alarms_nobody() {
    for seed in seeds().step_by(5) {
        let mut sim = cluster(seed, 4, |_| {});
        sim.cut_at(Duration::from_secs(3), COORDINATOR, 2);
        sim.heal_at(Duration::from_secs(6), COORDINATOR, 2);
        sim.run(Duration::from_secs(60));
        for rank in 0..4 {
            assert!(member(&sim, rank).down.is_empty(), "seed {seed}, rank {rank}: {:?}", member(&sim, rank).down);
        }
    }
}

#[test]
fn early_leavers_hold_nobody_up_and_the_last_one_ends_the_job() {
    for seed in seeds().step_by(3) {
        let mut sim = cluster(seed, 4, |member| member.leaves_at = Some(Duration::from_secs(2 + 3 * u64::from(member.rank))));
        sim.run(Duration::from_secs(60));
        for rank in 0..4 {
            assert!(member(&sim, rank).all_left, "seed {seed}, rank {rank}");
            assert!(member(&sim, rank).down.is_empty(), "seed {seed}: leaving is no death");
        }
    }
}

#[test]
fn workers_that_call_alike_agree_in_order_whatever_the_weather() {
    for seed in seeds().step_by(3) {
        let world = 1 + (seed % 6) as u32;
        let mut sim = cluster(seed, world, |member| member.calls = vec![4, 2, 2, 9]);
        sim.run(Duration::from_secs(30));
        for rank in 0..world {
            let member = member(&sim, rank);
            let expected: Vec<(u64, Vec<u8>)> = (1..).zip([4, 2, 2, 9]).map(|(number, kind)| (number, vec![0, kind])).collect();
            assert_eq!((&member.agreed, member.disagreed), (&expected, None), "seed {seed}, rank {rank}");
        }
    }
}

#[test]
fn one_that_calls_something_else_is_named_to_all_workers() {
    for seed in seeds().step_by(3) {
        let world = 2 + (seed % 6) as u32;
        let odd = (seed / 7 % u64::from(world)) as u32;
        let mut sim = cluster(seed, world, |member| member.calls = vec![4, if member.rank == odd { 3 } else { 2 }, 9]);
        sim.run(Duration::from_secs(30));
        let told = member(&sim, 0).disagreed.expect("told");
        assert!(told.0 == 2 && (told.1 == odd || told.2 == odd) && told.1 < told.2, "seed {seed}: rank {odd} differs, told {told:?}");
        for rank in 0..world {
            let member = member(&sim, rank);
            assert_eq!((member.agreed.len(), member.disagreed), (1, Some(told)), "seed {seed}, rank {rank}");
        }
    }
}

#[test]
fn who_has_left_holds_no_agreement_up() {
    for seed in seeds().step_by(3) {
        let mut sim = cluster(seed, 3, |member| match member.rank {
            1 => member.leaves_at = Some(Duration::from_secs(2)),
            _ => member.calls = vec![5],
        });
        sim.run(Duration::from_secs(30));
        for rank in [0, 2] {
            assert_eq!(member(&sim, rank).agreed, [(1, vec![0, 5])], "seed {seed}, rank {rank}");
        }
    }
}

#[test]
fn stragglers_of_an_earlier_start_and_wrong_worlds_are_refused_with_the_reason() {
    let mut sim = cluster(1, 3, |member| {
        if member.rank == 1 {
            member.epoch = 2;
        }
        if member.rank == 2 {
            member.world = 5;
        }
    });
    sim.run(Duration::from_secs(30));
    let reason = |rank| member(&sim, rank).refused.clone().expect("refused");
    assert!(reason(1).contains("straggler"), "{}", reason(1));
    assert!(reason(2).contains("expects 5 ranks"), "{}", reason(2));
    assert_eq!(member(&sim, 0).missing, Some(vec![1, 2]), "the genuine one learns who never came");
}

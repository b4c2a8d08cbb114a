//! Deaths, agreements and blame, event by event.

use syncline_wire::message::{Call, RoleCode};

use super::*;
use crate::roster::tests::member_on;

const fn at(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A running job of three whose launcher tells how processes end.
fn running() -> State {
    running_where([])
}

/// A job of three, of whom some go on when a worker dies.
fn running_where<const N: usize>(going_on: [u32; N]) -> State {
    assembled(3, 0, &going_on).0
}

/// A job of these workers and servers, of whom some said that they go on, and what the last to join set off.
fn assembled(workers: u32, servers: u32, going_on: &[u32]) -> (State, Vec<Action>) {
    let spec = Spec { workers, servers, epoch: 0, job: [0; 16], timeout: at(5000), knows_exits: true, how_ranks_start: Vec::new() };
    let (mut state, mut told) = (State::new(spec), Vec::new());
    for rank in 0..workers + servers {
        let mut member = member_on(rank, 1).with_rank(Some(rank));
        if rank >= workers {
            member.role = RoleCode::Server;
        }
        let join = Control::Join { member, world: workers + servers, epoch: 0, started_by: "test".into(), patience_ms: None };
        let first = going_on.contains(&rank).then_some(Control::GoesOn);
        for message in first.into_iter().chain([join]) {
            told = state.on(Event::Said { connection: rank.into(), local: true, message }, at(0));
        }
    }
    assert!(state.is_running() && state.going_on.is_empty());
    (state, told)
}

fn deaths(actions: &[Action]) -> Vec<(u32, DownCause)> {
    let mut found: Vec<(u32, DownCause)> = Vec::new();
    for action in actions {
        if let Action::Send { message: Control::Down { rank, cause, .. }, .. } = action
            && found.iter().all(|(known, _)| known != rank)
        {
            found.push((*rank, cause.clone()));
        }
    }
    found
}

#[test]
fn a_closed_connection_waits_for_the_launchers_word_and_not_for_ever() {
    let mut state = running();
    assert!(deaths(&state.on(Event::Closed { connection: 1, detail: String::new() }, at(10))).is_empty());
    let told = state.on(Event::ProcessEnded { rank: 1, cause: DownCause::Killed { signal: 9 } }, at(20));
    assert_eq!(deaths(&told), [(1, DownCause::Killed { signal: 9 })]);

    let mut state = running();
    state.on(Event::Closed { connection: 2, detail: String::new() }, at(10));
    let tick = state.next_tick().expect("it has not forgotten");
    assert_eq!(deaths(&state.on(Event::Tick, tick)), [(2, DownCause::Disconnected)]);
}

#[test]
fn who_closed_first_died_first_whatever_order_the_launcher_hears() {
    let mut state = running();
    state.on(Event::Closed { connection: 2, detail: String::new() }, at(10));
    let told = state.on(Event::ProcessEnded { rank: 0, cause: DownCause::Exited { code: 1 } }, at(30));
    assert_eq!(deaths(&told), [(2, DownCause::Disconnected), (0, DownCause::Exited { code: 1 })]);
    assert_eq!(state.culprit(), Some(2));
}

#[test]
fn the_first_member_that_waits_no_longer_ends_the_gathering_whatever_the_coordinators_own_time() {
    let spec = Spec { workers: 3, servers: 0, epoch: 0, job: [0; 16], timeout: at(5000), knows_exits: true, how_ranks_start: Vec::new() };
    for (patience, over) in [([Some(2000), Some(9000)], 2000), ([Some(9000), Some(9000)], 9000), ([None, Some(9000)], 5000)] {
        let mut state = State::new(spec.clone());
        for (rank, patience_ms) in (0..).zip(patience) {
            let member = member_on(rank, 1).with_rank(Some(rank));
            let message = Control::Join { member, world: 3, epoch: 0, started_by: "test".into(), patience_ms };
            assert!(state.on(Event::Said { connection: rank.into(), local: true, message }, at(0)).is_empty());
        }
        assert!(state.on(Event::Tick, at(over - 1)).is_empty());
        assert_eq!(state.next_tick(), Some(at(over)));
        let told = state.on(Event::Tick, at(over));
        let names_rank_2 =
            |action: &&Action| matches!(action, Action::Send { message: Control::StartTimeout { missing, .. }, .. } if *missing == [2]);
        assert_eq!(told.iter().filter(names_rank_2).count(), 2, "{patience:?}: {told:?}");
    }
}

#[test]
fn a_death_while_they_gather_is_told_with_host_and_process_id() {
    let spec = Spec { workers: 3, servers: 0, epoch: 0, job: [0; 16], timeout: at(5000), knows_exits: false, how_ranks_start: Vec::new() };
    let mut state = State::new(spec);
    for rank in 0..2 {
        let member = member_on(rank, 1).with_rank(Some(rank));
        let message = Control::Join { member, world: 3, epoch: 0, started_by: "test".into(), patience_ms: None };
        state.on(Event::Said { connection: rank.into(), local: true, message }, at(0));
    }
    let dead = member_on(1, 1);
    let told = state.on(Event::Closed { connection: 1, detail: String::new() }, at(10));
    let is_known = |action: &Action| matches!(action, Action::Send { message: Control::Down { rank: 1, host_name, pid, .. }, .. } if *host_name == dead.host_name && *pid == dead.pid);
    assert!(told.iter().any(is_known), "{told:?}");
}

#[test]
fn who_waited_long_for_the_last_rank_is_not_silent() {
    let spec = Spec { workers: 2, servers: 0, epoch: 0, job: [0; 16], timeout: at(6000), knows_exits: false, how_ranks_start: Vec::new() };
    let mut state = State::new(spec);
    let join = |rank: u32| {
        let member = member_on(rank, u64::from(rank)).with_rank(Some(rank));
        let message = Control::Join { member, world: 2, epoch: 0, started_by: "test".into(), patience_ms: None };
        Event::Said { connection: rank.into(), local: false, message }
    };
    assert!(deaths(&state.on(join(1), at(0))).is_empty());
    assert!(deaths(&state.on(Event::Tick, at(5000))).is_empty(), "members beat only once the job runs");
    assert!(deaths(&state.on(join(0), at(5500))).is_empty());
    assert!(state.is_running());
    let told = state.on(Event::Tick, at(5500) + silent_after(at(6000)));
    assert_eq!(deaths(&told).len(), 2, "nobody said a word since");
}

fn say(state: &mut State, rank: u64, message: Control) -> Vec<Action> {
    state.on(Event::Said { connection: rank, local: true, message }, at(5))
}

fn propose(number: u64) -> Control {
    let call = Call { operation: "array".into(), site: String::new() };
    Control::Propose { number, fingerprint: [1; 16], call, payload: Vec::new() }
}

fn agreements(actions: &[Action]) -> usize {
    actions.iter().filter(|action| matches!(action, Action::Send { message: Control::Agreed { .. }, .. })).count()
}

#[test]
fn where_the_others_go_on_no_agreement_waits_for_the_dead() {
    assert!(!running().goes_on());
    let mut state = running_where([0, 1, 2]);
    assert!(state.goes_on(), "known as soon as all have joined: the first death may come at once");
    say(&mut state, 0, propose(1));
    say(&mut state, 2, propose(1));
    let told = state.on(Event::ProcessEnded { rank: 1, cause: DownCause::Killed { signal: 9 } }, at(20));
    assert_eq!(agreements(&told), 3, "told to all that are connected");
    assert!(told.contains(&Action::Send { connection: 0, message: Control::Ended { rank: 1 } }));
    say(&mut state, 0, propose(2));
    assert_eq!(agreements(&say(&mut state, 2, propose(2))), 3);
    assert!(state.goes_on(), "the dead need not say so");
}

#[test]
fn where_one_does_not_go_on_the_job_does_not() {
    let mut state = running_where([0, 1]);
    assert!(!state.goes_on());
    say(&mut state, 0, propose(1));
    say(&mut state, 2, propose(1));
    let told = state.on(Event::ProcessEnded { rank: 1, cause: DownCause::Killed { signal: 9 } }, at(20));
    assert_eq!(agreements(&told), 0, "the workers hear of the death instead");
    assert_eq!(deaths(&told), [(1, DownCause::Killed { signal: 9 })]);
}

#[test]
fn dedicated_servers_go_on_where_all_workers_do() {
    let heard = |told: &[Action], connection: u64| -> Vec<&'static str> {
        let to = |action: &Action| match action {
            Action::Send { connection: to, message: Control::GoesOn } if *to == connection => Some("goes on"),
            Action::Send { connection: to, message: Control::Welcome { .. } } if *to == connection => Some("welcome"),
            _ => None,
        };
        told.iter().filter_map(to).collect()
    };
    let (mut state, told) = assembled(2, 1, &[0, 1]);
    assert!(state.goes_on(), "the server has no word in it");
    for connection in 0..3 {
        assert_eq!(heard(&told, connection), ["goes on", "welcome"], "everybody knows before anybody can die");
    }
    let told = state.on(Event::ProcessEnded { rank: 1, cause: DownCause::Killed { signal: 9 } }, at(20));
    assert_eq!(deaths(&told), [(1, DownCause::Killed { signal: 9 })]);
    assert_eq!(agreements(&say(&mut state, 0, propose(1))), 3, "told to all that are connected");
    for going_on in [&[0, 2][..], &[2], &[]] {
        let (state, told) = assembled(2, 1, going_on);
        assert!(!state.goes_on(), "{going_on:?}");
        assert_eq!(heard(&told, 2), ["welcome"], "{going_on:?}");
    }
}

#[test]
fn a_notice_goes_to_all_and_its_answers_to_who_posted_it() {
    let mut state = running();
    let told = say(&mut state, 1, Control::Post { number: 4, payload: vec![9] });
    let posted = Control::Posted { from: 1, number: 4, payload: vec![9] };
    let mut heard: Vec<u64> = Vec::new();
    for action in &told {
        let Action::Send { connection, message } = action else { panic!("{action:?}") };
        assert_eq!(*message, posted);
        heard.push(*connection);
    }
    assert_eq!(heard, [2, 1, 0], "rank 0, who may host the coordinator, last");
    let answer = |rank| Control::Answer { rank, number: 4, refusal: String::new() };
    let told = say(&mut state, 2, answer(1));
    assert_eq!(told, [Action::Send { connection: 1, message: answer(2) }], "told by whom");
    assert!(say(&mut state, 2, answer(77)).is_empty(), "nobody asked");
}

#[test]
fn a_proposal_that_makes_no_sense_closes_the_connection() {
    let mut state = running();
    let mut told = Vec::new();
    for number in 1..=5000 {
        told = say(&mut state, 0, propose(number));
        if !told.is_empty() {
            break;
        }
    }
    assert!(told.contains(&Action::Close { connection: 0 }), "{told:?}");
}

#[test]
fn blame_leads_to_the_culprit() {
    let mut state = running();
    state.on(Event::Said { connection: 0, local: true, message: Control::Blaming(Blame { rank: 1, silent: true }) }, at(5));
    state.on(Event::ProcessEnded { rank: 0, cause: DownCause::Exited { code: 1 } }, at(10));
    assert_eq!(state.culprit(), Some(1));
}

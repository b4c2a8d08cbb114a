//! Every plan, for every number of ranks: all contributions once, the same everywhere, no deadlock; and what plans look like.

use std::time::Duration;

use syncline_collective::plan::check::{self, Association};
use syncline_collective::plan::cost::{Cost, Figures};
use syncline_collective::plan::{Deed, Plan, PlanName, Then, chain, doubling, halving, host_tree, hosts, memory, ring, tree};
use syncline_testkit::golden::assert_golden;
use syncline_testkit::sim::{Node, Outbox, Sim, Weather};

fn every_plan(ranks: usize) -> Vec<(Plan, Association)> {
    let few = if ranks <= 3 { Association::LeftFold } else { Association::InOrder };
    let mut plans = vec![
        (halving::all_reduce(ranks), few),
        (chain::all_reduce(ranks, 1), Association::LeftFold),
        (chain::all_reduce(ranks, 5), Association::LeftFold),
        (doubling::all_reduce(ranks), Association::LeftFold),
        (memory::all_reduce(ranks), Association::LeftFold),
        (ring::all_reduce(ranks), if ranks < 2 { Association::LeftFold } else { Association::Shuffled }),
    ];
    for base in [2, 3, 4, 5, 8, 40] {
        // Without grandchildren the root folds one after the other.
        let association = if ranks <= base as usize + 1 { Association::LeftFold } else { Association::InOrder };
        plans.push((tree::all_reduce(ranks, base), association));
    }
    for per_host in [1, 2, 3, 7] {
        let all: Vec<usize> = (0..ranks).collect();
        let layout: Vec<Vec<usize>> = all.chunks(per_host).map(<[usize]>::to_vec).collect();
        plans.push((hosts::all_reduce(&layout, 3), Association::LeftFold));
    }
    plans
}

#[test]
fn every_plan_brings_each_contribution_once_to_every_rank_of_any_number() {
    for ranks in 1..=33 {
        for (plan, association) in every_plan(ranks) {
            let (_, found) = check::all_reduce(&plan).unwrap_or_else(|flaw| panic!("{flaw}\n{plan}"));
            assert_eq!(found, association, "{plan}");
        }
    }
}

/// All ways to put `ranks` positions on hosts, hosts in order of their first members.
fn every_layout(ranks: usize) -> Vec<Vec<Vec<usize>>> {
    let mut layouts: Vec<Vec<Vec<usize>>> = vec![Vec::new()];
    for position in 0..ranks {
        let grown = |layout: Vec<Vec<usize>>| {
            (0..=layout.len()).map(move |host| {
                let mut layout = layout.clone();
                layout.resize(layout.len().max(host + 1), Vec::new());
                layout[host].push(position);
                layout
            })
        };
        layouts = layouts.into_iter().flat_map(grown).collect();
    }
    layouts
}

#[test]
fn host_by_host_is_the_left_fold_of_the_group_exactly_where_hosts_stand_in_a_row() {
    for layout in (1..=7).flat_map(every_layout) {
        let (outcome, association) = check::all_reduce(&hosts::all_reduce(&layout, 2)).unwrap_or_else(|flaw| panic!("{flaw}\n{layout:?}"));
        assert_eq!(association == Association::LeftFold, hosts::in_a_row(&layout), "{layout:?}");
        assert_eq!(outcome.ends[0][0].order(), layout.concat(), "the order in which it is taken by what no order shows in");
    }
}

#[test]
fn a_tree_over_hosts_keeps_the_order_and_crosses_once_each_way_where_they_stand_in_a_row() {
    for (layout, base) in (1..=7).flat_map(every_layout).flat_map(|layout| [2, 3].map(|base| (layout.clone(), base))) {
        let rows = host_tree::rows(layout.clone());
        let plan = host_tree::all_reduce(&rows, base);
        let (_, association) = check::all_reduce(&plan).unwrap_or_else(|flaw| panic!("{flaw}\n{plan}"));
        assert_ne!(association, Association::Shuffled, "{plan}");
        let home = |position: usize| rows.iter().position(|members| members.contains(&position));
        let sends = plan.steps.iter().enumerate().flat_map(|(from, steps)| steps.iter().flatten().map(move |deed| (from, deed)));
        let crossing = sends.filter(|(from, deed)| matches!(deed, Deed::Send { to, .. } if home(*from) != home(*to))).count();
        assert_eq!(crossing, 2 * (rows.len() - 1), "{plan}");
        assert_eq!(rows.len(), if hosts::in_a_row(&layout) { layout.len() } else { 1 });
    }
}

#[test]
fn reductions_and_broadcasts_reach_their_root_and_everybody() {
    for ranks in 1..=17 {
        for root in 0..ranks {
            for plan in [tree::reduce(ranks, 2, root), tree::reduce(ranks, 3, root), chain::reduce(ranks, 4, root)] {
                let outcome = check::run(&plan).unwrap_or_else(|flaw| panic!("{flaw}\n{plan}"));
                assert!(outcome.ends[root].iter().all(|term| term.order() == (0..ranks).collect::<Vec<_>>()), "{plan}");
            }
            for plan in [tree::broadcast(ranks, 2), tree::broadcast(ranks, 5), chain::broadcast(ranks, 3)] {
                let outcome = check::run(&plan.clone().rotated(root)).unwrap_or_else(|flaw| panic!("{flaw}\n{plan}"));
                assert!(outcome.ends.iter().flatten().all(|term| term.order() == [root]), "{plan}");
            }
        }
    }
}

#[test]
fn plans_look_as_they_are_written_down() {
    let link = |name, ranks| Cost::of(name, 2, ranks, 1 << 20);
    let shapes = [
        ("tree-2-of-8", tree::all_reduce(8, 2), link(PlanName::Tree { base: Some(2) }, 8)),
        ("tree-4-of-8", tree::all_reduce(8, 4), link(PlanName::Tree { base: Some(4) }, 8)),
        ("tree-3-of-9", tree::all_reduce(9, 3), link(PlanName::Tree { base: Some(3) }, 9)),
        ("ring-of-4", ring::all_reduce(4), link(PlanName::Ring, 4)),
        ("halving-of-4", halving::all_reduce(4), link(PlanName::Halving, 4)),
        ("halving-of-7", halving::all_reduce(7), link(PlanName::Halving, 7)),
        ("chain-of-3", chain::all_reduce(3, 4), link(PlanName::Chain, 3)),
        ("doubling-of-5", doubling::all_reduce(5), link(PlanName::Doubling, 5)),
        ("tree-2-over-hosts-3-1-2", host_tree::all_reduce(&[vec![0, 1, 2], vec![3], vec![4, 5]], 2), None),
        ("memory-of-3", memory::all_reduce(3), None),
        ("hosts-3-2", hosts::all_reduce(&[vec![0, 1, 2], vec![3, 4]], 2), None),
        ("hosts-interleaved", hosts::all_reduce(&[vec![0, 2], vec![1, 3, 4]], 1), None),
    ];
    for (name, plan, cost) in shapes {
        let (outcome, association) = check::all_reduce(&plan).expect("a sound plan");
        let cost = cost.map_or_else(String::new, |cost| {
            format!("1 MiB: {} steps, {:.0} bytes, {:.0} µs over TCP\n", cost.steps, cost.bytes, cost.seconds(Figures::TCP) * 1e6)
        });
        let ends: Vec<String> = outcome.ends[0].iter().map(ToString::to_string).collect();
        let text = format!("{plan}{association:?}, {} rounds: {}\n{cost}", outcome.rounds, ends.join("  "));
        assert_golden(format!("tests/plans/{name}.txt"), &text);
    }
}

/// A position that follows its plan on floats, whenever what it waits for arrives.
struct Player {
    position: usize,
    plan: Plan,
    values: Vec<f32>,
    step: usize,
    open: Vec<usize>,
    inbox: Vec<Vec<Vec<f32>>>,
    began: bool,
}

impl Player {
    fn new(plan: &Plan, position: usize) -> Player {
        let values = (0..plan.pieces).map(|piece| contribution(position, piece)).collect();
        let inbox = vec![Vec::new(); plan.ranks];
        Player { position, plan: plan.clone(), values, step: 0, open: Vec::new(), inbox, began: false }
    }

    fn go_on(&mut self, out: &mut Outbox<Vec<f32>>) {
        while let Some(step) = self.plan.steps[self.position].get(self.step).cloned() {
            if !self.began {
                self.began = true;
                self.open = (0..step.len()).filter(|index| matches!(step[*index], Deed::Receive { .. })).collect();
                for deed in &step {
                    if let Deed::Send { to, load } = deed {
                        out.send(*to, self.values[load.pieces().clone()].to_vec());
                    }
                }
            }
            self.open.retain(|index| {
                let Deed::Receive { from, load, then } = &step[*index] else { return false };
                if self.inbox[*from].is_empty() {
                    return true;
                }
                let came = self.inbox[*from].remove(0);
                for (piece, theirs) in load.pieces().clone().zip(came) {
                    let mine = self.values[piece];
                    self.values[piece] = match then {
                        Then::Replace => theirs,
                        Then::FoldLeft => theirs + mine,
                        Then::FoldRight => mine + theirs,
                        Then::Hold => unreachable!("plans that hold are not played"),
                    };
                }
                false
            });
            if !self.open.is_empty() {
                return;
            }
            self.step += 1;
            self.began = false;
        }
    }
}

impl Node<Vec<f32>> for Player {
    fn start(&mut self, _: Duration, out: &mut Outbox<Vec<f32>>) {
        self.go_on(out);
    }

    fn message(&mut self, from: usize, came: Vec<f32>, _: Duration, out: &mut Outbox<Vec<f32>>) {
        self.inbox[from].push(came);
        self.go_on(out);
    }
}

fn contribution(position: usize, piece: usize) -> f32 {
    // Sums of these depend on the order of the additions.
    1.0 / (1.0 + position as f32) + 1e-3 * piece as f32 + 1e6 * (position % 3) as f32
}

#[test]
fn the_same_bits_come_out_whatever_the_delays() {
    for ranks in [1, 2, 3, 5, 8, 13] {
        let plans = [
            tree::all_reduce(ranks, 2),
            tree::all_reduce(ranks, 3),
            ring::all_reduce(ranks),
            halving::all_reduce(ranks),
            chain::all_reduce(ranks, 4),
        ];
        for plan in plans {
            let play = |seed: u64, weather: Weather| -> Vec<Vec<u32>> {
                let mut sim = Sim::new(seed, weather, (0..ranks).map(|position| Player::new(&plan, position)).collect());
                sim.run(Duration::from_secs(60));
                (0..ranks)
                    .map(|position| {
                        let player = sim.node(position);
                        assert_eq!(player.step, plan.steps[position].len(), "seed {seed}: position {position} is stuck in\n{plan}");
                        player.values.iter().map(|value| value.to_bits()).collect()
                    })
                    .collect()
            };
            let calm = play(0, Weather::calm());
            assert!(calm.iter().all(|values| *values == calm[0]), "ranks differ in\n{plan}");
            for seed in 1..=8 {
                assert_eq!(play(seed, Weather::rough()), calm, "seed {seed}:\n{plan}");
            }
            if plan.title.starts_with("chain") {
                let folded = |piece| (1..ranks).fold(contribution(0, piece), |sum, position| sum + contribution(position, piece));
                assert_eq!(calm[0], (0..plan.pieces).map(|piece| folded(piece).to_bits()).collect::<Vec<_>>());
            }
        }
    }
}

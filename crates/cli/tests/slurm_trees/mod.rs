//! Sums over the tasks of a Slurm step whose nodes are hosts of their own: right everywhere, and once over each link between hosts.

use syncline::{Config, Error, ReduceOp, Session, Tree, TreeOptions};

use super::{files_left, hosts, in_order, start, words, write};
use crate::field::LIMIT;
use crate::field::program::{Program, fact};
use crate::field::rank::MARK;
use crate::field::sums;

const COUNT: usize = 1_000_003;
/// What may go over a link beside the numbers: who calls what, and the heads of the frames.
const WORDS: u64 = 4 << 10;

/// The tree of the session, then one of the step: sums of all sizes, and what the last one sent over links.
pub(crate) fn add_up() -> Result<(), Error> {
    let session = Session::open(Config::from_env()?)?;
    add_up_in(&session.tree()?, "session")?;
    let tree = Tree::slurm(None, 1, &TreeOptions::default())?;
    add_up_in(&tree, "slurm")?;
    tree.close()?;
    session.shutdown()
}

fn add_up_in(tree: &Tree, name: &str) -> Result<(), Error> {
    let nodes = tree.nodes() as usize;
    for count in [0, 1, nodes - 1, nodes, nodes + 1, 1023] {
        sums::add_up(tree, count, true)?;
    }
    let mut array = sums::contribution::<f32>(tree, COUNT);
    let before = tree.net_stats();
    let contributors = tree.all_reduce(&mut array, ReduceOp::Sum)?;
    let links = tree.net_stats().into_iter().map(|after| {
        let (sent, received) =
            before.iter().find(|link| link.peer == after.peer).map_or((0, 0), |link| (link.bytes_sent, link.bytes_received));
        format!("{}:{}:{}", after.peer, after.bytes_sent - sent, after.bytes_received - received)
    });
    let links: Vec<String> = links.collect();
    sums::check(tree, &array, true);
    let (node, digest) = (tree.node(), sums::digest(&array));
    println!("\n{MARK}{name} node={node} nodes={nodes} contributors={contributors} digest={digest} links={}", links.join(","));
    Ok(())
}

/// The links of a task as (peer, sent, received), without those over which nothing went.
fn links(line: &str) -> Vec<(usize, u64, u64)> {
    let numbers = |link: &str| -> Vec<u64> { link.split(':').map(|number| number.parse().expect("a number")).collect() };
    let all = fact(line, "links").split(',').filter(|link| !link.is_empty()).map(numbers);
    all.map(|link| (link[0] as usize, link[1], link[2])).filter(|(_, sent, received)| sent + received > 0).collect()
}

#[test]
fn a_sum_of_a_step_goes_over_each_link_between_hosts_once_each_way() {
    let Some(slurm) = hosts(3) else { return };
    // The first task of each host speaks for it.
    let cases = [("-N 2 -n 4", 4, vec![0, 2]), ("-N 2 -n 3", 3, vec![0, 2]), ("-N 3 -n 6", 6, vec![0, 2, 4])];
    for (shape, tasks, leaders) in cases {
        let mut program = start(&slurm, &format!("srun --immediate=10 {shape}"), "sums");
        program.succeed(LIMIT);
        for tree in ["session", "slurm"] {
            let lines = in_order(program.said(tree), "node");
            assert_eq!(lines.len(), tasks, "{shape}{}", program.transcript());
            for (task, line) in lines.iter().enumerate() {
                assert_eq!(fact(line, "node"), (task + 1).to_string(), "{shape}: {line}");
                assert_eq!(fact(line, "contributors"), tasks.to_string(), "{shape}: {line}");
                assert_eq!(fact(line, "digest"), fact(&lines[0], "digest"), "{shape}: {lines:#?}");
                let Some(host) = leaders.iter().position(|leader| *leader == task) else {
                    assert_eq!(fact(line, "links"), "", "{shape}: only leaders speak to other hosts: {line}");
                    continue;
                };
                // Prefixes of the sum go up a chain of leaders, and the sum comes down.
                let size = 4 * COUNT as u64;
                let links = links(line);
                for (other, peer) in leaders.iter().enumerate().filter(|(other, _)| host.abs_diff(*other) == 1) {
                    let Some((_, sent, received)) = links.iter().find(|link| link.0 == *peer) else {
                        panic!("{shape}: no link from host {host} to host {other}: {line}");
                    };
                    for bytes in [sent, received] {
                        assert!((size..size + WORDS).contains(bytes), "{shape}: {size} bytes should pass once each way: {line}");
                    }
                }
                for (peer, sent, received) in links {
                    let other = leaders.iter().position(|leader| *leader == peer);
                    let other = other.unwrap_or_else(|| panic!("{shape}: a link to task {peer}, which leads no host: {line}"));
                    assert!(host.abs_diff(other) == 1 || sent.max(received) < WORDS, "{shape}: numbers off the chain: {line}");
                }
            }
        }
        assert_eq!(files_left(&slurm), "", "{shape}");
    }
}

/// What a user starts with `srun python`: a straight line is fitted by gradients that all tasks average.
const TRAINING: &str = r#"
import sys

import numpy as np
import syncline as sl


def train(tree, name):
    rng = np.random.default_rng(tree.node)
    truth = np.array([2.0, -1.0, 0.5])
    weights = tree.scatter(rng.normal(size=3))
    for _ in range(60):
        inputs = rng.normal(size=(32, 3))
        gradient, contributors = tree.all_reduce(inputs.T @ (inputs @ (weights - truth)) / 32)
        weights -= 0.2 * gradient / contributors
    assert np.allclose(weights, truth, atol=1e-3), weights
    sys.stdout.write(f"\n@field {name} node={tree.node} nodes={tree.nodes} bits={weights.tobytes().hex()}\n")


if sys.argv[1] == "beside":
    with sl.init():
        train(sl.tree(), "init")
        with sl.SlurmTree() as tree:
            train(tree, "slurm")
else:
    # A folder to meet in, and two tasks for each GPU.
    with sl.SlurmTree(sys.argv[2], 2) as tree:
        train(tree, "slurm")
        sys.stdout.write(f"\n@field placed node={tree.node} gpu={tree.gpu}\n")
"#;

#[test]
fn a_python_script_trains_with_the_job_and_with_a_tree_of_the_step() {
    let Some(python) = std::env::var_os("SYNCLINE_TEST_PYTHON").map(std::path::PathBuf::from) else {
        return println!("skipped: SYNCLINE_TEST_PYTHON names no interpreter");
    };
    let ready = std::process::Command::new(&python).args(["-c", "import numpy, syncline"]).output();
    if !ready.is_ok_and(|ran| ran.status.success()) {
        return println!("skipped: {} has no syncline and numpy", python.display());
    }
    let Some(slurm) = hosts(2) else { return };
    let script = write(&slurm, "train.py", TRAINING);
    slurm.shell("mkdir $HOME/meet");
    let folder = slurm.home().join("meet");
    for (how, trees) in [("beside", vec!["init", "slurm"]), ("alone", vec!["slurm"])] {
        let step = format!("timeout 60 srun --immediate=10 -N 2 -n 3 {} {script} {how} {}", python.display(), folder.display());
        let mut command = slurm.command(&words(&step));
        command.env("SYNCLINE_TIMEOUT", "15").env("OMP_NUM_THREADS", "1");
        let mut program = Program::start(step, command);
        program.close_stdin();
        program.succeed(LIMIT);
        for tree in trees {
            let lines = in_order(program.said(tree), "node");
            assert_eq!(lines.len(), 3, "{how}: {}", program.transcript());
            for (task, line) in lines.iter().enumerate() {
                assert_eq!((fact(line, "node"), fact(line, "nodes")), ((task + 1).to_string().as_str(), "3"), "{how}: {line}");
                assert_eq!(fact(line, "bits"), fact(&lines[0], "bits"), "{how}: everybody ends with the same bits");
            }
        }
        let placed = in_order(program.said("placed"), "node");
        let gpus: Vec<&str> = placed.iter().map(|line| fact(line, "gpu")).collect();
        // Two tasks on the first node share its first GPU; the third has that of its own node.
        assert_eq!(gpus, if how == "alone" { vec!["1", "1", "1"] } else { vec![] }, "{}", program.transcript());
    }
    slurm.shell(&format!("rm {script} && rmdir {}", folder.display())); // which is empty, then
    assert_eq!(files_left(&slurm), "");
}

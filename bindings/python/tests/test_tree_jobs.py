"""Trees with a job of their own: how their nodes find each other, and what happens when one of them ends."""

from __future__ import annotations

import json
import os
import signal
import socket

import pytest
from conftest import Program, Stage


def nodes(stage: Stage, count: int, code: str, timeout: float = 10.0, env: dict[str, str] | None = None) -> list[Program]:
    """Processes started by hand, each told its number."""
    env = {"NODES": str(count), "SYNCLINE_TIMEOUT": str(timeout), **(env or {})}
    head = "import os\nimport syncline as sl\nnode, nodes = int(os.environ['NODE']), int(os.environ['NODES'])\n"
    return [stage.start(head + code, env={**env, "NODE": str(node)}) for node in range(1, count + 1)]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


SUM = """
assert (tree.node, tree.nodes) == (node, nodes)
assert tree.all_reduce(node) == (nodes * (nodes + 1) // 2, nodes)
tree.close()
tree.close()
try:
    tree.barrier()
except sl.Closed:
    print("closed", flush=True)
"""


@pytest.mark.parametrize(
    ("count", "make"),
    [
        (2, "sl.LocalhostTree(node, nodes)"),
        (3, "sl.LocalhostTree(node, nodes, ppid=os.getppid(), timeout=10.0)"),
        (9, "sl.Tree(node, nodes, 3)"),
        (4, "sl.Tree(node, nodes, plan='ring')"),
        (3, "sl.StaticTree(node, nodes, '127.0.0.1', 0, '127.0.0.1', PORT)"),
    ],
)
def test_processes_started_by_hand_find_each_other(stage: Stage, count: int, make: str) -> None:
    for program in nodes(stage, count, f"tree = {make.replace('PORT', str(free_port()))}\n{SUM}"):
        ended = program.end()
        assert (ended.status, ended.out, ended.err) == (0, "closed\n", ""), ended


def test_an_address_may_be_left_wherever_the_program_likes(stage: Stage) -> None:
    place = stage.folder / "address"
    code = f"""
import pathlib
place = pathlib.Path({str(place)!r})
def publish(host, port):
    place.with_suffix(".new").write_text(f"{{host}} {{port}}")
    place.with_suffix(".new").rename(place)
def query():
    if place.exists():
        host, port = place.read_text().split()
        return host, int(port)
tree = sl.DiscoveredTree(node, nodes, "127.0.0.1", 0, publish, query)
{SUM}"""
    for program in nodes(stage, 3, code):
        ended = program.end()
        assert (ended.status, ended.out) == (0, "closed\n"), ended


def test_an_ipc_server_and_its_clients_may_introduce_the_nodes(stage: Stage) -> None:
    port = free_port()
    code = f"""
from syncline import ipc
if node == 1:
    server, _ = ipc.server("127.0.0.1", {port})
    tree = sl.Tree(1, nodes, 2, server)
else:
    client = ipc.client("127.0.0.1", {port})
    tree = sl.Tree(4 if node == 2 else None, nodes, 2, client=client)
assert sorted(tree.all_gather(tree.node)) == [1, 2, 3, 4] and (node != 2 or tree.node == 4)
assert tree.all_reduce(tree.node) == (10, 4)
print("done", flush=True)
"""
    for program in nodes(stage, 4, code):
        ended = program.end()
        assert (ended.status, ended.out, ended.err) == (0, "done\n", ""), ended


def test_net_stats_tell_bytes_calls_seconds_and_speed_of_each_link(stage: Stage) -> None:
    code = """
import json, time
import numpy as np
tree = sl.LocalhostTree(node, nodes)
began = time.perf_counter()
tree.all_reduce(np.zeros(100_000, dtype=np.float32))  # links are made and tried out
before = tree.net_stats()
for _ in range(3):
    array, contributors = tree.all_reduce(np.full(100_000, node, dtype=np.float32))
    assert contributors == nodes and (array == 3).all()
after = tree.net_stats()
took = time.perf_counter() - began
tree.barrier()
print(json.dumps({"node": node, "took": took, "before": before, "after": after}), flush=True)
tree.close()
"""
    programs = nodes(stage, 2, code, env={"SYNCLINE_TRANSPORT": "tcp"})
    said = [json.loads(ended.out) for ended in (program.end() for program in programs)]
    for mine, peer in [(said[0], said[1]), (said[1], said[0])]:
        assert list(mine["after"]) == [str(peer["node"])], said
        link = mine["after"][str(peer["node"])]
        assert set(link) == {"tx", "rx"}, said
        for way, facts in link.items():
            assert set(facts) == {"bytes", "calls", "seconds", "MB/s"}, said
            earlier = mine["before"].get(str(peer["node"]), {}).get(way, {"bytes": 0, "calls": 0, "seconds": 0.0})
            # Three sums of 400 kB: two nodes send each other everything once, with a few words about each call.
            assert 3 * 400_000 <= facts["bytes"] - earlier["bytes"] < 3 * 400_000 + 10_000, said
            assert 3 <= facts["calls"] - earlier["calls"] < 100, said
            assert earlier["seconds"] < facts["seconds"] <= mine["took"], said
            assert facts["MB/s"] == pytest.approx(facts["bytes"] / facts["seconds"] / 1e6), said
        other = peer["after"][str(mine["node"])]
        assert (link["tx"]["bytes"], link["tx"]["calls"]) == (other["rx"]["bytes"], other["rx"]["calls"]), said


def test_what_the_programs_own_functions_raise_is_what_is_seen(stage: Stage) -> None:
    code = """
def broken(*_):
    raise LookupError("the board is gone")
try:
    sl.DiscoveredTree(node, nodes, "127.0.0.1", 0, broken, broken)
except LookupError as error:
    print(error, flush=True)
"""
    (program,) = nodes(stage, 2, code)[1:]
    assert program.end().out == "the board is gone\n"


def test_settings_that_make_no_sense_are_refused(stage: Stage) -> None:
    ended = stage.run(
        """
        import syncline as sl
        for make in [lambda: sl.Tree(1, 2, 1), lambda: sl.Tree(1, 2, plan="star"), lambda: sl.LocalhostTree(3, 2),
                     lambda: sl.LocalhostTree(0, 2), lambda: sl.Tree(None, 2),
                     lambda: sl.LocalhostTree(1, 2, timeout=-1)]:
            try:
                make()
            except sl.ConfigurationError as error:
                print(type(error).__name__)
        assert sl.LocalhostTree(1, 1).nodes == sl.SlurmTree().nodes == 1
        """
    )
    assert (ended.status, ended.out) == (0, "ConfigurationError\n" * 6), ended


def test_a_killed_node_is_named_by_all_others(stage: Stage) -> None:
    programs = nodes(
        stage,
        3,
        """
import numpy as np
tree = sl.LocalhostTree(node, nodes)
tree.barrier()
print("here", flush=True)
try:
    while True:
        tree.all_reduce(np.ones(10_000))
except sl.PeerLost as error:
    print("lost", error.rank, error.pid, flush=True)
""",
    )
    for program in programs:
        program.wait_for_line("here")
    victim = programs[2]
    victim.signal(signal.SIGKILL)
    for program in programs[:2]:
        assert program.wait_for_line("lost") == f"lost 2 {victim.process.pid}"


@pytest.mark.parametrize("ending", ["raise ValueError('bad batch')", "sys.exit(3)", "with tree: 1 / 0"])
def test_a_node_that_fails_tells_the_others(stage: Stage, ending: str) -> None:
    programs = nodes(
        stage,
        2,
        f"""
import sys
tree = sl.LocalhostTree(node, nodes)
tree.barrier()
if node == 2:
    {ending}
try:
    tree.barrier()
except sl.PeerLost as error:
    print("lost", error.rank, flush=True)
""",
    )
    assert programs[0].end().out == "lost 1\n"
    assert programs[1].end().status != 0


def test_a_tree_that_nobody_refers_to_leaves_politely(stage: Stage) -> None:
    programs = nodes(
        stage,
        2,
        """
for _ in range(3):
    tree = sl.LocalhostTree(node, nodes)
    assert tree.all_reduce(1) == (2, 2)
    del tree
with sl.LocalhostTree(node, nodes) as tree:
    tree.barrier()
print("done")
""",
    )
    for program in programs:
        ended = program.end()
        assert (ended.status, ended.out, ended.err) == (0, "done\n", ""), ended


def test_ctrl_c_ends_a_reduction_and_the_wait_for_nodes(stage: Stage) -> None:
    programs = nodes(
        stage,
        2,
        """
import signal
tree = sl.LocalhostTree(node, nodes)
tree.barrier()
try:
    print("here", flush=True)
    if node == 2:
        signal.pause()
    tree.all_reduce(1)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    os._exit(0)
""",
        timeout=60.0,
    )
    (alone,) = nodes(
        stage,
        1,
        """
try:
    print("here", flush=True)
    sl.LocalhostTree(1, 2, ppid=os.getpid())
except KeyboardInterrupt:
    print("interrupted", flush=True)
""",
        timeout=60.0,
    )
    for program in [*programs, alone]:
        program.wait_for_line("here")
    for program in [programs[0], alone]:
        program.signal(signal.SIGINT)
        program.wait_for_line("interrupted")
        assert program.end().seconds < 2.0


def test_a_forked_child_is_told_and_its_parent_does_not_notice(stage: Stage) -> None:
    programs = nodes(
        stage,
        2,
        """
tree = sl.LocalhostTree(node, nodes)
child = os.fork()
if child == 0:
    for call in [tree.barrier, lambda: tree.all_reduce(1), lambda: tree.scatter(1), tree.net_stats, tree.close,
                 lambda: tree.all_reduce_async(1.0), lambda: sl.LocalhostTree(1, 2)]:
        try:
            call()
        except sl.ForkError:
            pass
        else:
            os._exit(1)
    raise SystemExit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert tree.all_reduce(node) == (3, 2)
print("done", flush=True)
""",
    )
    for program in programs:
        ended = program.end()
        assert (ended.status, ended.out, ended.err) == (0, "done\n", ""), ended


def test_two_trees_of_the_same_processes_do_not_mix(stage: Stage) -> None:
    key = os.getpid() * 2 % 1_000_000
    code = f"""
one, two = sl.LocalhostTree(node, nodes, {key}), sl.LocalhostTree(nodes + 1 - node, nodes, {key + 1})
assert one.all_gather(node) == [1, 2] and two.all_gather(node) == [2, 1]
print("done", flush=True)
"""
    for program in nodes(stage, 2, code):
        ended = program.end()
        assert (ended.status, ended.out) == (0, "done\n"), ended

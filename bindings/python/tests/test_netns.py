"""The same three lines on several hosts: network namespaces, joined by a bridge, on this machine."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from conftest import Program, Stage

HELLO = Path(__file__).parents[3] / "examples" / "python" / "hello.py"
DIGITS = HELLO.with_name("digits.py")
HOSTS = 3
PREFIX = "slp"  # begins the names of everything made here; the process id follows, so that leftovers can be told


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def remove(namespace: str) -> None:
    subprocess.run(["ip", "netns", "del", namespace], capture_output=True, check=False)


def sweep() -> None:
    """Removes what killed tests left; a bridge's ports go with their namespaces."""
    folders = [Path("/run/netns"), Path("/sys/class/net")]
    for name in [path.name for folder in folders if folder.exists() for path in folder.iterdir()]:
        made = re.fullmatch(rf"{PREFIX}(\d+)x\d+(b|h\d+|p\d+)", name)
        if made and not Path(f"/proc/{made[1]}").exists():
            remove(name)
            subprocess.run(["ip", "link", "del", name], capture_output=True, check=False)


class Hosts:
    """Hosts h1 to h3 with addresses 10.77.0.1 to 10.77.0.3; the bridge has none, so nothing outside is touched."""

    count = itertools.count()

    def __init__(self) -> None:
        # The kernel removes the ports of a deleted namespace some time later: their names are not used again.
        self.mark = f"{PREFIX}{os.getpid()}x{next(self.count)}"

    def make(self) -> None:
        ip("link", "add", self.mark + "b", "type", "bridge")
        ip("link", "set", self.mark + "b", "up")
        for host in range(1, HOSTS + 1):
            space, port = f"{self.mark}h{host}", f"{self.mark}p{host}"
            ip("netns", "add", space)
            ip("-n", space, "link", "set", "lo", "up")
            ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", space)
            ip("link", "set", port, "master", self.mark + "b", "up")
            ip("-n", space, "addr", "add", f"10.77.0.{host}/24", "dev", "eth0")
            ip("-n", space, "link", "set", "eth0", "up")

    def remove(self) -> None:
        for host in range(HOSTS + 1):
            remove(f"{self.mark}h{host}")
            subprocess.run(["ip", "link", "del", f"{self.mark}p{host}"], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", self.mark + "b"], capture_output=True, check=False)

    def on(self, host: int) -> list[str]:
        """What a command is put behind to run on a host, as its own process."""
        name = 'hostname "$0" && exec "$@"'
        return ["ip", "netns", "exec", f"{self.mark}h{host}", "unshare", "--uts", "sh", "-c", name, f"h{host}"]

    def start(self, stage: Stage, layout: Sequence[int], code: str, *, python: str = sys.executable) -> list[Program]:
        """The ranks of one job, on the host that `layout` gives each."""
        job = {
            "SYNCLINE_WORLD_SIZE": str(len(layout)),
            "SYNCLINE_RENDEZVOUS": f"tcp://10.77.0.{layout[0]}:5005",
            "SYNCLINE_TOKEN": uuid.uuid4().hex,
            "SYNCLINE_TIMEOUT": "10",
        }
        return [
            stage.start(code, under=self.on(host), env={**job, "SYNCLINE_RANK": str(rank)}, python=python)
            for rank, host in enumerate(layout)
        ]


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    pytest.importorskip("syncline")
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    for name in ("ip", "unshare"):
        if shutil.which(name) is None:
            pytest.skip(f"{name} is not installed")
    sweep()
    hosts = Hosts()
    try:
        try:
            ip("netns", "add", f"{hosts.mark}h0")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"ip netns does not work here: {error.stderr.strip()}")
        hosts.make()
        yield hosts
    finally:
        hosts.remove()


def test_three_lines_run_on_three_hosts(hosts: Hosts, stage: Stage) -> None:
    ranks = hosts.start(stage, [1, 1, 2, 3, 3], HELLO.read_text())
    ended = [rank.end() for rank in ranks]
    assert [rank.status for rank in ended] == [0] * 5, "\n".join(map(str, ended))
    assert [rank.out for rank in ended] == [f"{rank} 5\n" for rank in range(5)]


def test_a_rank_killed_on_another_host_is_named_with_its_host(hosts: Hosts, stage: Stage) -> None:
    ranks = hosts.start(
        stage,
        [1, 2, 3, 3],
        """
        import syncline as sl
        sl.init()
        sl.barrier()
        print("in", flush=True)
        try:
            while True:
                sl.barrier()
        except sl.PeerLost as error:
            print("lost", error.rank, str(error).splitlines()[0], flush=True)
        """,
    )
    for rank in ranks:
        rank.wait_for_line("in")
    ranks[1].signal(signal.SIGKILL)
    killed = time.monotonic()
    for rank in (ranks[0], ranks[2], ranks[3]):
        assert re.match(r"lost 1 barrier \d+: rank 1 \(h2, pid \d+\)", rank.wait_for_line("lost"))
        assert time.monotonic() - killed < 2


@pytest.mark.parametrize("victim", [2, 0, 4, 3])
def test_a_leader_killed_in_an_all_reduce_is_named_on_every_host(hosts: Hosts, stage: Stage, victim: int) -> None:
    """Of ranks 0 (where all meet) and 1, 2 and 3, and 4: the first of each host speaks for it; 3 is none of them."""
    ranks = hosts.start(
        stage,
        [1, 1, 2, 2, 3],
        """
        import os
        import numpy as np
        import syncline as sl
        sl.init()
        tree = sl.tree()
        for call in range(1_000_000):
            array = np.full(200_000, tree.node + call)
            try:
                tree.all_reduce(array)
            except sl.PeerLost as error:
                print("lost", error.rank, flush=True)
                os._exit(3)
            assert (array == 15 + 5 * call).all(), "a wrong sum"
            if call == 2:
                print("adding", flush=True)
        """,
    )
    for rank in ranks:
        rank.wait_for_line("adding")
    ranks[victim].signal(signal.SIGKILL)
    for number, rank in enumerate(ranks):
        if number != victim:
            assert rank.wait_for_line("lost") == f"lost {victim}", f"said rank {number}"


def test_digits_end_in_the_same_bits_on_one_host_and_on_two(hosts: Hosts, stage: Stage) -> None:
    """The weights of sync training depend on the workers' number, not on where they sit."""
    pytest.importorskip("sklearn")
    code = f"""
        import runpy, sys
        sys.path.insert(0, {str(DIGITS.parent)!r})
        sys.argv = ["digits.py", "--sync", "--hash", "--epochs", "5"]
        runpy.run_path({str(DIGITS)!r}, run_name="__main__")
        """
    hashes = []
    for layout in ([1, 1, 1, 1], [1, 1, 2, 2]):
        ended = [rank.end() for rank in hosts.start(stage, layout, code)]
        assert [rank.status for rank in ended] == [0] * 4, "\n".join(map(str, ended))
        hashes.append(re.findall(r"\b[0-9a-f]{16,}\b", ended[0].out))
    assert hashes[0] and hashes[0] == hashes[1]


def test_only_changed_rows_go_over_the_wire(hosts: Hosts, stage: Stage) -> None:
    ranks = hosts.start(
        stage,
        [1, 2],
        """
        import numpy as np
        import syncline as sl

        def received():
            line = next(line for line in open("/proc/net/dev") if "eth0:" in line)
            return int(line.split(":")[1].split()[0])

        with sl.init():
            table = sl.MatrixTable(100_000, 16)  # 3.2 MB on each host
            mine = np.zeros((100_000, 16), "float32")
            costs = []
            for change in ([], [7, 50_000, 99_999]):
                if change and sl.worker_id() == 0:
                    table.add(np.ones((len(change), 16)), change)
                sl.barrier()
                before = received()
                ids = table.get_changed(mine).tolist()
                costs.append(received() - before)
                sl.barrier()
            if sl.worker_id() == 1:
                assert ids == [7, 50_000, 99_999] and mine.sum() == 48, ids
                print("first", costs[0], "later", costs[1], flush=True)
        """,
    )
    ended = [rank.end() for rank in ranks]
    assert [rank.status for rank in ended] == [0, 0], "\n".join(map(str, ended))
    found = re.search(r"first (\d+) later (\d+)", ended[1].out)
    assert found, ended[1]
    # The first call fetches the other host's half; a later one three rows of 64 bytes and the words around them.
    assert int(found[1]) > 3_000_000 and int(found[2]) < 20_000, ended[1]


def test_tables_that_differ_between_hosts_are_shown_with_both_lines(hosts: Hosts, stage: Stage) -> None:
    ranks = hosts.start(
        stage,
        [1, 2],
        """
        import syncline as sl

        with sl.init(sync=True):
            try:
                if sl.rank() == 0:
                    sl.ArrayTable(10)  # LINE ONE
                else:
                    sl.ArrayTable(11)  # LINE TWO
            except sl.ContractMismatch as error:
                print("told", str(error).replace(chr(10), " "), flush=True)
            table = sl.ArrayTable(2)
            table.add([1, 2])
            assert table.get().tolist() == [2, 4]
        """,
    )
    ended = [rank.end() for rank in ranks]
    assert [rank.status for rank in ended] == [0, 0], "\n".join(map(str, ended))
    for rank in ended:
        assert re.search(r"told .*10.*11|told .*11.*10", rank.out), rank
        assert len(set(re.findall(r"\.py:(\d+)|<string>:(\d+)|:(\d+)\b", rank.out))) >= 2, rank

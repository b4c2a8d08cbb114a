"""Servers and clients from Python: what torch-ipc's own tests say, and what they should have said."""

from __future__ import annotations

import os
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import syncline as sl
from conftest import Program, Stage, environment
from syncline import ipc

EXAMPLES = Path(__file__).parents[3] / "examples" / "python"
SOON = 20.0  # seconds until a wait gives up; no test relies on reaching it
TOKEN = "the token of these tests"


@pytest.fixture
def server() -> Iterator[ipc.Server]:
    server, _ = ipc.server(token=TOKEN, timeout=SOON)
    yield server
    server.close()


def client_of(server: ipc.Server) -> ipc.Client:
    return ipc.client("127.0.0.1", server.port, token=TOKEN, timeout=SOON)


def company(server: ipc.Server, count: int) -> list[ipc.Client]:
    """Clients with the ids 0, 1, … that the server has let in, one by one so that their order is known."""
    clients = []
    for _ in range(count):
        clients.append(client_of(server))
        assert server.clients(len(clients), lambda _: None) == len(clients)
    ids = iter(range(count))
    server.clients(lambda client: client.id(next(ids)))
    return clients


def echo(server: ipc.Server, client: ipc.Client, value: Any) -> Any:
    """What becomes of a value that goes to the server and back."""
    beside = threading.Thread(target=lambda: server.clients(1, lambda each: each.send(each.recv())))
    beside.start()
    client.send(value)
    got = client.recv()
    beside.join()
    return got


def test_ping_pong_with_tag_and_id(server: ipc.Server) -> None:
    client = client_of(server)
    client.send("ping")

    def serve(each: ipc.ServerClient) -> None:
        assert (each.id(), each.tag(), each.address()) == (0, None, "127.0.0.1")
        assert (each.id(42), each.tag("hi")) == (42, "hi")
        assert (each.id(), each.tag()) == (42, "hi")
        assert each.recv() == "ping"
        each.send("pong")

    assert server.clients(1, serve) == 1
    assert client.recv() == "pong"
    assert client.address() == "127.0.0.1"


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "unix:", "unix:@"])
@pytest.mark.parametrize("encrypt", [None, True])
def test_every_kind_of_address(host: str, encrypt: bool | None) -> None:
    place = f"{host}/syncline-test/{uuid.uuid4().hex}" if host.startswith("unix:") else host
    with ipc.server(place, token=TOKEN, encrypt=encrypt, timeout=SOON)[0] as server:
        with ipc.client(place, server.port, token=TOKEN, timeout=SOON) as client:
            assert client.encrypted is (encrypt is True and not host.startswith("unix:"))
            assert echo(server, client, [1, "two"]) == [1, "two"]


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        -(2**63),
        2**63 - 1,
        0.1,
        float("inf"),
        "",
        "é" * 100_000,
        b"",
        b"\0" * 5000,
        [],
        [None, [True, {}]],
        {"a": {1: [2.5, None]}, 7: b"x", (1, 2): "tuple keys stay", True: False},
    ],
)
def test_plain_values_come_back_as_they_went(server: ipc.Server, value: object) -> None:
    got = echo(server, client_of(server), value)
    assert got == value
    assert type(got) is type(value)


def test_tuples_and_numbers_of_numpy_become_plain(server: ipc.Server) -> None:
    sent = (1, np.float32(0.5), np.int8(-3), np.bool_(True), bytearray(b"ab"), memoryview(b"cd"))
    got = echo(server, client_of(server), sent)
    assert got == [1, 0.5, -3, True, b"ab", b"cd"]
    assert [type(item) for item in got] == [int, float, int, bool, bytes, bytes]


@pytest.mark.parametrize(
    "array",
    [
        np.arange(210, dtype=np.float32).reshape(5, 6, 7),
        np.arange(210, dtype=np.float64).reshape(5, 6, 7)[:, 2:5],
        np.asfortranarray(np.arange(12, dtype=np.int32).reshape(3, 4)),
        np.arange(20, dtype=np.int64)[::-3],
        np.zeros((3, 0, 2), np.int16),
        np.array(7, np.uint8),
        np.arange(9, dtype=np.float16),
        np.array([-1, 1], np.int8),
    ],
)
def test_arrays_keep_dtype_shape_and_numbers(server: ipc.Server, array: np.ndarray[Any, Any]) -> None:
    client = client_of(server)
    got = echo(server, client, {"in a dict": array, "beside": 1})["in a dict"]
    for each in (got, echo(server, client, array)):
        assert (each.dtype, each.shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(each, array)
        assert each.flags.writeable
        assert each.flags.c_contiguous


def test_bfloat16_travels_as_it_is(server: ipc.Server) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes, NumPy's bfloat16, is not installed")
    array = np.array([[1.0, -2.5], [3e38, 0.1]], ml_dtypes.bfloat16)
    client = client_of(server)
    got = echo(server, client, array)
    assert got.dtype == array.dtype
    np.testing.assert_array_equal(got.view(np.uint16), array.view(np.uint16))
    client.send(array)
    out = np.zeros((2, 2), ml_dtypes.bfloat16)
    server.clients(1, lambda each: each.recv(out))
    np.testing.assert_array_equal(out.view(np.uint16), array.view(np.uint16))


def test_an_array_arrives_where_it_should_be(server: ipc.Server) -> None:
    client = client_of(server)
    array = np.arange(210, dtype=np.float32).reshape(5, 6, 7)
    larger = np.zeros((5, 12, 7), np.float32)
    turned = np.zeros((7, 6, 5), np.float32).T
    for out in (np.zeros_like(array), np.zeros_like(array, order="F"), larger[:, ::2], turned):
        client.send(array)

        def take(each: ipc.ServerClient, out: np.ndarray[Any, Any] = out) -> None:
            assert each.recv(out) is out

        server.clients(1, take)
        np.testing.assert_array_equal(out, array)
    assert not larger[:, 1::2].any()
    zero = np.zeros((0, 3))
    client.send(zero)
    server.clients(1, lambda each: each.recv(np.empty((0, 3))))
    buffer = bytearray(4)
    client.send(np.frombuffer(b"ping", np.uint8))
    server.clients(1, lambda each: each.recv(buffer))
    assert buffer == b"ping"


def test_an_array_that_does_not_fit_is_refused_and_stays(server: ipc.Server) -> None:
    [client] = company(server, 1)
    server.broadcast(np.arange(4, dtype=np.int32))
    shapes = [np.zeros(3, np.int32), np.zeros((2, 2), np.int32), np.zeros(8, np.int32)[::3]]
    for wrong in (*shapes, np.zeros(4, np.float32)):
        before = wrong.copy()
        with pytest.raises(sl.ShapeMismatch, match=r"int32 \(4\)") as caught:
            client.recv(wrong)
        assert isinstance(caught.value, ValueError)
        np.testing.assert_array_equal(wrong, before)
    read_only = np.zeros(4, np.int32)
    read_only.flags.writeable = False
    for impossible in (read_only, [0, 0, 0, 0], "text"):
        with pytest.raises(sl.ShapeMismatch):
            client.recv(impossible)
    out = np.zeros(4, np.int32)
    assert client.recv(out).tolist() == [0, 1, 2, 3]
    server.broadcast({"no": "array"})
    with pytest.raises(sl.ShapeMismatch):
        client.recv(out)
    assert client.recv() == {"no": "array"}


class Unpicklable:
    def __reduce__(self) -> Any:
        raise AssertionError("somebody tried to pickle this")


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (Unpicklable(), sl.ShapeMismatch),
        (print, sl.ShapeMismatch),
        ({1, 2}, sl.ShapeMismatch),
        (1j, sl.ShapeMismatch),
        (2**63, sl.ConfigurationError),
        ({None: 1}, sl.ConfigurationError),
        (np.array(["text"]), sl.ShapeMismatch),
        (np.array([1j]), sl.ShapeMismatch),
        (np.array([Unpicklable()], object), sl.ShapeMismatch),
        (np.arange(3, dtype=">i4"), sl.ShapeMismatch),
    ],
)
def test_what_is_no_plain_data_is_refused(server: ipc.Server, value: object, error: type[Exception]) -> None:
    client = client_of(server)
    with pytest.raises(error):
        client.send([value])
    assert echo(server, client, "nothing is harmed") == "nothing is harmed"


def test_a_value_that_contains_itself_is_refused(server: ipc.Server) -> None:
    client = client_of(server)
    for inside in ([], {}):  # type: ignore[var-annotated]
        if isinstance(inside, list):
            inside.append(inside)
        else:
            inside["me"] = inside
        with pytest.raises(sl.ConfigurationError, match="contain itself"):
            client.send(inside)


def test_recv_async_tells_nothing_from_none(server: ipc.Server) -> None:
    [client] = company(server, 1)
    assert client.recv_async() is ipc.NOTHING
    assert not ipc.NOTHING
    assert repr(ipc.NOTHING) == "syncline.ipc.NOTHING"
    empty = threading.Event()

    def later() -> None:
        empty.wait(SOON)
        server.broadcast(None)

    beside = threading.Thread(target=later)
    beside.start()
    polls, until = 0, time.monotonic() + SOON
    while (got := client.recv_async()) is ipc.NOTHING:
        polls += 1
        empty.set()
        assert time.monotonic() < until
    beside.join()
    assert got is None
    assert polls > 0


def test_order_tags_broadcast_and_recv_any(server: ipc.Server) -> None:
    clients = company(server, 10)
    seen: list[int] = []
    assert server.clients(10, lambda each: seen.append(each.id())) == 10
    assert server.clients(lambda each: seen.append(each.id()), None, True) == 10
    assert seen == [*range(10), *reversed(range(10))]
    server.clients(lambda each: each.tag("even" if each.id() % 2 == 0 else "odd"))
    seen.clear()
    assert server.clients(lambda each: seen.append(each.id()), "odd") == 5
    assert server.clients(lambda each: seen.append(each.id()), tag="odd", invert=True) == 5
    assert seen == [1, 3, 5, 7, 9, 9, 7, 5, 3, 1]
    assert server.broadcast("to the odd", "odd") == 5
    assert server.broadcast("to all") == 10
    for number, client in enumerate(clients):
        assert [client.recv() for _ in range(1 + number % 2)][-1] == "to all"
        client.send("hi")
    answers = [server.recv_any() for _ in range(10)]
    assert [message for message, _ in answers] == ["hi"] * 10
    assert sorted(client.id() for _, client in answers) == list(range(10))
    answers[0][1].send("a client of recv_any can be answered")


def test_a_client_is_valid_inside_its_function_only(server: ipc.Server) -> None:
    _client = client_of(server)
    kept: list[ipc.ServerClient] = []
    server.clients(1, kept.append)
    uses: list[Callable[[], object]] = [
        kept[0].recv,
        kept[0].id,
        kept[0].tag,
        kept[0].address,
        kept[0].close,
        kept[0].recv_async,
        lambda: kept[0].send(1),
    ]
    for use in uses:
        with pytest.raises(sl.Closed, match="server client is invalid, either closed or used outside"):
            use()


def test_what_the_function_raises_comes_out(server: ipc.Server) -> None:
    company(server, 3)
    calls = []

    def fail(each: ipc.ServerClient) -> None:
        calls.append(each.id())
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        server.clients(3, fail)
    assert calls == [0]
    for wrong in ((), (1,), (1, 2), ("f",), (lambda _: None, "tag", True, 4)):
        with pytest.raises(TypeError):
            server.clients(*wrong)


def test_closing_is_heard(server: ipc.Server) -> None:
    first, second = company(server, 2)
    first.send("last words")
    first.close()
    with pytest.raises(sl.Closed, match="by this side"):
        first.send(1)
    assert server.recv_any()[0] == "last words"
    second.send("still here")
    assert server.recv_any()[0] == "still here"
    with pytest.raises(sl.Timeout, match="client 1"):
        server.recv_any(timeout=0)
    assert len(server) == 1
    server.clients(lambda each: each.close())
    with pytest.raises(sl.Closed, match="the server at"):
        second.recv()
    with pytest.raises(sl.Closed, match="no client is connected"):
        server.recv_any()
    server.close()
    with pytest.raises(sl.Closed):
        server.clients(1, print)


def test_timeouts_name_whom_they_waited_for(server: ipc.Server) -> None:
    [client] = company(server, 1)
    with pytest.raises(sl.Timeout, match=f"127.0.0.1:{server.port}"):
        client.recv(timeout=0.01)
    with pytest.raises(sl.Timeout, match=r"client 0 from 127.0.0.1") as caught:
        server.broadcast(np.zeros(30_000_000, np.uint8), timeout=0.1)
    assert caught.value.pid == os.getpid()
    with pytest.raises(sl.Timeout, match="1 of 3"):
        server.clients(3, print, timeout=0.01)
    with pytest.raises(sl.ConfigurationError, match="timeout=-1"):
        client.recv(timeout=-1)
    assert len(client.recv()) == 30_000_000  # what had begun comes whole


def test_a_client_that_stops_reading_does_not_stop_the_others(server: ipc.Server) -> None:
    clients = company(server, 4)
    large = np.arange(30_000_000, dtype=np.uint8)
    got: list[Any] = [None] * 4

    def receive(number: int) -> None:
        got[number] = clients[number].recv()

    readers = [threading.Thread(target=receive, args=(number,)) for number in (0, 1, 3)]
    for reader in readers:
        reader.start()
    with pytest.raises(sl.Timeout, match=r"1 of 4 clients.*client 2 from 127.0.0.1"):
        server.broadcast(large, timeout=2.0)
    for reader in readers:
        reader.join()
    assert all(np.array_equal(got[number], large) for number in (0, 1, 3))
    for number in (0, 1, 3):
        clients[number].send(number)
        assert server.recv_any()[0] == number
    assert np.array_equal(clients[2].recv(), large)  # it wakes up and gets what had begun, whole


def test_connecting_to_nobody_says_why() -> None:
    server, port = ipc.server(token=TOKEN)
    server.close()
    with pytest.raises(sl.Timeout, match="nobody listens there"):
        ipc.client(port, token=TOKEN, timeout=0.05)
    with pytest.raises(sl.ConfigurationError, match=r"no-such-host\.invalid"):
        ipc.client("no-such-host.invalid", 1, token=TOKEN)
    with pytest.raises(TypeError):
        ipc.client("127.0.0.1")


def test_another_token_is_refused(server: ipc.Server) -> None:
    with pytest.raises(sl.AuthError, match="SYNCLINE_TOKEN"):
        ipc.client(server.port, token="another")
    with pytest.raises(sl.ConfigurationError, match="empty token"):
        ipc.server(token=" ")


def test_net_stats_have_the_keys_of_torch_ipc(server: ipc.Server) -> None:
    [client] = company(server, 1)
    server.broadcast(b"x" * 5000)
    client.recv()
    stats = client.net_stats()
    assert set(stats) == {"tx", "rx"}
    assert set(stats["rx"]) == {
        "num_bytes", "num_regions", "num_calls", "num_system_calls", "total_seconds", "system_seconds",
        "network_mb_per_s", "cuda_sync_seconds", "cuda_ipc_seconds", "cuda_ipc_bytes", "cuda_ipc_mb_per_s",
    }  # fmt: skip
    assert stats["rx"]["num_calls"] == 1
    assert stats["rx"]["num_bytes"] > 5000
    assert stats["rx"]["network_mb_per_s"] > 0
    assert server.net_stats()["tx"]["num_bytes"] == stats["rx"]["num_bytes"]


def test_two_programs_of_one_user_need_no_token_and_a_client_may_start_first(stage: Stage) -> None:
    place = f"unix:/syncline-test/{uuid.uuid4().hex}"
    home = {"HOME": str(stage.folder), "XDG_CONFIG_HOME": str(stage.folder / "config")}
    early = stage.start(
        f"""
        from syncline import ipc
        print("connecting", flush=True)
        client = ipc.client("{place}", timeout=20)
        print(client.recv())
        """,
        env=home,
    )
    early.wait_for_line("connecting")
    time.sleep(2)  # what the test is about
    late = stage.run(
        f"""
        import syncline as sl
        from syncline import ipc
        server, _ = ipc.server("{place}", timeout=20)
        server.clients(1, lambda client: client.send("at last"))
        try:
            server.recv_any()
        except sl.Closed:
            print("Closed")
        """,
        env=home,
    )
    ended = early.end()
    assert (ended.status, ended.out.strip(), ended.err) == (0, "at last", ""), ended
    assert (late.status, late.out.strip()) == (0, "Closed"), late
    assert (stage.folder / "config" / "syncline" / "key").stat().st_mode & 0o777 == 0o600


def test_a_gigabyte_goes_through(stage: Stage) -> None:
    place = f"unix:/syncline-test/{uuid.uuid4().hex}"
    other = stage.start(
        f"""
        import numpy as np
        from syncline import ipc
        client = ipc.client("{place}", token="t", timeout=60)
        array = np.zeros(2**28, np.float32)  # the kernel's one page of zeros, mostly
        array[:: 2**20] = np.arange(256)
        array[-1] = 99
        client.send(array)
        assert client.recv() == "thanks"
        """
    )
    with ipc.server(place, token="t", timeout=60)[0] as server:
        out = np.empty(2**28, np.float32)

        def take(each: ipc.ServerClient) -> None:
            each.recv(out)
            each.send("thanks")

        server.clients(1, take)
        assert out[:: 2**20].tolist() == list(range(256))
        assert out[-1] == 99
        assert not out[1 : 2**20].any()
        ended = other.end(60)
        assert ended.status == 0, ended


def test_a_killed_client_and_a_killed_server_are_named_at_once(stage: Stage) -> None:
    place = f"unix:/syncline-test/{uuid.uuid4().hex}"
    other = stage.start(
        f"""
        from syncline import ipc
        client = ipc.client("{place}", token="t", timeout=20)
        client.send("ready")
        client.recv()
        """
    )
    with ipc.server(place, token="t", timeout=SOON)[0] as server:
        server.clients(1, lambda each: each.recv())
        killer = threading.Timer(0.2, other.process.kill)
        killer.start()
        with pytest.raises(sl.PeerLost, match=f"pid {other.process.pid}") as caught:
            server.recv_any()
        killer.join()
        assert caught.value.pid == other.process.pid
        assert caught.value.rank is None
    other = stage.start(
        f"""
        from syncline import ipc
        server, _ = ipc.server("{place}", token="t", timeout=20)
        server.clients(1, lambda each: each.recv())
        print("ready", flush=True)
        server.recv_any()
        """
    )
    client = ipc.client(place, token="t", timeout=SOON)
    client.send(1)
    other.wait_for_line("ready")
    killer = threading.Timer(0.2, other.process.kill)
    killer.start()
    with pytest.raises(sl.PeerLost, match="the server at unix:"):
        client.recv()
    killer.join()


@pytest.mark.parametrize(
    "call", ["server.recv_any()", "server.clients(2, print)", "client.recv()", "ipc.client(1, token='t')"]
)
def test_ctrl_c_ends_every_wait(stage: Stage, call: str) -> None:
    ended = stage.run(
        f"""
        import os, signal, threading, time
        from syncline import ipc
        server, port = ipc.server(token="t", timeout=20)
        client = ipc.client(port, token="t", timeout=20)
        server.clients(1, lambda each: None)
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        started = time.monotonic()
        try:
            {call}
        except KeyboardInterrupt:
            print("interrupted", time.monotonic() - started < 5)
        """
    )
    assert (ended.status, ended.out) == (0, "interrupted True\n"), ended


def test_other_threads_run_while_one_waits(server: ipc.Server) -> None:
    [client] = company(server, 1)
    beside = threading.Thread(target=lambda: server.broadcast("woken by another thread"))
    waiting = threading.Thread(target=client.recv)
    waiting.start()
    beside.start()  # runs although a thread waits
    waiting.join(SOON)
    beside.join(SOON)
    assert not waiting.is_alive()


def test_a_forked_child_is_told_so_and_its_parent_does_not_notice(stage: Stage) -> None:
    ended = stage.run(
        """
        import gc, os, sys
        import syncline as sl
        from syncline import ipc
        server, port = ipc.server(token="t", timeout=20)
        client = ipc.client(port, token="t", timeout=20)
        kept = []
        server.clients(1, lambda each: each.id(1))
        client.send(1)
        kept.append(server.recv_any()[1])
        child = os.fork()
        if child == 0:
            uses = [client.recv, client.recv_async, lambda: client.send(1), lambda: server.clients(1, print),
                    server.recv_any, lambda: server.broadcast(1), kept[0].recv, lambda: kept[0].send(1), kept[0].id]
            for use in uses:
                try:
                    use()
                except sl.ForkError as error:
                    assert "was forked" in str(error)
                else:
                    print("works in a fork")
            client.close(), server.close()
            del client, server, kept, uses, use
            gc.collect()
            sys.exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        client.send("the parent goes on")
        print(server.recv_any()[0])
        """
    )
    assert (ended.status, ended.out, ended.err) == (0, "the parent goes on\n", ""), ended


def test_the_example_sums_every_row(stage: Stage) -> None:
    program = Program([sys.executable, str(EXAMPLES / "client_server.py")], environment())
    stage.programs.append(program)
    ended = program.end()
    assert (ended.status, ended.out) == (0, "48 rows summed by 3 clients\n"), ended


def test_a_thousand_clients_on_one_server(stage: Stage) -> None:
    ended = stage.run(
        """
        import resource
        from syncline import ipc
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        if 0 < most < 2200:
            print("skipped")
            raise SystemExit
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        server, port = ipc.server(token="t", timeout=60)
        clients = [ipc.client(port, token="t", timeout=60) for _ in range(1000)]
        assert server.clients(1000, lambda each: None) == 1000
        for number, client in enumerate(clients):
            client.send(number)
        assert sum(server.recv_any()[0] for _ in clients) == 499500
        assert server.broadcast("all") == 1000
        assert all(client.recv() == "all" for client in clients)
        print("served")
        """
    )
    if ended.out == "skipped\n":
        pytest.skip("a process may not open 2200 descriptors here")
    assert (ended.status, ended.out) == (0, "served\n"), ended

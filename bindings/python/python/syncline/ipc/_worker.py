"""What a process of a crew does: reads tasks from one channel, writes what became of them into another.

    [WORK, token, bytes]         a function with its arguments, told once
    [RUN, token, first, last]    call it with these numbers
    [FORGET, token]              it is not needed any more
    [REST, seconds]              go home unless you hear something so soon
    [STAY]                       do not, and neither after any other message
    (token, number, worker, ok, result or error, seconds, processor seconds)      the answer to each number
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from multiprocessing import parent_process
from multiprocessing.connection import wait

from syncline._errors import Timeout
from syncline._native import ipc_let_go
from syncline.ipc import _functions
from syncline.ipc._failures import packed

TYPE_CHECKING = False  # type checkers know the name; the module `typing` is slow to load
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from syncline._native import Channel

WORK, RUN, FORGET, REST, STAY = range(5)


def main(worker: int, channels: bytes) -> None:
    """The whole life of a worker: until its tasks are closed. The channels come pickled, as an invitation: a fork has to join, too."""
    tasks, results = pickle.loads(channels)
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program, which then decides about its workers
    works: dict[int, Callable[[int], Any]] = {}
    rest_for: float | None = None
    while True:
        try:
            status, message = tasks.read(timeout=rest_for)
        except Timeout:
            tasks.close()  # from here on its crew is told that nobody is here; what it wrote before is still done
            rest_for = None
            continue
        if status == tasks.DRAINED:
            return
        kind, *rest = message
        rest_for = rest[0] if kind == REST else None
        if kind == WORK:
            works[rest[0]] = opened(rest[1])
        elif kind == FORGET:
            works.pop(rest[0], None)
        elif kind == RUN:
            token, first, end = rest
            for number in range(first, end):
                answer(results, worker, token, number, works[token])


def answer(results: Channel, worker: int, token: int, number: int, work: Callable[[int], Any]) -> None:
    began = time.perf_counter()
    used = time.process_time()
    try:
        made, good = work(number), True
    except BaseException as error:  # SystemExit too: a worker ends when its crew does
        made, good = packed(error), False
    ipc_let_go(good)  # what it had read from a workqueue is done with, or goes back
    costs = (time.perf_counter() - began, time.process_time() - used)
    try:
        results.write((token, number, worker, good, made, *costs))
    except Exception as error:
        error.add_note("what the function returned cannot travel to another process")
        results.write((token, number, worker, False, packed(error), *costs))


def opened(data: bytes) -> Callable[[int], Any]:
    """The function that calls the user's; one that cannot be made fails whenever it is called."""
    try:
        init, function, args, numbered = _functions.loads(data)
        if isinstance(init, str):
            exec(compile(init, "<init>", "exec"), _functions.globals_of(function))
        elif init is not None:
            init()
    except BaseException as error:
        failure = error

        def fail(number: int) -> Any:
            raise failure

        return fail
    if numbered:
        return lambda number: function(*args, number)
    return lambda number: function(*args)


def end_with_parent() -> None:
    """No worker outlives the program that started it, however that ended."""
    parent = parent_process()
    if parent is None:
        return

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, name="syncline parent", daemon=True).start()

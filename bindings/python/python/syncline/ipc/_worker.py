"""What a process of a crew does: reads tasks from one channel, writes what became of them into another.

    [WORK, token, bytes]         a function with its arguments, told once
    [RUN, token, first, last]    call it with these numbers
    [FORGET, token]              it is not needed any more
    [REST, seconds]              go home unless you hear something so soon
    [STAY]                       do not, and neither after any other message
    (head, result or error)      the answer to each number; ``_answers.py`` says what is in the head
"""

from __future__ import annotations

import _signal
import _thread
import os
import select
import time

from syncline._errors import ConfigurationError, Timeout
from syncline._native import ipc_let_go
from syncline.ipc import _answers, _failures, _functions

TYPE_CHECKING = False  # type checkers know the name; the module `typing` is slow to load
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from syncline._native import Channel

WORK, RUN, FORGET, REST, STAY = range(5)


def child(worker: int, channels: bytes) -> None:
    """A worker that multiprocessing has started."""
    from multiprocessing import parent_process

    parent = parent_process()
    if parent is not None:
        end_with(parent.sentinel)
    main(worker, channels)


def main(worker: int, channels: bytes) -> None:
    """The whole life of a worker: until its tasks are closed. The channels come pickled, as an invitation: a fork has to join, too."""
    tasks, results = _functions.loads(channels)
    _signal.signal(_signal.SIGINT, _signal.SIG_IGN)  # Ctrl-C is for the program, which then decides about its workers
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
        made, good = _failures.packed(error), False
    ipc_let_go(good)  # what it had read from a workqueue is done with, or goes back
    costs = (time.perf_counter() - began, time.process_time() - used)
    try:
        results.write(_answers.message((token, number, worker, good, *costs), made))
    except Exception as error:
        failed = _failures.packed(_cannot_travel(made, error))
        results.write(_answers.message((token, number, worker, False, *costs), failed))


def _cannot_travel(made: Any, error: Exception) -> Exception:
    if not isinstance(error, ConfigurationError):
        return error
    # It speaks of the message; the user knows only what is in it.
    why = str(error).partition(": ")[2] or str(error)
    return ConfigurationError(f"what the function returned, of type {type(made).__qualname__}, cannot travel to another process: {why}")


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


def end_with(parent: int) -> None:
    """No worker outlives the process that started it, however that ended: ``parent`` can be read from then on."""

    def watch() -> None:
        poll = select.poll()
        poll.register(parent, select.POLLIN)
        poll.poll()
        os._exit(1)

    _thread.start_new_thread(watch, ())

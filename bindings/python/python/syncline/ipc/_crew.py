"""Workers that run tasks: processes, or threads of this one.

A crew hands numbers to its workers and hears what became of each, in a loop that runs in whoever waits; a thread, the
foreman, does it while nobody waits and there is still something to hand out. The crew knows which number a worker has in
hand, so a process that dies is named together with it; numbers that it had been given ahead go to others.
"""

from __future__ import annotations

import _thread
import atexit
import collections
import contextlib
import itertools
import os
import queue
import threading
import time
import weakref

from syncline import _native
from syncline._errors import Closed, Timeout
from syncline.ipc import _answers, _functions, _start, _worker
from syncline.ipc._failures import died, unpacked
from syncline.ipc._job import Job, Stats
from syncline.ipc._nothing import NOTHING

TYPE_CHECKING = False  # type checkers know the name; the module `typing` is slow to load
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

SLICE = 0.1  # seconds between two looks at whether all workers live
AHEAD = 0.002  # seconds of work that a process is given ahead
MOST_AHEAD = 64
IDLE = 10.0  # seconds that a worker rests before it goes home


class ProcessCrew:
    """Workers that are processes."""

    def __init__(self, size: int, start_method: str | None = None, function: Any = None) -> None:
        self.method = _start.method_of(start_method)
        self.libraries = _start.libraries(function)
        self.results = _native.Channel()
        self.lock = threading.RLock()
        self.tokens = itertools.count(1)
        self.jobs: dict[int, Job] = {}
        self.workers: list[_Process] = []
        self.closed = self.killed = False
        self.maker, self.born = os.getpid(), time.time()
        self.surroundings: Any = None  # what its processes found when they were started
        self.for_one_map = False  # its workers go home once nothing is left to do, joined or not
        self.attended = 0
        self.unattended = threading.Condition()
        self.foreman: threading.Thread | None = None
        _register(self)
        try:
            for _ in range(size):
                self._hire()
        except BaseException:
            self.end()
            raise

    def _hire(self) -> _Process:
        worker = _Process(self, len(self.workers) + 1)
        self.workers.append(worker)
        return worker

    def submit(self, job: Job, *, one_each: bool = False) -> None:
        """Begins a job. With ``one_each``, number n goes to worker n, as many as there are."""
        work = _functions.dumps(job.call, f"the function {job.name}")
        with self.lock:
            if self.closed:
                raise Closed("the pool is closed")
            job.token = next(self.tokens)
            job.work = work
            if job.total:
                self.jobs[job.token] = job
            if one_each:
                job.waiting.clear()
                for number, worker in enumerate(self.workers, 1):
                    worker.give(job, number, number + 1)
            else:
                self._hand_out()
            if job.waiting and self.foreman is None:
                self.foreman = threading.Thread(target=self._oversee, name="syncline foreman", daemon=True)
                self.foreman.start()

    @contextlib.contextmanager
    def attendance(self) -> Iterator[None]:
        """While somebody waits, the foreman rests."""
        with self.unattended:
            self.attended += 1
        try:
            yield
        finally:
            with self.unattended:
                self.attended -= 1
                self.unattended.notify_all()

    def _oversee(self) -> None:
        while True:
            with self.unattended:
                self.unattended.wait_for(lambda: not self.attended)
            with self.lock:
                if not self.jobs:
                    self.foreman = None
                    if self.for_one_map:
                        self.rest()  # whoever joins later finds the results here; the workers need not wait for that
                    return
            self.pump(SLICE)

    def abandon(self) -> None:
        """Nobody can bring another job: the workers end when those that are there have ended.

        The collector of garbage calls this in the middle of anything, so it takes no lock here, nor does what it calls.
        """
        if not self.closed and self.maker == os.getpid():
            _thread.start_new_thread(self._wind_up, ())

    def _wind_up(self) -> None:
        self._oversee()
        self.close()

    def pump(self, timeout: float | None) -> bool:
        """Waits for one message, at most ``timeout`` seconds or one look at the workers; false when nothing came."""
        with self.lock:
            pause = SLICE if timeout is None else min(timeout, SLICE)
            message = self._next(pause)
            if message is NOTHING:
                return self._look()
            self._hear(message)
            return True

    def _next(self, pause: float) -> Any:
        """The next answer, or NOTHING. One that cannot be read has failed."""
        _answers.expect()
        try:
            return self.results.read(timeout=pause)[1] if pause > 0 else self.results.read(True)[1]
        except Timeout:
            return NOTHING
        except Exception as error:
            return _answers.unreadable(error)

    def _hear(self, message: Any) -> None:
        (token, number, who, good, seconds, cpu), made = message
        worker = self.workers[who - 1]
        worker.answered(number, good, seconds, cpu)
        job = self.jobs.get(token)
        if job is None:
            return
        if not good and not isinstance(made, Exception):
            made = unpacked(made, f"worker {who} (pid {worker.pid}), {job.name}({number})")
        job.note(number, good, made, seconds)
        if job.over:
            self._forget(job)
        if worker.room(job) > MOST_AHEAD // 4 or not worker.given:
            self._hand_out()

    def _forget(self, job: Job) -> None:
        del self.jobs[job.token]
        for worker in self.workers:
            worker.forget(job)

    def _hand_out(self) -> None:
        for job in self.jobs.values():
            for worker in self.workers:
                if not job.waiting:
                    break
                if worker.alive and (room := worker.room(job)) > 0:
                    # No more than a fair share: the last numbers are spread over all.
                    left = sum(end - first for first, end in job.waiting)
                    share = max(1, left // (2 * len(self.workers)))
                    first, end = job.next(min(room, share))
                    if not worker.give(job, first, end):
                        # It has waited long enough and went home; somebody else takes its place and its numbers.
                        job.waiting.appendleft((first, end))
                        worker.alive = False
                        self._hire()

    def _look(self) -> bool:
        """Finds out who has died; true when somebody has."""
        dead = [worker for worker in self.workers if worker.alive and worker.has_ended()]
        if not dead:
            return False
        # What they had said before they ended counts.
        while (message := self._next(0)) is not NOTHING:
            self._hear(message)
        for worker in dead:
            self._bury(worker)
        return True

    def _bury(self, worker: _Process) -> None:
        worker.alive = False
        again: list[tuple[Job, int]] = []
        for index, (token, number) in enumerate(worker.given):
            job = self.jobs.get(token)
            if job is None:
                continue
            if index == 0:
                where = f"worker {worker.number} (pid {worker.pid}), which had {job.name}({number}) in hand,"
                worker.failed += 1
                job.note(number, False, died(where, worker.pid, worker.process.exitcode), 0.0)
                if job.over:
                    self._forget(job)
            else:
                again.append((job, number))
        worker.given.clear()
        for job, number in reversed(again):
            job.waiting.appendleft((number, number + 1))
        if self.killed:
            self._give_up()
        elif any(job.waiting for job in self.jobs.values()):
            self._hire()
            self._hand_out()

    def _give_up(self) -> None:
        for job in list(self.jobs.values()):
            while job.waiting:
                first, end = job.waiting.popleft()
                for number in range(first, end):
                    job.note(number, False, Closed(f"{job.name}({number}) was not begun: its workers were ended"), 0.0)
            if job.over:
                self._forget(job)

    def has_ended(self) -> bool:
        return self.closed and all(worker.has_ended() for worker in self.workers)

    def rest(self) -> bool:
        """Lets the workers go home unless they hear something soon; false when they cannot be used again."""
        with self.lock:
            if self.closed or self.jobs:
                return False
            told = [worker.tasks.write([_worker.REST, IDLE]) == _native.Channel.OPEN for worker in self.workers if worker.alive]
            return all(told) and len(told) == len(self.workers)

    def resume(self) -> bool:
        """Calls workers that rest back; false when one has gone home."""
        with self.lock:
            if not all(worker.tasks.write([_worker.STAY]) == _native.Channel.OPEN for worker in self.workers):
                return False
            for worker in self.workers:
                worker.done = worker.failed = 0
                worker.seconds = worker.cpu_seconds = 0.0
            return not any(worker.has_ended() for worker in self.workers)

    def close(self) -> None:
        """No more jobs: workers end when they have done what they were given."""
        with self.lock:
            self.closed = True
            for worker in self.workers:
                worker.tasks.close()

    def end(self, patience: float = 5.0) -> None:
        """Closes and waits; whoever takes longer than ``patience`` seconds is ended."""
        self.close()
        by = time.monotonic() + patience
        for worker in self.workers:
            worker.process.join(max(0.0, by - time.monotonic()))
        self.kill()
        foreman = self.foreman
        if foreman is not None and foreman is not threading.current_thread():
            foreman.join(max(0.0, by - time.monotonic()))  # the next map may want to fork, with no other thread

    def kill(self) -> None:
        """Ends every worker now; what nobody has done yet fails."""
        self.closed = self.killed = True
        for worker in self.workers:
            if worker.process.exitcode is None:
                worker.process.terminate()
        by = time.monotonic() + 1.0
        for worker in self.workers:
            worker.process.join(max(0.0, by - time.monotonic()))
            if worker.process.exitcode is None:
                worker.process.kill()
                worker.process.join()
        _crews.discard(self)

    def statistics(self) -> list[Stats]:
        with self.lock:
            return [worker.statistics() for worker in self.workers]


class _Process:
    """A worker as its crew knows it."""

    def __init__(self, crew: ProcessCrew, number: int) -> None:
        self.number = number
        self.tasks = _native.Channel()
        self.given: collections.deque[tuple[int, int]] = collections.deque()
        self.knows: set[int] = set()
        self.done = self.failed = 0
        self.seconds = self.cpu_seconds = 0.0
        self.alive = True
        channels = _functions.invitation((self.tasks, crew.results))
        self.process = _start.started(crew.method, number, channels, crew.libraries)

    @property
    def pid(self) -> int | None:
        return self.process.pid

    def has_ended(self) -> bool:
        return self.process.exitcode is not None

    def room(self, job: Job) -> int:
        """How many numbers more it should have."""
        each = job.seconds / job.ended if job.ended else None
        ahead = 1 if each is None else int(AHEAD / max(each, AHEAD / MOST_AHEAD))
        return max(1, ahead) + 1 - len(self.given) if ahead > 1 else 1 - len(self.given)

    def give(self, job: Job, first: int, end: int) -> bool:
        """Hands it some numbers; false when it has gone home."""
        run = [_worker.RUN, job.token, first, end]
        if job.token in self.knows:
            status = self.tasks.write(run)
        else:
            status = self.tasks.write([_worker.WORK, job.token, job.work], run)  # both or none
        if status != _native.Channel.OPEN:
            return False
        self.knows.add(job.token)
        self.given.extend((job.token, number) for number in range(first, end))
        return True

    def forget(self, job: Job) -> None:
        if job.token in self.knows:
            self.knows.discard(job.token)
            self.tasks.write([_worker.FORGET, job.token])

    def answered(self, number: int, good: bool, seconds: float, cpu: float) -> None:
        if self.given:
            self.given.popleft()
        self.done += good
        self.failed += not good
        self.seconds += seconds
        self.cpu_seconds += cpu

    def statistics(self) -> Stats:
        return Stats(
            worker=self.number,
            pid=self.pid,
            tasks=self.done,
            failed=self.failed,
            seconds=self.seconds,
            cpu_seconds=self.cpu_seconds,
            alive=self.alive and not self.has_ended(),
        )


class ThreadCrew:
    """Workers that are threads of this process: they share its memory, and the interpreter's lock where there is one."""

    def __init__(self, size: int) -> None:
        self.answers: queue.SimpleQueue[tuple[Job, int, int, bool, Any, float, float]] = queue.SimpleQueue()
        self.tasks: queue.SimpleQueue[tuple[Job, int] | None] = queue.SimpleQueue()
        self.size = size
        self.stats = [Stats(worker=n, pid=None, tasks=0, failed=0, seconds=0.0, cpu_seconds=0.0, alive=True)
                      for n in range(1, size + 1)]
        self.attendance = contextlib.nullcontext
        self.threads = [threading.Thread(target=self._work, args=(n,), name=f"syncline worker {n}", daemon=True)
                        for n in range(1, size + 1)]
        self.closed = False
        for thread in self.threads:
            thread.start()

    def submit(self, job: Job, *, one_each: bool = False) -> None:
        if self.closed:
            raise Closed("the pool is closed")
        for number in range(1, job.total + 1):
            self.tasks.put((job, number))

    def _work(self, worker: int) -> None:
        ready: set[int] = set()
        while (task := self.tasks.get()) is not None:
            job, number = task
            init, function, args, numbered = job.call
            began, used = time.perf_counter(), time.thread_time()
            try:
                if init is not None and id(job) not in ready:
                    exec(init, _functions.globals_of(function)) if isinstance(init, str) else init()
                    ready.add(id(job))
                made, good = function(*args, number) if numbered else function(*args), True
            except BaseException as error:
                error.add_note(f"in worker {worker}, {job.name}({number})")
                made, good = error, False
            _native.ipc_let_go(good)
            del task, function, args
            self.answers.put((job, number, worker, good, made, time.perf_counter() - began, time.thread_time() - used))
            del made, job
        self.stats[worker - 1]["alive"] = False

    def pump(self, timeout: float | None) -> bool:
        try:
            job, number, who, good, made, seconds, cpu = self.answers.get(timeout != 0, SLICE if timeout is None else timeout)
        except queue.Empty:
            return False
        stats = self.stats[who - 1]
        stats["tasks" if good else "failed"] += 1
        stats["seconds"] += seconds
        stats["cpu_seconds"] += cpu
        job.note(number, good, made, seconds)
        return True

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            for _ in self.threads:
                self.tasks.put(None)

    def abandon(self) -> None:
        self.close()  # takes no lock: the threads find their ends behind the last task

    def end(self, patience: float = 5.0) -> None:
        self.close()
        by = time.monotonic() + patience
        for thread in self.threads:
            thread.join(max(0.0, by - time.monotonic()))

    def kill(self) -> None:
        self.close()  # a thread cannot be ended from outside

    def statistics(self) -> list[Stats]:
        return [Stats(stats) for stats in self.stats]


Crew = ProcessCrew | ThreadCrew


def crew(size: int, processes: bool, start_method: str | None, function: Any = None) -> Crew:
    """Workers; ``function`` is what they will call first, if that is known."""
    return ProcessCrew(size, start_method, function) if processes else ThreadCrew(size)


def end_with(owner: object, crew: Crew) -> None:
    """Nobody but ``owner`` brings jobs to this crew: when it was forgotten, the workers end after what they were given."""
    weakref.finalize(owner, crew.abandon).atexit = False


def until(over: Callable[[], bool], crew: Crew, timeout: float | None) -> Iterator[None]:
    """Pumps until ``over`` says so; gives the caller a turn after each message. Ends early at the deadline."""
    by = None if timeout is None else time.monotonic() + timeout
    with crew.attendance():
        while not over():
            left = None if by is None else max(by - time.monotonic(), 0.0)
            if not crew.pump(left) and left == 0.0:
                return
            yield


# A map that nobody keeps still does its work: its crew stays until the last worker has ended.
_crews: set[ProcessCrew] = set()


def _register(crew: ProcessCrew) -> None:
    for each in [each for each in _crews if each.has_ended()]:
        _crews.discard(each)
    _crews.add(crew)


@atexit.register
def _end_all() -> None:
    """Processes of crews that nobody joined end with the program, as threads would."""
    for each in list(_crews):
        if each.maker == os.getpid():  # a fork has nobody to end
            with contextlib.suppress(Exception):
                each.kill()

"""A workqueue whose workers are killed at random: python examples/python/killed_workers.py [questions] [kills]

A question that a worker has read is in its hand until it answers: if it dies before, the question goes to another worker. Every question
is answered, and none twice, however many workers die.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time

import syncline as sl
from syncline import ipc

WORKERS = 3


def work(queue: ipc.Workqueue, pids: ipc.Channel, id: int) -> None:
    pids.write(os.getpid())
    for number in queue:
        time.sleep(0.002)  # what takes time is what gets interrupted
        queue.write((number, number**2, os.getpid()))


def main(questions: int, kills: int) -> None:
    queue, _ = ipc.workqueue()
    pids = ipc.channel()
    queue.write(*range(questions))
    crews = [ipc.map(1, work, queue, pids) for _ in range(WORKERS)]
    answers: dict[int, int] = {}
    killed = 0
    while len(answers) < questions:
        number, square, _ = queue.read(timeout=60)
        assert number not in answers, f"{number} was answered twice"
        answers[number] = square
        if killed < kills and len(answers) > (killed + 1) * questions / (kills + 2):
            pid = pids.read()[1]
            time.sleep(random.random() * 0.005)
            os.kill(pid, signal.SIGKILL)
            killed += 1
            crews.append(ipc.map(1, work, queue, pids))
    queue.drain(timeout=60)  # every question is finished: an answer that came twice would be here
    assert queue.read(nonblocking=True) is ipc.NOTHING
    queue.close()
    for crew in crews:
        try:
            crew.join()
        except sl.PeerLost as error:
            print(str(error).splitlines()[-1].strip())
    assert answers == {number: number**2 for number in range(questions)}
    print(f"{questions} questions, {killed} workers killed, {len(answers)} answers, none twice")


if __name__ == "__main__":
    main(*(int(given) for given in sys.argv[1:] or (600, 5)))

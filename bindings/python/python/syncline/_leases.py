"""Pieces of the samples that workers take one at a time, from their own host first and then from the others.

Each host has a part of the samples, by the number of its workers, and a file without a name that says how far it is
given away. Workers of the host change it under a lock. For those of other hosts the host's first worker does, in a
thread of its own, as a server that asks for the token which worker 0 made.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import struct
import threading
import weakref
from collections.abc import Iterator

from syncline import _native, ipc
from syncline._errors import SynclineError
from syncline._neighbours import addresses, common_file
from syncline._service import ask, reach, serve


class Leases:
    """What ``sl.data.shard(leases=True)`` takes from."""

    def __init__(self, tree: _native.Tree, samples: int, lease: int) -> None:
        file, _, hosts = common_file(tree, "leases")
        self._me, self._lease = tree.node - 1, lease
        self._here = next(place for place, host in enumerate(hosts) if self._me in host)
        self._parts: list[tuple[int, int]] = []
        before = 0
        for host in hosts:
            self._parts.append((samples * before // tree.nodes, samples * (before + len(host)) // tree.nodes))
            before += len(host)
        self._part = _Part(file, tree.nodes, hosts[self._here], self._pieces(self._here))
        self._part.live(self._me)
        self._others: dict[int, tuple[list[str], int]] = {}
        self._reached: dict[int, ipc.Client] = {}
        if len(hosts) > 1:
            self._meet(tree, hosts)
        tree.barrier()  # from here on who holds no lock is dead

    def of_epoch(self, epoch: int) -> Iterator[tuple[int, int]]:
        """The pieces that this worker gets, as first and last samples, until there are none anywhere."""
        for host in [*range(self._here, len(self._parts)), *range(self._here)]:
            first, end = self._parts[host]
            while (piece := self._take(host, epoch)) is not None:
                start = first + piece * self._lease
                yield start, min(start + self._lease, end)

    def _pieces(self, host: int) -> int:
        first, end = self._parts[host]
        return -(-(end - first) // self._lease)

    def _take(self, host: int, epoch: int) -> int | None:
        if host == self._here:
            return self._part.take(epoch, self._me)
        if host not in self._others:
            return None
        try:
            if host not in self._reached:
                self._reached[host] = reach(*self._others[host], self._token)
            piece: int | None = ask(self._reached[host], [epoch, self._me])
            return piece
        except SynclineError:
            # Nobody serves there any more; what is left of that host's part goes to its own workers.
            del self._others[host]
            return None

    def _meet(self, tree: _native.Tree, hosts: list[list[int]]) -> None:
        """The first worker of each host begins to serve, and all learn where."""
        self._token = tree.broadcast(secrets.token_hex(32) if tree.node == 1 else None)
        listens: list[object] = []
        if hosts[self._here][0] == self._me:
            strangers = _Strangers(self._part)
            listens = [addresses(), serve(self, self._token, strangers.answer, strangers.bury_the_lost)]
        told = tree.all_gather(listens)
        self._others = {place: tuple(told[host[0]]) for place, host in enumerate(hosts) if place != self._here}


class _Part:
    """One host's part, as far as it is given away.

    Each epoch has a record in the file: how many pieces were taken, and for each worker of the job which one it has
    now, plus one; less than zero if it died with it. Each worker of the host holds a lock for as long as it lives.
    """

    ALIVE = 1 << 40  # where the locks of the living begin, far behind all records

    def __init__(self, file: int, workers: int, here: list[int], pieces: int) -> None:
        self._file, self._here, self._pieces = file, here, pieces
        self._record = struct.Struct(f"={1 + workers}q")
        self._own = -1
        self._threads = threading.Lock()  # locks of a file are a process's: its threads need one more
        weakref.finalize(self, os.close, file)

    def live(self, worker: int) -> None:
        """Holds the lock that says so, from this process's side of it."""
        self._own = worker
        fcntl.lockf(self._file, fcntl.LOCK_EX, 1, self.ALIVE + worker)

    def take(self, epoch: int, worker: int) -> int | None:
        """The next piece, or one whose holder is dead; what this worker had is done."""
        with self._threads:
            fcntl.lockf(self._file, fcntl.LOCK_EX, 1, 0)
            try:
                taken, held = self._read(epoch)
                piece = None
                held[worker] = 0
                if taken < self._pieces:
                    piece, taken = taken, taken + 1
                else:
                    for place, its in enumerate(held):
                        if its < 0 or (its > 0 and place in self._here and place != worker and self._dead(place)):
                            piece, held[place] = abs(its) - 1, 0
                            break
                if piece is not None:
                    held[worker] = piece + 1
                self._write(epoch, taken, held)
                return piece
            finally:
                fcntl.lockf(self._file, fcntl.LOCK_UN, 1, 0)

    def bury(self, epoch: int, worker: int) -> None:
        """A worker of another host is gone: what it had is for somebody else."""
        with self._threads:
            fcntl.lockf(self._file, fcntl.LOCK_EX, 1, 0)
            try:
                taken, held = self._read(epoch)
                held[worker] = -abs(held[worker])
                self._write(epoch, taken, held)
            finally:
                fcntl.lockf(self._file, fcntl.LOCK_UN, 1, 0)

    def _read(self, epoch: int) -> tuple[int, list[int]]:
        there = os.pread(self._file, self._record.size, epoch * self._record.size)
        taken, *held = self._record.unpack(there.ljust(self._record.size, b"\0"))
        return taken, held

    def _write(self, epoch: int, taken: int, held: list[int]) -> None:
        os.pwrite(self._file, self._record.pack(taken, *held), epoch * self._record.size)

    def _dead(self, worker: int) -> bool:
        if worker == self._own:  # a process does not keep itself out
            return False
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, self.ALIVE + worker)
        except OSError:
            return False
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, self.ALIVE + worker)
        return True


class _Strangers:
    """Workers of other hosts, who ask for pieces of this one's part."""

    def __init__(self, part: _Part) -> None:
        self._part = part
        self._asked: dict[int, int] = {}  # by worker, the epoch it is in

    def answer(self, client: ipc.ServerClient, question: list[int]) -> int | None:
        """The next piece for whoever asks."""
        epoch, worker = question
        client.id(worker + 1)
        self._asked[worker] = epoch
        return self._part.take(epoch, worker)

    def bury_the_lost(self, server: ipc.Server) -> None:
        """Whoever asked before and is not connected any more has died with what it had."""
        there: set[int] = set()
        server.clients(lambda client: there.add(client.id() - 1))
        for worker in set(self._asked) - there:
            self._part.bury(self._asked.pop(worker), worker)

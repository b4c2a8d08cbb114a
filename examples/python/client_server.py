"""A server that hands out work and clients that do it, as processes of this program or as programs of their own.

    python examples/python/client_server.py                        # one server, three clients, all at once
    python examples/python/client_server.py serve 127.0.0.1 4100   # or each by hand, on as many machines as there are
    python examples/python/client_server.py work 127.0.0.1 4100

Each client gets rows of a matrix and sends back their sums; the answer to a part is the demand for the next one, so a
fast client gets more of them. Between machines both sides need the same SYNCLINE_TOKEN.
"""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import syncline as sl
from syncline import ipc

CLIENTS, PARTS, ROWS, COLUMNS = 3, 12, 4, 1000


def serve(server: ipc.Server) -> None:
    matrix = np.repeat(np.arange(PARTS * ROWS, dtype=np.float32), COLUMNS).reshape(PARTS, ROWS, COLUMNS)
    sums = np.zeros((PARTS, ROWS))
    parts = iter(enumerate(matrix))
    server.clients(CLIENTS, lambda client: client.send(next(parts)))
    for _ in range(PARTS):
        (number, found), client = server.recv_any()
        sums[number] = found
        client.send(next(parts, None))
    np.testing.assert_array_equal(sums, matrix.sum(axis=2))
    print(f"{sums.size} rows summed by {CLIENTS} clients")


def work(client: ipc.Client) -> None:
    while (part := client.recv()) is not None:
        number, rows = part
        client.send((number, rows.sum(axis=1, dtype=np.float64)))


def main() -> None:
    match sys.argv[1:]:
        case []:
            server, port = ipc.server()
            command = [sys.executable, __file__, "work", "127.0.0.1", str(port)]
            clients = [subprocess.Popen(command) for _ in range(CLIENTS)]
            serve(server)
            if any(client.wait() for client in clients):
                raise sl.SynclineError("a client failed")
        case ["serve", host, port]:
            server, _ = ipc.server(host, int(port))
            serve(server)
        case ["work", host, port]:
            with ipc.client(host, int(port)) as client:
                work(client)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()

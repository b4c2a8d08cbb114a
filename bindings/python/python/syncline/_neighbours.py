"""Who is on which host: a file without a name that the workers of one host share, and where others reach this one."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from typing import Any

from syncline import _native
from syncline._errors import ConfigurationError

SIOCGIFADDR = 0x8915  # asks Linux for an interface's address


def machine() -> str:
    """This boot of this machine, and its network: containers and namespaces are hosts of their own."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip() + os.readlink("/proc/self/ns/net")


def by_host(tree: _native.Tree, mine: Any) -> list[list[Any]]:
    """What each worker brings and its number, ``[number, mine]``, by host in the order of their first workers."""
    hosts: dict[str, list[Any]] = {}
    for number, (host, theirs) in enumerate(tree.all_gather([machine(), mine])):
        hosts.setdefault(host, []).append([number, theirs])
    return list(hosts.values())


def common_file(tree: _native.Tree, purpose: str) -> tuple[int, str, list[list[int]]]:
    """A descriptor of the host's file, its path as neighbours know it, and the numbers of the workers of each host.

    All workers call it together.
    """
    kept = os.memfd_create(f"syncline-{purpose}", os.MFD_CLOEXEC)
    hosts = by_host(tree, f"/proc/{os.getpid()}/fd/{kept}")
    own = next(host for host in hosts if any(number == tree.node - 1 for number, _ in host))
    path = str(own[0][1])
    if own[0][0] != tree.node - 1:
        os.close(kept)
    try:
        file = kept if own[0][0] == tree.node - 1 else os.open(path, os.O_RDWR | os.O_CLOEXEC)
        reached = 1
    except OSError:
        file, reached = -1, 0
    # Also sees to it that nobody is gone before all have come.
    if not tree.all_reduce(reached, "min")[0]:
        raise ConfigurationError(
            f"{purpose}: neighbours cannot open each other's files under /proc\nhint: run them as one user"
        )
    return file, path, [[number for number, _ in host] for host in hosts]


def addresses() -> list[str]:
    """This host's IPv4 addresses, without those that mean every host itself."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(asked, SIOCGIFADDR, struct.pack("256s", name.encode()))
            except OSError:  # an interface without an address
                continue
            found.append(socket.inet_ntoa(answer[20:24]))
    return [address for address in found if not address.startswith("127.")]

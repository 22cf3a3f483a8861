"""Ports for servers that all listen on the same ones, each on an address of its own.

They lie below those that the system gives to clients, which another test's connection could take in between.
"""

import contextlib
import random
import socket
from collections.abc import Sequence

RANGE = range(20_000, 30_000)
_TRIES = 200


def free(hosts: Sequence[str], count: int) -> list[int]:
    """So many ports that are free on all of these addresses."""
    found: list[int] = []
    for port in random.SystemRandom().sample(RANGE, _TRIES):
        if len(found) < count and _is_free(hosts, port):
            found.append(port)
    assert len(found) == count, f"{len(found)} of {count} ports are free on {', '.join(hosts)}"
    return found


def _is_free(hosts: Sequence[str], port: int) -> bool:
    with contextlib.ExitStack() as stack:
        try:
            for host in hosts:
                probe = stack.enter_context(socket.socket())
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((host, port))
        except OSError:
            return False
    return True

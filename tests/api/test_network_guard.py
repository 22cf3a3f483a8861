import asyncio
import socket

import pytest


def test_other_machines_cannot_be_reached() -> None:
    with socket.socket() as out, pytest.raises(AssertionError, match=r"192.0.2.1"):
        out.connect(("192.0.2.1", 80))
    with socket.socket() as out, pytest.raises(AssertionError, match="may not reach"):
        out.connect_ex(("8.8.8.8", 53))


def test_names_are_not_looked_up() -> None:
    with pytest.raises(AssertionError, match=r"example.com"):
        socket.getaddrinfo("example.com", 80)
    assert socket.getaddrinfo("localhost", 80)
    assert socket.getaddrinfo("0.0.0.0", 80)


async def test_asyncio_is_guarded_too() -> None:
    with pytest.raises(AssertionError, match="may not reach"):
        await asyncio.open_connection("192.0.2.1", 80)


def test_loopback_and_unix_sockets_work(tmp_path: object) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()[:2]):
        pass
    left, right = socket.socketpair()
    with left, right:
        left.send(b"x")
        assert right.recv(1) == b"x"

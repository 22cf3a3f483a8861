import asyncio

import pytest

from firsttoken_sidecar import flags
from sidecar import fakes


async def test_everything_ends_with_the_block() -> None:
    before = asyncio.all_tasks()
    async with fakes.engine() as engine:
        async with fakes.beside(engine) as sidecar:
            assert sidecar.drain_socket.exists()
            port = sidecar.running.http_port
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(fakes.LOOPBACK, port)
        assert not sidecar.drain_socket.exists()
    assert asyncio.all_tasks() == before


async def test_a_background_task_that_fails_is_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fakes.engine() as engine, fakes.beside(engine) as sidecar:
        failing = asyncio.create_task(sidecar.running.failed())

        async def broken(self: object) -> None:
            raise PermissionError("mounted file")

        monkeypatch.setattr(flags.Follower, "tick", broken)
        with pytest.raises(PermissionError, match="mounted file"):
            await asyncio.wait_for(failing, 1)

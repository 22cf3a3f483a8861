"""The socket end of the engine: sending never blocks, nothing is lost, and too much is said so."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import zmq

from firsttoken_runtime import core
from firsttoken_runtime.engine import mailbox

MANY = 3 * mailbox.HIGH_WATER_MESSAGES


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[zmq.Socket[bytes], zmq.Socket[bytes], mailbox.SocketMailbox]]:
    """The server's two sockets, and the engine's mailbox connected to them."""
    context = zmq.Context()
    to_engine, from_engine = context.socket(zmq.PUSH), context.socket(zmq.PULL)
    from_engine.setsockopt(zmq.RCVHWM, 10)
    to_engine.bind(f"ipc://{tmp_path}/in")
    from_engine.bind(f"ipc://{tmp_path}/out")
    box = mailbox.SocketMailbox(f"ipc://{tmp_path}/in", f"ipc://{tmp_path}/out")
    yield to_engine, from_engine, box
    context.destroy(linger=0)
    box.close()


def test_a_server_that_does_not_read_costs_no_step_and_no_message(
    server: tuple[zmq.Socket[bytes], zmq.Socket[bytes], mailbox.SocketMailbox],
) -> None:
    _, from_engine, box = server
    for number in range(MANY):
        box.send(core.Loading(progress=number / MANY))
    assert box.is_congested
    received: list[float] = []
    while len(received) < MANY:
        assert box.receive(0.0) == []
        while from_engine.poll(5):
            message = msgspec.msgpack.decode(from_engine.recv(), type=core.FromEngine)
            assert isinstance(message, core.Loading)
            received.append(message.progress)
    assert received == [number / MANY for number in range(MANY)]
    assert not box.is_congested


def test_everything_that_arrived_comes_at_once(
    server: tuple[zmq.Socket[bytes], zmq.Socket[bytes], mailbox.SocketMailbox],
) -> None:
    to_engine, _, box = server
    assert box.receive(0.0) == []
    for sequence_id in range(3):
        to_engine.send(msgspec.msgpack.encode(core.Abort(sequence_id)))
    received: list[core.ToEngine] = []
    while len(received) < 3:
        received += box.receive(5.0)
    assert received == [core.Abort(0), core.Abort(1), core.Abort(2)]

"""The socket end of the engine: sending never blocks, nothing is lost, and too much is said so."""

import threading
import time
from pathlib import Path

import msgspec
import zmq

from firsttoken_runtime import core
from firsttoken_runtime.engine import mailbox

MANY = 3 * mailbox.HIGH_WATER_MESSAGES
WAIT_MS = 20_000


def test_a_server_that_does_not_read_costs_no_step_and_no_message(tmp_path: Path) -> None:
    box = mailbox.SocketMailbox(f"ipc://{tmp_path}/in", f"ipc://{tmp_path}/out")
    for number in range(MANY):
        box.send(core.Loading(progress=number / MANY))
    assert box.is_congested
    with zmq.Context() as context, context.socket(zmq.PULL) as from_engine:
        from_engine.bind(f"ipc://{tmp_path}/out")  # now somebody reads
        received: list[float] = []
        while len(received) < MANY:
            assert box.receive(0.0) == []
            assert from_engine.poll(WAIT_MS), f"{len(received)} of {MANY} messages came"
            message = msgspec.msgpack.decode(from_engine.recv(), type=core.FromEngine)
            assert isinstance(message, core.Loading)
            received.append(message.progress)
        assert received == [number / MANY for number in range(MANY)]
        assert not box.is_congested
        box.close()


def test_everything_that_arrived_comes_at_once(tmp_path: Path) -> None:
    with zmq.Context() as context, context.socket(zmq.PUSH) as to_engine:
        to_engine.bind(f"ipc://{tmp_path}/in")
        box = mailbox.SocketMailbox(f"ipc://{tmp_path}/in", f"ipc://{tmp_path}/out")
        assert box.receive(0.0) == []
        for sequence_id in range(3):
            to_engine.send(msgspec.msgpack.encode(core.Abort(sequence_id)))
        received: list[core.ToEngine] = []
        while len(received) < 3:
            received += box.receive(WAIT_MS / 1000)
        assert received == [core.Abort(0), core.Abort(1), core.Abort(2)]
        box.close()


def test_another_thread_ends_a_wait_and_too_many_calls_do_not_pile_up(tmp_path: Path) -> None:
    box = mailbox.SocketMailbox(f"ipc://{tmp_path}/in", f"ipc://{tmp_path}/out")
    waker = threading.Timer(0.05, box.wake)
    waker.start()
    started_s = time.monotonic()
    assert box.receive(20.0) == []
    assert time.monotonic() - started_s < 10
    waker.join()
    for _ in range(100_000):
        box.wake()
    while box.receive(0.0):
        pass
    box.close()
    box.wake()  # a grammar that is done after the end


def test_a_server_that_reads_again_ends_a_wait(tmp_path: Path) -> None:
    """The engine computes on at once, not when its next heartbeat is due."""
    box = mailbox.SocketMailbox(f"ipc://{tmp_path}/in", f"ipc://{tmp_path}/out")
    while not box.is_congested:
        box.send(core.Loading(progress=0.5))
    with zmq.Context() as context, context.socket(zmq.PULL) as from_engine:
        from_engine.bind(f"ipc://{tmp_path}/out")  # now somebody reads
        started_s = time.monotonic()
        while box.is_congested:
            box.receive(20.0)
        assert time.monotonic() - started_s < 10
        box.close()

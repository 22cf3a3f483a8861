"""The engine's end of the socket pair to the server: one msgpack message a frame.

Sending never blocks: what the socket does not take at once waits in `_outbox`. `is_congested` tells the
loop to stop making more until the server has drained it, so that memory stays bounded.
"""

import contextlib
import socket
from collections import deque
from typing import Protocol

import msgspec
import zmq

from firsttoken_runtime import core

HIGH_WATER_MESSAGES = 1000
_LINGER_MS = 2000


class Mailbox(Protocol):
    """What the loop needs; `local` has one without a socket."""

    def receive(self, timeout_s: float) -> list[core.ToEngine]:
        """Everything that has arrived; waits up to `timeout_s` for the first, or until what could not be sent
        can be."""

    def send(self, message: core.FromEngine) -> None: ...

    def wake(self) -> None:
        """End a wait in `receive` early; may be called from any thread."""

    @property
    def is_congested(self) -> bool: ...


class SocketMailbox:
    """Over ZeroMQ; the server binds both addresses."""

    def __init__(self, to_engine_address: str, from_engine_address: str) -> None:
        self._context = zmq.Context()
        self._inbound = self._context.socket(zmq.PULL)
        self._inbound.connect(to_engine_address)
        self._outbound = self._context.socket(zmq.PUSH)
        self._outbound.setsockopt(zmq.SNDHWM, HIGH_WATER_MESSAGES)
        self._outbound.setsockopt(zmq.LINGER, _LINGER_MS)
        self._outbound.connect(from_engine_address)
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._poller = zmq.Poller()
        self._poller.register(self._inbound, zmq.POLLIN)
        self._poller.register(self._wake_in, zmq.POLLIN)
        self._outbox: deque[bytes] = deque()
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(core.ToEngine)

    def receive(self, timeout_s: float) -> list[core.ToEngine]:
        was_congested = self.is_congested
        self._flush()
        if was_congested and not self.is_congested:
            timeout_s = 0.0  # who called wanted to wait for this
        self._poller.register(self._outbound, zmq.POLLOUT if self._outbox else 0)
        messages: list[core.ToEngine] = []
        arrived = dict(self._poller.poll(int(timeout_s * 1000)))
        if self._outbound in arrived:
            self._flush()
        if self._wake_in.fileno() in arrived:
            self._wake_in.recv(4096)
        if self._inbound in arrived:
            while True:
                try:
                    frame = self._inbound.recv(zmq.NOBLOCK)
                except zmq.Again:
                    break
                messages.append(self._decoder.decode(frame))
        return messages

    def send(self, message: core.FromEngine) -> None:
        self._outbox.append(self._encoder.encode(message))
        self._flush()

    def wake(self) -> None:
        with contextlib.suppress(OSError):  # full: it wakes anyway; closed: nobody waits any more
            self._wake_out.send(b"!")

    @property
    def is_congested(self) -> bool:
        return len(self._outbox) > HIGH_WATER_MESSAGES

    def _flush(self) -> None:
        while self._outbox:
            try:
                self._outbound.send(self._outbox[0], zmq.NOBLOCK)
            except zmq.Again:
                return
            self._outbox.popleft()

    def close(self) -> None:
        """Give the last messages a moment to leave, then drop the sockets."""
        self._flush()
        self._inbound.close(linger=0)
        self._wake_in.close()
        self._wake_out.close()
        self._outbound.close()
        self._context.term()

"""The engine container's preStop: `python -m firsttoken_runtime.drain`.

Asks the sidecar over the socket they share to drain, and returns when it has: only then does the kubelet
stop the engine. Standard library only, because it starts while the pod is being asked to end.
"""

import socket
import sys

DRAIN_SOCKET = "/run/firsttoken/drain.sock"  # names.DRAIN_SOCKET, spelled out to import nothing
REQUEST = b"drain\n"
ANSWER = b"drained\n"


def drain(path: str = DRAIN_SOCKET) -> str:
    """Block until the sidecar has drained; returns what to say. There is no timeout: the kubelet has one."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            return f"no sidecar listens on {path}: nothing to drain"
        answer = b""
        try:
            connection.sendall(REQUEST)
            while part := connection.recv(256):
                answer += part
        except (ConnectionResetError, BrokenPipeError):
            return "the sidecar went away while it drained"
    if answer != ANSWER:
        return f"the sidecar ended the drain with {answer[:64]!r}"
    return "drained"


def main() -> None:
    print(f"preStop: {drain()}", file=sys.stderr)  # noqa: T201


if __name__ == "__main__":
    main()

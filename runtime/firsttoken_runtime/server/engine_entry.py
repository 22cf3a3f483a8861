"""The first code of the engine process: `python -m firsttoken_runtime.server.engine_entry`.

The server writes one line of JSON to its standard input and keeps the pipe open for as long as it lives;
when the pipe closes the server is gone, and so is the engine, however the server died. Signals of the
terminal are left to the server, which ends the engine in order.
"""

import importlib
import os
import signal
import threading

import msgspec

from firsttoken_runtime import console, core

PIPE = 0
EXIT_ORPHANED = 3


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine process is started with."""

    module: str
    """Module whose `run(settings, initial_settings_json, to_engine_address, from_engine_address)` serves."""
    settings: core.EngineSettings
    initial_settings_json: bytes | None
    to_engine_address: str
    from_engine_address: str
    log_format: str = "text"


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    launch = msgspec.json.decode(_first_line(PIPE), type=Launch)
    threading.Thread(target=_end_with, args=(PIPE,), name="server-watch", daemon=True).start()
    console.configure_logging(launch.log_format)
    engine = importlib.import_module(launch.module)
    engine.run(
        launch.settings, launch.initial_settings_json, launch.to_engine_address, launch.from_engine_address
    )


def _first_line(pipe: int) -> bytes:
    """Read unbuffered: a buffer's lock, held by the watching thread, would fail the interpreter's exit."""
    line = b""
    while not line.endswith(b"\n"):
        part = os.read(pipe, 65536)
        if not part:
            os._exit(EXIT_ORPHANED)
        line += part
    return line


def _end_with(pipe: int) -> None:
    while os.read(pipe, 65536):
        pass
    # Not sys.exit: the main thread may be inside a long forward pass, and nobody is left to tell.
    os._exit(EXIT_ORPHANED)


if __name__ == "__main__":
    main()

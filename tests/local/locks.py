"""One at a time, across checkouts: a lock file in the cache, waited for with a bound."""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from local import steps


@contextmanager
def exclusive(file: Path, timeout_s: float, every_s: float = 0.2) -> Iterator[None]:
    """Holds the lock `file`. The kernel frees it when its holder dies, so a killed run blocks nobody.

    Raises StepError when another process holds it for longer than `timeout_s`.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as stream:
        deadline_s = time.monotonic() + timeout_s
        while True:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > deadline_s:
                    raise steps.StepError(f"another run has held {file} for {timeout_s:.0f} s") from error
                time.sleep(every_s)
        yield

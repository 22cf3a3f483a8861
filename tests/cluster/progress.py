"""Plain progress lines with elapsed seconds, so that a person and a CI log both see what takes the time."""

import time


class Progress:
    """Prints `[  12 s] api server: ready`; seconds count from its creation."""

    def __init__(self) -> None:
        self._started_s = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._started_s

    def say(self, subject: str, what: str) -> None:
        print(line(self.elapsed_s, subject, what), flush=True)


def line(elapsed_s: float, subject: str, what: str) -> str:
    return f"[{elapsed_s:4.0f} s] {subject}: {what}"

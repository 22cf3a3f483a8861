"""What goes wrong in the host tier: counted by reason, and told in the log at most once a minute each.

Nothing that is reported here ends anything or changes an answer: it costs a hit that could have been.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable

EVERY_S = 60.0
_log = logging.getLogger(__name__)


class Problems:
    """Counters of one engine. Any thread may report."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._told: dict[str, tuple[float, int]] = {}
        """Reason -> when it was last told, and its count then."""

    @property
    def counts(self) -> dict[str, int]:
        with self._lock:
            return dict(self._counts)

    def note(self, reason: str, message: str, times: int = 1) -> None:
        """Count it; the log gets the message if it heard nothing of this reason for a minute."""
        now = self._clock()
        with self._lock:
            self._counts[reason] += times
            count = self._counts[reason]
            told_at, told_count = self._told.get(reason, (float("-inf"), 0))
            if now - told_at < EVERY_S:
                return
            self._told[reason] = (now, count)
        more = count - told_count - times
        _log.warning("host tier, %s: %s%s", reason, message, f" (and {more} more before)" if more else "")

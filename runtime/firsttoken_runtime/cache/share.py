"""How large a part of the pool the cache may be: it follows p99 concurrency x mean prompt length.

That many tokens are the prompts of everybody who is there at a busy moment; keeping more of them than that
rarely finds anybody. The share moves between a part of the largest one and the largest one (a setting), on
top of what is pinned. It grows at once, and shrinks only when less was enough for a while, so that it does
not follow every lull; small differences change nothing, for whatever is evicted has to be computed again.
"""

from collections import deque
from dataclasses import dataclass, field

LEAST_PART = 0.5
"""The smallest share, of the largest."""
PERCENTILE = 0.99
BUCKET_S = 30.0
NUM_BUCKETS = 10
"""What is older than so many buckets is forgotten."""
DECIDE_EVERY_S = 10.0
HYSTERESIS = 0.1
"""A share is left alone while it is within so much of what is wanted."""
SHRINK_AFTER_S = 120.0


@dataclass
class _Bucket:
    """What was seen in BUCKET_S seconds."""

    ends_s: float
    seconds_at: dict[int, float] = field(default_factory=dict)
    """By how many sequences ran."""
    num_prompts: int = 0
    prompt_tokens: int = 0


class Load:
    """Concurrency and prompt lengths of the last minutes in which anything ran."""

    def __init__(self) -> None:
        self._buckets: deque[_Bucket] = deque(maxlen=NUM_BUCKETS)
        self._seen_s: float | None = None
        self._num_running = 0

    def note_running(self, num_running: int, now: float) -> None:
        """So many run from now on."""
        # Idle time says nothing of how much is needed when there is work.
        if self._seen_s is not None and self._num_running:
            seconds_at = self._bucket(now).seconds_at
            seconds_at[self._num_running] = seconds_at.get(self._num_running, 0.0) + now - self._seen_s
        self._seen_s, self._num_running = now, num_running

    def note_prompt(self, num_tokens: int, now: float) -> None:
        bucket = self._bucket(now)
        bucket.num_prompts += 1
        bucket.prompt_tokens += num_tokens

    def _bucket(self, now: float) -> _Bucket:
        if not self._buckets or now >= self._buckets[-1].ends_s:
            self._buckets.append(_Bucket(now + BUCKET_S))
        return self._buckets[-1]

    def p99_concurrency(self) -> int:
        """So many or fewer ran in 99 % of the time; 0 = nothing ran."""
        seconds_at: dict[int, float] = {}
        for bucket in self._buckets:
            for num_running, seconds in bucket.seconds_at.items():
                seconds_at[num_running] = seconds_at.get(num_running, 0.0) + seconds
        left = sum(seconds_at.values()) * (1.0 - PERCENTILE)
        for num_running in sorted(seconds_at, reverse=True):
            left -= seconds_at[num_running]
            if left < 0.0:
                return num_running
        return 0

    def mean_prompt_tokens(self) -> float:
        num_prompts = sum(bucket.num_prompts for bucket in self._buckets)
        return sum(bucket.prompt_tokens for bucket in self._buckets) / num_prompts if num_prompts else 0.0


def wanted(
    p99_concurrency: int, mean_prompt_tokens: float, pinned_tokens: int, pool_tokens: int, largest: float
) -> float:
    """The share without hysteresis. `largest`: the setting."""
    followed = (p99_concurrency * mean_prompt_tokens + pinned_tokens) / pool_tokens
    return min(max(followed, LEAST_PART * largest + pinned_tokens / pool_tokens), largest)


class Share:
    """The share in force."""

    def __init__(self, largest: float) -> None:
        self.load = Load()
        self.largest = largest
        self.fraction = largest
        self._decided_s: float | None = None
        self._less_since_s: float | None = None

    def set_largest(self, largest: float) -> None:
        """Another setting: begins anew at it, with what was seen of the load."""
        self.largest = self.fraction = largest
        self._less_since_s = None

    def decide(self, pool_tokens: int, pinned_tokens: int, now: float) -> float:
        """The share from now on; cheap to call every step."""
        if self._decided_s is not None and now - self._decided_s < DECIDE_EVERY_S:
            return self.fraction
        self._decided_s = now
        concurrency, mean = self.load.p99_concurrency(), self.load.mean_prompt_tokens()
        if not concurrency or not mean:
            return self.fraction
        share = wanted(concurrency, mean, pinned_tokens, pool_tokens, self.largest)
        if share > self.fraction * (1 - HYSTERESIS):
            self._less_since_s = None
            if share > self.fraction * (1 + HYSTERESIS) or share == self.largest:
                self.fraction = share
        elif self._less_since_s is None:
            self._less_since_s = now
        elif now - self._less_since_s >= SHRINK_AFTER_S:
            self._less_since_s = None
            self.fraction = share
        return self.fraction

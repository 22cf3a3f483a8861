"""Where the engine process is in its life, and when its silence means that it is dead.

Pure: `now` is passed in. Loading is judged by progress, serving by a heartbeat. A step may take long on
a slow machine, so the heartbeat's deadline follows the longest step seen and the longest open prompt.
"""

from dataclasses import dataclass

from firsttoken_api.state import Phase


@dataclass(frozen=True)
class Limits:
    """How long silence is believed. Seconds."""

    load_progress_s: float = 120.0
    heartbeat_s: float = 30.0
    longest_steps: float = 10.0
    """A step this many times longer than any before it is a hang."""
    prompt_token_s: float = 0.02
    """Slowest prefill that is still believed, per token of one prompt."""


class Life:
    """Phase, progress and pulse of one engine process."""

    def __init__(self, limits: Limits, now: float) -> None:
        self._limits = limits
        self.phase = Phase.LOADING
        self.progress = 0.0
        self.error = ""
        self._progressed_at_s = now
        self._beat_at_s = now
        self._longest_gap_s = 0.0

    def load(self, progress: float, now: float) -> None:
        if progress > self.progress:
            self.progress = min(progress, 1.0)
            self._progressed_at_s = now

    def become_ready(self, now: float) -> None:
        if self.phase is Phase.LOADING:
            self.phase = Phase.READY
            self.progress = 1.0
            self._beat_at_s = now

    def beat(self, now: float) -> None:
        self._longest_gap_s = max(self._longest_gap_s, now - self._beat_at_s)
        self._beat_at_s = now

    def fail(self, error: str) -> None:
        """The first reason stays: what follows a death is not its cause."""
        if self.phase is not Phase.FAILED:
            self.phase = Phase.FAILED
            self.error = error

    @property
    def is_ready(self) -> bool:
        return self.phase is Phase.READY

    def is_live(self, now: float) -> bool:
        """False: restart it. Loading that still makes progress is live, however long it takes."""
        if self.phase is Phase.LOADING:
            return now - self._progressed_at_s < self._limits.load_progress_s
        return self.phase is Phase.READY

    def has_hung(self, now: float, longest_prompt_tokens: int) -> bool:
        """Whether a serving engine has been silent for longer than any step can take."""
        return self.is_ready and now - self._beat_at_s > self.deadline_s(longest_prompt_tokens)

    def deadline_s(self, longest_prompt_tokens: int) -> float:
        return max(
            self._limits.heartbeat_s,
            self._limits.longest_steps * self._longest_gap_s,
            self._limits.prompt_token_s * longest_prompt_tokens,
        )

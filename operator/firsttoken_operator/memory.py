"""What the operator remembers of a service between two reconciles, and may lose at any time.

Nothing here is needed to be right, only to be quiet and quick: a restarted operator finds out again.
"""

from dataclasses import dataclass, field

from firsttoken_operator.observed import Bump, Child


@dataclass(frozen=True)
class Applied:
    """The last apply of an object: its intent, and what the API server answered."""

    intent: str
    uid: str
    version: str
    """`metadata.generation` where the kind has one, else `resourceVersion`."""


@dataclass(frozen=True)
class Held:
    """A write that the API server refused, or whose name is taken: the same is not sent again for a while."""

    message: str
    is_conflict: bool
    tries: int
    again_s: float


@dataclass
class Memory:
    """One service's."""

    applied: dict[Child, Applied] = field(default_factory=dict)
    bumps: dict[str, Bump] = field(default_factory=dict)
    """By pod uid."""
    held: dict[str, Held] = field(default_factory=dict)
    """By what was to be written; another intent is another key, and is sent at once."""
    deleted: set[str] = field(default_factory=set)
    """Uids whose deletion was asked for and that the watch may still show."""
    slo_written_s: float | None = None
    traffic_at_slo: tuple[int, int] | None = None

    def forget_pods(self, uids: frozenset[str]) -> None:
        """Keep only what is about these pods."""
        self.bumps = {uid: bump for uid, bump in self.bumps.items() if uid in uids}

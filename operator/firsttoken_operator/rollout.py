"""How many replicas each revision has while one replaces another. Pure.

Two promises, kept in every step: never fewer than `replicas - max_unavailable` ready pods by our doing, never
more than `replicas + max_surge` pods asked for. Revisions are Deployments of their own; their templates never
change, so this is the only place where a rolling update happens. The same step leads forward to a candidate,
back to the stable revision after a rejection, and away from a candidate that was superseded half-way.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What `spec.scaling` and `spec.rollout` allow."""

    replicas: int
    max_surge: int
    max_unavailable: int
    draining: int = 0
    """Pods that are ending and whose places are not free yet; they count where there is no surge."""

    @property
    def highest(self) -> int:
        return self.replicas + self._surge

    @property
    def lowest_ready(self) -> int:
        return max(0, self.replicas - self.max_unavailable)

    @property
    def _surge(self) -> int:
        # Neither surge nor unavailability would never end; the API refuses it, an old CRD may not.
        return 1 if self.max_surge == 0 and self.max_unavailable == 0 else self.max_surge


@dataclass(frozen=True)
class Side:
    """One revision: replicas asked for, and how many of its pods are ready."""

    name: str
    replicas: int
    ready: int


def step(target: Side, others: tuple[Side, ...], limits: Limits) -> dict[str, int]:
    """Replicas to ask for now, by revision name, including those that stay as they are.

    `others` is the order in which they are given up: superseded candidates first, the stable revision last.
    Called again whenever something changed; it ends when the target has all replicas and the others none.
    """
    if not others:
        return {target.name: limits.replicas}
    asked = {side.name: side.replicas for side in (target, *others)}

    # What is not ready serves nobody: giving it up costs nothing and frees room. The ReplicaSet removes
    # pods that are not ready first.
    ready_left = {side.name: min(side.ready, side.replicas) for side in (target, *others)}
    for side in others:
        asked[side.name] = ready_left[side.name]

    spare_ready = sum(ready_left.values()) - limits.lowest_ready
    # The target must not be asked for more than its share, for example after a scale-down half-way.
    excess = max(0, asked[target.name] - limits.replicas)
    idle = asked[target.name] - ready_left[target.name]
    cut = min(excess, idle + max(0, spare_ready))
    spare_ready -= max(0, cut - idle)
    asked[target.name] -= cut

    for side in others:
        cut = min(asked[side.name], max(0, spare_ready))
        asked[side.name] -= cut
        spare_ready -= cut

    # Room is counted against what was asked for before this step: the pods given up now are still there.
    before = sum(side.replicas for side in (target, *others))
    room = limits.highest - max(before, sum(asked.values()))
    if limits.max_surge == 0:
        # Whoever grants no surge has no spare place: a replica asked for now would only wait for the one that
        # drains, and its deadline would run.
        room -= limits.draining
    grow = min(max(0, room), max(0, limits.replicas - asked[target.name]))
    asked[target.name] += grow
    return asked


def is_finished(target: Side, others: tuple[Side, ...], limits: Limits) -> bool:
    """The target has every replica ready and nothing else is asked for."""
    return (
        target.replicas == limits.replicas
        and target.ready >= limits.replicas
        and all(side.replicas == 0 for side in others)
    )

"""The two promises of a rollout, for every order in which a cluster may answer."""

from hypothesis import given, settings
from hypothesis import strategies as st

from firsttoken_operator import rollout
from firsttoken_operator.rollout import Limits, Side


def test_surge_one_replaces_one_by_one() -> None:
    limits = Limits(replicas=3, max_surge=1, max_unavailable=0)
    assert rollout.step(Side("new", 0, 0), (Side("old", 3, 3),), limits) == {"new": 1, "old": 3}
    assert rollout.step(Side("new", 1, 0), (Side("old", 3, 3),), limits) == {"new": 1, "old": 3}
    assert rollout.step(Side("new", 1, 1), (Side("old", 3, 3),), limits) == {"new": 1, "old": 2}
    assert rollout.step(Side("new", 1, 1), (Side("old", 2, 2),), limits) == {"new": 2, "old": 2}


def test_without_a_spare_place_one_is_given_up_first() -> None:
    limits = Limits(replicas=1, max_surge=0, max_unavailable=1)
    assert rollout.step(Side("new", 0, 0), (Side("old", 1, 1),), limits) == {"new": 0, "old": 0}
    assert rollout.step(Side("new", 0, 0), (Side("old", 0, 0),), limits) == {"new": 1, "old": 0}


def test_what_is_not_ready_is_given_up_at_once() -> None:
    limits = Limits(replicas=3, max_surge=1, max_unavailable=0)
    asked = rollout.step(Side("new", 0, 0), (Side("old", 3, 1),), limits)
    assert asked["old"] == 1
    assert asked["new"] == 1  # the two that are ending still have their places


def test_a_superseded_candidate_goes_before_the_stable_revision() -> None:
    limits = Limits(replicas=2, max_surge=2, max_unavailable=0)
    asked = rollout.step(Side("newest", 2, 1), (Side("superseded", 1, 1), Side("stable", 1, 1)), limits)
    assert asked["superseded"] == 0
    assert asked["stable"] == 1


def test_alone_the_target_has_all() -> None:
    assert rollout.step(Side("only", 0, 0), (), Limits(4, 1, 0)) == {"only": 4}
    assert rollout.step(Side("only", 7, 7), (), Limits(4, 1, 0)) == {"only": 4}


def test_suspended_services_roll_at_once() -> None:
    limits = Limits(0, 1, 0)
    asked = rollout.step(Side("new", 0, 0), (Side("old", 2, 2),), limits)
    assert asked == {"new": 0, "old": 0}
    assert rollout.is_finished(Side("new", 0, 0), (Side("old", 0, 0),), limits)


def test_neither_surge_nor_unavailability_still_moves() -> None:
    asked = rollout.step(Side("new", 0, 0), (Side("old", 2, 2),), Limits(2, 0, 0))
    assert asked["new"] == 1


class Cluster:
    """Deployments whose pods become ready, fail and end in an order that is drawn."""

    def __init__(self, replicas: dict[str, int]) -> None:
        self.asked = dict(replicas)
        self.ready = dict(replicas)

    def side(self, name: str) -> Side:
        return Side(name, self.asked[name], self.ready[name])

    def ask(self, asked: dict[str, int]) -> None:
        for name, count in asked.items():
            self.asked[name] = count
            # A ReplicaSet takes away what is not ready first.
            self.ready[name] = min(self.ready[name], count)

    def become_ready(self, name: str) -> None:
        self.ready[name] = min(self.asked[name], self.ready[name] + 1)

    @property
    def total_ready(self) -> int:
        return sum(self.ready.values())


LIMITS = st.tuples(st.integers(0, 7), st.integers(0, 3), st.integers(0, 3)).filter(lambda each: any(each[1:]))


@settings(max_examples=200)
@given(limits=LIMITS, old=st.integers(0, 7), moves=st.lists(st.sampled_from(["new", "old"]), max_size=30))
def test_never_below_never_above_and_always_to_the_end(
    limits: tuple[int, int, int], old: int, moves: list[str]
) -> None:
    bounds = Limits(*limits)
    cluster = Cluster({"new": 0, "old": old})
    highest = max(old, bounds.highest)
    lowest = min(old, bounds.lowest_ready)
    # Any order of events, then all pods become ready in the end.
    for name in [*moves, *["new", "old"] * 60]:
        asked = rollout.step(cluster.side("new"), (cluster.side("old"),), bounds)
        assert all(count >= 0 for count in asked.values())
        cluster.ask(asked)
        assert sum(cluster.asked.values()) <= highest
        assert cluster.total_ready >= lowest
        highest = max(bounds.highest, min(highest, sum(cluster.asked.values())))
        cluster.become_ready(name)
        lowest = max(lowest, min(cluster.total_ready, bounds.lowest_ready))
    assert rollout.is_finished(cluster.side("new"), (cluster.side("old"),), bounds)


@settings(max_examples=200)
@given(
    limits=LIMITS,
    new=st.integers(0, 7),
    old=st.integers(0, 7),
    broken=st.integers(0, 7),
    moves=st.lists(st.sampled_from(["a", "b", "c"]), max_size=20),
)
def test_it_ends_from_any_middle_also_back_from_a_broken_candidate(
    limits: tuple[int, int, int], new: int, old: int, broken: int, moves: list[str]
) -> None:
    bounds = Limits(*limits)
    cluster = Cluster({"a": new, "b": broken, "c": old})
    cluster.ready["b"] = 0
    for name in [*moves, *["a", "c"] * 60]:
        sides = (cluster.side("b"), cluster.side("c"))
        before_ready = cluster.total_ready
        cluster.ask(rollout.step(cluster.side("a"), sides, bounds))
        assert cluster.total_ready >= min(before_ready, bounds.lowest_ready)
        if name != "b":  # the broken one never becomes ready
            cluster.become_ready(name)
    assert rollout.is_finished(cluster.side("a"), (cluster.side("b"), cluster.side("c")), bounds)

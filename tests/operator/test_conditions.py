"""Findings become conditions: when a transition time moves."""

from builders import observed as build
from builders.observed import NOW
from builders.reported import FIRST, observed, ready_pod, report
from firsttoken_operator import plan, status


def test_transition_times_move_only_with_the_status() -> None:
    first = report(observed(ready_pod()))
    down = observed(build.pod(revision=FIRST.name, ready=False), previous=first)
    made = plan.make(down, build.IMAGES, frozenset(), NOW + 60)
    second = {each.type: each for each in status.build(down, made, (), (), NOW + 60)[0].conditions}
    before = {each.type: each for each in first.conditions}
    assert second["Ready"].last_transition_time != before["Ready"].last_transition_time
    assert second["SpecAccepted"].last_transition_time == before["SpecAccepted"].last_transition_time

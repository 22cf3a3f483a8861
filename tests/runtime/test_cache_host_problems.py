"""What goes wrong with the host tier is counted each time and told now and then."""

import pytest

from firsttoken_runtime.cache import host_problems


def test_a_problem_is_told_once_a_minute_with_what_was_not_told(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    problems = host_problems.Problems(lambda: now)
    problems.note("damaged", "a")
    problems.note("damaged", "b", 3)
    problems.note("disk_full", "c")
    now = 61.0
    problems.note("damaged", "d")
    assert [entry.getMessage() for entry in caplog.records] == [
        "host tier, damaged: a",
        "host tier, disk_full: c",
        "host tier, damaged: d (and 3 more before)",
    ]
    assert problems.counts == {"damaged": 5, "disk_full": 1}

"""The soak in short form, so that it does not rot, and what it calls a leak."""

from pathlib import Path

import pytest

from soak import memory, soaking


def samples(rss_mb: list[float], files: list[int] | None = None) -> list[memory.Sample]:
    counts = files or [100] * len(rss_mb)
    return [memory.Sample(float(at_s), round(mb * 1e6), counts[at_s]) for at_s, mb in enumerate(rss_mb)]


def test_memory_that_rises_to_its_level_and_stays_is_no_leak() -> None:
    assert memory.faults(samples([40, 85, 90, 90, 90, 91, 90, 92, 90, 91])) == []


@pytest.mark.parametrize(
    ("taken", "fault"),
    [
        (samples([50 + 2 * step for step in range(20)]), "memory grew"),
        (samples([50, 60, 250, 60, 60, 60, 60, 60, 60, 60]), "250 MB were held"),
        (samples([50.0] * 20, [100 + 10 * step for step in range(20)]), "open files grew"),
    ],
)
def test_what_does_not_stop_growing_is_found(taken: list[memory.Sample], fault: str) -> None:
    assert any(fault in one for one in memory.faults(taken))


async def test_a_short_soak_is_well(tmp_path: Path) -> None:
    plan = soaking.Plan(seconds=6.0, idle=20, active=10, slow=0, fill=10)
    soaked = await soaking.run(plan, tmp_path, lambda sample, counts: None)
    assert soaked.counts.failures == {}
    assert soaked.counts.streams > 0
    assert soaked.counts.idle_opened == 20
    assert soaked.faults() == []

"""What the sidecar's process holds over time, and whether that stays. Pure but for reading /proc."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SETTLED = 0.4
"""Of the time. What was allocated by then is what the load needs."""
LAST = 0.2
MOST_BYTES = 200e6
MOST_GROWTH = 0.05
"""Of the settled level: an allocator breathes, a leak does not stop."""
LEAST_GROWTH_BYTES = 4e6
LEAST_GROWTH_FILES = 40


@dataclass(frozen=True)
class Sample:
    """One look."""

    at_s: float
    rss_bytes: int
    open_files: int


def look(pid: int, at_s: float) -> Sample:
    rss_bytes = 0
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            rss_bytes = int(line.split()[1]) * 1024
    return Sample(at_s, rss_bytes, len(list(Path(f"/proc/{pid}/fd").iterdir())))


def faults(samples: Sequence[Sample]) -> list[str]:
    """Why it is not bounded; empty when it is."""
    found = []
    settled, last = levels(samples)
    if (most := max(one.rss_bytes for one in samples)) > MOST_BYTES:
        found.append(f"{most / 1e6:.0f} MB were held, more than {MOST_BYTES / 1e6:.0f}")
    growth = last.rss_bytes - settled.rss_bytes
    if growth > max(LEAST_GROWTH_BYTES, MOST_GROWTH * settled.rss_bytes):
        found.append(f"memory grew from {settled.rss_bytes / 1e6:.1f} to {last.rss_bytes / 1e6:.1f} MB")
    files = last.open_files - settled.open_files
    if files > max(LEAST_GROWTH_FILES, MOST_GROWTH * settled.open_files):
        found.append(f"open files grew from {settled.open_files} to {last.open_files}")
    return found


def levels(samples: Sequence[Sample]) -> tuple[Sample, Sample]:
    """Medians: once the load was settled, and at the end."""
    end_s = samples[-1].at_s
    settled = [one for one in samples if SETTLED / 2 * end_s <= one.at_s <= SETTLED * end_s] or samples[:1]
    last = [one for one in samples if one.at_s >= (1 - LAST) * end_s]
    return _median(settled), _median(last)


def _median(samples: Sequence[Sample]) -> Sample:
    return Sample(
        samples[-1].at_s,
        round(statistics.median(one.rss_bytes for one in samples)),
        round(statistics.median(one.open_files for one in samples)),
    )

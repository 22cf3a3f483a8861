"""Threads and memory as a control group limits them, version 2 and version 1."""

from pathlib import Path

import psutil
import pytest

from firsttoken_runtime.engine import machine

GIB = 1024**3


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


def test_without_a_group_the_machine_counts(tmp_path: Path) -> None:
    assert machine.memory(tmp_path).limit_bytes == psutil.virtual_memory().total
    assert machine.threads(tmp_path) >= 1


def test_version_2_memory_does_not_count_what_can_be_dropped(tmp_path: Path) -> None:
    group = write(
        tmp_path,
        {
            "memory.max": f"{GIB}\n",
            "memory.current": f"{GIB // 2}\n",
            "memory.stat": f"anon 5\ninactive_file {GIB // 4}\nactive_file {GIB // 8}\n",
        },
    )
    assert machine.memory(group) == machine.Memory(GIB, GIB - GIB // 8)


def test_version_1_memory(tmp_path: Path) -> None:
    group = write(
        tmp_path,
        {"memory/memory.limit_in_bytes": f"{GIB}", "memory/memory.usage_in_bytes": f"{GIB // 4}"},
    )
    assert machine.memory(group) == machine.Memory(GIB, GIB - GIB // 4)


@pytest.mark.parametrize("limit", ["max", "9223372036854771712"])
def test_no_limit(tmp_path: Path, limit: str) -> None:
    group = write(tmp_path, {"memory.max": limit, "memory.current": "1"})
    assert machine.memory(group).limit_bytes == psutil.virtual_memory().total


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"cpu.max": "150000 100000\n"}, 1),
        ({"cpu.max": "50000 100000\n"}, 1),
        ({"cpu/cpu.cfs_quota_us": "199000", "cpu/cpu.cfs_period_us": "100000"}, 1),
    ],
)
def test_quota_is_rounded_down_to_at_least_1(tmp_path: Path, files: dict[str, str], expected: int) -> None:
    assert machine.threads(write(tmp_path, files)) == expected


@pytest.mark.parametrize("files", [{"cpu.max": "max 100000\n"}, {"cpu.max": "99900000 100000\n"}, {}])
def test_never_more_than_the_cores(tmp_path: Path, files: dict[str, str]) -> None:
    assert 1 <= machine.threads(write(tmp_path, files)) <= (psutil.cpu_count(logical=False) or 1)

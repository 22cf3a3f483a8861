from pathlib import Path

from cluster import record
from cluster.progress import Progress


def test_a_record_comes_back(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert record.read(run) is None
    written = record.Record("/code/.cluster", "f00", {"net/ipv4/ip_forward": "0"})
    record.write(written, run)
    assert record.read(run) == written


def test_a_half_written_record_still_says_that_something_ran(tmp_path: Path) -> None:
    (tmp_path / "active.json").write_text('{"cluster": "/co')
    assert record.read(tmp_path) == record.Record("", "", {})


def test_the_lock_can_be_taken_again(tmp_path: Path) -> None:
    for _ in range(2):
        with record.lock(Progress(), tmp_path / "lock"):
            pass

"""The two threads behind the host tier: what was written comes back, and the loop waits for neither."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from firsttoken_runtime.cache import disk_folder, disk_store, host_problems
from firsttoken_runtime.cache.disk_record import Record
from firsttoken_runtime.cache.formats import Format
from runtime.disk_records import BYTES_OF, OTHER_LINEAGE, record
from runtime.host_tier import LINEAGE


def wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen in 10 s"
        time.sleep(0.002)


def all_restored(store: disk_store.DiskStore) -> list[int]:
    found: list[int] = []

    def is_done() -> bool:
        while (restored := store.poll_restored()) is not None:
            found.append(restored.payload[0])
        return not store.is_restoring

    wait_for(is_done)
    return found


def test_what_was_written_is_there_after_a_restart(tmp_path: Path) -> None:
    problems = host_problems.Problems()
    before = disk_store.DiskStore(tmp_path, 1_000_000, problems)
    for name in range(40):
        before.write(record(name, Format(name % 2)))
    before.close(10.0)
    after = disk_store.DiskStore(tmp_path, 1_000_000, problems)
    assert after.poll_restored() is None
    assert not after.is_restoring
    after.start_restoring(LINEAGE, BYTES_OF)
    assert sorted(all_restored(after)) == list(range(40))
    after.close(10.0)
    assert problems.counts == {}


def test_only_records_of_the_lineage_in_force_are_offered(tmp_path: Path) -> None:
    problems = host_problems.Problems()
    store = disk_store.DiskStore(tmp_path, 1_000_000, problems)
    store.write(record(1))
    store.write(record(2, lineage=OTHER_LINEAGE))
    wait_for(lambda: len(list(tmp_path.glob("[!.]*.kv"))) == 2)
    store.start_restoring(LINEAGE, BYTES_OF)
    assert all_restored(store) == [1]
    store.start_restoring(OTHER_LINEAGE, BYTES_OF)
    assert all_restored(store) == [2]
    assert problems.counts == {"other_lineage": 2}
    store.close(10.0)


def test_a_loop_that_does_not_ask_stops_neither_thread(tmp_path: Path) -> None:
    problems = host_problems.Problems()
    writer = disk_store.DiskStore(tmp_path, 1_000_000, problems)
    for name in range(60):
        writer.write(record(name))
    writer.close(10.0)
    store = disk_store.DiskStore(tmp_path, 1_000_000, problems)
    store.start_restoring(LINEAGE, BYTES_OF)
    wait_for(lambda: store.poll_restored() is not None)
    store.stop_restoring()
    assert not store.is_restoring
    assert store.poll_restored() is None
    store.close(10.0)
    wait_for(lambda: not any(thread.name.startswith("disk-store") for thread in threading.enumerate()))


def test_a_slow_disk_costs_records_and_never_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go_on = threading.Event()
    real_write = disk_folder.Folder.write

    def slow(self: disk_folder.Folder, record: Record) -> bool:
        may_go_on.wait(10)
        return real_write(self, record)

    monkeypatch.setattr(disk_folder.Folder, "write", slow)
    monkeypatch.setattr(disk_store, "QUEUE_BYTES", 20 * BYTES_OF[Format.FULL] + 1)
    problems = host_problems.Problems()
    store = disk_store.DiskStore(tmp_path, 1_000_000, problems)
    start = time.monotonic()
    for name in range(200):
        store.write(record(name))
    assert time.monotonic() - start < 5, "it waited for the disk"
    assert problems.counts == {"queue_full": 180}
    threading.Timer(0.05, may_go_on.set).start()
    store.write(record(200), timeout_s=10.0)
    store.close(10.0)
    assert problems.counts == {"queue_full": 180}
    assert len(list(tmp_path.iterdir())) == 21


def test_after_a_failure_the_disk_is_left_alone_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []

    def fails(self: disk_folder.Folder, record: Record) -> bool:
        tries.append(record)
        return False

    monkeypatch.setattr(disk_folder.Folder, "write", fails)
    problems = host_problems.Problems()
    store = disk_store.DiskStore(tmp_path, 1_000_000, problems)
    for name in range(5):
        store.write(record(name))
    store.close(10.0)
    assert len(tries) == 1
    assert problems.counts == {"paused": 4}


def test_closing_waits_no_longer_than_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    may_go_on = threading.Event()

    def stuck(self: disk_folder.Folder, record: Record) -> bool:
        may_go_on.wait(10)
        return True

    monkeypatch.setattr(disk_folder.Folder, "write", stuck)
    store = disk_store.DiskStore(tmp_path, 1_000_000, host_problems.Problems())
    for name in range(100):
        store.write(record(name))
    start = time.monotonic()
    store.close(0.05)
    assert time.monotonic() - start < 5
    may_go_on.set()

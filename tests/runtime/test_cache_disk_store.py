"""The folder behind the host tier: whatever lies in there, the worst is a miss."""

import errno
import hashlib
import logging
import os
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken_runtime.cache import disk_folder, disk_record, disk_store, host_problems, keys
from firsttoken_runtime.cache.disk_record import Record
from firsttoken_runtime.cache.formats import Format
from runtime.host_tier import LINEAGE, evicted

OTHER_LINEAGE = bytes(32)
BYTES_OF = {Format.FULL: 64, Format.QUANTIZED: 40}
RECORD_BYTES = len(
    disk_record.encode(Record(LINEAGE, bytes(32), bytes(32), range(4), Format.FULL, bytes(64)))
)


def record(name: int, fmt: Format = Format.FULL, *, lineage: bytes = LINEAGE) -> Record:
    block = evicted(name, fmt)
    payload = bytes([name]) * BYTES_OF[fmt]
    return Record(lineage, block.key, block.parent_key, block.token_ids, fmt, payload)


def path_of(folder: Path, name: int) -> Path:
    return folder / (record(name).key.hex() + ".kv")


class Shelf:
    """A folder with its problems."""

    def __init__(self, path: Path, capacity_bytes: int = 1_000_000) -> None:
        self.path = path
        self.problems = host_problems.Problems()
        self.folder = disk_folder.Folder(path, capacity_bytes, self.problems)

    def write(self, *names: int) -> None:
        for age, name in enumerate(names):
            assert self.folder.write(record(name))
            os.utime(path_of(self.path, name), (1_000 + age, 1_000 + age))

    def names(self) -> list[int]:
        """Of what can be used, in the order in which it is read."""
        return [found.payload[0] for found in self.folder.records(LINEAGE, BYTES_OF)]


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "kv")


# What a record is


@given(
    st.binary(min_size=32, max_size=32),
    st.lists(st.integers(0, 2**32 - 1), max_size=40),
    st.sampled_from(Format),
    st.binary(max_size=200),
)
def test_a_record_comes_back_as_it_was(
    parent: bytes, token_ids: list[int], fmt: Format, payload: bytes
) -> None:
    key = keys.chain(parent, token_ids, fmt)
    data = disk_record.encode(Record(LINEAGE, key, parent, token_ids, fmt, payload))
    found = disk_record.decode(data, LINEAGE, {fmt: len(payload)}, key)
    assert found == Record(LINEAGE, key, parent, tuple(token_ids), fmt, payload)


@given(st.data())
def test_no_flipped_bit_and_no_missing_byte_is_ever_believed(data: st.DataObject) -> None:
    whole = disk_record.encode(record(1))
    bad = bytearray(whole)
    if data.draw(st.booleans()):
        place = data.draw(st.integers(0, 8 * len(whole) - 1))
        bad[place // 8] ^= 1 << place % 8
    else:
        del bad[data.draw(st.integers(0, len(whole) - 1)) :]
    with pytest.raises(disk_record.Unusable):
        disk_record.decode(bytes(bad), LINEAGE, BYTES_OF, record(1).key)


def test_a_whole_record_whose_key_is_not_its_own_is_damaged() -> None:
    other = evicted(2).key
    lie = disk_record.encode(
        Record(LINEAGE, other, record(1).parent_key, record(1).token_ids, Format.FULL, bytes(64))
    )
    with pytest.raises(disk_record.Unusable, match="key is not that of its tokens") as caught:
        disk_record.decode(lie, LINEAGE, BYTES_OF, other)
    assert caught.value.reason == disk_record.DAMAGED
    with pytest.raises(disk_record.Unusable, match="key"):
        disk_record.decode(disk_record.encode(record(1)), LINEAGE, BYTES_OF, other)


# What lies in a folder


def test_records_are_read_back_used_last_first(shelf: Shelf) -> None:
    shelf.write(1, 2, 3)
    assert shelf.names() == [3, 2, 1]
    assert shelf.problems.counts == {}


def test_a_folder_that_does_not_exist_yet_is_made_for_nobody_else(shelf: Shelf) -> None:
    assert shelf.names() == []
    shelf.write(1)
    assert shelf.path.stat().st_mode & 0o777 == 0o700
    assert path_of(shelf.path, 1).stat().st_mode & 0o777 == 0o600
    assert shelf.problems.counts == {}


def test_writing_again_is_using(shelf: Shelf) -> None:
    shelf.write(1, 2)
    assert shelf.folder.write(record(1))
    assert shelf.names() == [1, 2]


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-50] ^= 1
    path.write_bytes(data)


def make_older_version(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4] = 0
    path.write_bytes(data)


def make_foreign(path: Path) -> None:
    path.write_bytes(b"PK\3\4" + bytes(500))


def make_other_size(path: Path) -> None:
    of = record(2)
    path.write_bytes(
        disk_record.encode(Record(LINEAGE, of.key, of.parent_key, of.token_ids, of.fmt, bytes(63)))
    )


def make_unknown_format(path: Path) -> None:
    data = bytearray(disk_record.encode(record(2)))
    data[6] = 7
    path.write_bytes(bytes(data[:-32]) + hashlib.sha256(data[:-32]).digest())


def make_other_lineage(path: Path) -> None:
    path.write_bytes(disk_record.encode(record(2, lineage=OTHER_LINEAGE)))


def make_huge(path: Path) -> None:
    """It has all that it tells of, as a hole."""
    claim(path, num_tokens=4, payload_bytes=2**36)


def make_long(path: Path) -> None:
    claim(path, num_tokens=2**32 - 1, payload_bytes=64)


def claim(path: Path, *, num_tokens: int, payload_bytes: int) -> None:
    head = bytearray(path.read_bytes()[: disk_record.HEAD_BYTES])
    struct.pack_into("<IQ", head, 8, num_tokens, payload_bytes)
    path.write_bytes(head)
    os.truncate(path, len(head) + 4 * num_tokens + payload_bytes + disk_record.DIGEST_BYTES)


def make_unreadable(path: Path) -> None:
    path.unlink()
    path.symlink_to("/nowhere")


def make_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("spoil", "reason", "stays"),
    [
        (cut_short, "damaged", False),
        (empty, "damaged", False),
        (damage, "damaged", False),
        (make_older_version, "other_version", True),
        (make_foreign, "foreign", True),
        (make_other_size, "other_size", True),
        (make_unknown_format, "other_size", True),
        (make_huge, "other_size", True),
        (make_long, "other_size", True),
        (make_other_lineage, "other_lineage", True),
        (make_unreadable, "foreign", True),
        (make_pipe, "foreign", True),
    ],
)
def test_a_bad_file_is_a_warning_a_counter_and_a_miss(
    shelf: Shelf,
    caplog: pytest.LogCaptureFixture,
    spoil: Callable[[Path], None],
    reason: str,
    stays: bool,
) -> None:
    shelf.write(1, 2, 3)
    spoil(path_of(shelf.path, 2))
    with caplog.at_level(logging.WARNING):
        assert shelf.names() == [3, 1]
    assert shelf.problems.counts == {reason: 1}
    assert len(caplog.records) == 1
    assert "host tier" in caplog.text
    assert os.path.lexists(path_of(shelf.path, 2)) is stays


def test_a_file_that_cannot_be_read_is_a_miss(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf.write(1, 2)
    real_open = os.open

    def fails(path: Path, *rest: int) -> int:
        if path == path_of(shelf.path, 2):
            raise PermissionError(errno.EACCES, "Permission denied")
        return real_open(path, *rest)

    monkeypatch.setattr(os, "open", fails)
    assert shelf.names() == [1]
    assert shelf.problems.counts == {"unreadable": 1}


def test_a_file_that_another_engine_removes_is_no_problem(shelf: Shelf) -> None:
    shelf.write(1, 2)
    found = shelf.folder.records(LINEAGE, BYTES_OF)
    assert next(found).payload[0] == 2
    path_of(shelf.path, 1).unlink()
    assert list(found) == []
    assert shelf.problems.counts == {}


def test_files_of_others_are_left_alone(shelf: Shelf) -> None:
    shelf.write(1)
    (shelf.path / "notes.txt").write_text("mine")
    (shelf.path / "lost+found").mkdir()
    assert shelf.names() == [1]
    assert shelf.problems.counts == {"foreign": 2}
    assert (shelf.path / "notes.txt").read_text() == "mine"


def test_what_a_killed_process_left_half_written_is_removed_when_it_is_old(shelf: Shelf) -> None:
    shelf.write(1)
    name = f".{path_of(shelf.path, 2).name}."
    old, young = shelf.path / (name + "0" * 16), shelf.path / (name + "1" * 16)
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (1_000, 1_000))
    assert shelf.names() == [1]
    assert not old.exists()
    assert young.exists(), "another engine may be writing it"
    assert shelf.problems.counts == {}


def test_the_folder_keeps_to_its_capacity_and_the_oldest_go(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, 10 * RECORD_BYTES)
    for name in range(1, 31):
        shelf.write(name)
        os.utime(path_of(shelf.path, name), (1_000 + name, 1_000 + name))
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 10 * RECORD_BYTES
    assert shelf.names() == list(range(30, 30 - len(shelf.names()), -1))
    assert len(shelf.names()) >= 9


def test_records_of_other_lineages_count_too(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, 4 * RECORD_BYTES)
    for name in range(1, 4):
        shelf.folder.write(record(name, lineage=OTHER_LINEAGE))
        os.utime(path_of(tmp_path, name), (name, name))
    again = Shelf(tmp_path, 4 * RECORD_BYTES)
    again.write(11, 12)
    assert again.names() == [12, 11]
    assert len(list(tmp_path.iterdir())) == 3


def test_a_record_larger_than_the_capacity_leaves_nothing(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, RECORD_BYTES - 1)
    assert shelf.folder.write(record(1))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("code", "reason"),
    [(errno.ENOSPC, "disk_full"), (errno.EDQUOT, "disk_full"), (errno.EROFS, "unwritable")],
)
def test_a_disk_that_takes_nothing_is_a_counter_and_leaves_nothing_behind(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, code: int, reason: str
) -> None:
    shelf.write(1)

    def full(self: Path, target: Path) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(Path, "replace", full)
    for name in range(2, 9):
        assert not shelf.folder.write(record(name))
    assert shelf.problems.counts == {reason: 7}
    assert len(caplog.records) == 1, "one warning a minute"
    assert [path.name for path in shelf.path.iterdir()] == [path_of(shelf.path, 1).name]


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "kv").write_text("not a folder")
    shelf = Shelf(tmp_path / "kv")
    assert shelf.names() == []
    assert not shelf.folder.write(record(1))
    assert shelf.problems.counts == {"unreadable": 1, "unwritable": 1}


# The threads


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

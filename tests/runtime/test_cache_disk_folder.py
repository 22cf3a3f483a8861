"""The folder behind the host tier: whatever lies in there, the worst is a miss."""

import errno
import hashlib
import logging
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from firsttoken_runtime.cache import disk_folder, disk_record
from firsttoken_runtime.cache.disk_record import Record
from runtime.disk_records import BYTES_OF, OTHER_LINEAGE, RECORD_BYTES, Shelf, path_of, record
from runtime.host_tier import LINEAGE


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "kv")


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


def test_engines_that_share_the_folder_share_its_capacity(tmp_path: Path) -> None:
    """Each of three alone would never fill it."""
    shelves = [Shelf(tmp_path, 40 * RECORD_BYTES) for _ in range(3)]
    most = 0
    for name in range(1, 91):
        shelves[name % 3].write(name)
        os.utime(path_of(tmp_path, name), (1_000 + name, 1_000 + name))
        most = max(most, len(list(tmp_path.iterdir())))
    assert 40 <= most <= 46, "each may have written two since it last looked"
    assert shelves[0].names() == list(range(90, 90 - len(shelves[0].names()), -1))
    assert len(shelves[0].names()) >= 34


def test_not_every_record_looks_at_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = Shelf(tmp_path, 100 * RECORD_BYTES)
    num_looks, files = 0, shelf.folder.files

    def look() -> list[disk_folder.File]:
        nonlocal num_looks
        num_looks += 1
        return files()

    monkeypatch.setattr(shelf.folder, "files", look)
    shelf.write(*range(1, 49))
    assert num_looks <= 1 + 48 / 5


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

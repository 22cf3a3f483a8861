from pathlib import Path

from firsttoken_sidecar import mounts
from sidecar import fakes


def test_a_swap_is_seen_once(tmp_path: Path) -> None:
    folders = fakes.Mounts(tmp_path)
    folders.write_flags(b"one")
    file = mounts.MountedFile(folders.flags, "flags.json")
    assert (file.changed(), file.read()) == (True, b"one")
    assert not file.changed()
    folders.write_flags(b"two")
    assert (file.changed(), file.read()) == (True, b"two")
    assert not file.changed()


def test_a_swap_to_equal_content_is_a_change_too(tmp_path: Path) -> None:
    folders = fakes.Mounts(tmp_path)
    folders.write_flags(b"one")
    file = mounts.MountedFile(folders.flags, "flags.json")
    file.changed()
    folders.write_flags(b"one")
    assert file.changed()


def test_a_missing_file_is_no_error_and_its_coming_is_seen(tmp_path: Path) -> None:
    file = mounts.MountedFile(tmp_path, "flags.json")
    assert (file.changed(), file.read()) == (True, None)
    assert not file.changed()
    (tmp_path / "flags.json").write_bytes(b"plain")
    assert (file.changed(), file.read()) == (True, b"plain")
    (tmp_path / "flags.json").write_bytes(b"longer than before")
    assert (file.changed(), file.read()) == (True, b"longer than before")
    (tmp_path / "flags.json").unlink()
    assert (file.changed(), file.read()) == (True, None)

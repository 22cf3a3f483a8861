"""The lock files: pinned, hashed, without an address, and of one mind."""

import re
from pathlib import Path

import pytest

from local import requirements

FOLDER = Path(__file__).resolve().parents[2] / "requirements"
NAMES = [lock.name for lock in requirements.ALL]
PINNED = re.compile(r"^[a-z0-9][a-z0-9.-]*==[^ ]+( ; .+)?( \\)?$")


def pins(name: str) -> set[str]:
    lines = (FOLDER / name).read_text().splitlines()
    return {
        line.removesuffix(" \\").partition(" ;")[0] for line in lines if line and not line.startswith(" ")
    }


def test_every_lock_is_made_by_make_lock() -> None:
    assert sorted(path.name for path in FOLDER.iterdir()) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_lock_holds_no_address(name: str) -> None:
    text = (FOLDER / name).read_text()
    assert "://" not in text
    assert "index-url" not in text
    assert "find-links" not in text


@pytest.mark.parametrize("name", NAMES)
def test_everything_is_pinned_with_hashes(name: str) -> None:
    entries = re.split(r"\n(?=\S)", (FOLDER / name).read_text().strip())
    assert entries
    for entry in entries:
        head, *hashes = entry.splitlines()
        assert PINNED.match(head), head
        assert hashes
        assert all(line.strip().startswith("--hash=sha256:") for line in hashes)


@pytest.mark.parametrize("name", [lock.name for lock in requirements.ALL if lock.follows_dev])
def test_an_image_has_the_versions_that_were_tested(name: str) -> None:
    assert pins(name) <= pins("dev.lock")


def test_dev_lock_does_not_follow_itself() -> None:
    dev = requirements.ALL[0]
    command = dev.command(Path("uv"), FOLDER)
    assert "--constraint" not in command
    assert "pyproject.toml" in command

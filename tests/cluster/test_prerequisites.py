from pathlib import Path

import pytest

from cluster import layout, prerequisites
from cluster.errors import ClusterError


def test_a_path_too_long_for_sockets_is_refused_before_the_start() -> None:
    short = layout.Layout(checkout=Path("/home/me/firsttoken"), cache=Path("/c"))
    prerequisites.require_short_paths(short)
    long = layout.Layout(checkout=Path("/home", "x" * 60), cache=Path("/c"))
    with pytest.raises(ClusterError, match="9 characters too long"):
        prerequisites.require_short_paths(long)


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prerequisites, "PACKAGE_PROOFS", {"coreutils": "ls", "none": "no-such-program"})
    assert prerequisites.missing_packages() == ["none"]


def test_a_package_is_shown_by_a_program_or_by_any_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = tmp_path / "some.h"
    header.write_text("")
    monkeypatch.setattr(
        prerequisites,
        "PACKAGE_PROOFS",
        {"headers": str(header), "shell": "sh", "gone": str(tmp_path / "gone"), "none": "no-such-program"},
    )
    assert prerequisites.missing_packages() == ["gone", "none"]

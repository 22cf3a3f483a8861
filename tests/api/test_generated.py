"""What is stale is written, or said and left alone."""

from pathlib import Path

import pytest

from firsttoken_api import generated


def _targets(root: Path) -> dict[Path, str]:
    return {root / "one.md": "1\n", root / "deeper/two.md": "2\n"}


def _main(root: Path, *arguments: str) -> int:
    return generated.main("some.module", "Two files.", _targets, [*arguments, "--root", str(root)])


def test_a_check_names_what_differs_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "one.md").write_text("old\n")
    assert _main(tmp_path, "--check") == 1
    assert capsys.readouterr().err.splitlines() == [
        f"{tmp_path}/one.md: differs",
        f"{tmp_path}/deeper/two.md: differs",
    ]
    assert (tmp_path / "one.md").read_text() == "old\n"
    assert not (tmp_path / "deeper").exists()


def test_only_what_is_stale_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "one.md").write_text("1\n")
    assert _main(tmp_path) == 0
    assert capsys.readouterr().err == f"{tmp_path}/deeper/two.md: written\n"
    assert (tmp_path / "deeper/two.md").read_text() == "2\n"
    assert _main(tmp_path, "--check") == 0

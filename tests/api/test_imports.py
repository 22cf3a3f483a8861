from pathlib import Path

import pytest
from importlinter.cli import EXIT_STATUS_ERROR, EXIT_STATUS_SUCCESS, lint_imports

ROOT = Path(__file__).resolve().parents[2]

BROKEN = """
[importlinter]
root_packages =
    firsttoken_api
    firsttoken_sidecar
include_external_packages = True

[importlinter:contract:1]
name = the sidecar's shell needs no event loop
type = forbidden
source_modules = firsttoken_sidecar.{module}
forbidden_modules = {forbidden}
"""


@pytest.fixture(autouse=True)
def _logging_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """The linter sets up logging as a program does, which disables the loggers of all loaded modules."""
    monkeypatch.setattr("importlinter.cli._configure_logging", lambda verbose: None)


def test_the_contracts_are_kept(capsys: pytest.CaptureFixture[str]) -> None:
    status = lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True)
    assert status == EXIT_STATUS_SUCCESS, capsys.readouterr().out


def test_the_linter_sees_the_standard_library(tmp_path: Path) -> None:
    config = tmp_path / "broken.ini"
    config.write_text(BROKEN.format(module="__main__", forbidden="asyncio"))
    assert lint_imports(config_filename=str(config), no_cache=True) == EXIT_STATUS_ERROR

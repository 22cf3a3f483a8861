from importlib.metadata import EntryPoint

import pytest

from firsttoken_api import cli
from firsttoken_api.reference import cli as page


def test_every_command_has_a_section() -> None:
    text = page.page()
    for name in [*cli.entries(), "version"]:
        assert f"## firsttoken {name}\n" in text
    assert "## firsttoken bench table\n" in text


def test_a_page_with_holes_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = {"absent": EntryPoint("absent", "a_module_that_nobody_has:run", cli.GROUP)}
    monkeypatch.setitem(cli._EXTRA_OF_PACKAGE, "a_module_that_nobody_has", "runtime")
    monkeypatch.setattr(cli, "entries", lambda: absent)
    with pytest.raises(ModuleNotFoundError, match="absent"):
        page.page()

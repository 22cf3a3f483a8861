import importlib
import subprocess
import sys
import types
from importlib.metadata import EntryPoint
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner, Result

from firsttoken_api import cli
from firsttoken_api.errors import UserError

MODULE = "firsttoken_runtime.pretend_commands"
GROUP_MODULE = "firsttoken_runtime.bench.pretend_commands"


def serve(source: str, port: Annotated[int, typer.Option(help="Port.")] = 8000) -> None:
    """Serve a model."""
    if port == 80:
        raise UserError("--port 80 is taken; choose another")
    if source == "needs-more":
        importlib.import_module("a_module_that_nobody_has")
    if source == "ours":
        importlib.import_module("firsttoken_runtime.not_there")
    typer.echo(f"{source} on {port}")


group = typer.Typer(help="Measure things.")


@group.command()
def fast(rounds: Annotated[int, typer.Option(help="How often.")] = 1) -> None:
    """Measure quickly."""
    if rounds == 0:
        raise UserError("--rounds: 0 measures nothing")
    if rounds == 9:
        importlib.import_module("a_module_that_nobody_has")
    typer.echo(f"{rounds} rounds")


@pytest.fixture(autouse=True)
def _commands(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType(MODULE)
    module.__dict__["serve"] = serve
    monkeypatch.setitem(sys.modules, MODULE, module)
    inner = types.ModuleType(GROUP_MODULE)
    inner.__dict__["group"] = group
    monkeypatch.setitem(sys.modules, GROUP_MODULE, inner)
    found = {
        "serve": EntryPoint("serve", f"{MODULE}:serve", cli.GROUP),
        "measure": EntryPoint("measure", f"{GROUP_MODULE}:group", cli.GROUP),
        "absent": EntryPoint("absent", "a_module_that_nobody_has:run", cli.GROUP),
    }
    monkeypatch.setitem(cli._EXTRA_OF_PACKAGE, "a_module_that_nobody_has", "operator")
    monkeypatch.setattr(cli, "entries", lambda: found)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli.app(arguments), list(arguments))


def test_options_and_arguments_reach_the_command() -> None:
    result = run("serve", "model.gguf", "--port", "81")
    assert (result.exit_code, result.output) == (0, "model.gguf on 81\n")


def test_a_persons_mistake_is_one_line_and_status_2() -> None:
    result = run("serve", "x", "--port", "80")
    assert (result.exit_code, result.output) == (2, "firsttoken: --port 80 is taken; choose another\n")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("serve", "needs-more"), 'pip install "firsttoken[runtime]"'),
        (("absent", "--any", "thing"), 'pip install "firsttoken[operator]"'),
    ],
)
def test_a_missing_extra_is_one_line_and_status_2(arguments: tuple[str, ...], line: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert line in result.output
    assert len(result.output.splitlines()) == 1


def test_a_group_of_commands_is_guarded_like_a_command() -> None:
    assert run("measure", "fast", "--rounds", "2").output == "2 rounds\n"
    wrong = run("measure", "fast", "--rounds", "0")
    assert (wrong.exit_code, wrong.output) == (2, "firsttoken: --rounds: 0 measures nothing\n")
    missing = run("measure", "fast", "--rounds", "9")
    assert missing.exit_code == 2
    assert 'pip install "firsttoken[runtime,bench]"' in missing.output
    assert "Measure things." in run("measure", "--help").output


def test_a_missing_module_of_ours_is_our_mistake() -> None:
    assert isinstance(run("serve", "ours").exception, ModuleNotFoundError)


def test_help_lists_every_command_and_says_what_is_missing() -> None:
    result = run("--help")
    assert result.exit_code == 0
    for words in ("version", "Serve a model.", "Measure things.", "absent", "firsttoken[operator]"):
        assert words in result.output


def test_an_unknown_command_is_refused() -> None:
    assert run("sevre").exit_code == 2


def test_version() -> None:
    assert run("version").output.startswith("firsttoken 0.")


def test_help_is_fast_because_it_imports_no_tensors() -> None:
    code = (
        "import sys; from firsttoken_api import cli; from typer.testing import CliRunner\n"
        "assert CliRunner().invoke(cli.app(['--help']), ['--help']).exit_code == 0\n"
        "heavy = {'torch', 'transformers', 'numpy'} & sys.modules.keys()\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr

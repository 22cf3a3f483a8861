"""The `firsttoken` command: finds the sub-commands that the installed packages add.

Each package lists plain functions, or groups of them (`typer.Typer`), under the entry point group
`firsttoken.commands`. Only what was asked for is imported, so that `firsttoken version` needs no engine;
where an extra is missing, the line that installs it is printed.
"""

import functools
import importlib.metadata
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint
from typing import Annotated, Any, NoReturn

import typer

from firsttoken_api.errors import UserError

GROUP = "firsttoken.commands"
_EXTRA_OF_PACKAGE = {
    "firsttoken_runtime": "runtime",
    "firsttoken_runtime.bench": "runtime,bench",  # it starts a server
    "firsttoken_operator": "operator",
    "firsttoken_sidecar": "sidecar",
}

Command = Callable[..., Any]


def _extra(entry: EntryPoint) -> str:
    """Of the nearest package that has one."""
    package = entry.module
    while package not in _EXTRA_OF_PACKAGE:
        package = package.rpartition(".")[0]
        assert package, f"no extra brings {entry.module}"
    return _EXTRA_OF_PACKAGE[package]


def _fail(message: str) -> NoReturn:
    typer.echo(f"firsttoken: {message}", err=True)
    raise typer.Exit(UserError.exit_status)


def _missing(entry: EntryPoint, error: ModuleNotFoundError) -> NoReturn:
    """Prints the install line. Where the missing module is ours, it is our mistake: the error is raised."""
    if error.name is None or error.name.startswith("firsttoken_"):
        raise error
    _fail(f'`{entry.name}` needs {error.name}; install it with: pip install "firsttoken[{_extra(entry)}]"')


def _guarded(command: Command, entry: EntryPoint) -> Command:
    """The command with other people's mistakes as one line and exit status 2."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except UserError as error:
            _fail(str(error))
        except ModuleNotFoundError as error:
            _missing(entry, error)

    return run


def _guarded_group(group: typer.Typer, entry: EntryPoint) -> typer.Typer:
    """The same commands under the same name, each guarded; the package's own object stays as it is."""
    guarded = typer.Typer(no_args_is_help=True, help=group.info.help)
    for each in group.registered_commands:
        assert each.callback is not None
        guarded.command(each.name)(_guarded(each.callback, entry))
    return guarded


def _load(entry: EntryPoint) -> Command | typer.Typer:
    """The command; where its module cannot be imported, a stand-in that says what to install."""
    try:
        command: Command | typer.Typer = entry.load()
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("firsttoken_"):
            raise
        missing = error

        def stand_in(arguments: Annotated[list[str] | None, typer.Argument(hidden=True)] = None) -> None:
            _missing(entry, missing)

        stand_in.__doc__ = f'Needs: pip install "firsttoken\\[{_extra(entry)}]"'  # escaped: rich markup
        return stand_in
    return _guarded_group(command, entry) if isinstance(command, typer.Typer) else _guarded(command, entry)


def version() -> None:
    """Print the version."""
    typer.echo(f"firsttoken {importlib.metadata.version('firsttoken')}")


def _root() -> None:
    """Serve LLMs on Kubernetes with a time-to-first-token objective."""


def entries() -> dict[str, EntryPoint]:
    """The sub-commands of the installed packages by name."""
    return {entry.name: entry for entry in importlib.metadata.entry_points(group=GROUP)}


def app(arguments: Sequence[str] = ()) -> typer.Typer:
    """The root app with the sub-command that `arguments` begin with, or with all of them."""
    found = entries()
    first = arguments[0] if arguments else ""
    asked = sorted(found) if first not in found and first != "version" else [first]
    root = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)
    root.callback()(_root)
    root.command("version")(version)
    for entry in (found[name] for name in asked if name in found):
        command = _load(entry)
        if isinstance(command, typer.Typer):
            root.add_typer(command, name=entry.name)
            continue
        is_stand_in = command.__name__ == "stand_in"
        settings = {"ignore_unknown_options": True} if is_stand_in else None
        root.command(entry.name, context_settings=settings)(command)
    return root


def main() -> None:
    """The console script."""
    app(sys.argv[1:])()

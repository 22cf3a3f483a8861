"""The page of the command line, from the commands themselves."""

from typing import Any

import typer.main

from firsttoken_api import cli
from firsttoken_api.reference.markdown import code, table


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    value = parameter.default
    if value in (None, (), [], "", False) or callable(value):
        return ""
    return code(str(value))


def _row(parameter: Any) -> tuple[str, ...]:
    is_option = parameter.param_type_name == "option"
    names = [*parameter.opts, *parameter.secondary_opts] if is_option else [parameter.name.upper()]
    repeats = " (repeatable)" if getattr(parameter, "multiple", False) else ""
    return (" ".join(code(name) for name in names) + repeats, _default(parameter), parameter.help or "")


def _section(name: str, command: Any) -> str:
    rows = [_row(each) for each in command.params if not getattr(each, "hidden", False)]
    text = (command.help or "").replace("\f", "").strip()
    return f"## firsttoken {name}\n\n{text}\n\n" + (
        table(("option", "default", "meaning"), rows) if rows else ""
    )


def _flat(commands: dict[str, Any]) -> list[tuple[str, Any]]:
    """Every command by its whole name, those of a group after the group."""
    found = []
    for name, command in commands.items():
        found.append((name, command))
        inner = {f"{name} {each}": part for each, part in getattr(command, "commands", {}).items()}
        found += _flat(inner)
    return found


def page() -> str:
    """docs/reference/cli.md. Needs every package's extra; a command that cannot be imported is an error."""
    root: Any = typer.main.get_command(cli.app())
    commands = dict(sorted(root.commands.items()))
    missing = [name for name, each in commands.items() if (each.help or "").startswith("Needs: ")]
    if missing:
        raise ModuleNotFoundError(f"install all extras to document: {', '.join(missing)}")
    sections = "\n".join(_section(*each) for each in _flat(commands))
    return f"""# Command line

`firsttoken COMMAND --help` says the same. What a person can correct (a port that is taken, a model that is
not there) is one line that names the option, and exit status 2.

{sections}"""

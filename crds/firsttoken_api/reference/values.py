"""The page of the chart's values: names and defaults from values.yaml, meanings from its comments."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from firsttoken_api.reference.markdown import code, table


def _comments(text: str) -> dict[int, str]:
    """The comment that stands directly above each line, by line number (from 0)."""
    above: dict[int, str] = {}
    pending: list[str] = []
    for number, line in enumerate(text.splitlines()):
        stripped = line.strip()
        if stripped.startswith("#"):
            pending.append(stripped.removeprefix("#").strip())
            continue
        if stripped and pending:
            above[number] = " ".join(pending)
        pending = []
    return above


def _rows(node: yaml.MappingNode, comments: dict[int, str], path: str) -> Iterator[tuple[str, str, str]]:
    for key, value in node.value:
        name = f"{path}{key.value}"
        comment = comments.get(key.start_mark.line)
        if comment is None:
            raise ValueError(f"values.yaml line {key.start_mark.line + 1}: {name} needs a comment above it")
        if isinstance(value, yaml.MappingNode) and value.value:
            yield (code(name), "", comment)
            yield from _rows(value, comments, f"{name}.")
        else:
            yield (code(name), code(json.dumps(_plain(value))), comment)


def _plain(node: yaml.Node) -> Any:
    return yaml.safe_load(yaml.serialize(node))


def page(values_file: Path) -> str:
    """docs/reference/values.md. FileNotFoundError without the chart, ValueError without a comment."""
    if not values_file.exists():
        raise FileNotFoundError(f"{values_file}: the chart's values are needed for docs/reference/values.md")
    text = values_file.read_text()
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode)
    rows = table(("value", "default", "meaning"), _rows(root, _comments(text), ""))
    return f"""# Values of the chart

`values.schema.json` refuses names and values that are not listed here.

{rows}"""

"""Markdown tables, with what would end a cell early escaped."""

from collections.abc import Iterable, Sequence


def cell(text: str) -> str:
    """One line that ends no cell and holds no HTML: `<claim>` is shown, also outside of code."""
    parts = text.replace("|", "\\|").replace("\n", " ").strip().split("`")
    parts[::2] = [part.replace("<", "&lt;") for part in parts[::2]]
    return "`".join(parts)


def code(text: str) -> str:
    """The text as code, or nothing if there is none."""
    return f"`{text}`" if text else ""


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(cell(each) for each in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"

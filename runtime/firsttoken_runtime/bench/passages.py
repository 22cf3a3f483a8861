"""Text to score: English prose that is there wherever Python is, so that nothing is fetched or kept here.

The topics of Python's built-in help are the language reference (PSF license), some 460 KB. Or the person's
own file: one passage a line, plain or JSON with `text`.
"""

import json
import pydoc_data.topics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from firsttoken_api.errors import UserError

BUILT_IN = "topics of Python's built-in help (the language reference, PSF license)"


def texts(file: Path | None) -> list[str]:
    """Raises UserError that names the line."""
    if file is None:
        return [text for _, text in sorted(pydoc_data.topics.topics.items())]
    try:
        lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--passages: {file}: {error}") from error
    if file.suffix not in (".json", ".jsonl"):
        return lines
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(str(json.loads(line)["text"]))
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"--passages: {file}, line {number}: {error!r}") from error
    return found


def longest() -> str:
    """The longest of the built-in texts."""
    return max(texts(None), key=len)


def cut(found: Sequence[str], encode: Callable[[str], list[int]], tokens: int, count: int) -> list[list[int]]:
    """The first `count` pieces of exactly `tokens` tokens, none across two texts. Raises UserError."""
    passages = []
    for passage in _pieces(found, encode, tokens):
        passages.append(passage)
        if len(passages) == count:
            return passages
    raise UserError(f"--count: the text has {len(passages)} passages of {tokens} tokens, {count} are wanted")


def _pieces(found: Sequence[str], encode: Callable[[str], list[int]], tokens: int) -> Iterator[list[int]]:
    for text in found:
        ids = encode(text)
        for start in range(0, len(ids) - tokens + 1, tokens):
            yield ids[start : start + tokens]

"""When requests arrive: a Poisson process from a seed, or a recorded trace.

Two trace formats are read, plain or gzipped: CSV with the columns `TIMESTAMP, ContextTokens,
GeneratedTokens` (Azure's LLM inference traces) and JSON lines with `timestamp` in milliseconds,
`input_length` and `output_length` (Mooncake's). Lengths that the machine cannot serve are scaled by
factors that the report states; what is then still too long is cut, and counted.
"""

import csv
import datetime
import gzip
import itertools
import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from firsttoken_api.errors import UserError


@dataclass(frozen=True)
class Arrival:
    """One request of a trace."""

    at_s: float
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True)
class Scaled:
    """A trace made to fit a server."""

    arrivals: tuple[Arrival, ...]
    cut: int
    """Requests whose scaled length was still over the limit."""


def poisson(generator: random.Random, rate_per_s: float, count: int) -> list[float]:
    """Arrival times of a Poisson process, from 0."""
    gaps = [generator.expovariate(rate_per_s) for _ in range(count)]
    return list(itertools.accumulate(gaps))


def read(path: Path, count: int) -> list[Arrival]:
    """The first `count` arrivals, the first of them at 0. Raises UserError that names the line."""
    opener = gzip.open if path.suffix == ".gz" else open
    is_csv = ".csv" in path.suffixes
    try:
        with opener(path, "rt", encoding="utf-8") as lines:
            parsed = _from_csv(lines, path) if is_csv else _from_json_lines(lines, path)
            found = list(itertools.islice(parsed, count))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--trace: {path}: {error}") from error
    if len(found) < count:
        raise UserError(f"--trace: {path} holds {len(found)} requests, {count} are wanted (--requests)")
    first_s = min(arrival.at_s for arrival in found)
    return [Arrival(one.at_s - first_s, one.prompt_tokens, one.output_tokens) for one in found]


def _from_csv(lines: Iterable[str], path: Path) -> Iterator[Arrival]:
    for number, row in enumerate(csv.DictReader(lines), start=2):
        try:
            # Seven digits of a second are one more than datetime reads.
            at = datetime.datetime.fromisoformat(row["TIMESTAMP"][:26])
            utc = at if at.tzinfo else at.replace(tzinfo=datetime.UTC)
            yield Arrival(utc.timestamp(), int(row["ContextTokens"]), int(row["GeneratedTokens"]))
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"--trace: {path}, line {number}: {error!r}") from error


def _from_json_lines(lines: Iterable[str], path: Path) -> Iterator[Arrival]:
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
            yield Arrival(float(row["timestamp"]) / 1000, int(row["input_length"]), int(row["output_length"]))
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"--trace: {path}, line {number}: {error!r}") from error


def scaled(
    arrivals: Iterable[Arrival], *, time_factor: float, length_factor: float, most_tokens: int
) -> Scaled:
    """Times multiplied by `time_factor`, lengths by `length_factor`; prompt + output <= `most_tokens`."""
    cut = 0
    fitting = []
    for one in arrivals:
        prompt_tokens = max(1, round(one.prompt_tokens * length_factor))
        output_tokens = max(1, round(one.output_tokens * length_factor))
        if prompt_tokens + output_tokens > most_tokens:
            cut += 1
            output_tokens = min(output_tokens, most_tokens // 2)
            prompt_tokens = min(prompt_tokens, most_tokens - output_tokens)
        fitting.append(Arrival(one.at_s * time_factor, prompt_tokens, output_tokens))
    return Scaled(tuple(fitting), cut)

"""One result as data: everything that the table, the plot and a later comparison are made from."""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from firsttoken_runtime.bench import bars, experiment, machine, reference, summary, workload

VERSION = 1


@dataclass(frozen=True)
class Context:
    """What the result was measured on, with and beside."""

    machine: machine.Machine
    command: list[str]
    started_at: str
    load_before: tuple[float, float, float]
    load_after: tuple[float, float, float]
    model: str
    model_sha256: str
    device: str
    dtype: str
    server_command: list[str]
    seed: int
    repeats: int
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """An experiment that has been run."""

    experiment: experiment.Experiment
    rounds: tuple[summary.Round, ...]
    context: Context
    ended: str = ""
    """Why it ended before its last round; else empty."""

    @property
    def verdicts(self) -> list[bars.Verdict]:
        return bars.judge(self.experiment.bars, self.rounds)

    @property
    def is_complete(self) -> bool:
        return not self.ended and all(one.is_complete for one in self.rounds)

    def of(self, variant: str) -> list[summary.Round]:
        return [one for one in self.rounds if one.variant == variant]


def document(result: Result) -> dict[str, Any]:
    """JSON: figures, bars, every request of every round, and where it all came from."""
    wanted = result.experiment
    return {
        "version": VERSION,
        "experiment": wanted.name,
        "title": wanted.title,
        "notes": list(wanted.notes),
        "is_complete": result.is_complete,
        "ended": result.ended,
        "context": dataclasses.asdict(result.context),
        "server": dataclasses.asdict(wanted.server),
        "lanes": [_lane(lane) for lane in wanted.lanes],
        "variants": [_variant(result, variant) for variant in wanted.variants],
        "bars": [bars.document(verdict) for verdict in result.verdicts],
        "reference": [dataclasses.asdict(step) for step in reference.STEPS] if wanted.name == "table" else [],
        "rounds": [dataclasses.asdict(one) for one in result.rounds],
    }


def write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def _variant(result: Result, variant: experiment.Variant) -> dict[str, Any]:
    rounds = result.of(variant.name)
    return {
        "name": variant.name,
        "settings": variant.settings(1).model_dump(mode="json", exclude={"generation"}),
        "figures": dataclasses.asdict(summary.figures(rounds)),
        "lanes": [_lane(lane) for lane in variant.lanes],
        "groups": {
            group: dataclasses.asdict(summary.figures(rounds, group)) for group in summary.groups(rounds)
        },
        "errors": summary.errors(rounds),
    }


def _lane(lane: workload.Lane) -> dict[str, Any]:
    prompt_tokens, output_tokens = workload.totals([lane])
    return {
        "requests": len(lane.requests),
        "concurrency": lane.concurrency,
        "is_background": lane.is_background,
        "is_open_loop": bool(lane.requests) and lane.requests[0].arrival_s is not None,
        "prompt_tokens": prompt_tokens,
        "output_tokens": output_tokens,
    }


def errors_of(rounds: Sequence[summary.Round]) -> int:
    return sum(1 for round_ in rounds for one in round_.records if one.error)

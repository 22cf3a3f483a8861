"""`make soak`: `python -m soak [MINUTES]` with PYTHONPATH=tests. Exit status 1: something was not well."""

import asyncio
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from soak import clients, memory, soaking

SAY_S = 20.0


def main(arguments: list[str]) -> int:
    minutes = float(arguments[0]) if arguments else 10.0
    plan = soaking.Plan(seconds=minutes * 60)
    folder = Path(tempfile.mkdtemp(prefix="firsttoken-soak-"))
    print(f"{plan.idle} idle and {plan.active} streaming connections for {minutes:g} minutes; logs: {folder}")
    said_s = -SAY_S

    def say(sample: memory.Sample, counts: clients.Counts) -> None:
        nonlocal said_s
        if sample.at_s - said_s < SAY_S:
            return
        said_s = sample.at_s
        print(
            f"{sample.at_s:5.0f} s: {sample.rss_bytes / 1e6:6.1f} MB, {sample.open_files} files, "
            f"{counts.streams} streams, {counts.tokens} tokens, {counts.idle_opened} idle opened, "
            f"{counts.idle_closed} closed, {sum(counts.failures.values())} failures",
            flush=True,
        )

    soaked = asyncio.run(soaking.run(plan, folder, say))
    settled, last = memory.levels(soaked.samples)
    result = {
        "plan": asdict(plan),
        "settled": asdict(settled),
        "last": asdict(last),
        "most_rss_bytes": max(one.rss_bytes for one in soaked.samples),
        "sidecar_cpu_s": soaked.cpu_s,
        "streams": soaked.counts.streams,
        "tokens": soaked.counts.tokens,
        "idle_opened": soaked.counts.idle_opened,
        "idle_closed": soaked.counts.idle_closed,
        "failures": dict(soaked.counts.failures),
        "hostile": dict(sorted(soaked.counts.hostile.items())),
        "faults": soaked.faults(),
        "samples": [asdict(one) for one in soaked.samples],
    }
    (folder / "result.json").write_text(json.dumps(result, indent=1) + "\n")
    del result["samples"]
    print(json.dumps(result, indent=1))
    return 1 if soaked.faults() else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

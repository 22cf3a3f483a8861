"""Reads what a server counts from the text of its /metrics. Pure; needs no Prometheus client."""

import re

from firsttoken_api import metrics
from firsttoken_runtime.bench import summary

# Integrals over the time in which at least one request waited (`core.Stats`), as counters.
LIVE = metrics.ENGINE_KV_LIVE_SLOT_SECONDS.exposed_name
NEEDED = metrics.ENGINE_KV_NEEDED_SLOT_SECONDS.exposed_name
ALLOCATED = metrics.ENGINE_KV_ALLOCATED_SLOT_SECONDS.exposed_name
PREEMPTIONS = metrics.VLLM_PREEMPTIONS.exposed_name
# In tokens.
LOOKED_UP = metrics.VLLM_PREFIX_QUERIES.exposed_name
FOUND = metrics.VLLM_PREFIX_HITS.exposed_name
FOUND_BY_TIER = metrics.ENGINE_PREFIX_HITS.exposed_name
ANY_TIER = "all"
_PART = re.compile(r'[{,](?:tier|stage)="([^"]*)"')


def values(text: str) -> dict[str, float]:
    """Sample name -> the sum over its label sets; where they have a tier or a stage, also `name/tier` -> the
    sum over the others. Lines of another form are passed over."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        name_and_labels, _, value = line.rpartition(" ")
        name = name_and_labels.partition("{")[0]
        part = _PART.search(name_and_labels)
        try:
            number = float(value)
        except ValueError:
            continue
        for key in (name, f"{name}/{part[1]}") if part else (name,):
            found[key] = found.get(key, 0.0) + number
    return found


def slots(samples: dict[str, float]) -> summary.Slots | None:
    """None: this server does not export it."""
    if not {LIVE, NEEDED, ALLOCATED} <= samples.keys():
        return None
    return summary.Slots(samples[LIVE], samples[NEEDED], samples[ALLOCATED])


def preemptions(samples: dict[str, float]) -> int | None:
    return int(samples[PREEMPTIONS]) if PREEMPTIONS in samples else None


def reuse(samples: dict[str, float]) -> summary.Reuse | None:
    """None: this server does not export it."""
    if not {LOOKED_UP, FOUND} <= samples.keys():
        return None
    prefix = f"{FOUND_BY_TIER}/"
    found = {key.removeprefix(prefix): value for key, value in samples.items() if key.startswith(prefix)}
    return summary.Reuse(samples[LOOKED_UP], found or {ANY_TIER: samples[FOUND]})

"""Reads what a server counts from the text of its /metrics. Pure; needs no Prometheus client."""

from firsttoken_api import metrics
from firsttoken_runtime.bench import summary

# Integrals over the time in which at least one request waited (`core.Stats`), as counters.
LIVE = metrics.ENGINE_KV_LIVE_SLOT_SECONDS.exposed_name
NEEDED = metrics.ENGINE_KV_NEEDED_SLOT_SECONDS.exposed_name
ALLOCATED = metrics.ENGINE_KV_ALLOCATED_SLOT_SECONDS.exposed_name
PREEMPTIONS = metrics.VLLM_PREEMPTIONS.exposed_name


def values(text: str) -> dict[str, float]:
    """Sample name -> the sum over its label sets. Lines of another form are passed over."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        name_and_labels, _, value = line.rpartition(" ")
        name = name_and_labels.partition("{")[0]
        try:
            found[name] = found.get(name, 0.0) + float(value)
        except ValueError:
            continue
    return found


def slots(samples: dict[str, float]) -> summary.Slots | None:
    """None: this server does not export it."""
    if not {LIVE, NEEDED, ALLOCATED} <= samples.keys():
        return None
    return summary.Slots(samples[LIVE], samples[NEEDED], samples[ALLOCATED])


def preemptions(samples: dict[str, float]) -> int | None:
    return int(samples[PREEMPTIONS]) if PREEMPTIONS in samples else None

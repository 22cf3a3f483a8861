"""Requests, entries and engines for the tests of admission."""

from typing import Any

from firsttoken_api.state import EngineState, KvState, Phase
from firsttoken_api.step_time import StepTime
from firsttoken_sidecar.backlog import Entry
from firsttoken_sidecar.desk import Request

STEP = StepTime(fixed_s=0.1, per_prefill_token_s=0.001, per_decode_s=0.01)


def engine(**changes: Any) -> EngineState:
    """Ready, with steps of 100 prompt tokens and 4 slots."""
    known: dict[str, Any] = {
        "phase": Phase.READY,
        "step_time": STEP,
        "chunk_tokens": 100,
        "max_prefill_batch": 4,
        "max_num_seqs": 4,
        "prefill_tokens_per_s": 500.0,
        "kv": KvState(),
    }
    return EngineState(**known | changes)


def request(**changes: Any) -> Request:
    known: dict[str, Any] = {
        "tenant": "",
        "weight": 1.0,
        "body_hash": b"",
        "request_class": "",
        "priority": 0,
        "limit_s": 1.0,
        "arrival_s": 100.0,
        "prompt_tokens": 50,
        "max_tokens": 10,
    }
    return Request(**known | changes)


def entry(**changes: Any) -> Entry:
    known: dict[str, Any] = {
        "tenant": "",
        "weight": 1.0,
        "request_class": "",
        "priority": 0,
        "arrival_s": 100.0,
        "admitted_s": 100.0,
        "prompt_tokens": 50,
        "uncached_tokens": 50,
        "max_tokens": 10,
        "output_tokens": 10.0,
        "start_by_s": 100.0,
        "expected_s": 0.2,
        "likely_s": 0.3,
        "limit_s": 1.0,
        "cost_s": 0.15,
    }
    return Entry(**known | changes)

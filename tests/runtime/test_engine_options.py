"""Cold options -> limits."""

from typing import Any

import pytest

from firsttoken_runtime import core
from firsttoken_runtime.engine import flags, options


def resolve(*, is_cpu: bool = True, **changes: Any) -> int:
    settings = core.EngineSettings(model_path="m", **changes)
    limits = options.scheduler_limits(settings, flags.defaults(), 8192, is_cpu=is_cpu)
    return limits.max_num_batched_tokens


def test_automatic_step_size() -> None:
    assert resolve() == options.CPU_STEP_TOKENS
    assert resolve(max_num_seqs=1000) == 1000
    assert resolve(is_cpu=False) == options.GPU_STEP_TOKENS
    assert resolve(max_num_batched_tokens=128) == 128


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"max_num_batched_tokens": 10}, "--max-num-batched-tokens 10 is below --max-num-seqs 64"),
        ({"max_num_seqs": 0}, "--max-num-seqs is 0"),
        ({"max_prefill_batch": 0}, "--max-prefill-batch is 0"),
        ({"block_size_tokens": 0}, "--block-size is 0"),
        ({"prefill_priority": "high"}, "--prefill-priority is 'high', it is one of normal, low"),
    ],
)
def test_bad_options_are_named(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(options.BadOption, match=words):
        resolve(**changes)

"""The first forward passes, over slots nobody owns yet: so that the first request is not the one that waits
for the libraries to set themselves up; and a prompt whose time can be taken."""

import torch

from firsttoken_runtime import core
from firsttoken_runtime.cache import layout as cache_layout
from firsttoken_runtime.engine.runner import Forward, Runner
from firsttoken_runtime.scheduler.sequence import ScheduledStep, Sequence, Work

PROMPT_TOKENS = 64
MOST_COMPILED_ROWS = 512
"""Larger steps are rare on a CPU, and take so long that compiling does not matter."""


def run(runner: Runner, layout: cache_layout.Layout, max_model_len: int) -> None:
    """A prompt, a decode and two decodes at once. Nobody may hold a block."""
    length = min(PROMPT_TOKENS, max_model_len - 1)
    sequence = _sequence(layout, length)
    _prefill(runner, layout, sequence)
    sequence.token_ids.append(0)
    for rows in (1, 2):
        decode = Work(sequence, length, 1, samples=True)
        runner.execute(ScheduledStep(0, decodes=(decode,) * rows), layout.block_size_tokens)


@torch.inference_mode()
def compile_linears(runner: Runner, step_tokens: int) -> None:
    """For every row count of a step of so many tokens, about a second in all: else steps of a server that has
    just started take up to 60 ms more. Tests and short runs do without."""
    runner.model.compile_linears(min(step_tokens, MOST_COMPILED_ROWS))


def prefill(runner: Runner, layout: cache_layout.Layout, num_tokens: int) -> None:
    """Compute a prompt of so many tokens. Nobody may hold a block."""
    _prefill(runner, layout, _sequence(layout, num_tokens))


def decode(runner: Runner, layout: cache_layout.Layout, rows: int) -> None:
    """Compute so many answers' next tokens, all after the same short prompt. Nobody may hold a block."""
    sequence = _sequence(layout, 2)
    work = Work(sequence, 1, 1, samples=True)
    _wait(runner.execute(ScheduledStep(0, decodes=(work,) * rows), layout.block_size_tokens))


def _wait(forward: Forward) -> None:
    """A device computes on its own; what it gave is only there when it is asked for."""
    forward.logits[:1].cpu()


def _prefill(runner: Runner, layout: cache_layout.Layout, sequence: Sequence) -> None:
    work = Work(sequence, 0, sequence.num_tokens, samples=True)
    _wait(runner.execute(ScheduledStep(0, prefills=(work,)), layout.block_size_tokens))


def _sequence(layout: cache_layout.Layout, num_tokens: int) -> Sequence:
    """With the first blocks of the pool and room for one more token; under a KV type in both formats."""
    sequence = Sequence(0, [0] * num_tokens, core.SamplingParams(max_tokens=2), 0.0)
    num_blocks = -(-(num_tokens + 1) // layout.block_size_tokens)
    num_full = min(1, layout.max_full_prefix_tokens) if layout.is_quantized else num_blocks
    first_quantized = layout.counts.full
    sequence.block_table = [
        *range(num_full),
        *range(first_quantized, first_quantized + num_blocks - num_full),
    ]
    return sequence

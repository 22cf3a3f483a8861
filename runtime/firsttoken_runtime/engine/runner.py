"""From a scheduled step to logits: lays out the rows, finds their slots, runs the decoder.

The cache is views of bytes that belong to others: another layout is another list of them.

The output layer is computed for the rows that sample, and for every row of a prompt whose logprobs were
asked for: these in tiles, because a long prompt times a large vocabulary does not fit into memory.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from firsttoken_kernels import attention, attention_decode, attention_prefill, paged_cache
from firsttoken_runtime import core
from firsttoken_runtime.engine import deviation
from firsttoken_runtime.model import decoder
from firsttoken_runtime.scheduler.sequence import ScheduledStep

TILE_ROWS = 64


@dataclass(frozen=True)
class Forward:
    """What one step computed."""

    logits: torch.Tensor
    """[R, V] fp32: the last token of each work that samples, in step order."""
    prompts: Mapping[int, torch.Tensor] = field(default_factory=dict)
    """Sequence id -> hidden rows [T, H] of its chunk, where the logprobs of the prompt are wanted."""
    broken: frozenset[int] = frozenset()
    """Sequences with a token in their chunk whose hidden row is not finite. Attention masks by a weight of
    zero, and zero times NaN is NaN: such a token spoils those before it in its chunk, which others would find
    in the cache. So these sequences fail before anything of the chunk can be found."""


class Runner:
    """Owns the model, and its cache as the layout in force cuts it."""

    def __init__(
        self,
        model: decoder.Decoder,
        layers: Sequence[paged_cache.LayerCache],
        *,
        num_full_slots: int | None = None,
        batch_invariant: bool = False,
        monitor: deviation.Monitor | None = None,
    ) -> None:
        """num_full_slots: slots from here on are QUANTIZED; None: none are. monitor: None = the usual one,
        or none at all with batch_invariant."""
        self.model = model
        self.batch_invariant = batch_invariant
        if monitor is None and not batch_invariant:
            monitor = deviation.Monitor(model.config, layers)
        self.monitor = monitor
        config = model.config
        self._is_ragged = not batch_invariant and attention_decode.can_run(
            model.device, model.dtype, config.num_heads, config.head_dim
        )
        self._are_prefills_ragged = not batch_invariant and attention_prefill.can_run(
            model.device, model.dtype, config.head_dim
        )
        self.replace(layers, num_full_slots)

    def replace(self, layers: Sequence[paged_cache.LayerCache], num_full_slots: int | None) -> None:
        """Another layout, between two steps; what was stored is gone."""
        self.layers = layers
        self.num_full_slots = num_full_slots
        if self.monitor is not None:
            self.monitor.replace(layers)

    def kv_deviation(self) -> core.KvDeviation | None:
        """Of quantized attention since the layout came into force; None: nothing was sampled."""
        return None if self.monitor is None else self.monitor.summary()

    @torch.inference_mode()
    def execute(
        self,
        step: ScheduledStep,
        block_size_tokens: int,
        before_layer: Callable[[int], None] | None = None,
    ) -> Forward:
        """One forward pass over all tokens of the step. before_layer: is told each layer just before it is
        computed, to wait for blocks that are still on their way into it."""
        rows = step_input(
            step,
            block_size_tokens,
            self.model.device,
            self.model.config.windows,
            batch_invariant=self.batch_invariant,
            num_full_slots=self.num_full_slots,
            is_ragged=self._is_ragged,
            are_prefills_ragged=self._are_prefills_ragged,
        )
        if before_layer is not None:
            rows = dataclasses.replace(rows, before_layer=before_layer)
        if self.monitor is not None and (observed := self.monitor.observers(rows.attention_plan)):
            rows = dataclasses.replace(rows, observed=observed)
        hidden = self.model.hidden(rows, self.layers)
        return Forward(
            self.model.logits(hidden.index_select(0, rows.logit_rows)),
            _prompts(step, hidden),
            _broken(step, hidden),
        )

    @torch.inference_mode()
    def logits_by_tile(self, hidden: torch.Tensor) -> Iterator[torch.Tensor]:
        """Rows of `Forward.prompts` [T, H] -> [at most TILE_ROWS, V] fp32, one tile after the other."""
        for start in range(0, len(hidden), TILE_ROWS):
            yield self.model.logits(hidden[start : start + TILE_ROWS])


def _prompts(step: ScheduledStep, hidden: torch.Tensor) -> dict[int, torch.Tensor]:
    prompts = {}
    row = len(step.decodes)
    for work in step.prefills:
        if work.sequence.sampling.prompt_logprobs is not None:
            prompts[work.sequence.sequence_id] = hidden[row : row + work.num_tokens]
        row += work.num_tokens
    return prompts


def _broken(step: ScheduledStep, hidden: torch.Tensor) -> frozenset[int]:
    row = len(step.decodes)
    is_finite = hidden[row:].isfinite().all(dim=1)
    if bool(is_finite.all()):
        return frozenset()
    by_work = torch.split(is_finite, [work.num_tokens for work in step.prefills])
    return frozenset(
        work.sequence.sequence_id
        for work, rows in zip(step.prefills, by_work, strict=True)
        if not bool(rows.all())
    )


def step_input(
    step: ScheduledStep,
    block_size_tokens: int,
    device: torch.device,
    windows: tuple[int, ...] = (),
    *,
    batch_invariant: bool = False,
    num_full_slots: int | None = None,
    is_ragged: bool = False,
    are_prefills_ragged: bool = False,
) -> decoder.StepInput:
    """Rows are the step's tokens: decodes first, then each prefill chunk. `windows`: those of the layers;
    the last four: as in `attention.plan`."""
    token_ids: list[int] = []
    positions: list[int] = []
    logit_rows: list[int] = []
    for work in step.work:
        end = work.first_token + work.num_tokens
        token_ids += work.sequence.token_ids[work.first_token : end]
        positions += range(work.first_token, end)
        if work.samples:
            logit_rows.append(len(token_ids) - 1)
    tables = [work.sequence.block_table for work in step.decodes]
    widest = max((len(table) for table in tables), default=0)
    padded = [table + [-1] * (widest - len(table)) for table in tables]
    contexts = torch.tensor([work.first_token + 1 for work in step.decodes], dtype=torch.int64)
    plan = attention.plan(
        torch.tensor(padded, dtype=torch.int64).view(len(tables), widest),
        contexts,
        [
            attention.Prefill(work.sequence.block_table, work.num_tokens, work.first_token + work.num_tokens)
            for work in step.prefills
        ],
        block_size_tokens,
        device,
        windows=windows,
        invariant=batch_invariant,
        num_full_slots=num_full_slots,
        is_ragged=is_ragged,
        are_prefills_ragged=are_prefills_ragged,
    )
    return decoder.StepInput(
        token_ids=torch.tensor(token_ids, device=device),
        positions=torch.tensor(positions, device=device),
        attention_plan=plan,
        logit_rows=torch.tensor(logit_rows, dtype=torch.int64, device=device),
    )

"""From a scheduled step to logits: lays out the rows, finds their slots, runs the decoder."""

import torch

from firsttoken_kernels import attention
from firsttoken_runtime.model import decoder
from firsttoken_runtime.scheduler.sequence import ScheduledStep


class Runner:
    """Owns the model and the bytes of the cache."""

    def __init__(self, model: decoder.Decoder, cache: torch.Tensor) -> None:
        """cache: [layers, 2, slots, KV heads, D]."""
        self.model = model
        self.cache = cache

    @torch.inference_mode()
    def execute(self, step: ScheduledStep, block_size_tokens: int) -> torch.Tensor:
        """Logits of the last token of each work that samples, in step order.  -> [R, V] fp32."""
        return self.model(step_input(step, block_size_tokens, self.model.device), self.cache)


def step_input(step: ScheduledStep, block_size_tokens: int, device: torch.device) -> decoder.StepInput:
    """Rows are the step's tokens: decodes first, then each prefill chunk."""
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
    )
    return decoder.StepInput(
        token_ids=torch.tensor(token_ids, device=device),
        positions=torch.tensor(positions, device=device),
        slots=plan.own_slots,
        attention_plan=plan,
        logit_rows=torch.tensor(logit_rows, dtype=torch.int64, device=device),
    )

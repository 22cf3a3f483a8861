"""The engine of `bench kv`, in this process: scores passages and measures layers under a KV type."""

import math
from pathlib import Path

from firsttoken_api.errors import UserError
from firsttoken_runtime import core
from firsttoken_runtime.bench import experiment, kv
from firsttoken_runtime.cache import formats, layout
from firsttoken_runtime.engine import deviation, device, options
from firsttoken_runtime.engine.local import LocalEngine
from firsttoken_runtime.model import errors

AT_ONCE = 8
"""Passages of a batch."""


class Scorer:
    """A loaded model, its flags switched as in serving."""

    def __init__(self, local: LocalEngine, full_precision_layers: int) -> None:
        self._local = local
        self._full_precision_layers = full_precision_layers
        self._generation = 0

    @classmethod
    def load(
        cls,
        source: Path,
        passage_tokens: int,
        full_precision_layers: int,
        *,
        threads: int | None,
        dtype: str,
        device_option: str,
    ) -> "Scorer":
        """Raises UserError."""
        longest = passage_tokens + 1
        settings = core.EngineSettings(
            model_path=str(source),
            device=device_option,
            dtype=dtype,
            max_model_len=longest,
            # Quantized, the longest sequence and half of one more in 16 bit must fit as well.
            kv_blocks=(AT_ONCE + 2) * (-(-longest // 16)),
            max_num_seqs=AT_ONCE,
            threads=threads,
        )
        try:
            return cls(LocalEngine.load(settings), full_precision_layers)
        except (errors.ModelError, device.BadOption, options.BadOption) as error:
            raise UserError(f"SOURCE: {source}: {error}") from error

    @property
    def dtype(self) -> str:
        return self._local.engine.loaded.choice.dtype_name

    @property
    def device(self) -> str:
        return self._local.engine.loaded.choice.device.type

    def use(self, kv_type: str) -> None:
        """Raises UserError."""
        self._put(kv.variant(kv_type, self._full_precision_layers))

    def _put(self, variant: experiment.Variant) -> None:
        self._generation += 1
        settings = variant.settings(self._generation)
        applied = self._local.loop.set_flags(settings.model_dump_json().encode())
        if applied.error:
            raise UserError(f"the engine refused {variant.name}: {applied.error}")

    def losses(self, passages: list[list[int]]) -> list[float]:
        """The negative log-likelihood of each, its first token left out, under the type in force."""
        wanted = core.SamplingParams(max_tokens=0, prompt_logprobs=0)
        ids = [self._local.submit(passage, wanted) for passage in passages]
        self._local.run()
        found = []
        for sequence_id in ids:
            if sequence_id in self._local.failures:
                raise UserError(f"a passage could not be scored: {self._local.failures[sequence_id]}")
            scores = self._local.prompt_scores.pop(sequence_id).scores
            found.append(-math.fsum(one.logprob for one in scores if one is not None))
        return found

    def layers(self, passages: list[list[int]]) -> list[kv.Layer]:
        """Of each quantized layer, over all passages, under the type in force."""
        engine = self._local.engine
        usual = engine.runner.monitor
        monitor = deviation.Monitor(engine.config, engine.runner.layers, 0.0, all_layers=True)
        engine.runner.monitor = monitor
        try:
            for passage in passages:
                self.losses([passage])
        finally:
            engine.runner.monitor = usual
        return [
            kv.Layer(index, one.mean, one.p999, one.largest, one.relative_l2, one.num_samples)
            for index, one in monitor.tallies.items()
        ]

    def bytes(self, kv_type: kv.KvType) -> kv.Bytes:
        """Of the type in force, in this model, with the compute dtype of this run for what is full."""
        engine = self._local.engine
        config = engine.config
        shape = layout.Shape(
            config.num_layers, config.num_kv_heads, config.head_dim, engine.loaded.choice.dtype.itemsize
        )
        half = shape.half_token_bytes
        budget = kv.POOL_SEQUENCES * config.trained_length * half
        kept = 0 if kv_type == kv.FULL else self._full_precision_layers
        made = layout.within(
            budget, shape, 16, config.trained_length, kv_type=kv_type, full_precision_layers=kept
        )
        tokens = sum(made.counts[fmt] for fmt in formats.Format) * made.block_size_tokens
        here = engine.layout
        pool_tokens = sum(here.counts[fmt] for fmt in formats.Format) * here.block_size_tokens
        return kv.Bytes(made.private_token_bytes, half, tokens * half / budget, made.sentence(), pool_tokens)

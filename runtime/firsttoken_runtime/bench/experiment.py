"""What is compared: variants, the load they all get, the server they share, the bars. Pure data.

A variant names the flags that are on; every other built flag is off, so that a variant is what its name
says whatever the defaults are.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from firsttoken_api import flags
from firsttoken_api.errors import UserError
from firsttoken_api.hot_settings import ClassSettings, EffectiveFlag, HotSettings, Objective
from firsttoken_runtime.bench import workload

NEVER_S = 600.0
"""An objective so far away that no request is refused for being late."""


@dataclass(frozen=True)
class Variant:
    """One setting of the engine."""

    name: str
    flags_on: tuple[str, ...]
    params: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Flag -> parameters other than the defaults."""
    classes: tuple[ClassSettings, ...] = ()
    default_class: str = ""
    tpot_p95_s: float | None = None
    lanes: tuple[workload.Lane, ...] = ()
    """A load of its own; empty: that of the experiment."""
    against: str = ""
    """The variant that it is compared with; empty: the first one."""

    def settings(self, generation: int) -> HotSettings:
        """The document that puts it in force."""
        effective = tuple(
            EffectiveFlag(
                name=name,
                enabled=name in self.flags_on,
                params=dict(self.params.get(name, {})) if name in self.flags_on else {},
            )
            for name in flags.BUILT
        )
        return HotSettings(
            generation=generation,
            flags=effective,
            objective=Objective(ttft_p95_s=NEVER_S, tpot_p95_s=self.tpot_p95_s),
            classes=self.classes,
            default_class=self.default_class,
        ).sealed()

    def check_built(self) -> None:
        """Raises UserError for a flag that this version does not have."""
        for name in self.flags_on:
            if name not in flags.BUILT:
                raise UserError(f"variant {self.name!r} needs the flag {name}, which is not built")


@dataclass(frozen=True)
class Limit:
    """What a measured value is held against."""

    text: str
    at_most: float | None = field(default=None, kw_only=True)
    at_least: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        assert (self.at_most is None) != (self.at_least is None), self.text

    def is_reached(self, value: float) -> bool:
        if self.at_most is not None:
            return value <= self.at_most
        assert self.at_least is not None
        return value >= self.at_least


@dataclass(frozen=True)
class Bar(Limit):
    """A limit for a figure of a variant: alone, or divided by another variant's."""

    figure: str
    """A field of `summary.Figures`."""
    variant: str
    against: str = ""
    group: str | None = None


@dataclass(frozen=True)
class ServerNeeds:
    """Cold settings that the experiment decides; the others are the person's."""

    max_model_len: int
    kv_tokens: int
    max_num_seqs: int = 64
    max_prefill_batch: int = 8
    max_num_batched_tokens: int | None = None
    block_size_tokens: int = 16
    host_memory_bytes: int | None = None
    """Of the host tier; None: the server's own choice."""
    batch_invariant: bool = False

    @property
    def kv_blocks(self) -> int:
        return self.kv_tokens // self.block_size_tokens

    def options(self) -> list[str]:
        """For `firsttoken serve`."""
        given: dict[str, int | str] = {
            "--max-model-len": self.max_model_len,
            "--kv-blocks": self.kv_blocks,
            "--block-size": self.block_size_tokens,
            "--max-num-seqs": self.max_num_seqs,
            "--max-prefill-batch": self.max_prefill_batch,
        }
        if self.max_num_batched_tokens is not None:
            given["--max-num-batched-tokens"] = self.max_num_batched_tokens
        if self.host_memory_bytes is not None:
            given["--host-memory"] = self.host_memory_bytes
            # What copies cost is measured at the start, where the flag is on then.
            given["--enable"] = "kv-tiering"
        pairs = [part for option, value in given.items() for part in (option, str(value))]
        return [*pairs, *(("--batch-invariant",) if self.batch_invariant else ())]


@dataclass(frozen=True)
class Experiment:
    """Everything that `rounds` needs to know. The first variant is what the others are compared with."""

    name: str
    title: str
    variants: tuple[Variant, ...]
    lanes: tuple[workload.Lane, ...]
    server: ServerNeeds
    bars: tuple[Bar, ...] = ()
    notes: tuple[str, ...] = ()
    """What a reader must know: shares, scales, flags that are left out."""

    def lanes_of(self, variant: Variant) -> tuple[workload.Lane, ...]:
        return variant.lanes or self.lanes

    def base_of(self, variant: Variant) -> Variant:
        """What it is compared with; itself where it is the base."""
        name = variant.against or self.variants[0].name
        return next(one for one in self.variants if one.name == name)

    def check_built(self) -> None:
        """Raises UserError."""
        for variant in self.variants:
            variant.check_built()

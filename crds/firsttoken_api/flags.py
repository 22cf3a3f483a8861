"""The optimization flags, declared once: what they are called, what they may change, what they need.

The CRD's validation, the operator's decision, the engine's switches and the tables in the
documents are all derived from `FLAGS`.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from firsttoken_api import bounded_text, duration, fraction, quantity, references, whole_number


class FlagClass(StrEnum):
    """What a flag may do to the output. Decides the gate's margin."""

    EXACT = "exact"
    """The same tokens in `batchInvariant` mode."""
    CLOSE = "close"
    """Numerics move within a tight margin."""
    LOSSY = "lossy"
    """Output may differ; the margin is wider and must be judged per service."""


class FlagMode(StrEnum):
    """What a user asks of one flag."""

    DISABLED = "Disabled"
    GATED = "Gated"
    FORCED = "Forced"


@dataclass(frozen=True)
class Parameter:
    """One setting of a flag. Values travel as strings, as everywhere in the API."""

    name: str
    default: str
    """A value, or the one word that is allowed besides: `auto`, or nothing at all."""
    help: str
    values: bounded_text.Values | None = None
    """None: nothing is checked; only where it is not built."""
    cold: bool = False
    """True: a change makes a new revision instead of a hot switch."""
    built: bool = False

    def holds(self, text: str) -> bool:
        """Whether the parameter may be set to this."""
        assert self.values is not None, self.name
        return text == self.default or self.values.holds(text)

    @property
    def allowed(self) -> str:
        """What may be set, as messages say it."""
        assert self.values is not None, self.name
        word = self.default or "empty"
        return self.values.allowed if self.values.holds(self.default) else f"{word} or {self.values.allowed}"

    def canonical(self, text: str) -> str:
        """The same value as we would write it: `032` is 32, `4096Mi` is 4Gi."""
        assert self.values is not None, self.name
        return self.values.canonical(text) if self.values.holds(text) else text

    def number(self, text: str) -> float:
        """The value: seconds of a duration, bytes of a quantity. ValueError says what is allowed."""
        if not self.holds(text):
            raise ValueError(f"{text!r} is not {self.allowed}")
        assert self.values is not None
        return self.values.number(text)

    @property
    def minimum(self) -> int | None:
        """Of a whole number."""
        return int(self.values.minimum) if isinstance(self.values, whole_number.Range) else None

    @property
    def maximum(self) -> int | None:
        """Of a whole number that has one."""
        bound = self.values.maximum if isinstance(self.values, whole_number.Range) else ""
        return int(bound) if bound else None


@dataclass(frozen=True)
class Flag:
    """One optimization."""

    name: str
    flag_class: FlagClass
    on_by_default: bool
    help: str
    needs: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    parameters: tuple[Parameter, ...] = field(default=())
    built: bool = False
    """False: the API server refuses the name; nothing is ever a silent no-op."""


FULL_PRECISION_LAYERS = Parameter(
    "fullPrecisionLayers", "2", "last layers that keep 16 bit", whole_number.Range("0", "256"), built=True
)

# In risk order: what is most likely to be safe comes first.
FLAGS: tuple[Flag, ...] = (
    Flag(
        "paged-kv",
        FlagClass.EXACT,
        True,
        "KV cache in small blocks; off = one block of max_model_len a sequence (the baseline)",
        parameters=(
            Parameter(
                "blockSize", "16", "tokens per block", whole_number.Range("8", "128"), cold=True, built=True
            ),
            Parameter(
                "maxBlocks",
                "auto",
                "blocks of the pool; auto: as many as fit into the memory",
                whole_number.Range("1"),
                cold=True,
                built=True,
            ),
        ),
        built=True,
    ),
    Flag(
        "continuous-batching",
        FlagClass.EXACT,
        True,
        "admit requests into the running batch; off = admit only when nothing runs (the baseline)",
        built=True,
    ),
    Flag(
        "chunked-prefill",
        FlagClass.EXACT,
        True,
        "prefill long prompts in chunks between decode steps",
        needs=("continuous-batching",),
        parameters=(
            Parameter("chunkTokens", "512", "tokens per chunk", whole_number.Range("64", "4096"), built=True),
        ),
        built=True,
    ),
    Flag(
        "prefix-cache",
        FlagClass.EXACT,
        True,
        "reuse the KV blocks of a shared prompt prefix",
        needs=("paged-kv",),
        parameters=(
            Parameter(
                "maxFraction",
                "0.50",
                "largest share of the pool that blocks nobody uses may keep",
                fraction.Range("0.01", "1"),
                built=True,
            ),
            Parameter(
                "protectedFraction",
                "0.80",
                "largest share of those that is kept for what was hit before",
                fraction.Range("0", "0.80"),
                built=True,
            ),
        ),
        built=True,
    ),
    Flag(
        "priority",
        FlagClass.EXACT,
        True,
        "classes, preemption by recompute, short-first with ageing; off = first come, first served",
        needs=("continuous-batching",),
        built=True,
    ),
    Flag(
        "prefix-affinity",
        FlagClass.EXACT,
        False,
        "bring requests that share a prefix into one batch",
        needs=("prefix-cache",),
        parameters=(
            Parameter(
                "maxWait",
                "20ms",
                "longest that a prompt is passed over",
                duration.Range("0s", "60s"),
                built=True,
            ),
        ),
        built=True,
    ),
    Flag(
        "kv-tiering",
        FlagClass.EXACT,
        False,
        "hot KV on the device, warm in host memory, cold recomputed",
        needs=("prefix-cache",),
        parameters=(
            Parameter(
                "hostMemory",
                "auto",
                "host memory for warm blocks, added to spec.resources.memory; auto: what that has left",
                quantity.BytesRange("16Mi", "16Ti"),
                cold=True,
                built=True,
            ),
            Parameter(
                "claimName",
                "",
                "claim that keeps the host tier over restarts",
                references.ClaimNames(),
                cold=True,
                built=True,
            ),
        ),
        built=True,
    ),
    Flag(
        "fused-kernels",
        FlagClass.CLOSE,
        True,
        "fused RMSNorm+QKV, attention output and SiLU-mul kernels",
        parameters=(
            Parameter("rmsnormQkv", "auto", "auto, enabled or disabled"),
            Parameter("attentionOutput", "auto", "auto, enabled or disabled"),
            Parameter("siluMul", "auto", "auto, enabled or disabled"),
            Parameter("precision", "default", "default or fp32"),
        ),
    ),
    Flag(
        "kv-int8",
        FlagClass.CLOSE,
        False,
        "int8 KV with fp16 scales per (token, KV head)",
        excludes=("kv-fp8",),
        parameters=(FULL_PRECISION_LAYERS,),
        built=True,
    ),
    Flag(
        "kv-fp8",
        FlagClass.CLOSE,
        False,
        "fp8 KV with dynamic scales",
        excludes=("kv-int8",),
        parameters=(FULL_PRECISION_LAYERS,),
        built=True,
    ),
    Flag("fp8-linear", FlagClass.CLOSE, False, "dynamic e4m3 linear layers (sm_89 and later)"),
    Flag(
        "spec-decode",
        FlagClass.EXACT,
        False,
        "speculative decoding with a draft model or n-grams, on when it pays",
        excludes=("early-exit",),
        parameters=(
            Parameter("draftTokens", "4", "tokens per draft", whole_number.Range("1", "32")),
            Parameter("minBatch", "0", "smallest running batch that speculates", whole_number.Range("0")),
            Parameter("maxBatch", "auto", "largest running batch that speculates", whole_number.Range("1")),
        ),
    ),
    Flag(
        "length-control",
        FlagClass.LOSSY,
        False,
        "default max_tokens per class and route; past its output budget a request is lowered one class",
        built=True,
    ),
    Flag(
        "window-attention",
        FlagClass.LOSSY,
        False,
        "attention sinks and a sliding window past the trained length",
        excludes=("sparse-prefill",),
    ),
    Flag(
        "sparse-prefill",
        FlagClass.LOSSY,
        False,
        "top-k sparse attention in prefill",
        excludes=("window-attention",),
    ),
    Flag(
        "early-exit",
        FlagClass.LOSSY,
        False,
        "leave the model early on short prompts",
        excludes=("spec-decode",),
    ),
    Flag(
        "semantic-cache", FlagClass.LOSSY, False, "answer near-equal questions of named routes from a cache"
    ),
    Flag("prompt-compression", FlagClass.LOSSY, False, "shorten long prompts, instructions kept verbatim"),
)

BY_NAME: dict[str, Flag] = {flag.name: flag for flag in FLAGS}
BUILT: tuple[str, ...] = tuple(flag.name for flag in FLAGS if flag.built)


def needs_rule(flag: str, needed: str) -> str:
    """The rule's name, as messages say it wherever it is broken."""
    return f"{flag} needs {needed}"


def excludes_rule(flag: str, other: str) -> str:
    """The rule's name; the flags stand in the order of the table, whichever is asked about."""
    first, second = sorted((flag, other), key=list(BY_NAME).index)
    return f"{first} excludes {second}"

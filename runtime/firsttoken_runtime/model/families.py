"""The table that drives the one decoder: what each model family does differently from the plain Llama block.

A family is named as in `config.json` (`model_type`) and in GGUF metadata (`general.architecture`). What
a single checkpoint may choose (sizes, scaling, a bias) is in its configuration, read by
`config_json.py` and `config_gguf.py`; here is only what comes with the family's name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any


class Windows(Enum):
    """Which layers of a family see only the last `sliding_window` tokens, unless `layer_types` says so."""

    NONE = auto()
    ALL = auto()
    FROM_LAYER = auto()
    """From layer `max_window_layers` on."""
    EVEN_BELOW = auto()
    """Layers 0, 2, … below `max_window_layers`."""
    PERIODIC = auto()
    """All but the last of every `window_period` layers."""
    WITHOUT_ROPE = auto()
    """The layers that do not rotate queries and keys."""


@dataclass(frozen=True)
class ExpertKeys:
    """Where a family's configuration says how its experts are made."""

    count: tuple[str, ...]
    intermediate_size: str
    normalized: bool | None = None
    """The weights of the chosen experts are scaled to sum to 1; None: `norm_topk_prob` says so."""
    normalized_in_gguf: bool = True
    shared_intermediate_size: str = ""
    """Of the expert that every token passes; empty: there is none."""


@dataclass(frozen=True)
class Family:
    """What one family needs from the decoder beyond the plain Llama block."""

    model_type: str
    """`model_type` of config.json."""
    gguf_architecture: str
    """`general.architecture` of a .gguf file."""
    qkv_bias: bool = False
    """Queries, keys and values always have a bias."""
    bias_keys: tuple[str, ...] = ()
    """Which of `attention_bias`, `qkv_bias` and `mlp_bias` its checkpoints may set."""
    query_key_norm: bool = False
    windows: Windows = Windows.NONE
    has_window_switch: bool = False
    """A window counts only with `use_sliding_window`."""
    has_layer_types: bool = False
    """`layer_types` decides which layers have the window."""
    window_period: int = 0
    rope_theta: float = 10000.0
    local_rope_theta: float | None = None
    """Windowed layers rotate with a base of their own."""
    nope_interval: int = 0
    """Every so many layers one does not rotate queries and keys."""
    activation: str = "silu"
    sandwich_norms: bool = False
    """A norm before and one after attention and MLP, instead of one before each."""
    norm_adds_one: bool = False
    """A norm multiplies by 1 + w. A .gguf file stores the sum, a folder stores w."""
    scaled_embeddings: bool = False
    """Embeddings are multiplied by the square root of their size, rounded to the compute type."""
    softcap_keys: tuple[str, ...] = ()
    experts: ExpertKeys | None = None
    gguf_permutes_query_key: bool = False
    """The .gguf converter reorders the rows of Q and K for another RoPE layout; we undo it."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """What a config.json that leaves a key out means."""


ATTENTION_SOFTCAP, FINAL_SOFTCAP = "attn_logit_softcapping", "final_logit_softcapping"
_QWEN_WINDOW = {"sliding_window": 4096, "max_window_layers": 28, "use_sliding_window": False}
_GEMMA = {"tie_word_embeddings": True, "head_dim": 256, "query_pre_attn_scalar": 256, "sliding_window": 4096}

FAMILIES: tuple[Family, ...] = (
    Family(
        "llama",
        "llama",
        bias_keys=("attention_bias", "mlp_bias"),
        gguf_permutes_query_key=True,
    ),
    Family(
        "mistral",
        "llama",
        windows=Windows.ALL,
        gguf_permutes_query_key=True,
        defaults={"sliding_window": 4096},
    ),
    Family(
        "mixtral",
        "llama",
        windows=Windows.ALL,
        rope_theta=1e6,
        experts=ExpertKeys(("num_local_experts",), "intermediate_size", normalized=True),
        gguf_permutes_query_key=True,
    ),
    Family(
        "qwen2",
        "qwen2",
        qkv_bias=True,
        windows=Windows.FROM_LAYER,
        has_window_switch=True,
        has_layer_types=True,
        defaults=_QWEN_WINDOW,
    ),
    Family(
        "qwen2_moe",
        "qwen2moe",
        bias_keys=("qkv_bias",),
        windows=Windows.EVEN_BELOW,
        has_window_switch=True,
        has_layer_types=True,
        experts=ExpertKeys(
            ("num_experts", "num_local_experts"),
            "moe_intermediate_size",
            normalized_in_gguf=False,
            shared_intermediate_size="shared_expert_intermediate_size",
        ),
        defaults=_QWEN_WINDOW | {"qkv_bias": True},
    ),
    Family(
        "qwen3",
        "qwen3",
        bias_keys=("attention_bias",),
        query_key_norm=True,
        windows=Windows.FROM_LAYER,
        has_window_switch=True,
        has_layer_types=True,
        defaults=_QWEN_WINDOW | {"head_dim": 128},
    ),
    Family(
        "qwen3_moe",
        "qwen3moe",
        bias_keys=("attention_bias",),
        query_key_norm=True,
        windows=Windows.ALL,
        has_window_switch=True,
        experts=ExpertKeys(("num_experts", "num_local_experts"), "moe_intermediate_size"),
        defaults=_QWEN_WINDOW,
    ),
    Family(
        "smollm3",
        "smollm3",
        bias_keys=("attention_bias", "mlp_bias"),
        windows=Windows.WITHOUT_ROPE,
        has_window_switch=True,
        has_layer_types=True,
        rope_theta=2e6,
        nope_interval=4,
        gguf_permutes_query_key=True,
        defaults={"tie_word_embeddings": True, "use_sliding_window": False},
    ),
    Family(
        "gemma2",
        "gemma2",
        bias_keys=("attention_bias",),
        windows=Windows.PERIODIC,
        has_layer_types=True,
        window_period=2,
        activation="gelu_pytorch_tanh",
        sandwich_norms=True,
        norm_adds_one=True,
        scaled_embeddings=True,
        softcap_keys=(ATTENTION_SOFTCAP, FINAL_SOFTCAP),
        defaults=_GEMMA | {ATTENTION_SOFTCAP: 50.0, FINAL_SOFTCAP: 30.0},
    ),
    Family(
        "gemma3_text",
        "gemma3",
        bias_keys=("attention_bias",),
        query_key_norm=True,
        windows=Windows.PERIODIC,
        has_layer_types=True,
        window_period=6,
        rope_theta=1e6,
        local_rope_theta=1e4,
        activation="gelu_pytorch_tanh",
        sandwich_norms=True,
        norm_adds_one=True,
        scaled_embeddings=True,
        softcap_keys=(FINAL_SOFTCAP,),
        defaults=_GEMMA
        | {
            "vocab_size": 262208,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "max_position_embeddings": 131072,
            "rms_norm_eps": 1e-6,
        },
    ),
)

TEXT_PART = {"gemma3": "gemma3_text"}
"""Multimodal types whose `text_config` is a family of ours."""

SUPPORTED_TEXT = ", ".join(family.model_type for family in FAMILIES)


def by_model_type(model_type: str) -> Family | None:
    return next((family for family in FAMILIES if family.model_type == model_type), None)


def by_gguf_architecture(
    architecture: str, *, has_experts: bool = False, has_window: bool = False
) -> Family | None:
    """Three families share one architecture; what else is in the file tells them apart."""
    found = [family for family in FAMILIES if family.gguf_architecture == architecture]
    if len(found) > 1 and has_experts:
        found = [family for family in found if family.experts is not None]
    if len(found) > 1 and has_window:
        found = [family for family in found if family.windows is Windows.ALL]
    return found[0] if found else None

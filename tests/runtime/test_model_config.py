"""Configurations: what is read, and what is refused rather than ignored."""

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from firsttoken_runtime.model import checkpoint, errors
from firsttoken_runtime.model import config as model_config
from firsttoken_runtime.model.rope_config import Rope
from runtime import tiny_model


def read(**changes: Any) -> model_config.ModelConfig:
    return model_config.from_document(tiny_model.document(**changes), "config.json")


def test_sizes_are_read() -> None:
    config = read()
    assert (config.architecture, config.num_layers, config.head_dim) == ("llama", 2, 8)
    assert config.kv_bytes_per_token(2) == 2 * 2 * 2 * 8 * 2
    assert config.trained_length == 512
    assert config.windows == ()
    assert config.ropes == (Rope(10000.0),)
    assert config.attention_scale == 8**-0.5


def test_parameters_are_counted() -> None:
    layer = 48 * (48 + 16 + 16 + 48) + 3 * 48 * 80 + 2 * 48
    assert read().num_parameters == 2 * layer + 131 * 48 + 48
    assert read(tie_word_embeddings=False).num_parameters == read().num_parameters + 131 * 48
    assert read(model_type="qwen2").num_parameters == read().num_parameters + 2 * (48 + 16 + 16)
    assert read(model_type="qwen3", head_dim=8).num_parameters == read().num_parameters + 2 * 2 * 8
    assert read(attention_bias=True).num_parameters == read().num_parameters + 2 * (48 + 16 + 16 + 48)
    assert read(mlp_bias=True).num_parameters == read().num_parameters + 2 * (80 + 80 + 48)
    assert gemma3().num_parameters == read().num_parameters + 2 * (2 * 48 + 2 * 8)


def test_the_parameters_of_experts_are_counted() -> None:
    mixture = read(model_type="mixtral", num_local_experts=3, num_experts_per_tok=2)
    assert mixture.num_parameters == read().num_parameters + 2 * (2 * 3 * 48 * 80 + 3 * 48)
    qwen = read(
        model_type="qwen2_moe",
        qkv_bias=False,
        num_experts=5,
        num_experts_per_tok=2,
        moe_intermediate_size=28,
        shared_expert_intermediate_size=44,
        mlp_only_layers=[0],
    )
    assert [layer.has_experts for layer in qwen.layers] == [False, True]
    added = 48 * (5 + 1) + 3 * 48 * (5 * 28 + 44)
    assert qwen.num_parameters == read().num_parameters - 3 * 48 * 80 + added


def gemma3(**changes: Any) -> model_config.ModelConfig:
    return read(model_type="gemma3_text", head_dim=8, **changes)


def test_rope_theta_of_either_spelling() -> None:
    assert read(rope_parameters={"rope_type": "default", "rope_theta": 5e5}).ropes == (Rope(5e5),)
    assert read(rope_theta=1e6).ropes == (Rope(1e6),)
    document = tiny_model.document(model_type="smollm3")
    del document["rope_theta"]
    assert model_config.from_document(document, "config.json").ropes == (Rope(2e6),)


@pytest.mark.parametrize("spelling", ["rope_parameters", "rope_scaling"])
@pytest.mark.parametrize("kind", ["rope_type", "type"])
def test_rope_scaling_of_either_spelling(spelling: str, kind: str) -> None:
    assert read(**{spelling: {kind: "linear", "factor": 2}}).ropes == (Rope(10000.0, "linear", 2),)
    assert read(**{spelling: {kind: "dynamic", "factor": 2}}).ropes == (Rope(10000.0),)


def test_only_yarn_extends_the_context_and_only_when_it_says_from_where() -> None:
    yarn = {"rope_type": "yarn", "factor": 4.0}
    assert read(rope_scaling=yarn).trained_length == 512
    assert read(rope_scaling=yarn | {"original_max_position_embeddings": 512}).trained_length == 2048
    assert read(rope_scaling={"rope_type": "linear", "factor": 4.0}).trained_length == 512
    assert read(rope_scaling={"rope_type": "dynamic", "factor": 4.0}).trained_length == 512


def test_explicit_head_dim_wins() -> None:
    assert read(head_dim=16).head_dim == 16


def windows(config: model_config.ModelConfig) -> list[int | None]:
    return [layer.window for layer in config.layers]


def test_each_family_has_its_pattern_of_windows() -> None:
    given = {"sliding_window": 37, "num_hidden_layers": 4}
    qwen = given | {"use_sliding_window": True, "max_window_layers": 3}
    assert windows(read(model_type="mistral", **given)) == [37, 37, 37, 37]
    assert windows(read(model_type="qwen2", **qwen)) == [None, None, None, 37]
    assert windows(read(model_type="qwen2", **given)) == [None] * 4
    assert windows(read(model_type="gemma2", head_dim=8, **given)) == [37, None, 37, None]
    assert windows(gemma3(**given | {"sliding_window_pattern": 3})) == [37, 37, None, 37]
    assert windows(read(model_type="smollm3", no_rope_layer_interval=2, **qwen)) == [None, 37, None, 37]
    types = ["full_attention", "sliding_attention"]
    assert windows(gemma3(sliding_window=37, layer_types=types)) == [None, 37]


def test_local_layers_of_gemma3_have_a_rope_of_their_own() -> None:
    scaling = {"rope_type": "linear", "factor": 8.0}
    config = gemma3(rope_theta=1e6, rope_scaling=scaling, sliding_window=37, sliding_window_pattern=2)
    assert [layer.rope for layer in config.layers] == [Rope(1e4), Rope(1e6, "linear", 8.0)]


def test_layers_without_rope() -> None:
    config = read(model_type="smollm3", num_hidden_layers=5)
    assert [layer.rope is None for layer in config.layers] == [False, False, False, True, False]


def test_the_text_part_of_a_multimodal_gemma() -> None:
    """Such a file leaves out most of what it does not change."""
    part = {
        "model_type": "gemma3_text",
        "hidden_size": 48,
        "intermediate_size": 80,
        "num_hidden_layers": 6,
        "sliding_window": 1024,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    }
    config = model_config.from_document({"model_type": "gemma3", "text_config": part}, "config.json")
    assert (config.architecture, config.head_dim, config.num_heads) == ("gemma3_text", 256, 8)
    assert config.is_text_part
    assert config.ropes == (Rope(1e4), Rope(1e6, "linear", 8.0))
    with pytest.raises(errors.ModelUnreadable, match="text_config"):
        model_config.from_document({"model_type": "gemma3"}, "config.json")


MIXTRAL = {"model_type": "mixtral", "num_local_experts": 4}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "gpt2"}, "'gpt2' is not supported; supported: llama, mistral, mixtral, qwen2"),
        ({"rope_scaling": {"rope_type": "longrope", "factor": 4}}, "RoPE scaling 'longrope'"),
        ({"rope_scaling": {"factor": 2}}, "'factor' with RoPE of type 'default'"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2, "alpha": 3}}, "'alpha' with RoPE"),
        (
            {"rope_parameters": {"full_attention": {"rope_type": "yarn"}}},
            "'full_attention' with RoPE",
        ),
        ({"partial_rotary_factor": 0.5}, "a part of each head"),
        ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "a part of each head"),
        ({"hidden_act": "gelu"}, "activation 'gelu'"),
        ({"quantization_config": {"quant_method": "gptq"}}, "pre-quantized"),
        ({"model_type": "mistral", "attention_bias": True}, "attention_bias in mistral"),
        ({"model_type": "qwen3", "mlp_bias": True}, "mlp_bias in qwen3"),
        ({"sliding_window": 128}, "sliding window of 128 tokens in llama"),
        ({"layer_types": ["full_attention", "chunked_attention"]}, "layer type 'chunked_attention'"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types in llama"),
        ({"no_rope_layers": [1, 0]}, "layers without RoPE"),
        ({"final_logit_softcapping": 30.0}, "final_logit_softcapping in llama"),
        ({"model_type": "gemma2", "use_bidirectional_attention": True}, "attention to later tokens"),
        (
            {"model_type": "gemma3_text", "rope_parameters": {"rope_type": "default"}},
            "'rope_type' in rope_parameters",
        ),
    ],
)
def test_what_the_decoder_cannot_honour_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(errors.Unsupported, match=words):
        read(**changes)


def test_a_sliding_window_that_never_bites_is_none() -> None:
    assert read(model_type="qwen2", sliding_window=128, use_sliding_window=False).windows == ()
    assert read(model_type="mistral", sliding_window=512).windows == ()
    assert read(model_type="mistral", sliding_window=None).windows == ()
    assert read(model_type="mistral", sliding_window=511).windows == (511,)
    assert read(sliding_window=512).windows == ()


def test_a_missing_key_is_named() -> None:
    document = tiny_model.document()
    del document["rms_norm_eps"]
    with pytest.raises(errors.ModelUnreadable, match="lacks 'rms_norm_eps'"):
        model_config.from_document(document, "config.json")
    with pytest.raises(errors.ModelUnreadable, match="not a number"):
        read(hidden_size="wide")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_attention_heads": 0}, "num_attention_heads is 0"),
        ({"num_attention_heads": [6, 6]}, "not a number"),
        ({"num_hidden_layers": -1}, "num_hidden_layers is -1"),
        ({"max_position_embeddings": float("inf")}, "not a number"),
        ({"num_key_value_heads": 4}, "6 heads cannot share 4 KV heads"),
        ({"head_dim": 7}, "a head of 7"),
        ({"rope_scaling": "linear"}, "rope_scaling is not an object"),
        ({"rope_scaling": {"rope_type": "linear"}}, "lacks 'factor'"),
        ({"rope_scaling": {"rope_type": "linear", "factor": -1}}, "factor is -1, not above 0"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8}}, "lacks 'low_freq_factor'"),
        (
            {"rope_parameters": {"rope_theta": 1e4}, "rope_scaling": {"type": "linear", "rope_theta": 1e5}},
            "differ in 'rope_theta'",
        ),
        ({"sliding_window": "wide"}, "sliding_window is 'wide'"),
        ({"model_type": "gemma2", "layer_types": ["full_attention"]}, "does not name the type of 2"),
        ({"model_type": "smollm3", "no_rope_layers": [1]}, "does not name 2"),
        ({"model_type": "smollm3", "no_rope_layers": 1}, "no_rope_layers is not a list"),
        (MIXTRAL | {"num_experts_per_tok": 2, "mlp_only_layers": 1}, "mlp_only_layers is not a list"),
        (MIXTRAL, "lacks 'num_experts_per_tok'"),
        (MIXTRAL | {"num_experts_per_tok": 5}, "5 experts a token of 4"),
    ],
)
def test_sizes_that_cannot_be_are_named(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(errors.ModelUnreadable, match=words):
        read(**changes)


def gguf_file(path: Path, **changes: Any) -> Path:
    """Metadata of a small Llama and its table; no other weights."""
    writer = gguf.GGUFWriter(path, "llama")
    metadata: dict[str, Any] = {
        "context_length": 512,
        "block_count": 1,
        "feed_forward_length": 80,
        "attention.head_count": 6,
        "attention.head_count_kv": 2,
        "attention.layer_norm_rms_epsilon": 1e-5,
    }
    for key, value in (metadata | changes).items():
        add = {
            int: writer.add_uint32,
            float: writer.add_float32,
            list: writer.add_array,
            str: writer.add_string,
        }[type(value)]
        add(f"llama.{key}", value)
    writer.add_tensor("token_embd.weight", np.zeros((131, 48), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"rope.dimension_count": 4}, errors.Unsupported, "a part of each head"),
        ({"attention.value_length": 4}, errors.Unsupported, "values of another size"),
        ({"rope.scaling.type": "longrope"}, errors.Unsupported, "RoPE scaling 'longrope'"),
        ({"rope.scaling.attn_factor": 2.0}, errors.Unsupported, "attn_factor is not built"),
        ({"final_logit_softcapping": 30.0}, errors.Unsupported, "final_logit_softcapping is not built"),
        ({"attention.head_count": 0}, errors.ModelUnreadable, "head_count is 0"),
        ({"attention.head_count": [6, 6]}, errors.ModelUnreadable, "not a number"),
    ],
)
def test_gguf_metadata_that_cannot_be_honoured(
    tmp_path: Path, changes: dict[str, Any], error: type[errors.ModelError], words: str
) -> None:
    assert read_gguf(tmp_path).head_dim == 8
    with pytest.raises(error, match=words):
        read_gguf(tmp_path, **changes)


def read_gguf(folder: Path, **changes: Any) -> model_config.ModelConfig:
    return model_config.read(checkpoint.open_checkpoint(gguf_file(folder / "model.gguf", **changes)))


def test_rope_scaling_of_gguf(tmp_path: Path) -> None:
    assert read_gguf(tmp_path, **{"rope.scale_linear": 4.0}).ropes == (Rope(10000.0, "linear", 4.0),)
    assert read_gguf(tmp_path, **{"rope.scaling.factor": 4.0}).ropes == (Rope(10000.0, "linear", 4.0),)
    unscaled = {"rope.scaling.factor": 4.0, "rope.scaling.type": "none"}
    assert read_gguf(tmp_path, **unscaled).ropes == (Rope(10000.0),)
    yarn = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0}
    assert read_gguf(tmp_path, **yarn).trained_length == 512
    reaching = read_gguf(tmp_path, **yarn, **{"rope.scaling.original_context_length": 512})
    assert reaching.trained_length == 2048
    assert reaching.ropes[0].attention_factor == pytest.approx(1.1386, abs=1e-4)


def test_a_window_in_a_gguf_of_llama_is_mistrals(tmp_path: Path) -> None:
    config = read_gguf(tmp_path, **{"attention.sliding_window": 128})
    assert (config.architecture, config.windows) == ("mistral", (128,))


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(errors.ModelNotFound, match="neither a folder nor"):
        checkpoint.open_checkpoint(tmp_path / "nothing")
    with pytest.raises(errors.ModelNotFound, match="no such model file"):
        checkpoint.open_checkpoint(tmp_path / "nothing.gguf")
    with pytest.raises(errors.ModelNotFound, match=r"no config\.json"):
        model_config.read(checkpoint.open_checkpoint(tmp_path))


@pytest.mark.parametrize("content", [b"", b"GGUF", b"not a model at all, but long enough to have a header"])
def test_damaged_gguf(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(content)
    with pytest.raises(errors.ModelUnreadable, match=r"not a readable \.gguf file"):
        checkpoint.open_checkpoint(file)


def test_damaged_json(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(errors.ModelUnreadable, match="not JSON"):
        model_config.read(checkpoint.open_checkpoint(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps([1]))
    with pytest.raises(errors.ModelUnreadable, match="not a JSON object"):
        model_config.read(checkpoint.open_checkpoint(tmp_path))


@pytest.mark.model
def test_the_packaged_gguf(packaged_model: Path) -> None:
    config = model_config.read(checkpoint.open_checkpoint(packaged_model))
    assert (config.architecture, config.num_layers, config.num_heads, config.num_kv_heads) == (
        "llama",
        30,
        9,
        3,
    )
    assert (config.vocabulary_size, config.trained_length, config.tied_embeddings) == (49152, 8192, True)
    assert config.num_parameters == 134_515_008

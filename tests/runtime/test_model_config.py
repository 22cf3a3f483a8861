"""Configurations: what is read, and what is refused rather than ignored."""

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from firsttoken_runtime.model import checkpoint, errors
from firsttoken_runtime.model import config as model_config
from runtime import tiny_model


def read(**changes: Any) -> model_config.ModelConfig:
    return model_config.from_document(tiny_model.document(**changes), "config.json")


def test_sizes_are_read() -> None:
    config = read()
    assert (config.architecture, config.num_layers, config.head_dim) == ("llama", 2, 8)
    assert config.kv_bytes_per_token(2) == 2 * 2 * 2 * 8 * 2
    assert config.trained_length == 512


def test_parameters_are_counted() -> None:
    layer = 48 * (48 + 16 + 16 + 48) + 3 * 48 * 80 + 2 * 48
    assert read().num_parameters == 2 * layer + 131 * 48 + 48
    assert read(tie_word_embeddings=False).num_parameters == read().num_parameters + 131 * 48
    assert read(model_type="qwen2").num_parameters == read().num_parameters + 2 * (48 + 16 + 16)
    assert read(model_type="qwen3").num_parameters == read().num_parameters + 2 * 2 * 8


def test_rope_theta_of_either_spelling() -> None:
    assert read(rope_parameters={"rope_type": "default", "rope_theta": 5e5}).rope_theta == 5e5
    assert read(rope_theta=1e6).rope_theta == 1e6


def test_explicit_head_dim_wins() -> None:
    assert read(head_dim=16).head_dim == 16


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "gpt2"}, "'gpt2' is not supported; supported: llama, mistral, qwen2, qwen3"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4}}, "RoPE scaling 'yarn'"),
        ({"rope_scaling": {"factor": 2}}, "'factor' in rope_scaling"),
        (
            {"rope_parameters": {"full_attention": {"rope_type": "yarn"}}},
            "'full_attention' in rope_parameters",
        ),
        (
            {"rope_parameters": {"rope_theta": 1e4}, "rope_scaling": {"type": "linear"}},
            "RoPE scaling 'linear'",
        ),
        ({"partial_rotary_factor": 0.5}, "a part of each head"),
        ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "a part of each head"),
        ({"hidden_act": "gelu"}, "activation 'gelu'"),
        ({"quantization_config": {"quant_method": "gptq"}}, "pre-quantized"),
        ({"attention_bias": True}, "biases"),
        ({"mlp_bias": True}, "biases"),
        ({"model_type": "mistral", "sliding_window": 128}, "sliding window of 128"),
    ],
)
def test_what_the_decoder_cannot_honour_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(errors.Unsupported, match=words):
        read(**changes)


def test_a_sliding_window_that_never_bites_is_fine() -> None:
    assert read(model_type="qwen2", sliding_window=128, use_sliding_window=False).architecture == "qwen2"
    assert read(model_type="mistral", sliding_window=512).architecture == "mistral"
    assert read(model_type="mistral", sliding_window=None).architecture == "mistral"


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
        ({"sliding_window": "wide"}, "sliding_window is 'wide'"),
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
        add = {int: writer.add_uint32, float: writer.add_float32, list: writer.add_array}[type(value)]
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
        ({"attention.sliding_window": 128}, errors.Unsupported, "sliding window of 128"),
        ({"rope.dimension_count": 4}, errors.Unsupported, "a part of each head"),
        ({"rope.scale_linear": 4.0}, errors.Unsupported, "RoPE scaling"),
        ({"rope.scaling.factor": 4.0}, errors.Unsupported, "RoPE scaling"),
        ({"attention.head_count": 0}, errors.ModelUnreadable, "head_count is 0"),
        ({"attention.head_count": [6, 6]}, errors.ModelUnreadable, "not a number"),
    ],
)
def test_gguf_metadata_that_cannot_be_honoured(
    tmp_path: Path, changes: dict[str, Any], error: type[errors.ModelError], words: str
) -> None:
    path = gguf_file(tmp_path / "model.gguf")
    assert model_config.read(checkpoint.open_checkpoint(path)).head_dim == 8
    path = gguf_file(tmp_path / "other.gguf", **changes)
    with pytest.raises(error, match=words):
        model_config.read(checkpoint.open_checkpoint(path))


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

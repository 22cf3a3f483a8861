"""Sizes of models that another engine serves: any architecture, stored in any type."""

import json

import pytest

from firsttoken_api.resolved import ResolvedModel, ResolveFailure
from firsttoken_runtime import foreign_model, resolve
from firsttoken_runtime.model import errors

CONFIG = {
    "architectures": ["NobodyKnowsForCausalLM"],
    "hidden_size": 66,
    "num_hidden_layers": 3,
    "num_attention_heads": 11,
    "vocab_size": 97,
    "max_position_embeddings": 1234,
}


def safetensors(tensors):
    header = json.dumps({"__metadata__": {"format": "pt"}} | tensors).encode()
    return len(header).to_bytes(8, "little") + header


def tensor(dtype, *shape):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [0, 0]}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "tokenizer.json").write_text("{}")
    first = {"a": tensor("F32", 7, 11), "b": tensor("BF16", 5)}
    (tmp_path / "model-1.safetensors").write_bytes(safetensors(first))
    (tmp_path / "model-2.safetensors").write_bytes(safetensors({"c": tensor("I32", 3), "d": tensor("I8", 2)}))
    return tmp_path


def test_an_architecture_that_we_have_no_code_for(folder):
    refused = resolve.resolve(folder)
    assert isinstance(refused, ResolveFailure)
    found = resolve.resolve(folder, any_architecture=True)
    assert isinstance(found, ResolvedModel)
    assert found.architecture == "NobodyKnowsForCausalLM"
    assert (found.layers, found.heads, found.kv_heads, found.head_dim) == (3, 11, 11, 6)
    assert (found.vocabulary, found.trained_length) == (97, 1234)
    assert found.parameters == 77 + 5 + 3 + 2
    assert found.weight_bytes_16bit == 2 * 77 + 2 * 5 + 4 * 3 + 2, (
        "packed integers as they are, floats in 16 bit"
    )


def test_the_text_part_of_a_model_that_also_sees(folder):
    text = {key: CONFIG[key] for key in CONFIG if key != "architectures"}
    text |= {"num_hidden_layers": 5, "num_key_value_heads": 1, "head_dim": 32}
    (folder / "config.json").write_text(json.dumps({"architectures": ["SeesToo"], "text_config": text}))
    found = foreign_model.read(folder)
    assert (found.architecture, found.num_layers, found.num_kv_heads, found.head_dim) == ("SeesToo", 5, 1, 32)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x02",
        (2**40).to_bytes(8, "little"),
        (4).to_bytes(8, "little") + b"nope",
        b"\x02" + 7 * b"\0" + b"[]",
    ],
)
def test_a_weight_file_that_is_none(folder, content):
    (folder / "model-2.safetensors").write_bytes(content)
    with pytest.raises(errors.ModelUnreadable, match="model-2"):
        foreign_model.read(folder)


def test_a_tensor_without_a_shape(folder):
    (folder / "model-2.safetensors").write_bytes(safetensors({"c": {"dtype": "F16"}}))
    with pytest.raises(errors.ModelUnreadable, match="c has no shape"):
        foreign_model.read(folder)


def test_a_missing_key_and_a_missing_folder_are_named(folder):
    config = {key: CONFIG[key] for key in CONFIG if key != "vocab_size"}
    (folder / "config.json").write_text(json.dumps(config))
    failure = resolve.resolve(folder, any_architecture=True)
    assert isinstance(failure, ResolveFailure)
    assert "vocab_size" in failure.message
    failure = resolve.resolve(folder / "nowhere", any_architecture=True)
    assert isinstance(failure, ResolveFailure)
    assert failure.reason == "ModelNotFound"

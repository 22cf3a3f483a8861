"""Streaming weights: names, shards, progress, and what is wrong with a file."""

import json
from pathlib import Path

import pytest
import safetensors.torch
import torch

from firsttoken_runtime.model import checkpoint, errors, weights
from firsttoken_runtime.model import config as model_config
from runtime import tiny_model


def load(folder: Path, dtype: torch.dtype = torch.float32) -> tuple[dict[str, torch.Tensor], list[float]]:
    source = checkpoint.open_checkpoint(folder)
    progress: list[float] = []
    tensors = weights.load(source, model_config.read(source), dtype, torch.device("cpu"), progress.append)
    return tensors, progress


def test_shards_give_the_same_tensors_as_one_file(tmp_path: Path) -> None:
    one, progress = load(tiny_model.write(tmp_path / "one", tie_word_embeddings=False))
    three, _ = load(tiny_model.write(tmp_path / "three", shards=3, tie_word_embeddings=False))
    assert one.keys() == three.keys()
    assert all(torch.equal(one[name], three[name]) for name in one)
    assert "lm_head.weight" in one
    assert progress == sorted(progress)
    assert progress[-1] == 1.0


def test_tensors_arrive_in_the_compute_type(tmp_path: Path) -> None:
    tensors, _ = load(tiny_model.write(tmp_path), torch.bfloat16)
    assert {tensor.dtype for tensor in tensors.values()} == {torch.bfloat16}


def rewrite(folder: Path, change: dict[str, torch.Tensor | None]) -> None:
    file = folder / "model.safetensors"
    tensors = safetensors.torch.load_file(file)
    for name, tensor in change.items():
        if tensor is None:
            del tensors[name]
        else:
            tensors[name] = tensor
    safetensors.torch.save_file(tensors, file)


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    folder = tiny_model.write(tmp_path)
    rewrite(folder, {"model.layers.1.mlp.up_proj.weight": None})
    with pytest.raises(errors.ModelUnreadable, match=r"lacks 1 tensors.*layers\.1\.mlp\.up_proj"):
        load(folder)


def test_a_misshapen_tensor_is_named(tmp_path: Path) -> None:
    folder = tiny_model.write(tmp_path)
    rewrite(folder, {"model.norm.weight": torch.ones(7)})
    with pytest.raises(errors.ModelUnreadable, match=r"norm\.weight has shape \(7,\)"):
        load(folder)


def test_a_tensor_without_a_place_is_refused(tmp_path: Path) -> None:
    folder = tiny_model.write(tmp_path)
    rewrite(folder, {"model.layers.0.self_attn.q_proj.bias": torch.ones(48)})
    with pytest.raises(errors.Unsupported, match=r"q_proj\.bias"):
        load(folder)


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn])
def test_quantized_weights_without_a_configuration_are_refused(tmp_path: Path, dtype: torch.dtype) -> None:
    """Taken as plain numbers they would load, without their scales."""
    folder = tiny_model.write(tmp_path)
    rewrite(folder, {"model.layers.0.mlp.up_proj.weight": torch.ones(80, 48).to(dtype)})
    with pytest.raises(errors.Unsupported, match="pre-quantized"):
        load(folder)


def test_what_is_derived_or_stored_twice_is_passed_over(tmp_path: Path) -> None:
    folder = tiny_model.write(tmp_path)
    rewrite(folder, {"lm_head.weight": torch.ones(131, 48)})
    rewrite(folder, {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)})
    assert "lm_head.weight" not in load(folder)[0]


def test_damaged_and_missing_files(tmp_path: Path) -> None:
    folder = tiny_model.write(tmp_path, shards=2)
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(errors.ModelNotFound, match="model-00002"):
        load(folder)
    (folder / "model-00002-of-00002.safetensors").write_bytes(b"nonsense")
    with pytest.raises(errors.ModelUnreadable, match="not a readable safetensors"):
        load(folder)
    for content in ({}, [], {"weight_map": 1}):
        (folder / "model.safetensors.index.json").write_text(json.dumps(content))
        with pytest.raises(errors.ModelUnreadable, match="index"):
            load(folder)
    for file in folder.glob("model*"):
        file.unlink()
    with pytest.raises(errors.ModelNotFound, match=r"no \*\.safetensors"):
        load(folder)


def test_a_file_without_permission_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("Permission denied")

    folder = tiny_model.write(tmp_path)
    monkeypatch.setattr(weights.safetensors, "safe_open", refuse)
    with pytest.raises(errors.ModelUnreadable, match=r"model\.safetensors is not a readable .* Permission"):
        load(folder)


def test_the_vision_part_of_a_multimodal_model_is_passed_over(tmp_path: Path) -> None:
    """And refused in a model that should have none."""
    vision = {"vision_tower.patch.weight": torch.ones(7, 3)}
    folder = tiny_model.write(tmp_path / "gemma", model_type="gemma3_text", head_dim=8)
    part = json.loads((folder / "config.json").read_text())
    plain, _ = load(folder)
    rewrite(folder, dict(vision))
    with pytest.raises(errors.Unsupported, match="vision_tower"):
        load(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": "gemma3", "text_config": part}))
    file = folder / "model.safetensors"
    tensors = safetensors.torch.load_file(file)
    renamed = {f"language_model.{name}": tensor for name, tensor in tensors.items() if "vision" not in name}
    safetensors.torch.save_file(renamed | vision, file)
    loaded, _ = load(folder)
    assert loaded.keys() == plain.keys()
    assert all(torch.equal(loaded[name], plain[name]) for name in plain)


def test_norms_that_add_one_keep_their_digits(tmp_path: Path) -> None:
    folder = tiny_model.write(tmp_path, model_type="gemma2", head_dim=8)
    rewrite(folder, {"model.norm.weight": torch.full((48,), 2.0**-12)})
    tensors, _ = load(folder, torch.bfloat16)
    assert tensors["norm.weight"].dtype == torch.float32
    assert torch.equal(tensors["norm.weight"], torch.full((48,), 1 + 2.0**-12))
    assert tensors["embed_tokens.weight"].dtype == torch.bfloat16

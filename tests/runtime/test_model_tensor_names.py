"""Names of tensors in all kinds of checkpoints."""

import pytest
import torch

from firsttoken_runtime.model import families, tensor_names


def family(model_type: str) -> families.Family:
    found = families.by_model_type(model_type)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("gguf_name", "name"),
    [
        ("token_embd.weight", "embed_tokens.weight"),
        ("output.weight", "lm_head.weight"),
        ("blk.12.attn_q.bias", "layers.12.self_attn.q_proj.bias"),
        ("blk.0.ffn_norm.weight", "layers.0.post_attention_layernorm.weight"),
        ("blk.0.ffn_gate_exps.weight", "layers.0.mlp.experts.gate_proj.weight"),
        ("blk.0.post_ffw_norm.weight", "blk.0.post_ffw_norm.weight"),
        ("blk.0.ffn_gate.3.weight", "blk.0.ffn_gate.3.weight"),
    ],
)
def test_gguf_names(gguf_name: str, name: str) -> None:
    assert tensor_names.from_gguf(gguf_name, family("llama")) == name


def test_four_norms_a_layer_have_other_names_in_gguf() -> None:
    names = [
        tensor_names.from_gguf(f"blk.2.{name}.weight", family("gemma2"))
        for name in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
    ]
    kinds = ("input", "post_attention", "pre_feedforward", "post_feedforward")
    assert names == [f"layers.2.{kind}_layernorm.weight" for kind in kinds]


@pytest.mark.parametrize(
    ("stored", "name"),
    [
        ("model.norm.weight", "norm.weight"),
        ("lm_head.weight", "lm_head.weight"),
        ("language_model.model.norm.weight", "norm.weight"),
        ("model.language_model.norm.weight", "norm.weight"),
        ("language_model.lm_head.weight", "lm_head.weight"),
        ("model.layers.3.block_sparse_moe.gate.weight", "layers.3.mlp.gate.weight"),
        (
            "model.layers.3.block_sparse_moe.experts.0.w3.weight",
            "layers.3.mlp.experts.0.up_proj.weight",
        ),
    ],
)
def test_folder_names(stored: str, name: str) -> None:
    assert tensor_names.from_folder(stored) == name


def test_stacks_of_experts_are_taken_apart() -> None:
    stack = torch.arange(3 * 4 * 5).view(3, 4, 5)
    down = dict(tensor_names.unstacked("layers.1.mlp.experts.down_proj.weight", stack))
    assert list(down) == [f"layers.1.mlp.experts.{index}.down_proj.weight" for index in range(3)]
    assert torch.equal(down["layers.1.mlp.experts.2.down_proj.weight"], stack[2])
    both = dict(tensor_names.unstacked("layers.1.mlp.experts.gate_up_proj", stack))
    assert torch.equal(both["layers.1.mlp.experts.0.gate_proj.weight"], stack[0, :2])
    assert torch.equal(both["layers.1.mlp.experts.0.up_proj.weight"], stack[0, 2:])
    plain = stack[0]
    assert list(tensor_names.unstacked("layers.1.mlp.up_proj.weight", plain)) == [
        ("layers.1.mlp.up_proj.weight", plain)
    ]

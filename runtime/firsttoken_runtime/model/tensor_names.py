"""One set of names for the tensors of every checkpoint: transformers' names without the `model.` prefix.

Experts have one tensor each; the stacks of .gguf files, and of folders that keep all experts of a
layer in one tensor, are taken apart.
"""

from collections.abc import Iterator

import torch

from firsttoken_runtime.model import families

_GGUF_TOP = {"token_embd": "embed_tokens", "output_norm": "norm", "output": "lm_head"}
_GGUF_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "mlp.experts.gate_proj",
    "ffn_up_exps": "mlp.experts.up_proj",
    "ffn_down_exps": "mlp.experts.down_proj",
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
    "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
    "ffn_up_shexp": "mlp.shared_expert.up_proj",
    "ffn_down_shexp": "mlp.shared_expert.down_proj",
}
_GGUF_SANDWICH = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_PREFIXES = ("language_model.model.", "model.language_model.", "language_model.", "model.")
_VISION = ("vision_tower.", "multi_modal_projector.")
_MIXTRAL = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}


def from_gguf(gguf_name: str, family: families.Family) -> str:
    """`blk.3.attn_q.weight` -> `layers.3.self_attn.q_proj.weight`; unknown names come back unchanged."""
    stem, _, kind = gguf_name.rpartition(".")
    if stem in _GGUF_TOP:
        return f"{_GGUF_TOP[stem]}.{kind}"
    names = _GGUF_LAYER | _GGUF_SANDWICH if family.sandwich_norms else _GGUF_LAYER
    parts = stem.split(".")
    if len(parts) == 3 and parts[0] == "blk" and parts[2] in names:
        return f"layers.{parts[1]}.{names[parts[2]]}.{kind}"
    return gguf_name


def from_folder(name: str) -> str:
    """`model.layers.3.block_sparse_moe.experts.0.w1.weight` -> `layers.3.mlp.experts.0.gate_proj.weight`."""
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            name = name.removeprefix(prefix)
            break
    if ".block_sparse_moe." not in name:
        return name
    *parts, last, kind = name.replace(".block_sparse_moe.", ".mlp.").split(".")
    return ".".join([*parts, _MIXTRAL.get(last, last), kind])


def is_vision(name: str) -> bool:
    return name.startswith(_VISION)


def is_derived(name: str) -> bool:
    """Stored, but computed from the configuration as well."""
    return name == "rope_freqs.weight" or name.endswith((".rotary_emb.inv_freq", ".attn_rot_embd.weight"))


def is_norm(name: str) -> bool:
    return name.endswith("norm.weight")


def unstacked(name: str, tensor: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """One tensor an expert from a stack [experts, out, in]; anything else as it is."""
    head, found, tail = name.partition(".mlp.experts.")
    if not found or tensor.dim() != 3:
        yield name, tensor
        return
    kind = tail.removesuffix(".weight")
    for index, matrix in enumerate(tensor):
        prefix = f"{head}.mlp.experts.{index}"
        if kind == "gate_up_proj":
            gate, up = matrix.chunk(2)
            yield f"{prefix}.gate_proj.weight", gate
            yield f"{prefix}.up_proj.weight", up
        else:
            yield f"{prefix}.{kind}.weight", matrix

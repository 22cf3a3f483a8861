"""A model as a folder in Hugging Face's layout, for engines that read nothing else.

A folder is used as it is. A .gguf is exported once into the cache: weights widened to bf16 as our own
loader widens them, so that both engines compute with the same numbers.
"""

import json
import shutil
from pathlib import Path
from typing import Any

from firsttoken_api.errors import UserError

COMPLETE = ".complete"
LAYOUT = "1"
"""Part of the folder's name: raise it when the export changes."""


def folder(source: Path, cache: Path, sha256: str) -> Path:
    """The folder of the model. Raises UserError for a .gguf that cannot be exported."""
    if source.is_dir():
        return source
    target = cache / f"hugging-face-{LAYOUT}-{sha256[:12]}"
    if not (target / COMPLETE).exists():
        if target.exists():
            shutil.rmtree(target)
        target.mkdir(parents=True)
        export(source, target)
        (target / COMPLETE).write_text("")
    return target


def export(source: Path, target: Path) -> None:
    """Writes config.json, the weights, the tokenizer and its chat template."""
    import torch
    from safetensors.torch import save_file

    from firsttoken_runtime.model import checkpoint, weights
    from firsttoken_runtime.model import config as model_config
    from firsttoken_runtime.server import tokenizer

    opened = checkpoint.open_checkpoint(source)
    config = model_config.read(opened)
    document = llama_config(config)
    # What the document cannot say would be lost without a word; then it is not the same model.
    if model_config.from_document(document, "the export") != config:
        raise UserError(
            f"SOURCE: {source.name} is not a plain Llama; give its folder in Hugging Face's layout instead"
        )
    tensors = weights.load(opened, config, torch.bfloat16, torch.device("cpu"), lambda progress: None)
    named = {_name(name): tensor.contiguous() for name, tensor in tensors.items()}
    save_file(named, target / "model.safetensors", metadata={"format": "pt"})
    text = tokenizer.load(opened)
    text.tokenizer.save(str(target / "tokenizer.json"))
    _write(target / "tokenizer_config.json", tokenizer_config(text))
    _write(target / "config.json", document)


def llama_config(config: Any) -> dict[str, Any]:
    """config.json of a plain Llama, from our own description of the model."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "vocab_size": config.vocabulary_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "rms_norm_eps": config.rms_norm_eps,
        "rope_theta": config.ropes[0].theta if config.ropes else None,
        "max_position_embeddings": config.trained_length,
        "tie_word_embeddings": config.tied_embeddings,
        "torch_dtype": "bfloat16",
    }


def tokenizer_config(text: Any) -> dict[str, Any]:
    special = {name: value for name, value in text.special_tokens.items() if value}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "chat_template": text.chat_template,
        **special,
    }


def _name(ours: str) -> str:
    return ours if ours.startswith("lm_head") else f"model.{ours}"


def _write(file: Path, content: dict[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")

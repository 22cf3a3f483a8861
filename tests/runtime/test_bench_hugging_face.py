"""The export is read back with our own loader: a folder that says what the source says."""

import pytest

from firsttoken_api.errors import UserError
from firsttoken_runtime.bench import hugging_face
from firsttoken_runtime.model import checkpoint
from firsttoken_runtime.model import config as model_config
from runtime import tiny_model


def test_a_folder_is_used_as_it_is(tmp_path):
    assert hugging_face.folder(tmp_path, tmp_path / "cache", "f" * 64) == tmp_path
    assert not (tmp_path / "cache").exists()


def test_the_description_of_a_llama_survives(tmp_path):
    config = model_config.read(checkpoint.open_checkpoint(tiny_model.write(tmp_path)))
    document = hugging_face.llama_config(config)
    assert model_config.from_document(document, "again") == config


@pytest.mark.parametrize(
    ("ours", "theirs"), [("lm_head.weight", "lm_head.weight"), ("norm.weight", "model.norm.weight")]
)
def test_names_of_tensors(ours, theirs):
    assert hugging_face._name(ours) == theirs


def test_half_an_export_is_made_anew(tmp_path, monkeypatch):
    source = tmp_path / "a.gguf"
    source.write_bytes(b"")
    made = []
    monkeypatch.setattr(hugging_face, "export", lambda source, target: made.append(target))
    half = tmp_path / f"hugging-face-{hugging_face.LAYOUT}-{'f' * 12}"
    half.mkdir()
    (half / "config.json").write_text("{")
    assert hugging_face.folder(source, tmp_path, "f" * 64) == half
    assert hugging_face.folder(source, tmp_path, "f" * 64) == half
    assert made == [half]
    assert not (half / "config.json").exists()


def test_what_the_export_cannot_say_is_refused(tmp_path):
    source = tiny_model.write(tmp_path / "qwen", model_type="qwen2")
    (tmp_path / "out").mkdir()
    with pytest.raises(UserError, match="not a plain Llama"):
        hugging_face.export(source, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []

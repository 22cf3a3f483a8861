"""EOS ids are the union of all places that name them."""

import json
from pathlib import Path

import pytest

from firsttoken_runtime.model import checkpoint, eos, errors


def test_union_of_both_files(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": 2}))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 2]}))
    assert eos.read(checkpoint.open_checkpoint(tmp_path)) == (2, 7)


def test_none_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": None}))
    assert eos.read(checkpoint.open_checkpoint(tmp_path)) == ()


def test_damaged_file(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text("{")
    with pytest.raises(errors.ModelUnreadable, match="not JSON"):
        eos.read(checkpoint.open_checkpoint(tmp_path))


@pytest.mark.model
def test_the_packaged_gguf(packaged_model: Path) -> None:
    assert eos.read(checkpoint.open_checkpoint(packaged_model)) == (2,)

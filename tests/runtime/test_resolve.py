"""What the resolver says about models, good and bad; and that it needs no torch."""

import hashlib
import json
import subprocess
import sys

import pytest

from firsttoken_api.resolved import ResolvedModel, ResolveFailure, render
from firsttoken_runtime import resolve
from runtime.byte_text import text_model

CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 261,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    text_model().tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "README.md").write_text("not content")
    return tmp_path


def test_a_folder_and_its_digest(folder):
    found = resolve.resolve(folder)
    assert isinstance(found, ResolvedModel)
    names = ("config.json", "model.safetensors", "tokenizer.json")
    lines = "".join(f"{name} {hashlib.sha256((folder / name).read_bytes()).hexdigest()}\n" for name in names)
    assert found.digest == f"sha256:{hashlib.sha256(lines.encode()).hexdigest()}"
    assert found.bytes == sum((folder / name).stat().st_size for name in names)
    assert (found.layers, found.kv_heads, found.head_dim, found.trained_length) == (2, 2, 16, 512)
    assert found.weight_bytes_16bit == 2 * found.parameters > 0
    (folder / "README.md").write_text("changed")
    assert resolve.resolve(folder, found.digest) == found
    assert resolve.resolve(folder, found.digest.removeprefix("sha256:").upper()) == found


def test_changed_content_is_a_mismatch_that_names_both(folder):
    found = resolve.resolve(folder)
    assert isinstance(found, ResolvedModel)
    (folder / "model.safetensors").write_bytes(b"other")
    failure = resolve.resolve(folder, found.digest)
    assert isinstance(failure, ResolveFailure)
    assert failure.reason == "ChecksumMismatch"
    assert found.digest in failure.message


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda path: (path / "config.json").unlink(), "ModelNotFound"),
        (lambda path: (path / "model.safetensors").unlink(), "ModelNotFound"),
        (lambda path: (path / "config.json").write_text("{"), "ModelUnreadable"),
        (lambda path: (path / "tokenizer.json").write_text("{"), "ModelUnreadable"),
        (
            lambda path: (path / "config.json").write_text(json.dumps(CONFIG | {"model_type": "mamba"})),
            "UnsupportedArchitecture",
        ),
    ],
)
def test_what_is_wrong_has_a_reason(folder, damage, reason):
    damage(folder)
    failure = resolve.resolve(folder)
    assert isinstance(failure, ResolveFailure), failure
    assert failure.reason == reason
    assert len(render(failure).encode()) <= 2048


def test_a_missing_and_a_damaged_gguf(tmp_path):
    failure = resolve.resolve(tmp_path / "none.gguf")
    assert isinstance(failure, ResolveFailure)
    assert failure.reason == "ModelNotFound"
    (tmp_path / "bad.gguf").write_bytes(b"GGUFnothing")
    failure = resolve.resolve(tmp_path / "bad.gguf")
    assert isinstance(failure, ResolveFailure)
    assert failure.reason == "ModelUnreadable"


def test_the_command_writes_the_termination_message_and_needs_no_torch(folder, tmp_path_factory):
    log = tmp_path_factory.mktemp("log") / "termination-log"
    log.touch()
    code = (
        "import sys\nfrom firsttoken_api import cli\n"
        "sys.argv[1:] = sys.argv[1:]\n"
        "try:\n    cli.main()\nfinally:\n    print('torch' in sys.modules, file=sys.stderr)\n"
    )
    for path, status in ((folder, 0), (folder / "nothing", 2)):
        command = [sys.executable, "-c", code, "resolve", str(path), "--termination-log", str(log)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == status, done.stderr
        assert done.stderr.strip() == "False"
        assert log.read_text().strip() == done.stdout.strip()

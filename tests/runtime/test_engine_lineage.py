"""The lineage changes with every fact, and with nothing else."""

import hashlib
import os
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from firsttoken_kernels import native
from firsttoken_runtime.engine import lineage

FACTS = lineage.Facts(
    weights="w", tokenizer="t", compute_type="float32", kv_type="full", full_precision_layers=2,
    model="m", numerics="n", code="c", device="d",
)  # fmt: skip


@pytest.mark.parametrize("name", [each.name for each in fields(lineage.Facts)])
def test_every_fact_counts(name: str) -> None:
    value = 3 if name == "full_precision_layers" else "other"
    changed = replace(FACTS, **{name: value})
    assert lineage.lineage(changed) != lineage.lineage(FACTS)


@given(
    st.tuples(st.text(max_size=5), st.text(max_size=5)), st.tuples(st.text(max_size=5), st.text(max_size=5))
)
def test_neighbouring_facts_do_not_run_together(one: tuple[str, str], other: tuple[str, str]) -> None:
    first, second = (replace(FACTS, weights=pair[0], tokenizer=pair[1]) for pair in (one, other))
    assert (lineage.lineage(first) == lineage.lineage(second)) == (one == other)


def test_equal_facts_give_one_hash_in_every_process() -> None:
    assert lineage.lineage(FACTS) == lineage.lineage(replace(FACTS))
    assert len(lineage.lineage(FACTS)) == hashlib.sha256().digest_size
    assert lineage.short(lineage.lineage(FACTS)) == lineage.lineage(FACTS).hex()[:16]


def folder(root: Path, weights: bytes = b"123") -> Path:
    root.mkdir(exist_ok=True)
    (root / "model.safetensors").write_bytes(weights)
    (root / "config.json").write_text("{}")
    (root / "tokenizer.json").write_text("[]")
    (root / "README.md").write_text("not a weight")
    return root


def test_content_counts_and_times_do_not(tmp_path: Path) -> None:
    first, second = folder(tmp_path / "a"), folder(tmp_path / "b")
    os.utime(second / "model.safetensors", (1, 1))
    digests = [lineage.content_digest(lineage.weight_files(each)) for each in (first, second)]
    assert digests[0] == digests[1]
    folder(second, b"124")
    assert lineage.content_digest(lineage.weight_files(second)) != digests[0]


def test_the_quick_digest_sees_a_file_that_was_written_again(tmp_path: Path) -> None:
    model = folder(tmp_path / "a")
    before = lineage.quick_digest(lineage.weight_files(model))
    assert lineage.quick_digest(lineage.weight_files(model)) == before
    os.utime(model / "model.safetensors", ns=(5, 5))
    assert lineage.quick_digest(lineage.weight_files(model)) != before


def test_files_of_a_checkpoint(tmp_path: Path) -> None:
    model = folder(tmp_path / "a")
    assert [file.name for file in lineage.weight_files(model)] == [
        "config.json", "model.safetensors", "tokenizer.json",
    ]  # fmt: skip
    gguf = tmp_path / "model.gguf"
    gguf.write_bytes(b"GGUF")
    assert lineage.weight_files(gguf) == [gguf]
    assert lineage.tokenizer_digest(gguf) == ""
    before = lineage.tokenizer_digest(model)
    (model / "tokenizer.json").write_text("[1]")
    assert lineage.tokenizer_digest(model) != before


def test_threads_and_library_are_of_the_device_class() -> None:
    device = torch.device("cpu")
    assert lineage.device_class(device, 1) != lineage.device_class(device, 2)
    assert torch.__version__ in lineage.device_class(device, 1)


def test_processors_with_other_vector_extensions_are_of_other_classes() -> None:
    text = "processor\t: 0\nmodel name\t: One\nflags\t\t: fpu avx2 sse avx512f amx_tile fma\nflags\t\t: avx\n"
    assert lineage.vector_extensions(text) == "amx_tile avx2 avx512f fma"
    assert lineage.vector_extensions("Features\t: fp asimd bf16 sve\n") == "asimd bf16 sve"
    assert lineage.vector_extensions("") == ""


def test_the_code_digest_is_stable_within_one_tree() -> None:
    assert lineage.code_digest() == lineage.code_digest()


def test_compiled_kernels_are_part_of_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "kernels.so"
    digests = set()
    for contents in (b"one", b"two"):
        library.write_bytes(contents)
        monkeypatch.setattr(native, "loaded_from", lambda: library)
        digests.add(lineage.code_digest())
    monkeypatch.setattr(native, "loaded_from", lambda: None)
    digests.add(lineage.code_digest())
    assert len(digests) == 3


def test_where_the_bytes_of_a_block_lie_is_part_of_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    digested: list[Path] = []
    monkeypatch.setattr(lineage, "content_digest", lambda files: digested.extend(files))
    lineage.code_digest()
    names = {f"{file.parent.name}/{file.name}" for file in digested}
    assert {"engine/block_bytes.py", "cache/layout.py", "cache/storage.py"} < names
    assert {"firsttoken_kernels/kv_quant.py", "model/decoder.py"} < names

from pathlib import Path

import pytest
import torch

from firsttoken_runtime.model import row_counts
from runtime import families


def test_few_counts_none_of_them_much_larger() -> None:
    counts = [row_counts.padded(rows) for rows in range(1, 1025)]
    assert all(count >= rows for rows, count in enumerate(counts, start=1))
    assert counts == sorted(counts)
    assert counts[:16] == list(range(1, 17)), "decodes alone are not padded"
    assert [row_counts.padded(count) for count in counts] == counts
    assert len(set(counts)) < 64
    assert max(count / rows for rows, count in enumerate(counts, start=1)) < 1.42


def test_padding_reaches_the_linears_and_changes_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = families.load(families.save(families.transformers_model(families.CASES[0].name), tmp_path))
    seen: set[int] = set()
    mlp = model.blocks[0].mlp

    def watched(x: torch.Tensor, added: torch.Tensor | None = None) -> torch.Tensor:
        seen.add(len(x))
        return mlp(x, added)

    monkeypatch.setattr(model.blocks[0], "mlp", watched)
    ids = [7 * index % families.VOCABULARY for index in range(21)]
    padded = families.logits(model, ids, [21])
    assert seen == {24}
    monkeypatch.setattr(row_counts, "padded", lambda rows: rows)
    alone = families.logits(model, ids, [21])
    assert seen == {24, 21}
    torch.testing.assert_close(padded, alone, rtol=1e-4, atol=1e-5)


def test_every_count_of_a_step_can_be_called_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for case in families.CASES:
        model = families.load(families.save(families.transformers_model(case.name), tmp_path / case.name))
        seen: list[int] = []
        inner = model.blocks[0].attention.qkv

        def watched(x: torch.Tensor, inner=inner, seen=seen) -> torch.Tensor:  # type: ignore[no-untyped-def]
            seen.append(len(x))
            return inner(x)

        monkeypatch.setattr(model.blocks[0].attention, "qkv", watched)
        model.compile_linears(40)
        assert seen == [*range(1, 17), 24, 32, 40], case.name

"""Each row is computed once, whatever the number of threads."""

import pytest
import torch

from firsttoken_kernels import row_shares


@pytest.mark.parametrize("rows", [0, 1, 2, 7, 1000])
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_every_row_once(rows: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    shares: list[tuple[int, int]] = []
    row_shares.run(lambda first, last: shares.append((first, last)), rows, 1 << 17)
    assert sorted(row for first, last in shares for row in range(first, last)) == list(range(rows))
    assert len(shares) == max(min(threads, rows // 2), 1)


def test_what_fails_in_a_thread_fails_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)

    def kernel(first_row: int, last_row: int) -> None:
        if first_row > 0:
            raise AssertionError(f"rows {first_row} to {last_row}")

    with pytest.raises(AssertionError, match="rows 50 to 100"):
        row_shares.run(kernel, 100, 1 << 20)

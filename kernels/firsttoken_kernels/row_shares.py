"""A compiled kernel's rows, shared out among the threads that PyTorch's own operations may use.

A row's bits depend on the row alone in these kernels, so they do not depend on the shares either.
"""

import itertools
from collections.abc import Callable, Sequence

import torch

from firsttoken_kernels import native

_LEAST_ELEMENTS_A_THREAD = 1 << 18
"""Fewer are done sooner than another thread has woken up."""


def run(kernel: Callable[[int, int], None], rows: int, elements_a_row: int) -> None:
    """Calls `kernel(first row, last row)`, the last one not included, for all rows."""
    threads = min(torch.get_num_threads(), rows, rows * elements_a_row // _LEAST_ELEMENTS_A_THREAD)
    if threads <= 1:
        kernel(0, rows)
        return
    bounds = [rows * thread // threads for thread in range(threads + 1)]
    at_once(kernel, list(itertools.pairwise(bounds)))


def run_to_slots(kernel: Callable[[int, int], int], rows: int, elements_a_row: int) -> None:
    """As `run`, of a kernel that returns where it stopped: its last row, or one whose slot does not exist."""

    def run_share(first_row: int, last_row: int) -> None:
        done = kernel(first_row, last_row)
        assert done == last_row, f"row {done} has a slot that does not exist"

    run(run_share, rows, elements_a_row)


def at_once(kernel: Callable[[int, int], None], shares: Sequence[tuple[int, int]]) -> None:
    """Calls the kernel with each of the shares, one for each thread at most."""
    mine, *others = shares
    running = [native.workers(torch.get_num_threads() - 1).submit(kernel, *share) for share in others]
    kernel(*mine)
    for one in running:
        one.result()

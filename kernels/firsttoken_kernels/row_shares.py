"""A compiled kernel's rows, shared out among the threads that PyTorch's own operations may use.

A row's bits depend on the row alone in these kernels, so they do not depend on the shares either.
"""

import itertools
from collections.abc import Callable

import torch

from firsttoken_kernels import native

_LEAST_ELEMENTS_A_THREAD = 1 << 18
"""Fewer are done sooner than another thread has woken up."""


def run(kernel: Callable[[int, int], None], rows: int, elements_a_row: int) -> None:
    """Calls `kernel(first row, last row)`, the last one not included, for all rows."""
    most = rows * elements_a_row // _LEAST_ELEMENTS_A_THREAD
    if most <= 1:
        kernel(0, rows)
        return
    most_threads = torch.get_num_threads()
    threads = min(most_threads, rows, most)
    bounds = [rows * thread // threads for thread in range(threads + 1)]
    shares = list(itertools.pairwise(bounds))
    running = [native.workers(most_threads - 1).submit(kernel, *share) for share in shares[1:]]
    kernel(*shares[0])
    for one in running:
        one.result()

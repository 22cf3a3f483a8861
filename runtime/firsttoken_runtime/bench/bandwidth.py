"""Memory bandwidth of one core: the roofline under decoding, which reads every weight for every token.

Run as a module in a process of its own, pinned by whoever starts it; prints GB/s. Several ways of reading
are tried and the fastest counts, since a single stream understates what a core can do.
"""

import functools
import time
from collections.abc import Callable

ROUNDS = 5
ELEMENTS = 64 * 2**20
"""fp32, 256 MiB: past most caches, though not past the last one of some servers."""
STREAMS = (1, 4, 8)


def measure() -> float:
    """GB/s."""
    import torch

    torch.set_num_threads(1)
    data = torch.ones(ELEMENTS)
    fastest = [_best_s(data.sum)]
    for streams in STREAMS:
        fastest.append(_best_s(functools.partial(torch.amax, data.view(streams, -1), 0)))
    table = data.view(-1, 1024)
    vector = torch.ones(1024)
    fastest.append(_best_s(lambda: table.mv(vector)))
    return ELEMENTS * 4 / min(fastest) / 1e9


def _best_s(read: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        read()
        best = min(best, time.perf_counter() - start)
    return best


if __name__ == "__main__":
    print(f"{measure():.2f}")  # noqa: T201

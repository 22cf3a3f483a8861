"""The rules of the block pool written down plainly: lists, and a look at everything for every answer.

Blocks are known by the path that leads to them (salt, then tokens and format of every block), which is what
their keys stand for.
"""

from dataclasses import dataclass

from firsttoken_runtime.cache.formats import Counts, Format

Path = tuple[str | tuple[tuple[int, ...], Format], ...]


@dataclass
class Named:
    path: Path
    hits: int = 0


class NaivePool:
    """What `blocks.Pool` must do."""

    def __init__(self, totals: Counts) -> None:
        self.totals = totals
        ids = range(totals.total)
        self.free = {
            Format.FULL: list(ids[: totals.full]),
            Format.QUANTIZED: list(ids[totals.full :]),
        }
        self.holds = dict.fromkeys(ids, 0)
        self.named: dict[int, Named] = {}
        self.probation: list[int] = []
        """Evictable blocks, the least recently used first."""
        self.protected: list[int] = []
        self.pinned: list[tuple[Path, Format]] = []
        self.evicted: list[Path] = []
        self.is_caching = True
        self.max_fraction = 1.0
        self.share = 1.0
        self.protected_fraction = 1.0

    def format_of(self, block_id: int) -> Format:
        return Format.FULL if block_id < self.totals.full else Format.QUANTIZED

    def of(self, path: Path) -> int | None:
        return next((block_id for block_id, one in self.named.items() if one.path == path), None)

    def cached(self, fmt: Format) -> list[int]:
        return [i for i in self.named if not self.holds[i] and self.format_of(i) is fmt]

    def evictable(self, fmt: Format) -> list[int]:
        return [i for i in self.probation + self.protected if self.format_of(i) is fmt]

    def is_inner(self, block_id: int) -> bool:
        path = self.named[block_id].path
        return any(one.path[:-1] == path for one in self.named.values())

    def is_pinned(self, path: Path) -> bool:
        return any(path == pinned for pinned, _ in self.pinned)

    def victim(self, fmt: Format) -> int:
        in_order = self.evictable(fmt)
        return next((i for i in in_order if not self.is_inner(i)), in_order[0])

    def evict(self, fmt: Format) -> None:
        block_id = self.victim(fmt)
        self.discard(block_id)
        self.evicted.append(self.named.pop(block_id).path)
        self.free[fmt].append(block_id)

    def discard(self, block_id: int) -> None:
        for part in (self.probation, self.protected):
            if block_id in part:
                part.remove(block_id)

    def make_evictable(self, block_id: int) -> None:
        self.discard(block_id)
        (self.protected if self.named[block_id].hits >= 2 else self.probation).append(block_id)
        self.keep_bounds()

    def keep_bounds(self) -> None:
        for fmt in Format:
            most = int(self.protected_fraction * self.most_cached(fmt))
            while len(protected := [i for i in self.protected if self.format_of(i) is fmt]) > most:
                self.protected.remove(protected[0])
                self.probation.append(protected[0])

    def most_cached(self, fmt: Format) -> int:
        return self.part(min(self.share, self.max_fraction), fmt)

    def part(self, fraction: float, fmt: Format) -> int:
        if not self.is_caching:
            return 0
        if fmt is Format.FULL and self.totals.quantized:
            return self.totals.full
        return int(fraction * self.totals[fmt])

    def keep_to_share(self) -> None:
        self.keep_bounds()
        for fmt in Format:
            while len(self.cached(fmt)) > self.most_cached(fmt) and self.evictable(fmt):
                self.evict(fmt)

    def available(self, fmt: Format) -> int:
        return len(self.free[fmt]) + len(self.evictable(fmt))

    def allocate(self, num_blocks: int, fmt: Format) -> list[int]:
        while len(self.free[fmt]) < num_blocks:
            self.evict(fmt)
        taken = [self.free[fmt].pop(0) for _ in range(num_blocks)]
        for block_id in taken:
            self.holds[block_id] = 1
        return taken

    def hold(self, block_ids: list[int]) -> None:
        for block_id in block_ids:
            self.discard(block_id)
            self.holds[block_id] += 1
            self.named[block_id].hits += 1

    def release(self, block_ids: list[int]) -> None:
        for block_id in reversed(block_ids):
            self.holds[block_id] -= 1
            if not self.holds[block_id]:
                self.let_go(block_id)
        self.keep_to_share()

    def let_go(self, block_id: int) -> None:
        if block_id not in self.named:
            self.free[self.format_of(block_id)].append(block_id)
        elif not self.is_pinned(self.named[block_id].path):
            self.make_evictable(block_id)

    def publish(self, block_id: int, path: Path) -> bool:
        if block_id in self.named:
            return True
        if not self.is_caching or self.of(path) is not None:
            return False
        self.named[block_id] = Named(path)
        return True

    def forget_all(self) -> None:
        for block_id in sorted(self.named):
            del self.named[block_id]
            self.discard(block_id)
            if not self.holds[block_id]:
                self.let_go(block_id)

    def most_pinned(self, fmt: Format) -> int:
        return int(0.5 * self.part(self.max_fraction, fmt))

    def pin(self, path: Path, fmt: Format) -> bool:
        if self.is_pinned(path):
            return True
        if sum(1 for _, one in self.pinned if one is fmt) >= self.most_pinned(fmt):
            return False
        self.pinned.append((path, fmt))
        block_id = self.of(path)
        if block_id is not None:
            self.discard(block_id)
        return True

    def unpin(self, path: Path) -> None:
        self.pinned = [one for one in self.pinned if one[0] != path]
        block_id = self.of(path)
        if block_id is not None and not self.holds[block_id]:
            self.make_evictable(block_id)

    def bound_pins(self) -> None:
        for path, fmt in reversed(list(self.pinned)):
            if sum(1 for _, one in self.pinned if one is fmt) > self.most_pinned(fmt):
                self.unpin(path)

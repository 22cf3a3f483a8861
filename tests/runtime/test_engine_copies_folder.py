"""What the host tier writes to its folder and takes back from it, as copies of device blocks."""

import os
from pathlib import Path

from firsttoken_runtime.cache import disk_store, host_problems
from firsttoken_runtime.cache.formats import Counts
from firsttoken_runtime.engine import block_mover, copies
from firsttoken_runtime.engine.block_bytes import BlockBytes
from runtime.host_tier import LINEAGE, block_bytes, contents, evicted, expected, fill, tier

Pair = block_mover.Pair


def test_the_folder_brings_blocks_back_after_a_restart(tmp_path: Path) -> None:
    def engine() -> tuple[BlockBytes, copies.Copies, disk_store.DiskStore]:
        blocks = block_bytes(Counts(4, 4))
        disk = disk_store.DiskStore(tmp_path, 1_000_000, host_problems.Problems())
        return blocks, tier(blocks, 3, disk=disk), disk

    def settle(copying: copies.Copies) -> None:
        while copying.is_restoring:
            copying.settle()

    blocks, copying, _ = engine()
    made = [evicted(block_id, blocks.locate(block_id)[0], block_id=block_id) for block_id in range(8)]
    for block in made:
        fill(blocks, block.block_id, block.key)
        copying.keep([block])  # one after the other, so that the early ones are displaced in the tier
    copying.close(10.0)

    blocks, copying, disk = engine()
    settle(copying)
    assert copying.index.num_blocks >= 3
    num_found = 0
    for block in made:
        slot = copying.index.find(block.key, block.token_ids, block.fmt)
        if slot is None:
            continue
        num_found += 1
        copying.index.lock([slot])
        copying.run([], [Pair(block.block_id, slot)])
        assert contents(blocks, block.block_id) == expected(block.key, blocks.bytes_of[block.fmt])
    assert num_found == copying.index.num_blocks
    assert not disk.is_restoring, "there was no room for more"
    copying.replace(blocks, b"another lineage".ljust(32))
    settle(copying)
    assert copying.index.num_blocks == 0
    copying.replace(blocks, LINEAGE)
    settle(copying)
    assert copying.index.num_blocks >= 3
    copying.close(10.0)


def test_the_folder_gets_what_was_asked_for_once(tmp_path: Path) -> None:
    blocks = block_bytes(Counts(4, 0))
    copying = tier(blocks, 20, disk=disk_store.DiskStore(tmp_path, 1_000_000, host_problems.Problems()))
    loaded, passing, hit = (evicted(name, block_id=name, hits=int(name == 2)) for name in range(3))
    slots = []
    for block in (loaded, passing, hit):
        fill(blocks, block.block_id, block.key)
        slot = copying.index.store(block)
        assert slot is not None
        slots.append(slot)
    copying.run([Pair(number, slot) for number, slot in enumerate(slots)], [])
    for _ in range(2):
        copying.index.lock(slots[:1])
        copying.run([], [Pair(3, slots[0])])
    # A block of the device pool that was hit there after its first copy was made.
    late = evicted(3, block_id=3, hits=0)
    slot = copying.index.store(late)
    assert slot is not None
    copying.run([Pair(3, slot)], [])
    copying.keep([late._replace(hits=1), passing])
    copying.close(10.0)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {block.key.hex() + ".kv" for block in (loaded, hit, late)}


def test_at_the_end_a_file_is_used_or_written_again(tmp_path: Path) -> None:
    """What came from the folder and is asked for still is not what goes first next time."""
    made = [evicted(number, block_id=number) for number in range(2)]
    paths = [tmp_path / f"{block.key.hex()}.kv" for block in made]
    for _ in range(2):
        blocks = block_bytes(Counts(2, 0))
        for block in made:
            fill(blocks, block.block_id, block.key)
        disk = disk_store.DiskStore(tmp_path, 1_000_000, host_problems.Problems())
        copying = tier(blocks, 2, disk=disk)
        while copying.is_restoring:
            copying.settle()
        if paths[0].exists():
            os.utime(paths[0], (1, 1))
            paths[1].unlink()
        copying.keep(made)
        copying.close(10.0)
        assert all(path.stat().st_mtime > 1 for path in paths)

import asyncio

import pytest

from firsttoken_api import errors
from firsttoken_sidecar import body_memory


async def test_what_is_taken_comes_back() -> None:
    memory = body_memory.BodyMemory(100)
    lease = memory.lease()
    await lease.take(60)
    await lease.take(40)
    assert memory.left_bytes == 0
    lease.release()
    lease.release()
    assert memory.left_bytes == 100


async def test_who_waits_is_served_in_order_and_small_ones_do_not_pass() -> None:
    memory = body_memory.BodyMemory(100)
    first, large, small = memory.lease(), memory.lease(), memory.lease()
    await first.take(80)
    waiting = asyncio.create_task(large.take(50))
    await asyncio.sleep(0)
    behind = asyncio.create_task(small.take(10))
    await asyncio.sleep(0)
    assert not waiting.done()
    assert not behind.done(), "there is room, but it is not its turn"
    first.release()
    await asyncio.gather(waiting, behind)
    assert memory.left_bytes == 40


async def test_the_wait_is_bounded_and_then_it_is_503(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_memory, "WAIT_S", 0.05)
    memory = body_memory.BodyMemory(100)
    first, second, third = memory.lease(), memory.lease(), memory.lease()
    await first.take(100)
    with pytest.raises(errors.OverloadedError) as refused:
        await second.take(50)
    assert refused.value.status == 503
    assert refused.value.retry_after_s is not None
    second.release()
    first.release()
    await third.take(100)
    assert memory.left_bytes == 0


@pytest.mark.parametrize("is_given", [True, False])
async def test_a_client_that_leaves_keeps_nothing(is_given: bool) -> None:
    memory = body_memory.BodyMemory(100)
    first, leaving, next_one = memory.lease(), memory.lease(), memory.lease()
    await first.take(100)
    waiting = asyncio.create_task(leaving.take(90))
    await asyncio.sleep(0)
    after = asyncio.create_task(next_one.take(20))
    await asyncio.sleep(0)
    if is_given:
        first.release()  # its turn has come, and it leaves before it runs
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    leaving.release()
    first.release()
    await after
    assert memory.left_bytes == 80

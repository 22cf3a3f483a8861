"""Who is next at the one checker of grammars."""

import asyncio

import pytest

from firsttoken_api.errors import TooManyRequestsError
from firsttoken_runtime.server import grammar_turns
from firsttoken_runtime.server.grammar_turns import GrammarTurns


class _Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def _hold(turns: GrammarTurns, client: str, spent_s: float, order: list[str]) -> None:
    async with turns.turn(client) as turn:
        order.append(client)
        turn.spent_s = spent_s
        await asyncio.sleep(0)


async def test_one_at_a_time_and_whoever_spent_least_goes_first():
    turns, order = GrammarTurns(_Clock()), []
    async with asyncio.TaskGroup() as group:
        for client in ("a", "a", "a", "b", "b", "c"):
            group.create_task(_hold(turns, client, 1.0, order))
    assert order == ["a", "b", "c", "a", "b", "a"]


async def test_time_fills_the_credit_again():
    clock = _Clock()
    turns, order = GrammarTurns(clock), []
    await _hold(turns, "a", grammar_turns.CREDIT_S + 1, order)
    with pytest.raises(TooManyRequestsError) as caught:
        await _hold(turns, "a", 1.0, order)
    assert caught.value.retry_after_s == 4
    clock.now += 4.1
    await _hold(turns, "a", 0.0, order)
    clock.now += 100
    await _hold(turns, "b", 0.0, order)
    assert turns._spent.keys() == {"b"}, "who has the whole credit is not kept"


async def test_one_client_cannot_take_all_places(monkeypatch):
    monkeypatch.setattr(grammar_turns, "MAX_WAITING_OF_CLIENT", 2)
    monkeypatch.setattr(grammar_turns, "MAX_WAITING", 3)
    turns, order = GrammarTurns(_Clock()), []
    async with turns.turn("holder"):
        tasks = [asyncio.create_task(_hold(turns, "a", 0.0, order)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(TooManyRequestsError, match="2 of them of this client"):
            await _hold(turns, "a", 0.0, order)
        tasks.append(asyncio.create_task(_hold(turns, "b", 0.0, order)))
        await asyncio.sleep(0)
        with pytest.raises(TooManyRequestsError):
            await _hold(turns, "c", 0.0, order)
    await asyncio.gather(*tasks)
    assert sorted(order) == ["a", "a", "b"]


async def test_who_leaves_while_waiting_or_just_called_blocks_nobody():
    turns, order = GrammarTurns(_Clock()), []
    async with turns.turn("holder"):
        waiting = asyncio.create_task(_hold(turns, "a", 0.0, order))
        called = asyncio.create_task(_hold(turns, "b", 0.0, order))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.sleep(0)
    called.cancel()  # its turn was given to it a moment ago
    await asyncio.gather(waiting, called, return_exceptions=True)
    async with asyncio.timeout(1):
        await _hold(turns, "c", 0.0, order)
    assert order == ["c"]

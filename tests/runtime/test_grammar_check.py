"""Grammars are tried in a child process: nothing they do there reaches the server."""

import asyncio
import time
from contextlib import suppress
from pathlib import Path

import pytest

from firsttoken_api.errors import BadRequestError, TooManyRequestsError
from firsttoken_runtime import guidance
from firsttoken_runtime.server import grammar_check
from firsttoken_runtime.server.grammar_check import GrammarCheck, ModelText
from firsttoken_runtime.server.structured import Constraint
from runtime.byte_text import text_model

PARAM = "response_format.json_schema.schema"


def _check(**changes: object) -> GrammarCheck:
    return GrammarCheck(
        lambda: ModelText(guidance.tokenizer_json(text_model().tokenizer), 300, (0,)), **changes
    )


def _constraint(grammar: str) -> Constraint:
    return Constraint(grammar, ((PARAM, grammar),))


def _oom_score(pid: int) -> int:
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


async def test_free_text_needs_no_child():
    check = _check()
    await check.check(Constraint())
    assert check._child is None


async def test_what_passes_is_remembered_and_what_fails_names_its_parameter():
    check = _check()
    await check.check(_constraint('start: "a"'))
    child = check._child
    assert child is not None
    assert _oom_score(child.pid) == 1000, "the first to go when memory is short"
    with pytest.raises(BadRequestError, match="unknown name") as caught:
        await check.check(_constraint("start: nowhere"))
    assert caught.value.param == PARAM
    whole = Constraint("start: gone", (("tools[0].function.parameters", 'start: "a"'),))
    with pytest.raises(BadRequestError) as caught:
        await check.check(whole)
    assert caught.value.param == "tools"
    with pytest.raises(BadRequestError, match="64 KiB"):
        await check.check(_constraint("x" * 70_000))
    assert check._child is child
    await check.close()
    await check.check(_constraint('start: "a"'))
    assert check._child is None, "it is remembered"


async def test_a_grammar_that_breaks_or_stops_the_library_costs_the_child_only():
    check = _check(limit_s=2.0)
    deep = "start: r0\n" + "\n".join(f"r{i}: r{i + 1}" for i in range(4000)) + '\nr4000: "a"'
    endless = "start: /((a{1000}){1000}){1000}/"
    with pytest.raises(BadRequestError, match="too complex"):
        await check.check(_constraint(endless))
    assert check._child is None
    started_s = time.monotonic()
    with suppress(BadRequestError):  # its stack is larger than the usual one: it may be enough
        await check.check(_constraint(deep))
    await check.check(_constraint('start: "b"'))
    assert time.monotonic() - started_s < 20
    await check.close()


async def test_a_tokenizer_the_library_does_not_know():
    check = GrammarCheck(lambda: ModelText(guidance.tokenizer_json(text_model().tokenizer), 300, ()))
    with pytest.raises(BadRequestError, match="names no token that ends"):
        await check.check(_constraint('start: "a"'))
    assert check._child is None


async def test_a_client_that_leaves_takes_the_child_with_it():
    check = _check()
    await check.check(_constraint('start: "a"'))
    task = asyncio.create_task(check.check(_constraint('start: "c"')))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await check.check(_constraint('start: "d"'))
    await check.close()


async def test_too_many_wait(monkeypatch):
    monkeypatch.setattr(grammar_check, "MAX_WAITING", 0)
    with pytest.raises(TooManyRequestsError):
        await _check().check(_constraint('start: "a"'))

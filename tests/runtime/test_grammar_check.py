"""Grammars are tried in a child process: nothing they do there reaches the server."""

import asyncio
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

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


class _Slow(GrammarCheck):
    """Every grammar takes `each_s` of a clock that only moves so; `wrong` are refused."""

    def __init__(self, each_s: float, wrong: tuple[str, ...] = ()) -> None:
        self.now = 0.0
        super().__init__(lambda: ModelText("", 0, ()), clock=lambda: self.now)
        self.asked: list[str] = []
        self._each_s = each_s
        self._wrong = wrong

    async def _start(self) -> str:
        self._child = SimpleNamespace(kill=lambda: None, wait=self._ended)
        return ""

    async def _ended(self) -> int:
        return 0

    async def _ask(self, question: object, limit_s: float) -> str:
        assert isinstance(question, str)
        self.asked.append(question)
        self.now += min(self._each_s, limit_s)
        if self._each_s > limit_s:
            await self.close()
            return "not done"
        return "no" if question in self._wrong else ""


def _tools(count: int) -> Constraint:
    return Constraint("whole", tuple((f"tools[{i}].function.parameters", f"part {i}") for i in range(count)))


async def test_many_tools_that_pass_are_one_check():
    check = _Slow(0.1)
    await check.check(_tools(128))
    assert check.asked == ["whole"]


async def test_all_schemas_of_a_request_have_one_limit():
    check = _Slow(0.5, wrong=("whole", "part 127"))
    with pytest.raises(BadRequestError) as caught:
        await check.check(_tools(128))
    assert (caught.value.param, check.now) == ("tools", grammar_check.CHECK_LIMIT_S)
    slow = _Slow(60.0)
    with pytest.raises(BadRequestError, match="too complex"):
        await slow.check(_tools(128))
    assert (slow.now, slow.asked) == (grammar_check.CHECK_LIMIT_S, ["whole"])


async def test_the_part_that_is_wrong_is_named():
    check = _Slow(0.01, wrong=("whole", "part 3"))
    with pytest.raises(BadRequestError) as caught:
        await check.check(_tools(5))
    assert caught.value.param == "tools[3].function.parameters"
    assert check.asked == ["whole", "part 0", "part 1", "part 2", "part 3"]


async def test_what_was_refused_is_not_tried_again_for_a_while():
    check = _Slow(0.01, wrong=("whole", "part 0"))
    for _ in range(3):
        with pytest.raises(BadRequestError) as caught:
            await check.check(_tools(1))
        assert caught.value.param == "tools[0].function.parameters"
    assert check.asked == ["whole", "part 0"]
    check.now += grammar_check.REFUSED_FOR_S
    with pytest.raises(BadRequestError):
        await check.check(_tools(1))
    assert len(check.asked) == 4


async def test_a_client_without_credit_waits_and_others_do_not():
    check = _Slow(3.0)
    for index in range(5):
        await check.check(_constraint(f"start: {index}"), "greedy")
    with pytest.raises(TooManyRequestsError) as caught:
        await check.check(_constraint("start: 5"), "greedy")
    assert caught.value.retry_after_s == 8
    await check.check(_constraint("start: 0"), "greedy")  # it is remembered
    await check.check(_constraint("start: 5"), "other")
    check.now += caught.value.retry_after_s
    await check.check(_constraint("start: 6"), "greedy")


async def test_a_part_that_is_too_large_is_named_at_once():
    check = _Slow(0.01)
    parts = (("tools[0].function.parameters", "small"), ("tools[1].function.parameters", "x" * 70_000))
    with pytest.raises(BadRequestError, match="64 KiB") as caught:
        await check.check(Constraint("whole" + "x" * 70_000, parts))
    assert (caught.value.param, check.asked) == ("tools[1].function.parameters", [])

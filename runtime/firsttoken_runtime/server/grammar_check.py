"""Whether a grammar compiles, found out in a child process before anything is queued.

The child starts with the first grammar and stays. One that takes too long, or dies, is refused as too
complex, and the next grammar gets a new child. All schemas of a request have one limit together, and all
requests of a client a credit (`grammar_turns`). What came of a grammar is remembered: one that passed for as
long as there is room, one that was refused for a while, because it may have been the machine that was slow.
"""

import asyncio
import hashlib
import json
import logging
import sys
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from firsttoken_api import errors
from firsttoken_runtime import guidance
from firsttoken_runtime.server.grammar_turns import GrammarTurns, Turn
from firsttoken_runtime.server.structured import Constraint

log = logging.getLogger(__name__)

START_LIMIT_S = 30.0
CHECK_LIMIT_S = 3.0
"""Of all grammars of a request together."""
REFUSED_FOR_S = 60.0
MAX_REMEMBERED = 256
_MODULE = "firsttoken_runtime.server.grammar_child"

ValueT = TypeVar("ValueT")


@dataclass(frozen=True)
class ModelText:
    """What a grammar is compiled for. `tokenizer`: as `guidance.tokenizer_json` gives it."""

    tokenizer: str
    vocabulary_size: int
    eos_token_ids: tuple[int, ...]


@dataclass(frozen=True)
class _Problem:
    param: str
    reason: str

    def error(self) -> errors.BadRequestError:
        return errors.BadRequestError(f"{self.param} cannot be used: {self.reason}", param=self.param)


class GrammarCheck:
    """One child, one grammar at a time. `model` is asked when the child starts, in a thread."""

    def __init__(
        self,
        model: Callable[[], ModelText],
        *,
        limit_s: float = CHECK_LIMIT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._model = model
        self._limit_s = limit_s
        self._clock = clock
        self._child: asyncio.subprocess.Process | None = None
        self._turns = GrammarTurns(clock)
        self._passed: OrderedDict[bytes, None] = OrderedDict()
        self._refused: OrderedDict[bytes, tuple[_Problem, float]] = OrderedDict()
        """What was wrong, and until when that is believed."""

    async def check(self, constraint: Constraint, client: str = "") -> None:
        """Raises BadRequestError that names the parameter, or TooManyRequestsError. `client`: whose it is."""
        if not constraint.grammar:
            return
        _check_size(constraint)
        key = _key(constraint)
        if self._has_passed(key):
            return
        async with self._turns.turn(client) as turn:
            if self._has_passed(key):  # another request's, meanwhile
                return
            problem = await self._first_problem(constraint, turn)
        if problem is None:
            _remember(self._passed, key, None)
        else:
            _remember(self._refused, key, (problem, self._clock() + REFUSED_FOR_S))
            raise problem.error()

    def _has_passed(self, key: bytes) -> bool:
        """Raises BadRequestError if it was refused a moment ago."""
        if key in self._passed:
            self._passed.move_to_end(key)
            return True
        if key in self._refused:
            problem, until_s = self._refused[key]
            if self._clock() < until_s:
                raise problem.error()
        return False

    async def close(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            with suppress(ProcessLookupError):
                child.kill()
            await child.wait()

    async def _first_problem(self, constraint: Constraint, turn: Turn) -> _Problem | None:
        """The whole is what the engine gets; its parts are looked at only to name the one that is wrong."""
        reason = await self._reason(constraint.grammar, turn)
        if not reason:
            return None
        of_whole = _Problem(_param_of_whole(constraint), reason)
        if self._child is None:  # its limit, or its death, was enough
            return of_whole
        for param, grammar in constraint.parts:
            if grammar == constraint.grammar or turn.spent_s >= self._limit_s:
                break
            if of_part := await self._reason(grammar, turn):
                return _Problem(param, of_part)
        return of_whole

    async def _reason(self, grammar: str, turn: Turn) -> str:
        """Why it cannot be used, "" if it can."""
        if self._child is None:
            problem = await self._start()
            if problem:
                await self.close()
                return problem
        started_s = self._clock()
        try:
            problem = await self._ask(grammar, self._limit_s - turn.spent_s)
        finally:
            turn.spent_s += self._clock() - started_s
        if self._child is None:
            log.warning("a grammar was refused: the process that tried it was %s", problem)
            return f"it is too complex ({problem})"
        return problem

    async def _start(self) -> str:
        model = await asyncio.to_thread(self._model)
        self._child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", _MODULE, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        first = {
            "tokenizer": model.tokenizer,
            "vocabulary_size": model.vocabulary_size,
            "eos": model.eos_token_ids,
        }
        return await self._ask(first, START_LIMIT_S)

    async def _ask(self, question: object, limit_s: float) -> str:
        """What is wrong; without a child afterwards, why there is none."""
        child = self._child
        assert child is not None
        assert child.stdin is not None
        assert child.stdout is not None
        line, why = b"", "ended by its memory or stack limit"
        try:
            async with asyncio.timeout(limit_s):
                child.stdin.write(json.dumps(question).encode() + b"\n")
                await child.stdin.drain()
                line = await child.stdout.readline()
        except TimeoutError:
            why = f"not done within {limit_s:.2g} s"
        except ConnectionError:
            pass
        finally:
            if not line:  # cancelled too: its answer must not be taken for the next one's
                await self.close()
        if not line:
            return why
        problem: str = json.loads(line)
        return problem


def _check_size(constraint: Constraint) -> None:
    """Before anybody waits, and not remembered. Raises BadRequestError."""
    whole = (_param_of_whole(constraint), constraint.grammar)
    for param, grammar in (*constraint.parts, whole):
        if len(grammar.encode()) > guidance.MAX_GRAMMAR_BYTES:
            raise _Problem(param, f"it is larger than {guidance.MAX_GRAMMAR_BYTES // 2**10} KiB").error()


def _param_of_whole(constraint: Constraint) -> str:
    """Of a grammar with a single part its parameter, of tools together `tools`."""
    param, grammar = constraint.parts[0]
    return param if grammar == constraint.grammar else param.split("[")[0]


def _key(constraint: Constraint) -> bytes:
    return hashlib.sha256(msgspec.json.encode([constraint.grammar, constraint.parts])).digest()


def _remember(known: OrderedDict[bytes, ValueT], key: bytes, value: ValueT) -> None:
    known[key] = value
    while len(known) > MAX_REMEMBERED:
        known.popitem(last=False)

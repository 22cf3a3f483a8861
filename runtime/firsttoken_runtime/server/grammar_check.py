"""Whether a grammar compiles, found out in a child process before anything is queued.

The child starts with the first grammar and stays. One that takes too long, or dies, is refused as too
complex, and the next grammar gets a new child. Grammars that passed are remembered.
"""

import asyncio
import json
import logging
import sys
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from firsttoken_api import errors
from firsttoken_runtime import guidance
from firsttoken_runtime.server.structured import Constraint

log = logging.getLogger(__name__)

START_LIMIT_S = 30.0
CHECK_LIMIT_S = 3.0
MAX_WAITING = 64
MAX_REMEMBERED = 256
_MODULE = "firsttoken_runtime.server.grammar_child"


@dataclass(frozen=True)
class ModelText:
    """What a grammar is compiled for. `tokenizer`: as `guidance.tokenizer_json` gives it."""

    tokenizer: str
    vocabulary_size: int
    eos_token_ids: tuple[int, ...]


class GrammarCheck:
    """One child, one grammar at a time. `model` is asked when the child starts, in a thread."""

    def __init__(self, model: Callable[[], ModelText], *, limit_s: float = CHECK_LIMIT_S) -> None:
        self._model = model
        self._limit_s = limit_s
        self._child: asyncio.subprocess.Process | None = None
        self._lock = asyncio.Lock()
        self._num_waiting = 0
        self._passed: OrderedDict[str, None] = OrderedDict()

    async def check(self, constraint: Constraint) -> None:
        """Raises BadRequestError that names the parameter, or TooManyRequestsError."""
        if not constraint.grammar:
            return
        if constraint.grammar in self._passed:
            self._passed.move_to_end(constraint.grammar)
            return
        if self._num_waiting >= MAX_WAITING:
            raise errors.TooManyRequestsError(f"{MAX_WAITING} grammars wait to be checked", retry_after_s=1)
        self._num_waiting += 1
        try:
            async with self._lock:
                await self._check(constraint)
        finally:
            self._num_waiting -= 1
        self._passed[constraint.grammar] = None
        while len(self._passed) > MAX_REMEMBERED:
            self._passed.popitem(last=False)

    async def close(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            with suppress(ProcessLookupError):
                child.kill()
            await child.wait()

    async def _check(self, constraint: Constraint) -> None:
        params = [param for param, _ in constraint.parts]
        grammars = [grammar for _, grammar in constraint.parts]
        if constraint.grammar not in grammars:
            params.append(params[0].split("[")[0])
            grammars.append(constraint.grammar)
        for param, grammar in zip(params, grammars, strict=True):
            if problem := await self._problem(grammar):
                raise errors.BadRequestError(f"{param} cannot be used: {problem}", param=param)

    async def _problem(self, grammar: str) -> str:
        if len(grammar.encode()) > guidance.MAX_GRAMMAR_BYTES:
            return f"it is larger than {guidance.MAX_GRAMMAR_BYTES // 2**10} KiB"
        if self._child is None:
            problem = await self._start()
            if problem:
                await self.close()
                return problem
        problem = await self._ask(grammar, self._limit_s)
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
            why = f"not done within {limit_s:g} s"
        except ConnectionError:
            pass
        finally:
            if not line:  # cancelled too: its answer must not be taken for the next one's
                await self.close()
        if not line:
            return why
        problem: str = json.loads(line)
        return problem

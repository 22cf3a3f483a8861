"""One answer of a request while it grows: tokens in, the deltas of its message out.

What a delta is depends on the endpoint: `{"text": …}` of a completion; `{"content": …}`,
`{"reasoning_content": …}` or `{"tool_calls": […]}` of a chat. Deltas of a stream add up to the whole.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from firsttoken_runtime import core
from firsttoken_runtime.server.answer import Answer
from firsttoken_runtime.server.logprobs import Record
from firsttoken_runtime.server.prompt import Prompt
from firsttoken_runtime.server.request_timer import RequestTimer
from firsttoken_runtime.server.sequence import Group, Sequence

Json = dict[str, Any]
WriteLogprobs = Callable[[list[Record]], Any]


class Delta(NamedTuple):
    """A piece of the message, and the logprobs of its tokens where they were asked for."""

    content: Json
    logprobs: Any = None


class Shaper(Protocol):
    """Text to pieces of a message."""

    empty: Json
    """A piece without text, to carry logprobs."""

    def feed(self, text: str) -> list[Json]: ...

    def flush(self) -> list[Json]:
        """What is still held, at the end."""
        ...

    @property
    def has_called_tools(self) -> bool: ...


class TextShaper:
    """All text is content, under one name."""

    has_called_tools = False

    def __init__(self, name: str) -> None:
        self._name = name
        self.empty: Json = {name: ""}

    def feed(self, text: str) -> list[Json]:
        return [{self._name: text}]

    def flush(self) -> list[Json]:
        return []


class Choice:
    """`echo` comes before the first piece, with the logprobs of the prompt."""

    def __init__(
        self,
        index: int,
        prompt: Prompt,
        answer: Answer,
        shaper: Shaper,
        *,
        write_logprobs: WriteLogprobs | None = None,
        echoes: bool = False,
    ) -> None:
        self.index = index
        self.prompt = prompt
        self.answer = answer
        self.prompt_scores: list[core.TokenLogprobs | None] | None = None
        self._shaper = shaper
        self._write_logprobs = write_logprobs
        self._must_echo = echoes
        self._is_plain = write_logprobs is None and not echoes

    @property
    def has_ended(self) -> bool:
        return self.answer.finish_reason is not None

    @property
    def finish_reason(self) -> str | None:
        if self.answer.finish_reason == "stop" and self._shaper.has_called_tools:
            return "tool_calls"
        return self.answer.finish_reason

    def take(self, sequence: Sequence, tokens: list[core.Token]) -> list[Delta]:
        """What may be sent after these tokens of its sequence."""
        text = self.answer.take(tokens)
        if not tokens and sequence.finish_reason and not self.has_ended:
            self.answer.end(sequence.finish_reason)
        pieces = self._shaper.feed(text) if text else []
        if self.has_ended:
            pieces += self._shaper.flush()
            self.prompt_scores = sequence.prompt_scores
        elif not pieces:
            return []
        elif self._is_plain:
            return [Delta(piece) for piece in pieces]
        return self._deltas(pieces, sequence)

    def _deltas(self, pieces: list[Json], sequence: Sequence) -> list[Delta]:
        deltas = [Delta(piece) for piece in pieces]
        if self._write_logprobs is not None and (records := self.answer.take_records()):
            first = deltas[0].content if deltas else self._shaper.empty
            deltas[:1] = [Delta(first, self._write_logprobs(records))]
        if self._must_echo:
            self._must_echo = False
            deltas.insert(0, self._echo(sequence.prompt_scores))
        return deltas

    def _echo(self, scores: list[core.TokenLogprobs | None] | None) -> Delta:
        content = {"text": self.prompt.text}
        if self._write_logprobs is None:
            return Delta(content)
        assert scores is not None, "they come before the first token"
        places = zip(self.prompt.ids, scores, self.prompt.offsets, strict=True)
        return Delta(content, self._write_logprobs([Record(*place) for place in places]))


class Reading:
    """The answers of one request together: each `take` is what has come since the last."""

    def __init__(self, group: Group, choices: list[Choice], timer: RequestTimer) -> None:
        self._group = group
        self._timer = timer
        self._open = list(zip(choices, group.sequences, strict=True))

    @property
    def has_ended(self) -> bool:
        return not self._open

    def take(self) -> list[tuple[Choice, list[Delta]]]:
        """Those with something new, in order. Raises ApiError if one has failed: then the request has."""
        taken = []
        ended = False
        for choice, sequence in self._open:
            tokens = sequence.take()
            if tokens:
                self._timer.tokens(tokens, choice.index)
            deltas = choice.take(sequence, tokens)
            if choice.has_ended:
                self._group.leave(sequence)
                ended = True
            if deltas or choice.has_ended:
                taken.append((choice, deltas))
        if ended:
            self._open = [pair for pair in self._open if not pair[0].has_ended]
        return taken

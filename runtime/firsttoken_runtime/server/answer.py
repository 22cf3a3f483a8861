"""The text of one sequence: tokens in, text to show out, and where it ends.

Text, logprobs and token count are cut at the same token. Stop ids are the engine's business and end with a
token that has no text; stop strings are found here, and whoever reads on then leaves the sequence (`abort`).
"""

from collections.abc import Iterable

from firsttoken_runtime import core
from firsttoken_runtime.server.detokenizer import Detokenizer
from firsttoken_runtime.server.logprobs import Record
from firsttoken_runtime.server.stop import StopMatcher


class Answer:
    """Grows with `take` until `finish_reason` is set."""

    def __init__(
        self,
        detokenizer: Detokenizer,
        *,
        stops: tuple[str, ...] = (),
        include_stop: bool = False,
        min_tokens: int = 0,
        stop_token_ids: tuple[int, ...] = (),
        keeps_logprobs: bool = False,
        echoed_chars: int = 0,
    ) -> None:
        self._detokenizer = detokenizer
        self._matcher = StopMatcher(stops, include_stop)
        self._min_tokens = min_tokens
        self._stop_token_ids = stop_token_ids
        self._keeps_logprobs = keeps_logprobs
        self._records: list[Record] = []
        self._chars_decoded = echoed_chars
        self._chars_shown = echoed_chars
        self.completion_tokens = 0
        self.cached_tokens = 0
        self.finish_reason: str | None = None
        self.stop_reason: str | int | None = None
        """The stop string or the client's stop id that ended it (vLLM's addition)."""

    def take(self, tokens: Iterable[core.Token]) -> str:
        """The text that may be shown after these tokens; what follows an end is not looked at."""
        shown = ""
        for token in tokens:
            if self.finish_reason is not None:
                break
            shown += self._take(token)
        return shown

    def take_records(self) -> list[Record]:
        """The tokens since the last call, if logprobs are kept."""
        records, self._records = self._records, []
        if self.stop_reason is not None:  # what is cut off has no place of its own
            records = [one._replace(offset=min(one.offset, self._chars_shown)) for one in records]
        return records

    def end(self, reason: str) -> None:
        """It has ended without a token: only the prompt was asked about."""
        assert self.finish_reason is None
        self.finish_reason = reason

    def _take(self, token: core.Token) -> str:
        self.completion_tokens += 1
        self.cached_tokens = max(self.cached_tokens, token.cached_tokens)
        if self._keeps_logprobs:
            self._records.append(Record(token.token_id, token.logprobs, self._chars_decoded))
        if token.finish_reason == "stop" and not token.ends_after:
            self.finish_reason = "stop"
            self.stop_reason = token.token_id if token.token_id in self._stop_token_ids else None
            return self._end("")
        text = self._detokenizer.push(token.token_id)
        if token.finish_reason:
            self.finish_reason = token.finish_reason
            return self._end(text)
        return self._match(text)

    def _match(self, text: str) -> str:
        self._chars_decoded += len(text)
        if self.completion_tokens <= self._min_tokens:
            self._chars_shown += len(text)
            return text
        match = self._matcher.feed(text)
        if match.stop is not None:
            self.finish_reason = "stop"
            self.stop_reason = match.stop
        self._chars_shown += len(match.text)
        return match.text

    def _end(self, text: str) -> str:
        shown = self._match(text + self._detokenizer.flush())
        held = self._matcher.flush()
        self._chars_shown += len(held)
        return shown + held

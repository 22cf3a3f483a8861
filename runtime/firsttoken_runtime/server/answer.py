"""The text of one sequence: tokens in, text to show out, and where it ends.

Text and token count are cut at the same token. Stop ids are the engine's business and end with a token
that has no text; stop strings are found here, and whoever reads on then leaves the sequence (`abort`).
"""

from collections.abc import Iterable

from firsttoken_runtime import core
from firsttoken_runtime.server.detokenizer import Detokenizer
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
    ) -> None:
        self._detokenizer = detokenizer
        self._matcher = StopMatcher(stops, include_stop)
        self._min_tokens = min_tokens
        self._stop_token_ids = stop_token_ids
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

    def _take(self, token: core.Token) -> str:
        self.completion_tokens += 1
        self.cached_tokens = max(self.cached_tokens, token.cached_tokens)
        if token.finish_reason == "stop":
            self.finish_reason = "stop"
            self.stop_reason = token.token_id if token.token_id in self._stop_token_ids else None
            return self._end("")
        text = self._detokenizer.push(token.token_id)
        if token.finish_reason:
            self.finish_reason = token.finish_reason
            return self._end(text)
        return self._match(text)

    def _match(self, text: str) -> str:
        if self.completion_tokens <= self._min_tokens:
            return text
        match = self._matcher.feed(text)
        if match.stop is not None:
            self.finish_reason = "stop"
            self.stop_reason = match.stop
        return match.text

    def _end(self, text: str) -> str:
        shown = self._match(text + self._detokenizer.flush())
        return shown + self._matcher.flush()

"""How long answers get, of what they may get: learned by class, for when a slot becomes free. Pure."""

from firsttoken_sidecar.backlog import UNKNOWN_OUTPUT_TOKENS

MEMORY = 0.05
MOST_CLASSES = 64


class AnswerLengths:
    """The share of `max_tokens` that answers of a class use."""

    def __init__(self) -> None:
        self._used: dict[str, float] = {}
        self.medians: dict[str, float] = {}
        """Of answers, by class, as the engine reports them."""

    def note(self, request_class: str, max_tokens: int | None, answer_tokens: float) -> None:
        """An answer ended by itself."""
        if max_tokens is None or max_tokens <= 0:
            return
        if request_class not in self._used and len(self._used) >= MOST_CLASSES:
            return
        before = self._used.get(request_class, 1.0)
        self._used[request_class] = before + MEMORY * (min(answer_tokens / max_tokens, 1.0) - before)

    def expected(self, request_class: str, max_tokens: int | None) -> float:
        """Tokens of an answer that is to come."""
        if max_tokens is None:
            return self._median(request_class)
        return max(max_tokens * self._used.get(request_class, 1.0), 1.0)

    def as_scheduled(self, request_class: str, max_tokens: int | None) -> float:
        """What the engine's scheduler expects, which decides the order."""
        if max_tokens is not None:
            return float(max_tokens)
        return self._median(request_class)

    def _median(self, request_class: str) -> float:
        """An engine that knows no classes has one median for all."""
        return self.medians.get(request_class, self.medians.get("", UNKNOWN_OUTPUT_TOKENS))

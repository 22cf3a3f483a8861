"""Log probabilities in the forms that clients know: the chat's, the completions', and vLLM's of prompts.

JSON has no infinity: what is impossible, by a bias or a grammar, has `IMPOSSIBLE`, as in vLLM.
"""

from typing import NamedTuple, NotRequired, TypedDict

from firsttoken_runtime import core
from firsttoken_runtime.server.token_text import TokenText

IMPOSSIBLE = -9999.0


class Record(NamedTuple):
    """One token of a text that is shown; the first of a prompt has no scores."""

    token_id: int
    scores: core.TokenLogprobs | None
    offset: int
    """Where its text starts, in characters."""


class TopLogprob(TypedDict):
    token: str
    logprob: float
    bytes: list[int]


class ChatLogprob(TypedDict):
    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class ChatLogprobs(TypedDict):
    content: list[ChatLogprob]
    refusal: None


class CompletionLogprobs(TypedDict):
    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class PromptLogprob(TypedDict):
    """vLLM's."""

    logprob: float
    rank: int
    decoded_token: str


PromptLogprobs = list[dict[str, PromptLogprob] | None]


class ScoredToken(TypedDict):
    token_id: int
    token: str
    logprob: float
    rank: NotRequired[int]


def finite(logprob: float) -> float:
    return max(logprob, IMPOSSIBLE)


class LogprobWriter:
    """Writes the records of one request with `top` alternatives for each token."""

    def __init__(self, token_text: TokenText, top: int, *, as_ids: bool = False) -> None:
        self._token_text = token_text
        self._top = top
        self._as_ids = as_ids

    def chat(self, records: list[Record]) -> ChatLogprobs:
        return {"content": [self._chat(record) for record in records], "refusal": None}

    def completion(self, records: list[Record]) -> CompletionLogprobs:
        return {
            "tokens": [self._name(record.token_id) for record in records],
            "token_logprobs": [
                None if record.scores is None else finite(record.scores.logprob) for record in records
            ],
            "top_logprobs": [self._by_name(record) for record in records],
            "text_offset": [record.offset for record in records],
        }

    def _chat(self, record: Record) -> ChatLogprob:
        assert record.scores is not None, "asked for"
        tops = zip(record.scores.top_ids[: self._top], record.scores.top_logprobs, strict=False)
        return {
            "token": self._name(record.token_id),
            "logprob": finite(record.scores.logprob),
            "bytes": list(self._token_text.to_bytes(record.token_id)),
            "top_logprobs": [
                {
                    "token": self._name(token_id),
                    "logprob": finite(logprob),
                    "bytes": list(self._token_text.to_bytes(token_id)),
                }
                for token_id, logprob in tops
            ],
        }

    def _by_name(self, record: Record) -> dict[str, float] | None:
        """The likeliest and the chosen one; of two tokens with one text, the likelier."""
        if record.scores is None:
            return None
        named: dict[str, float] = {}
        for token_id, logprob in zip(
            record.scores.top_ids[: self._top], record.scores.top_logprobs, strict=False
        ):
            named.setdefault(self._name(token_id), finite(logprob))
        named.setdefault(self._name(record.token_id), finite(record.scores.logprob))
        return named

    def _name(self, token_id: int) -> str:
        return f"token_id:{token_id}" if self._as_ids else self._token_text.to_text(token_id)


def prompt_logprobs(
    token_ids: list[int], scores: list[core.TokenLogprobs | None], top: int, token_text: TokenText
) -> PromptLogprobs:
    """vLLM's `prompt_logprobs`: for each token the likeliest at its place and itself, by id."""
    found: PromptLogprobs = []
    for token_id, one in zip(token_ids, scores, strict=True):
        if one is None:
            found.append(None)
            continue
        ranked = [
            (other, logprob, rank)
            for rank, (other, logprob) in enumerate(
                zip(one.top_ids[:top], one.top_logprobs, strict=False), start=1
            )
        ]
        if all(other != token_id for other, _, _ in ranked):
            ranked.append((token_id, one.logprob, one.rank))
        found.append(
            {
                str(other): {
                    "logprob": finite(logprob),
                    "rank": rank,
                    "decoded_token": token_text.to_text(other),
                }
                for other, logprob, rank in ranked
            }
        )
    return found

"""How many tokens at the start of a prompt are declared to be those of others too.

That decides in which precision they are kept, so it depends on the request and on what the server was
started with, never on what is cached: the number that the client gives; else of a chat its system part (what
the rendered prompt has in common with the rendering of the system messages and the tools alone), and of any
prompt what it has in common with a pinned one.
"""

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import tokenizers

from firsttoken_api import errors
from firsttoken_runtime.server.chat_template import ChatTemplate

_PROBES = ("a", "b")
"""User messages without meaning, of which at least one does not begin as another text does."""
_UNPLACED_CHARS = 64
"""So far behind a place a character is looked for that is part of a token; normalization drops some."""


def of_request(asked: int | None, ids: Sequence[int], system_tokens: int, pins: Sequence[list[int]]) -> int:
    """Declared tokens of one prompt. Raises BadRequestError if the client's number is longer than it."""
    if asked is not None:
        if asked > len(ids):
            raise errors.BadRequestError(
                f"shared_prefix_tokens is {asked}, but the prompt has {len(ids)} tokens",
                param="shared_prefix_tokens",
            )
        return asked
    return max([system_tokens, *(common_length(ids, pin) for pin in pins)])


def system_tokens(
    template: ChatTemplate,
    messages: list[dict[str, Any]],
    tools: list[dict[str, Any]] | None,
    arguments: dict[str, Any],
    text: str,
    encoding: tokenizers.Encoding,
) -> int:
    """Tokens of the system part of a rendered chat. `messages` as the template knows them, `text` and
    `encoding` what became of all of them."""
    leading = list(takewhile(lambda message: message["role"] == "system", messages))
    if not leading and not tools:
        return 0
    return tokens_of(encoding, common_length(text, _alone(template, leading, tools, arguments, text)))


def _alone(
    template: ChatTemplate,
    leading: list[dict[str, Any]],
    tools: list[dict[str, Any]] | None,
    arguments: dict[str, Any],
    text: str,
) -> str:
    """The text of the system messages and the tools. A template that wants a user's message gets one; ""
    where it wants still more."""

    def render(*others: dict[str, Any]) -> str:
        return template.render(
            [*leading, *others], add_generation_prompt=False, arguments=arguments, tools=tools
        )

    try:
        return render()
    except errors.BadRequestError:
        pass
    try:
        probed = [render({"role": "user", "content": probe}) for probe in _PROBES]
    except errors.BadRequestError:
        return ""
    return min(probed, key=lambda one: common_length(text, one))


def tokens_of(encoding: tokenizers.Encoding, num_chars: int) -> int:
    """How many tokens lie within the first `num_chars` characters of the text."""
    if num_chars == 0:
        return 0
    for place in range(num_chars, num_chars + _UNPLACED_CHARS):
        if (token := encoding.char_to_token(place)) is not None:
            return int(token)
    ends = [end for _, end in encoding.offsets]
    while ends and ends[-1] > num_chars:
        ends.pop()
    return len(ends)


def common_length(one: Sequence[Any], other: Sequence[Any]) -> int:
    """Of the longest common beginning; by halves, because slices are compared much faster than members."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low

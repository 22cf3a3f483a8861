"""Token ids of one sequence to text, piece by piece.

Each step decodes a short window twice, with and without the newest tokens, and shows the difference:
decoders that look at the neighbour (a leading space, merged bytes) see it. The bytes of an incomplete
UTF-8 sequence are held until they are complete, and shown once as U+FFFD if the generation ends first,
so that the pieces of a stream join to the text of the whole. (The window is decoded here and not with
the library's DecodeStream, which raises when a token changes the text before it.)
"""

import tokenizers

REPLACEMENT = "\ufffd"
MOST_HELD = 3
"""An incomplete character has at most so many bytes, thus tokens. What lies before can only be invalid:
held on, it would stop the stream and make every further token dearer than the one before."""


class Detokenizer:
    """Text of one growing sequence; special tokens have none, unless `show_special`.

    `context_ids` are the last prompt tokens when the text continues them (a completion), so that the
    first piece keeps its leading space; empty when the answer starts anew (a chat).
    """

    def __init__(
        self,
        tokenizer: tokenizers.Tokenizer,
        context_ids: tuple[int, ...] = (),
        *,
        show_special: bool = False,
    ) -> None:
        self._tokenizer = tokenizer
        self._skips_special = not show_special
        added = {} if show_special else tokenizer.get_added_tokens_decoder()
        self._special_ids = {token_id for token_id, token in added.items() if token.special}
        self._shown_ids = list(context_ids)
        self._held_ids: list[int] = []

    def push(self, token_id: int) -> str:
        """The text that this token completes; empty while it is held."""
        if token_id in self._special_ids:
            return ""
        self._held_ids.append(token_id)
        text = self._new_text(self._held_ids)
        if not text:
            return ""
        if not text.endswith(REPLACEMENT):
            self._shown_ids, self._held_ids = self._held_ids, []
            return text
        if len(self._held_ids) <= MOST_HELD:
            return ""
        text = self._new_text(self._held_ids[:1])
        # Not fewer: the first byte of a broken character decides how many of the next belong to it.
        self._shown_ids = [*self._shown_ids, self._held_ids.pop(0)][-MOST_HELD:]
        return text

    def flush(self) -> str:
        """What is still held, at the end."""
        text = self._new_text(self._held_ids) if self._held_ids else ""
        self._shown_ids, self._held_ids = self._held_ids, []
        return text

    def _new_text(self, ids: list[int]) -> str:
        shown = self._decode(self._shown_ids)
        return self._decode(self._shown_ids + ids)[len(shown) :]

    def _decode(self, ids: list[int]) -> str:
        text: str = self._tokenizer.decode(ids, skip_special_tokens=self._skips_special)
        return text

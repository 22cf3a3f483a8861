"""The text and the bytes of single tokens, as logprobs and /tokenize show them.

A token may be a part of a character; its bytes are known all the same, and those of neighbours join to
the text. How a vocabulary writes bytes is told by its decoder: byte-level alphabets stand for bytes,
SentencePiece writes a space as U+2581 and single bytes as `<0x..>`.
"""

import json
import re
from typing import Any

import tokenizers

SPACE = "▁"
BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's letters for the 256 bytes: printable ones stand for themselves, the others follow at 256."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(256 + place): byte for place, byte in enumerate(others)
    }


ALPHABET = _byte_alphabet()


class TokenText:
    """Of one tokenizer. Ids outside its vocabulary have no bytes: models pad theirs."""

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._added = {
            token_id: token.content for token_id, token in tokenizer.get_added_tokens_decoder().items()
        }
        kinds = set(_kinds(json.loads(tokenizer.decoder.__getstate__()))) if tokenizer.decoder else set()
        self._texts: dict[int, str] = {}
        self._is_byte_level = "ByteLevel" in kinds
        self._has_marked_spaces = bool(kinds & {"Metaspace", "Replace"})
        self._has_byte_tokens = "ByteFallback" in kinds

    def to_bytes(self, token_id: int) -> bytes:
        if (added := self._added.get(token_id)) is not None:
            return added.encode()
        token: str | None = self._tokenizer.id_to_token(token_id)
        if token is None:
            return b""
        if self._is_byte_level and all(letter in ALPHABET for letter in token):
            return bytes(ALPHABET[letter] for letter in token)
        if self._has_byte_tokens and (match := BYTE_TOKEN.fullmatch(token)):
            return bytes.fromhex(match[1])
        return (token.replace(SPACE, " ") if self._has_marked_spaces else token).encode()

    def to_text(self, token_id: int) -> str:
        """Bytes that are no whole characters become U+FFFD. Kept: logprobs show the same ones often."""
        text = self._texts.get(token_id)
        if text is None:
            text = self._texts[token_id] = self.to_bytes(token_id).decode(errors="replace")
        return text


def _kinds(decoder: dict[str, Any]) -> list[str]:
    return [decoder["type"], *(kind for inner in decoder.get("decoders", ()) for kind in _kinds(inner))]

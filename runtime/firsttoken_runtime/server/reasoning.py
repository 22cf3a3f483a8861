"""Splits `<think>…</think>` at the start of an answer from the answer itself.

Used when the model's template knows the marker. Where the template itself opens the block (the prompt ends
in `<think>`), the answer starts inside it. A block that is never closed stays reasoning.
"""

from firsttoken_runtime.server.marker import held_back
from firsttoken_runtime.server.parts import Content, Part, Reasoning

OPEN, CLOSE = "<think>", "</think>"


def is_used_by(template: str) -> bool:
    return OPEN in template or CLOSE in template


def starts_inside(prompt: str) -> bool:
    """Whether the template has opened the block at the end of the prompt."""
    return prompt.rstrip().endswith(OPEN)


class ReasoningParser:
    """`feed` pieces of text, then `flush`."""

    def __init__(self, *, starts_inside: bool) -> None:
        self._state = "inside" if starts_inside else "before"
        self._held = ""

    def feed(self, text: str) -> list[Part]:
        self._held += text
        parts: list[Content | Reasoning] = []
        if self._state == "before":
            start = self._held.lstrip()
            if start.startswith(OPEN):
                self._state, self._held = "inside", start[len(OPEN) :]
            elif not OPEN.startswith(start):
                self._state = "after"
        if self._state == "inside":
            before, marker, after = self._held.partition(CLOSE)
            if marker:
                self._state, self._held = "after", after
                parts.append(Reasoning(before))
            else:
                keep = held_back(self._held, (CLOSE,))
                shown, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
                parts.append(Reasoning(shown))
        if self._state == "after":
            parts.append(Content(self._held))
            self._held = ""
        return [*(part for part in parts if part.text)]

    def flush(self) -> list[Part]:
        """What is still held, at the end."""
        held, self._held = self._held, ""
        if not held:
            return []
        return [Reasoning(held) if self._state == "inside" else Content(held)]

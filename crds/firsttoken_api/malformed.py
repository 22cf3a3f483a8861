"""Why bytes are no HTTP request, in words that may be shown. Pure.

The HTTP library says it in one line, and below it repeats the client's bytes: they may hold a key.
"""

MOST_CHARACTERS = 200


def reason(message: str | None, *, is_line_too_long: bool) -> str:
    """For the client: the end of a sentence. `message`: the library's words."""
    if is_line_too_long:
        return "a line of its head is too long"
    first = (message or "").strip().split("\n", 1)[0].rstrip().rstrip(":.")
    return first[:MOST_CHARACTERS] or "it cannot be read"

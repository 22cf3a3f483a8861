"""With how many rows a CPU's linears are called. Pure.

oneDNN compiles a linear for every row count that it has not seen: 10 to 15 ms a count for the five linears of
SmolLM2's layer up to 130 rows, 50 to 60 ms for 330 and more, and it forgets what is too long ago. A step that
mixes decodes and chunks has another count nearly every time. So rows are padded to one of few counts;
decodes alone are few enough to have a count each.
"""

_SPACING = ((16, 1), (64, 8), (256, 16), (512, 32))
"""(up to so many rows, counts so far apart)."""
_BEYOND = 64


def padded(rows: int) -> int:
    """The next count that is called. Computing the padding costs less than compiling once in a while."""
    apart = next((apart for most, apart in _SPACING if rows <= most), _BEYOND)
    return -(-rows // apart) * apart


def up_to(most_rows: int) -> list[int]:
    """All counts that steps of at most so many rows are called with."""
    return sorted({padded(rows) for rows in range(1, most_rows + 1)})

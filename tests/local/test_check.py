"""The runner's own output."""

import io

from local import check


def test_the_closing_line_is_held_back() -> None:
    out = io.StringIO()
    closing = check.show(io.StringIO("a\nb\n== 2 passed in 0.1s ==\n"), out)
    assert out.getvalue() == "a\nb\n"
    assert closing == "== 2 passed in 0.1s =="

"""What a client is told of bytes that are no request never repeats them."""

import pytest

from firsttoken_api import malformed


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("Bad status line:\n\n  b'GET s3cr3t'\n    ^", "Bad status line"),
        ("  Invalid header value char.\r\nAuthorization: s3cr3t", "Invalid header value char"),
        ("Data after `Connection: close`:", "Data after `Connection: close`"),
        ("", "it cannot be read"),
        (None, "it cannot be read"),
        ("\n\n", "it cannot be read"),
        ("x" * 500 + "\ns3cr3t", "x" * 200),
    ],
)
def test_it_is_the_first_line_of_what_the_library_says(message: str | None, shown: str) -> None:
    assert malformed.reason(message, is_line_too_long=False) == shown


def test_a_line_that_is_too_long_is_not_repeated_at_all() -> None:
    assert "x" * 50 not in malformed.reason("x" * 500, is_line_too_long=True)

"""The runner's own output."""

import io
import os

import pytest

from local import check, paths, steps


def shown(*chunks: bytes) -> tuple[str, str]:
    """What goes to the terminal, and the closing line, when the chunks come one after the other."""
    reading, writing = os.pipe()
    out = io.StringIO()
    with os.fdopen(reading, "rb") as stream:
        for chunk in chunks:
            os.write(writing, chunk)
        os.close(writing)
        closing = check.show(stream, out)
    return out.getvalue(), closing


def test_the_closing_line_is_held_back() -> None:
    closing = b"======= 1 failed, 2 passed in 61.23s (0:01:01) =======\n"
    text, last = shown(b"=== test session starts ===\ntests/api/a.py .", b".\n", closing)
    assert text == "=== test session starts ===\ntests/api/a.py ..\n"
    assert last == closing.decode().strip()


def test_an_output_without_a_closing_line_is_shown_whole() -> None:
    assert shown(b"INTERNALERROR\n== half") == ("INTERNALERROR\n== half", "")


def test_an_area_is_one_file_of_scenarios() -> None:
    assert check.area(paths.here(), "flags") == "tests/e2e/test_flags.py"
    assert check.area(paths.here(), "") == "tests/e2e"


def test_an_unknown_area_names_the_known_ones() -> None:
    with pytest.raises(steps.StepError, match=r"AREA=gpu: one of .*flags"):
        check.area(paths.here(), "gpu")


def test_scenarios_come_last_and_no_folder_is_left_out() -> None:
    folders = check.folders(paths.here())
    assert folders[-1] == "tests/e2e"
    assert {"tests/api", "tests/operator", "tests/runtime", "tests/local"} < set(folders)
    assert len(folders) == len(set(folders))

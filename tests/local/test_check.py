"""The runner's own output."""

import io

import pytest

from local import check, paths, steps


def test_the_closing_line_is_held_back() -> None:
    out = io.StringIO()
    closing = check.show(io.StringIO("a\nb\n== 2 passed in 0.1s ==\n"), out)
    assert out.getvalue() == "a\nb\n"
    assert closing == "== 2 passed in 0.1s =="


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

"""The header that asks where the time to the first token went."""

import pytest

from firsttoken_api import errors
from firsttoken_runtime.server import timing_wanted
from firsttoken_runtime.server.timing_wanted import TimingWanted


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, TimingWanted()),
        ("false", TimingWanted()),
        ("true", TimingWanted(is_in_answer=True)),
        ("stamps", TimingWanted(is_stamped=True)),
        ("true,stamps", TimingWanted(is_in_answer=True, is_stamped=True)),
        ("stamps, false", TimingWanted(is_stamped=True)),
    ],
)
def test_client_and_sidecar_may_each_ask(value, expected):
    headers = {} if value is None else {"X-Firsttoken-Timing": value}
    assert timing_wanted.of_headers(headers) == expected


@pytest.mark.parametrize("value", ["", "1", "True", "stamps,1", "true,false", "true;stamps"])
def test_anything_else_is_refused_by_name(value):
    with pytest.raises(errors.BadRequestError, match="is true or false") as refused:
        timing_wanted.of_headers({"X-Firsttoken-Timing": value})
    assert refused.value.param == "X-Firsttoken-Timing"

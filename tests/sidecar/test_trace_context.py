import pytest
from multidict import CIMultiDict

from firsttoken_sidecar import trace_context

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (f"00-{TRACE}-00f067aa0ba902b7-01", TRACE),
        (f"00-{TRACE}-00f067aa0ba902b7-03", TRACE),
        (f"cc-{TRACE}-00f067aa0ba902b7-01-what-comes", TRACE),
        (f"00-{TRACE}-00f067aa0ba902b7-00", ""),
        (f"00-{'0' * 32}-00f067aa0ba902b7-01", ""),
        (f"00-{TRACE}-{'0' * 16}-01", ""),
        (f"ff-{TRACE}-00f067aa0ba902b7-01", ""),
        (f"00-{TRACE.upper()}-00f067aa0ba902b7-01", ""),
        ('00-"} 1 # {x="-00f067aa0ba902b7-01', ""),
        ("", ""),
    ],
)
def test_only_a_recorded_trace_is_named(header: str, expected: str) -> None:
    assert trace_context.sampled_trace_id(CIMultiDict({"Traceparent": header})) == expected


def test_a_trace_begins_only_where_tracing_is_on_and_there_is_none() -> None:
    headers: CIMultiDict[str] = CIMultiDict()
    trace_context.ensure(headers, is_traced=False)
    assert not headers
    trace_context.ensure(headers, is_traced=True)
    made = headers["traceparent"]
    assert trace_context.sampled_trace_id(headers) == made.split("-")[1]
    trace_context.ensure(headers, is_traced=True)
    assert headers.getall("traceparent") == [made]
    theirs = CIMultiDict({"Traceparent": "whatever it is"})
    trace_context.ensure(theirs, is_traced=True)
    assert theirs == {"Traceparent": "whatever it is"}

import prometheus_client
import pytest

from builders import openmetrics as builders
from firsttoken_sidecar import openmetrics


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("application/openmetrics-text; version=1.0.0; charset=utf-8", True),
        (
            "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,"
            "text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
            True,
        ),
        ("text/plain, application/openmetrics-text;q=0", False),
        ("text/plain;version=0.0.4", False),
        ("*/*", False),
        ("", False),
    ],
)
def test_who_asks_for_it(accept: str, expected: bool) -> None:
    assert openmetrics.is_accepted(accept) is expected


def test_what_the_library_writes_as_text_is_read_back_the_same() -> None:
    registry = prometheus_client.CollectorRegistry()
    prometheus_client.Counter("things", 'Things\nof a "kind"', ["a"], registry=registry).labels('x"\\').inc(3)
    prometheus_client.Gauge("level:now", "A level", registry=registry).set(float("inf"))
    prometheus_client.Histogram("took_seconds", "Times", registry=registry, buckets=(0.1, 1)).observe(0.5)
    prometheus_client.Summary("size", "Sizes", registry=registry).observe(7)
    text = openmetrics.from_text(prometheus_client.generate_latest(registry)) + openmetrics.END
    found = {family.name: family for family in builders.families(text)}
    assert {name: family.type for name, family in found.items()} == {
        "things": "counter",
        "level:now": "gauge",
        "took_seconds": "histogram",
        "size": "summary",
    }
    assert found["things"].documentation == 'Things\nof a "kind"'
    (sample,) = found["things"].samples
    assert (sample.name, sample.labels, sample.value) == ("things_total", {"a": 'x"\\'}, 3)
    assert [s.value for s in found["took_seconds"].samples if s.name.endswith("_bucket")] == [0, 1, 1]


def test_what_is_not_of_the_form_does_no_harm() -> None:
    text = b"# a comment\nplain 1\n\n# TYPE odd counter\nodd 2\n# TYPE strange untyped\nstrange 3\n"
    found = builders.families(openmetrics.from_text(text) + openmetrics.END)
    assert [(family.name, family.type) for family in found] == [
        ("plain", "unknown"),
        ("odd", "unknown"),
        ("strange", "unknown"),
    ]


def test_nothing_stays_nothing() -> None:
    assert openmetrics.from_text(b"") == b""

import gzip
import itertools
import random

import pytest

from firsttoken_api.errors import UserError
from firsttoken_runtime.bench import arrivals

CSV = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:04.0319600,3180,8
2023-11-16 18:17:05.9799600,110,27
"""
JSON_LINES = """{"timestamp": 500, "input_length": 40160, "output_length": 6, "hash_ids": [0]}
{"timestamp": 3500, "input_length": 23, "output_length": 61, "hash_ids": [1]}
"""


def test_poisson_has_its_rate_and_its_spread():
    times = arrivals.poisson(random.Random(1), 4.0, 4000)
    gaps = [after - before for before, after in itertools.pairwise(times)]
    mean = sum(gaps) / len(gaps)
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert times == sorted(times)
    assert mean == pytest.approx(0.25, rel=0.05)
    assert deviation == pytest.approx(0.25, rel=0.08)  # of an exponential: its mean


def test_both_formats_are_read_plain_and_gzipped(tmp_path):
    plain = tmp_path / "trace.csv"
    plain.write_text(CSV)
    read = arrivals.read(plain, 3)
    assert [(one.prompt_tokens, one.output_tokens) for one in read] == [(4808, 10), (3180, 8), (110, 27)]
    assert [one.at_s for one in read] == pytest.approx([0, 0.052, 2.0], abs=1e-4)
    packed = tmp_path / "trace.jsonl.gz"
    packed.write_bytes(gzip.compress(JSON_LINES.encode()))
    assert arrivals.read(packed, 2) == [arrivals.Arrival(0, 40160, 6), arrivals.Arrival(3, 23, 61)]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.csv", CSV.replace("3180", "many"), "line 3"),
        ("a.csv", "x,y\n1,2\n", "line 2"),
        ("a.jsonl", '{"timestamp": 1}\n', "line 1"),
        ("a.jsonl", "[]\n", "line 1"),
        ("a.jsonl", JSON_LINES, "holds 2 requests, 3 are wanted"),
        ("a.csv.gz", "not gzip", "a.csv.gz"),
        ("missing/a.csv", None, "No such file"),
    ],
)
def test_a_wrong_trace_is_a_line_that_says_where(tmp_path, name, text, said):
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    with pytest.raises(UserError, match=said) as caught:
        arrivals.read(path, 3)
    assert "--trace" in str(caught.value)


def test_scaling_counts_what_it_cuts():
    trace = [
        arrivals.Arrival(10.0, 4808, 10),
        arrivals.Arrival(20.0, 110, 1),
        arrivals.Arrival(30.0, 900, 900),
    ]
    scaled = arrivals.scaled(trace, time_factor=0.5, length_factor=0.1, most_tokens=127)
    assert [one.at_s for one in scaled.arrivals] == [5, 10, 15]
    assert [(one.prompt_tokens, one.output_tokens) for one in scaled.arrivals] == [
        (126, 1),
        (11, 1),
        (64, 63),
    ]
    assert scaled.cut == 2

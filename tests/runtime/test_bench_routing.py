"""`bench routing` by hand: its loads, its figures and its bars."""

import pytest

from firsttoken_runtime.bench import routing, routing_report, summary
from runtime.bench_results import context, record


def sample(load: str, variant: str, records: list[summary.Record], found: int = 0) -> routing.Sample:
    return routing.Sample(load, variant, tuple(records), 10.0, routing.Cached(100, found))


def test_few_prompts_are_very_long():
    made = routing.skewed(1, 60.0)
    long = [one for one in made if one.group == routing.LONG]
    assert len(long) == round(len(made) * routing.LONG_SHARE)
    assert min(one.prompt_tokens for one in long) >= routing.LONG_TOKENS.low
    assert max(one.prompt_tokens for one in made if one.group == routing.SHORT) <= routing.SHORT_TOKENS.high
    assert len({one.text[:512] for one in made}) == len(made)


def test_shared_prompts_begin_alike_and_end_differently():
    made = routing.shared(1, 60.0)
    size = routing.PREFIX_TOKENS * 4
    assert len({one.text[:size] for one in made}) <= routing.PREFIXES
    assert len({one.text for one in made}) == len(made)
    assert [one.arrival_s for one in made] == sorted(one.arrival_s for one in made)


def test_a_request_is_refused_lost_or_broken():
    made = routing.figures(
        sample(
            routing.KILL,
            routing.PREFIX,
            [
                record(0.1, group=routing.SHORT),
                summary.Record("short", 7, 0, 0.0, 1.0, error="no", door=summary.Door(503, 0.1)),
                summary.Record("short", 7, 0, 0.0, 1.0, error="no", door=summary.Door(502, 0.1)),
                summary.Record("short", 7, 0, 0.0, 1.0, error="reset"),
                summary.Record(
                    "short", 7, 0, 0.0, 1.0, 0.3, error="error event", door=summary.Door(200, 0.1)
                ),
            ],
        )
    )
    assert (made.refused, made.lost, made.broken) == (1, 2, 1)


def test_bars_compare_with_turns_and_with_one_engine():
    samples = (
        sample(routing.SKEWED, routing.TURNS, [record(1.0)]),
        sample(routing.SKEWED, routing.LEAST, [record(0.5)]),
        sample(routing.SKEWED, routing.PREFIX, [record(0.7)]),
        sample(routing.SHARED, routing.SINGLE, [record(1.0)], found=80),
        sample(routing.SHARED, routing.PREFIX, [record(1.0)], found=76),
        sample(routing.KILL, routing.PREFIX, [record(1.0)]),
    )
    done = routing_report.Measured(samples, 10.0, context())
    assert [one.value for one in done.verdicts()] == pytest.approx([0.5, 0.7, 0.95, 0.0])
    assert [one.is_reached for one in done.verdicts()] == [True, False, True, True]
    assert routing_report.flat(done)["shared_hit_ratio"] == pytest.approx(0.95)
    assert "| shared prefixes | one engine | 1 |" in routing_report.markdown(done)
    assert routing_report.document(done)["samples"][3]["figures"]["hit_rate"] == 0.8
    assert routing_report.reasons(done) == []


def test_nothing_is_judged_that_was_not_run():
    done = routing_report.Measured((), 10.0, context(), ended="it was stopped")
    assert all(one.is_reached is None for one in done.verdicts())
    assert routing_report.reasons(done) == ["it was stopped"]

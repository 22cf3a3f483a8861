import itertools

import pytest

from firsttoken_api import flags
from firsttoken_runtime.bench import pairs, pairs_report, pairs_run, result
from runtime.bench_results import context, failed, round_

EVERY = tuple(flag.name for flag in flags.FLAGS)


def timed(variant: str, *durations_s: float):
    return [round_(variant, [0.1], repeat, duration_s) for repeat, duration_s in enumerate(durations_s)]


def test_a_flag_brings_what_it_needs():
    assert set(pairs.closure("prefix-affinity")) == {
        *("paged-kv", "continuous-batching", "prefix-cache", "prefix-affinity")
    }
    assert pairs.closure() == pairs.PLAIN


def test_pairs_are_allowed_new_and_complete():
    found = {frozenset(one.parts) for one in pairs.pairs(EVERY)}
    assert frozenset(("kv-int8", "kv-fp8")) not in found
    # The second is a part of the first already.
    assert frozenset(("prefix-affinity", "prefix-cache")) not in found
    assert frozenset(("kv-int8", "prefix-cache")) in found
    assert len(found) == len(list(itertools.combinations(pairs.FLAGS, 2))) - 3


def test_what_is_not_built_is_left_out():
    built = ("paged-kv", "continuous-batching", "chunked-prefill", "priority")
    assert [one.name for one in pairs.variants(built)] == [
        *("base", "chunked-prefill", "priority", "chunked-prefill + priority")
    ]


def test_the_load_fits_and_has_something_for_each():
    wanted = pairs.build(1, 24, 12, 100)
    requests = wanted.lanes[0].requests
    assert len(requests) == 24
    for one in requests:
        assert len(one.prompt_token_ids) + (one.output_tokens or 0) <= wanted.server.max_model_len
    assert sum(one.group == "shared" for one in requests) == 16
    assert max(len(one.prompt_token_ids) for one in requests) >= 400
    assert sum(len(one.prompt_token_ids) for one in requests[:12]) > wanted.server.kv_tokens


def test_under_the_published_rule_the_first_of_a_prefix_declares_nothing():
    requests = pairs.load(1, 24)
    kept = pairs.published(requests)
    assert [one.prompt_token_ids for one in kept] == [one.prompt_token_ids for one in requests]
    changed = [one for one, ours in zip(kept, requests, strict=True) if one != ours]
    assert len(changed) == 2
    assert {one.shared_prefix_tokens for one in changed} == {0}
    question = next(one for one in requests if one.shared_prefix_tokens)
    declared = {
        rule: tuple(one.shared_prefix_tokens for one in pairs.asked(rule, question)) for rule in pairs.RULES
    }
    assert declared == {"our rule": (192, 192), "published rule": (0, 192), "nothing declared": (0, 0)}


def test_a_pair_is_slower_only_beyond_the_noise():
    pair, other = pairs.Pair("a + b", ("a", "b")), pairs.Pair("a + c", ("a", "c"))
    rounds = [
        *timed("a", 10.0, 10.5, 9.5),
        *timed("b", 20.0, 20.0, 20.0),
        *timed("c", 12.0, 12.0, 12.0),
        *timed("a + b", 10.6, 10.6, 10.6),
        *timed("a + c", 13.0, 13.0, 13.0),
    ]
    assert pairs.noise(rounds) == pytest.approx(0.05, abs=1e-9)
    found = {one.pair.name: one for one in pairs.judge(rounds, [pair, other])}
    assert found["a + b"].best_part == "a"
    assert found["a + b"].ratio == pytest.approx(1.06)
    assert (found["a + b"].lowest, found["a + b"].highest) == pytest.approx((10.6 / 10.5, 10.6 / 9.5))
    assert not found["a + b"].is_slower
    assert found["a + c"].is_slower


def test_a_round_that_failed_or_was_cut_off_tells_nothing():
    pair = pairs.Pair("a + b", ("a", "b"))
    rounds = [*timed("a", 10.0), *timed("b", 10.0)]
    assert pairs.judge([*rounds, round_("a + b", [], records=(failed(),))], [pair]) == []
    assert pairs.judge([*rounds, round_("a + b", [0.1], is_complete=False)], [pair]) == []
    assert pairs.noise(rounds) == pairs.LEAST_NOISE


def test_the_report_names_what_is_slower_and_what_was_not_measured(tmp_path):
    wanted = pairs.build(1, 12, 4, 100)
    rounds = [
        *timed("base", 11.0, 11.0),
        *timed("chunked-prefill", 10.0, 10.0),
        *timed("priority", 9.0, 9.0),
        *timed("chunked-prefill + priority", 12.0, 12.0),
    ]
    done = pairs_report.Measured(
        result.Result(wanted, tuple(rounds), context(), "stopped"),
        (
            pairs.Pair("chunked-prefill + priority", ("chunked-prefill", "priority")),
            pairs.Pair("x + y", ("x", "y")),
        ),
        {pairs.PUBLISHED_RULE: (3, 8)},
    )
    text = pairs_report.markdown(done)
    assert "1 of 1 pairs are slower than their better part: chunked-prefill + priority." in text
    assert "1 pairs were not measured" in text
    assert "**Not complete**: stopped" in text
    assert "| chunked-prefill + priority | priority | 1.333 | 1.333 to 1.333 | **slower** |" in text
    document = pairs_report.document(done)
    assert document["pairs"][0]["is_slower"]
    assert document["rules"] == {"published rule": {"changed": 3, "asked": 8}}
    pairs_report.draw(done, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 1000


def test_questions_are_those_that_declare_a_prefix():
    found = pairs_run.questions(pairs.load(1, 24))
    assert len(found) == pairs_run.QUESTIONS
    assert all(one.shared_prefix_tokens and one.output_tokens == pairs_run.ANSWER_TOKENS for one in found)

"""The choice of a replica: one decision at a time, then thousands of them in a simulated cluster."""

import hashlib
import math
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken_api.routing import RoutingStrategy
from firsttoken_sidecar import routing
from firsttoken_sidecar.routing import Reason
from sidecar import cluster

AWARE = RoutingStrategy.PREFIX_AWARE


def replica(
    name: str,
    wait_s: float = 0.0,
    own_s: float = 1.0,
    hit_tokens: int = 0,
    zone: str = "",
    limit_s: float = math.inf,
) -> routing.Replica:
    return routing.Replica(name, zone, wait_s, wait_s + own_s, hit_tokens, limit_s)


def choose(
    *replicas: routing.Replica,
    strategy: RoutingStrategy = AWARE,
    own: str = "own",
    home: str | None = None,
    zone: str = "",
    seed: int = 1,
) -> routing.Choice:
    by_name = {each.name: each for each in replicas}
    return routing.choose(strategy, by_name, own, home, zone, random.Random(seed))


def test_alone_is_alone() -> None:
    assert choose(replica("own", wait_s=9.0)) == routing.Choice("own", Reason.ALONE)
    assert choose(replica("a"), own="own").name == "a"


def test_equals_stay_here() -> None:
    assert choose(replica("own"), replica("a"), replica("b")).name == "own"


def test_the_shorter_wait_wins_without_a_home() -> None:
    choice = choose(replica("own", 3.0), replica("a", 1.0), replica("b", 2.0))
    assert choice == routing.Choice("a", Reason.BALANCED)


def test_the_home_wins_within_its_bound() -> None:
    others = [replica(name, 1.0) for name in ("own", "a", "b")]
    assert choose(*others, replica("home", 1.2), home="home") == routing.Choice("home", Reason.HOME)


def test_past_its_bound_the_home_is_passed_over() -> None:
    others = [replica(name, 1.0) for name in ("own", "a", "b")]
    assert choose(*others, replica("home", 9.0), home="home") == routing.Choice("own", Reason.OVERFLOW)


def test_a_hit_is_worth_the_wait_that_it_saves() -> None:
    others = [replica(name, 0.0, own_s=2.0) for name in ("own", "a", "b")]
    warm = replica("home", 3.5, own_s=0.1, hit_tokens=1_000)
    assert choose(*others, warm, home="home").reason is Reason.HOME
    # Two seconds of work there, which others would wait for too.
    busy = replica("home", 4.5, own_s=0.1, hit_tokens=1_000)
    assert choose(*others, busy, home="home").reason is Reason.OVERFLOW


def test_a_home_that_would_refuse_is_passed_over() -> None:
    others = [replica(name, 1.0) for name in ("own", "a", "b")]
    home = replica("home", 1.1, hit_tokens=1, limit_s=1.5)
    assert choose(*others, home, home="home").reason is Reason.OVERFLOW


def test_where_most_is_cached_is_always_compared() -> None:
    cold = [replica(f"cold {i}", 0.0, own_s=5.0) for i in range(50)]
    warm = replica("warm", 0.5, own_s=0.1, hit_tokens=4_000)
    assert all(choose(*cold, warm, seed=seed).name == "warm" for seed in range(20))


def test_least_backlog_asks_for_no_home() -> None:
    choice = choose(
        replica("own", 2.0),
        replica("home", 1.0),
        replica("a", 0.5),
        strategy=RoutingStrategy.LEAST_BACKLOG,
        home="home",
    )
    assert choice == routing.Choice("a", Reason.BALANCED)


def test_the_own_zone_wins_ties_of_a_fifth() -> None:
    far = replica("far", 0.0, own_s=1.0, zone="z2")
    assert (
        choose(far, replica("own", 9.0, zone="z1"), replica("near", 0.15, zone="z1"), zone="z1").name
        == "near"
    )
    assert (
        choose(far, replica("own", 9.0, zone="z1"), replica("near", 0.3, zone="z1"), zone="z1").name == "far"
    )


def test_the_own_zone_is_drawn_from_even_if_it_is_small() -> None:
    far = [replica(f"far {i}", 0.0, zone="z2") for i in range(60)]
    near = replica("near", 0.0, zone="z1")
    own = replica("own", 9.0, zone="z1")
    assert all(choose(*far, near, own, zone="z1", seed=seed).name == "near" for seed in range(20))


def test_not_everybody_picks_the_one_that_is_free() -> None:
    busy = [replica(f"busy {i}", 1.0) for i in range(20)]
    free = replica("free")
    picks = Counter(choose(*busy, free, own="busy 0", seed=seed).name for seed in range(200))
    assert 5 <= picks["free"] <= 60


@given(
    st.dictionaries(
        st.sampled_from("abcdefg"),
        st.tuples(
            st.floats(0, 100), st.floats(0, 10), st.integers(0, 9_000), st.sampled_from(["", "z1", "z2"])
        ),
        min_size=1,
    ),
    st.sampled_from("abcdefgx"),
    st.sampled_from(["a", "c", "x", None]),
    st.sampled_from(["", "z1"]),
    st.sampled_from([AWARE, RoutingStrategy.LEAST_BACKLOG]),
    st.integers(0, 99),
)
def test_any_facts_give_a_replica_that_is_there(
    facts: dict[str, tuple[float, float, int, str]],
    own: str,
    home: str | None,
    zone: str,
    strategy: RoutingStrategy,
    seed: int,
) -> None:
    replicas = [replica(n, w, o, hits, z) for n, (w, o, hits, z) in facts.items()]
    choice = choose(*replicas, own=own, home=home, zone=zone, strategy=strategy, seed=seed)
    assert choice.name in facts
    if choice.reason is Reason.OVERFLOW:
        assert home in facts
        assert choice.name != home


# The cluster.


def key(*names: object) -> bytes:
    return hashlib.blake2b(repr(names).encode(), digest_size=16).digest()


def skewed(count: int, load: float, seed: int) -> list[cluster.Prompt]:
    """One prompt in ten is 32 times as long as the others; no two are alike."""
    draw = random.Random(seed)
    mean_tokens = (0.1 * 64 + 0.9 * 2) * cluster.PIECE_TOKENS + 16
    now_s = 0.0
    prompts = []
    for i in range(count):
        now_s += draw.expovariate(load * 4 * 8_000 / mean_tokens)
        pieces = 64 if draw.random() < 0.1 else 2
        prompts.append(cluster.Prompt(now_s, tuple(key(i, piece) for piece in range(pieces))))
    return prompts


def shared(count: int, systems: int, seed: int) -> list[cluster.Prompt]:
    """Each begins with one of the system prompts, the first ones more often, and ends in its own way."""
    draw = random.Random(seed)
    weights = [1 / (1 + i) for i in range(systems)]
    now_s = 0.0
    prompts = []
    for i in range(count):
        now_s += draw.expovariate(0.6 * 4 * 8_000 / (2 * cluster.PIECE_TOKENS + 16))
        system = draw.choices(range(systems), weights)[0]
        keys = [key(system, piece) for piece in range(16)] + [key(system, i, piece) for piece in range(2)]
        prompts.append(cluster.Prompt(now_s, tuple(keys)))
    return prompts


@pytest.mark.parametrize("strategy", [AWARE, RoutingStrategy.LEAST_BACKLOG])
@pytest.mark.parametrize("seed", [1, 2])
def test_skewed_long_prompts_have_their_first_token_sooner_than_in_turn(
    strategy: RoutingStrategy, seed: int
) -> None:
    prompts = skewed(2_000, 0.7, seed)
    in_turn = cluster.serve(prompts, RoutingStrategy.NONE)
    routed = cluster.serve(prompts, strategy)
    assert len(routed.ttfts_s) == len(prompts)
    assert routed.p95_s() <= 0.6 * in_turn.p95_s()


@pytest.mark.parametrize("systems", [1, 4, 40, 100])
def test_shared_prefixes_are_found_as_often_as_by_one_engine(systems: int) -> None:
    prompts = shared(3_000, systems, seed=3)
    single = cluster.serve(prompts, RoutingStrategy.NONE, replicas=1, tokens_per_s=32_000.0)
    routed = cluster.serve(prompts, AWARE)
    assert single.hit_ratio > 0.5
    assert routed.hit_ratio >= 0.9 * single.hit_ratio


def test_caches_that_hold_a_share_each_hold_more_together_than_one() -> None:
    prompts = shared(3_000, 40, seed=5)
    in_turn = cluster.serve(prompts, RoutingStrategy.NONE, cache_pieces=300)
    routed = cluster.serve(prompts, AWARE, cache_pieces=300)
    assert routed.hit_ratio >= 1.3 * in_turn.hit_ratio


def test_one_common_prefix_does_not_load_one_replica() -> None:
    routed = cluster.serve(shared(3_000, 1, seed=4), AWARE)
    tokens = [each.prompt_tokens for each in routed.engines]
    assert max(tokens) <= 1.3 * sum(tokens) / len(tokens)


def test_an_engine_that_ends_loses_no_request_before_its_first_token() -> None:
    prompts = shared(3_000, 40, seed=6)
    dies_s = prompts[len(prompts) // 2].at_s
    routed = cluster.serve(prompts, AWARE, dies_s=dies_s)
    assert routed.lost == 0
    assert len(routed.ttfts_s) == len(prompts)

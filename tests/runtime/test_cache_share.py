"""The share of the cache follows the load, between bounds, and not every lull."""

from hypothesis import given
from hypothesis import strategies as st

from firsttoken_runtime.cache import share

POOL_TOKENS = 100_000


def run(
    one: share.Share, concurrency: int, prompt: int, start_s: float, seconds: int, pinned: int = 0
) -> float:
    """So many run for so long, with a prompt every second. -> the share at the end."""
    for second in range(seconds):
        now = start_s + second
        one.load.note_running(concurrency, now)
        one.load.note_prompt(prompt, now)
        one.decide(POOL_TOKENS, pinned, now)
    return one.fraction


def test_without_load_it_is_the_setting() -> None:
    one = share.Share(0.5)
    assert one.decide(POOL_TOKENS, 0, 1000.0) == 0.5


def test_it_follows_concurrency_times_prompt_length() -> None:
    # 40 at once x 1,000 tokens = 0.4 of the pool.
    assert abs(run(share.Share(0.5), 40, 1000, 0.0, 400) - 0.4) < 1e-9


def test_it_stays_between_its_bounds() -> None:
    assert run(share.Share(0.5), 1, 10, 0.0, 400) == 0.25
    assert run(share.Share(0.5), 400, 1000, 0.0, 400) == 0.5


def test_pins_come_on_top_of_the_least_share() -> None:
    assert run(share.Share(0.5), 1, 10, 0.0, 400, pinned=10_000) == 0.35
    assert run(share.Share(0.5), 1, 10, 0.0, 400, pinned=90_000) == 0.5


def test_it_shrinks_only_after_a_while_and_grows_at_once() -> None:
    one = share.Share(0.5)
    assert run(one, 1, 10, 0.0, int(share.SHRINK_AFTER_S) - 20) == 0.5
    assert run(one, 1, 10, 100.0, 60) == 0.25
    assert run(one, 100, 2000, 160.0, 31) > 0.3


class FixedLoad(share.Load):
    """So many at once, a thousand tokens each."""

    def __init__(self, concurrency: int) -> None:
        super().__init__()
        self.concurrency = concurrency

    def p99_concurrency(self) -> int:
        return self.concurrency

    def mean_prompt_tokens(self) -> float:
        return 1000.0


def test_a_lull_that_ends_in_time_begins_anew() -> None:
    one = share.Share(0.5)
    for second in range(0, 400, 10):
        one.load = FixedLoad(50 if second % 100 == 90 else 1)
        assert one.decide(POOL_TOKENS, 0, float(second)) == 0.5


def test_a_small_difference_changes_nothing() -> None:
    one = share.Share(0.5)
    run(one, 40, 1000, 0.0, 400)
    before = one.fraction
    assert run(one, 41, 1000, 400.0, 1000) == before
    assert run(one, 38, 1000, 1400.0, 1000) == before


def test_a_busy_moment_counts_for_minutes() -> None:
    one = share.Share(0.5)
    for start_s in range(0, 110, 10):
        run(one, 30 if start_s == 50 else 1, 1000, float(start_s), 10)
    assert abs(run(one, 1, 1000, 110.0, 50) - 0.3) < 1e-9


def test_a_new_setting_is_in_force_at_once() -> None:
    one = share.Share(0.5)
    run(one, 1, 10, 0.0, 400)
    one.set_largest(0.2)
    assert one.fraction == 0.2


def test_p99_is_by_time_and_leaves_out_idle_time() -> None:
    load = share.Load()
    load.note_running(3, 0.0)
    load.note_running(50, 9.9)
    load.note_running(0, 9.95)
    load.note_running(2, 1000.0)
    load.note_running(0, 1000.2)
    assert load.p99_concurrency() == 3
    load.note_running(50, 1001.0)
    load.note_running(0, 1001.2)
    assert load.p99_concurrency() == 50


def test_old_load_is_forgotten() -> None:
    load = share.Load()
    load.note_running(90, 0.0)
    load.note_running(90, 20.0)
    load.note_prompt(9000, 20.0)
    assert load.p99_concurrency() == 90
    for second in range(21, int(share.BUCKET_S * (share.NUM_BUCKETS + 2))):
        load.note_running(4, float(second))
        load.note_prompt(100, float(second))
    assert load.p99_concurrency() == 4
    assert load.mean_prompt_tokens() == 100.0


def test_nothing_seen() -> None:
    assert share.Load().p99_concurrency() == 0
    assert share.Load().mean_prompt_tokens() == 0.0


@given(
    st.integers(0, 2000), st.floats(0, 1e5), st.integers(0, 25_000), st.integers(1, 10**6), st.floats(0.01, 1)
)
def test_what_is_wanted_is_a_share(
    p99: int, mean: float, pinned: int, pool_tokens: int, largest: float
) -> None:
    wanted = share.wanted(p99, mean, pinned, pool_tokens, largest)
    assert share.LEAST_PART * largest <= wanted <= largest

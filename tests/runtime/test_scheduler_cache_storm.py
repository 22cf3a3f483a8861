"""Any load over a prefix cache, two formats of blocks and a host tier: all end, nothing leaks, and nobody
ever reads what it would not have computed itself."""

import random
from collections import Counter
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from firsttoken_runtime.cache import blocks, formats
from firsttoken_runtime.scheduler import limits as scheduler_limits
from firsttoken_runtime.scheduler import rules
from firsttoken_runtime.scheduler import scheduler as scheduling
from firsttoken_runtime.scheduler.sequence import Sequence
from runtime import kv_model
from runtime.scheduling import TABLE, check_step, run_step, sequence

MOST = 160
SIZES = (8, 16)

any_limits = st.builds(
    scheduler_limits.Limits,
    max_model_len=st.just(MOST),
    max_num_seqs=st.integers(1, 9),
    max_num_batched_tokens=st.sampled_from([9, 64, 100, 512]),
    max_prefill_batch=st.integers(1, 4),
    continuous_batching=st.sampled_from([True, True, True, False]),
    chunk_tokens=st.sampled_from([None, 64, 512]),
    priority=st.sampled_from([True, True, True, False]),
    prefill_only_when_idle=st.sampled_from([False, False, True]),
    in_flight_sharing=st.sampled_from([True, True, False]),
    prefix_affinity_max_wait_s=st.sampled_from([None, 0.0, 3.0]),
)
any_request = st.tuples(
    st.integers(0, 2),  # whose first tokens
    st.integers(1, 100),
    st.integers(0, 40),
    st.sampled_from(["urgent", "middle", "batch", ""]),
    st.sampled_from(["", "", "one", "other"]),  # salt
    st.sampled_from([0, 0, 20, 64, 500]),  # declared
    st.sampled_from([None, None, None, 0]),  # prompt logprobs
)
any_event = st.one_of(
    st.just("step"),
    st.just("step"),
    st.integers(0, 50).map(lambda n: ("abort", n)),
    st.integers(0, 50).map(lambda n: ("hold", n)),
    st.integers(0, 50).map(lambda n: ("release", n)),
    st.just("fail"),
    st.tuples(st.booleans(), st.sampled_from(SIZES)).map(lambda pool: ("pool", *pool)),
    st.sampled_from([b"one", b"two"]).map(lambda lineage: ("lineage", lineage)),
    st.booleans().map(lambda is_on: ("host", is_on)),
    st.booleans().map(lambda is_on: ("caching", is_on)),
    st.booleans().map(lambda is_on: ("sharing", is_on)),
    st.lists(st.integers(0, 2), max_size=2).map(lambda texts: ("pin", texts)),
    any_request.map(lambda request: ("submit", *request)),
    any_request.map(lambda request: ("submit", *request)),
    any_request.map(lambda request: ("submit", *request)),
)


def text(number: int, num_tokens: int) -> list[int]:
    """Texts that part sooner or later."""
    return [position // 20 * min(number, position // 20) for position in range(num_tokens)]


def caching(block_size: int, is_quantizing: bool) -> blocks.Caching:
    """Pins leave room for the longest sequence."""
    longest = MOST // block_size
    reserved = formats.Counts(longest // 2, longest) if is_quantizing else formats.Counts(longest)
    return blocks.Caching(max_fraction=0.7, reserved=reserved)


class Storm:
    """One scheduler, and what was asked of it."""

    def __init__(self, limits: scheduler_limits.Limits, num_blocks: int, host_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.tier = kv_model.host_index(host_blocks) if host_blocks else None
        self.kv = kv_model.KvModel(self.tier)
        self.one = scheduling.Scheduler(
            limits, self.pool(is_quantizing=False, size=16), TABLE, lineage=b"one", host=self.tier
        )
        self.accepted: list[Sequence] = []
        self.ended: set[int] = set()

    def pool(self, *, is_quantizing: bool, size: int) -> blocks.Pool:
        num_blocks = self.num_blocks * 16 // size
        longest = MOST // size
        full = max(longest // 2, num_blocks // 3) if is_quantizing else num_blocks
        quantized = max(longest, 2 * (num_blocks - full)) if is_quantizing else 0
        return blocks.Pool(full, size, num_quantized=quantized, caching=caching(size, is_quantizing))

    def apply(self, event: Any, number: int) -> None:
        one, now = self.one, float(number)
        match event:
            case "step" if one.has_work:
                run_step(one, now, self.kv)
            case "fail" if one.has_work:
                running = set(one.running_ids())
                step = one.schedule(now)
                check_step(one, step, running)
                self.kv.fail(one, step)
                self.ended |= {work.sequence.sequence_id for work in step.work}
            case ("abort", sequence_id):
                one.abort(sequence_id)
                self.ended.add(sequence_id)
            case ("hold", sequence_id):
                one.hold(sequence_id)
            case ("release", sequence_id):
                one.release(sequence_id)
            case ("pool", is_quantizing, size):
                lineage = b"quantized" if is_quantizing else b"one"
                one.switch(one.limits, self.pool(is_quantizing=is_quantizing, size=size), lineage=lineage)
                self.kv.forget()
                self.reset_host()
            case ("lineage", lineage):
                one.switch(one.limits, lineage=lineage)
            case ("host", is_on):
                one.switch(one.limits, host=self.tier if is_on else None)
            case ("caching", is_on):
                is_quantizing = one.pool.totals.quantized > 0
                one.pool.set_caching(caching(one.pool.block_size_tokens, is_quantizing) if is_on else None)
                one.switch(one.limits)
            case ("sharing", is_on):
                one.switch(replace(one.limits, in_flight_sharing=is_on))
            case ("pin", texts):
                one.pin([text(each, 40) for each in texts])
            case ("submit", which, prompt, max_tokens, name, salt, declared, prompt_logprobs):
                new = sequence(
                    number,
                    text(which, prompt),
                    max_tokens,
                    arrival_s=float(number % 7),
                    request_class=name,
                    salt=salt,
                    shared=min(declared, prompt),
                    prompt_logprobs=prompt_logprobs,
                )
                one.submit(new)
                self.accepted.append(new)
                self.ended.discard(number)
        one.check_integrity()

    def reset_host(self) -> None:
        if self.tier is not None:
            self.tier.reset(self.tier.cut.bytes_of)

    def end(self, now: float) -> None:
        one = self.one
        for each in self.accepted:
            one.release(each.sequence_id)
        most = now + 4000
        while one.has_work:
            run_step(one, now, self.kv)
            now += 1.0
            assert now < most, "the queue does not drain"
        one.check_integrity()
        assert one.pool.num_used == 0
        stats = one.stats()
        assert stats.backlog_tokens == stats.live_slots == stats.waiting == stats.recompute_debt_tokens == 0
        assert len(one._roster.reuse.in_flight) == one._roster.reuse.transfers.num_wanting == 0
        if self.tier is not None:
            left = one._roster.reuse.transfers.num_saves
            assert self.tier.num_locked == left, "a hold is left on the host tier"
        for each in self.accepted:
            longest = min(each.num_prompt_tokens + each.sampling.max_tokens, MOST)
            assert each.num_tokens == longest or each.sequence_id in self.ended
            assert each.preemptions <= scheduler_limits.MAX_PREEMPTIONS


@settings(max_examples=300, deadline=None)
@given(
    limits=any_limits,
    num_blocks=st.integers(12, 30),
    host_blocks=st.sampled_from([0, 3, 40]),
    events=st.lists(any_event, max_size=60),
)
def test_all_end_nothing_leaks_and_everybody_reads_its_own(
    limits: scheduler_limits.Limits, num_blocks: int, host_blocks: int, events: list[object]
) -> None:
    storm = Storm(limits, num_blocks, host_blocks)
    for number, event in enumerate(events):
        storm.apply(event, number)
    storm.end(float(len(events)))


def any_settings(draw: random.Random) -> scheduler_limits.Limits:
    return scheduler_limits.Limits(
        max_model_len=MOST,
        max_num_seqs=draw.randint(1, 9),
        max_num_batched_tokens=draw.choice([9, 64, 100, 512]),
        max_prefill_batch=draw.randint(1, 4),
        continuous_batching=draw.random() < 0.8,
        chunk_tokens=draw.choice([None, 64, 512]),
        priority=draw.random() < 0.8,
        prefill_only_when_idle=draw.random() < 0.2,
        prefix_affinity_max_wait_s=draw.choice([None, 0.0, 3.0]),
    )


def any_of(draw: random.Random) -> Any:
    """Mostly steps and requests."""
    chance = draw.random()
    for most, kind in (
        (0.50, "step"),
        (0.56, ("abort", draw.randrange(400))),
        (0.57, "fail"),
        (0.58, ("hold", draw.randrange(400))),
        (0.60, ("release", draw.randrange(400))),
        (0.605, ("pool", draw.random() < 0.6, draw.choice(SIZES))),
        (0.61, ("lineage", draw.choice((b"one", b"two")))),
        (0.615, ("host", draw.random() < 0.7)),
        (0.62, ("caching", draw.random() < 0.8)),
        (0.625, ("sharing", draw.random() < 0.8)),
        (0.64, ("pin", [draw.randrange(3) for _ in range(draw.randrange(3))])),
    ):
        if chance < most:
            return kind
    return (
        "submit",
        draw.randrange(3),
        draw.randint(1, 100),
        draw.randint(0, 40),
        draw.choice(["urgent", "middle", "batch", ""]),
        draw.choice(["", "", "one", "other"]),
        draw.choice([0, 0, 20, 64, 500]),
        draw.choice([None, None, None, 0]),
    )


def test_every_kind_of_decision_is_seen_in_a_long_storm() -> None:
    """Long runs reach what short ones do not; all that `apply` and `end` check holds as well."""
    seen: Counter[str] = Counter()
    num_public = 0
    for seed in (0, 1, 8, 12):
        draw = random.Random(seed)
        storm = Storm(any_settings(draw), draw.randint(12, 30), draw.choice([0, 3, 40]))
        for number in range(200):
            storm.apply(any_of(draw), number)
            num_public += sum(each.num_public_blocks for each in storm.one._roster.running)
        storm.end(200.0)
        seen += Counter(storm.one.stats().rule_decisions)
    rare = {rules.Reason.SHARING_STALLED, rules.Reason.SHARING_GONE}
    unmeasured = {rules.Reason.REUSE_HOST_TOO_SHORT}
    assert num_public > 0, "salted requests that read what is pinned"
    assert set(seen) | rare == set(rules.Reason) - unmeasured

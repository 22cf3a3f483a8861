import math

from hypothesis import given
from hypothesis import strategies as st

from firsttoken_runtime.server import stages as engine_stages
from firsttoken_runtime.server import stamps
from firsttoken_sidecar import stages
from firsttoken_sidecar.stages import Stage, Stamps

SECONDS = st.floats(0, 1000)
SPLIT = {
    "tokenize": 0.01,
    "queue": 0.2,
    "tier_load": 0.0,
    "prefill": 0.3,
    "first_sample": 0.02,
    "write": 0.03,
}


def test_the_engine_has_these_stages_in_this_order() -> None:
    """What it says over the wire is understood here by name."""
    said = [*(stage.value for stage in engine_stages.Stage), stamps.DECODE]
    assert [stage.value for stage in stages.ENGINE_STAGES] == said


def test_what_nobody_explains_is_the_way() -> None:
    found = stages.split(1.0, 0.1, 0.05, Stamps(ttft_s=0.56, stages_s=SPLIT))
    assert math.isclose(found[Stage.FORWARD], 1.0 - 0.1 - 0.05 - 0.56)
    assert {stage.value: found[stage] for stage in stages.ENGINE_STAGES} == {**SPLIT, "decode": 0.0}
    assert (found[Stage.SIDECAR_QUEUE], found[Stage.SIDECAR_WRITE]) == (0.1, 0.05)


def test_without_stamps_all_of_the_engine_is_the_way() -> None:
    found = stages.split(1.0, 0.25, 0.25, None)
    assert found[Stage.FORWARD] == 0.5
    assert sum(found.values()) == 1.0


def test_who_joins_late_has_waited_for_the_last_stages() -> None:
    # 0.6 s of an engine's time, of which it saw 0.3.
    found = stages.split(0.3, 0.0, 0.0, Stamps(stages_s={"queue": 0.4, "prefill": 0.2}))
    assert math.isclose(found[Stage.PREFILL], 0.2)
    assert math.isclose(found[Stage.QUEUE], 0.1)
    assert found[Stage.FORWARD] == 0.0


@given(
    SECONDS, st.floats(-1, 1000), st.floats(-1, 1000), st.lists(st.floats(-1, 500), min_size=7, max_size=7)
)
def test_stages_add_up_and_none_is_negative(
    ttft_s: float, queue_s: float, write_s: float, said: list[float]
) -> None:
    names = [stage.value for stage in stages.ENGINE_STAGES]
    found = stages.split(ttft_s, queue_s, write_s, Stamps(stages_s=dict(zip(names, said, strict=True))))
    assert set(found) == set(Stage)
    assert all(seconds >= 0 for seconds in found.values())
    assert math.isclose(math.fsum(found.values()), ttft_s, rel_tol=1e-12, abs_tol=1e-12)


def test_the_words_of_the_engine() -> None:
    first = stages.first(
        b'{"prompt_tokens":9,"cached_tokens":4,"ttft_ms":250.0,"stages_ms":{"queue":250.0},"new":[1]}'
    )
    assert first == Stamps(9, 4, 0.25, {"queue": 0.25})
    assert first.uncached_tokens == 5
    both = stages.completed(first, b'{"completion_tokens":7,"cached_tokens":3}')
    assert both == Stamps(9, 3, 0.25, {"queue": 0.25}, completion_tokens=7)
    assert stages.completed(None, b'{"completion_tokens":7}') == Stamps(completion_tokens=7)
    assert stages.first('{"completion_tokens":2,"choices":2}') == Stamps(choices=2, completion_tokens=2)


def test_what_is_not_understood_says_nothing() -> None:
    for document in (b"{", b"[]", b"\xff{}", b'{"ttft_ms":"much"}', b'{"stages_ms":[1]}'):
        assert stages.first(document) is None
        assert stages.completed(Stamps(prompt_tokens=3), b"[]") == Stamps(prompt_tokens=3)
    assert Stamps(prompt_tokens=1, cached_tokens=2).uncached_tokens == 0
    absurd = stages.first(b'{"prompt_tokens":9007199254740993,"stages_ms":{"queue":1e308}}')
    assert absurd is not None
    assert absurd.uncached_tokens == stages.MOST_TOKENS
    assert stages.split(1.0, 0.0, 0.0, absurd)[Stage.QUEUE] == 1.0

"""Hot settings -> switches."""

import pytest

from firsttoken_api import flags as api_flags
from firsttoken_api import hot_settings
from firsttoken_runtime.engine import flags
from firsttoken_runtime.scheduler import classes as request_classes


def effective(**enabled: bool | dict[str, str]) -> tuple[hot_settings.EffectiveFlag, ...]:
    """paged_kv=False -> off; chunked_prefill={...} -> on with these parameters."""
    return tuple(
        hot_settings.EffectiveFlag(
            name=name.replace("_", "-"),
            enabled=value is not False,
            params=value if isinstance(value, dict) else {},
        )
        for name, value in enabled.items()
    )


def test_defaults_are_those_of_the_flag_table() -> None:
    assert flags.defaults() == flags.InForce(
        enabled=tuple(name for name in api_flags.BUILT if api_flags.BY_NAME[name].on_by_default),
        paged_kv=True,
        continuous_batching=True,
        chunk_tokens=512,
        priority=True,
    )


def test_each_flag_can_be_off() -> None:
    assert not flags.from_settings(effective(paged_kv=False)).paged_kv
    assert flags.from_settings(effective(chunked_prefill=False)).chunk_tokens is None
    off = flags.from_settings(effective(continuous_batching=False))
    assert not off.continuous_batching
    assert off.enabled == ("paged-kv",), "chunked-prefill is on by default only and gives way"


def test_parameters() -> None:
    assert flags.from_settings(effective(chunked_prefill={"chunkTokens": "64"})).chunk_tokens == 64


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (effective(kv_int8=True), "flag 'kv-int8' is not built"),
        (effective(nonsense=True), "flag 'nonsense' is not built"),
        (effective(continuous_batching=False, chunked_prefill=True), "'chunked-prefill' needs 'continuous"),
        (effective(chunked_prefill={"chunkTokens": "63"}), "'chunkTokens'.* is 63, allowed is 64 to 4096"),
        (effective(chunked_prefill={"chunkTokens": "many"}), "'chunkTokens'.* not a whole number"),
        (effective(paged_kv={"blockSize": "32"}), "'blockSize' .*cannot be set while serving"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(
    given: tuple[hot_settings.EffectiveFlag, ...], words: str
) -> None:
    with pytest.raises(flags.BadFlags, match=words):
        flags.from_settings(given)


def test_classes_and_pace_come_with_the_document() -> None:
    document = hot_settings.HotSettings(
        generation=1,
        flags=effective(length_control=True, priority=False),
        objective=hot_settings.Objective(ttft_p95_s=0.5, tpot_p95_s=0.05),
        classes=(hot_settings.ClassSettings(name="fast", priority=7, ttft_p99_s=1.0, max_tokens=64),),
        default_class="fast",
    )
    in_force = flags.from_hot_settings(document)
    assert (in_force.length_control, in_force.priority, in_force.tpot_p95_s) == (True, False, 0.05)
    assert in_force.classes.find("") == request_classes.RequestClass("fast", 7, 64)


def test_an_unknown_flag_that_is_off_is_no_problem() -> None:
    assert flags.from_settings(effective(from_the_future=False)) == flags.defaults()

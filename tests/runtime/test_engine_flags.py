"""Hot settings -> switches."""

from dataclasses import replace

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


CACHE_FLAGS = ("prefix-cache", "prefix-affinity", "kv-tiering", "kv-int8", "kv-fp8")


@pytest.fixture(autouse=True)
def built(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the engine understands, whichever of it the API already lets through."""
    table = tuple(
        replace(flag, built=True, parameters=tuple(replace(one, built=True) for one in flag.parameters))
        if flag.name in CACHE_FLAGS
        else flag
        for flag in api_flags.FLAGS
    )
    monkeypatch.setattr(api_flags, "FLAGS", table)
    monkeypatch.setattr(api_flags, "BY_NAME", {flag.name: flag for flag in table})
    monkeypatch.setattr(api_flags, "BUILT", tuple(flag.name for flag in table if flag.built))


def test_defaults_are_those_of_the_flag_table() -> None:
    assert flags.defaults() == flags.InForce(
        enabled=tuple(name for name in api_flags.BUILT if api_flags.BY_NAME[name].on_by_default),
        paged_kv=True,
        continuous_batching=True,
        chunk_tokens=512,
        priority=True,
        prefix_cache=flags.PrefixCache(max_fraction=0.5, protected_fraction=0.8),
    )


def test_each_flag_can_be_off() -> None:
    assert not flags.from_settings(effective(paged_kv=False)).paged_kv
    assert flags.from_settings(effective(chunked_prefill=False)).chunk_tokens is None
    off = flags.from_settings(effective(continuous_batching=False))
    assert not off.continuous_batching
    assert off.enabled == ("paged-kv", "prefix-cache"), "what is on by default only gives way"


def test_parameters() -> None:
    assert flags.from_settings(effective(chunked_prefill={"chunkTokens": "64"})).chunk_tokens == 64
    given = {"maxFraction": "0.25", "protectedFraction": "0.5"}
    assert flags.from_settings(effective(prefix_cache=given)).prefix_cache == flags.PrefixCache(0.25, 0.5)
    assert flags.from_settings(effective(prefix_affinity=True)).affinity_max_wait_s == 0.02
    waiting = flags.from_settings(effective(prefix_affinity={"maxWait": "500ms"}))
    assert waiting.affinity_max_wait_s == 0.5


@pytest.mark.parametrize("kv_type", ["int8", "fp8"])
def test_kv_types(kv_type: str) -> None:
    name = f"kv_{kv_type}"
    by_default = flags.from_settings(effective(**{name: True}))
    assert (by_default.kv_type, by_default.full_precision_layers) == (kv_type, 2)
    flags.check_model(by_default, num_layers=3)
    with pytest.raises(flags.BadFlags, match="the model has 2 layers"):
        flags.check_model(by_default, num_layers=2)
    none = flags.from_settings(effective(**{name: {"fullPrecisionLayers": "0"}}))
    flags.check_model(none, num_layers=1)


def test_without_a_kv_type_everything_is_full() -> None:
    assert (flags.defaults().kv_type, flags.defaults().full_precision_layers) == ("full", 0)
    flags.check_model(flags.defaults(), num_layers=1)


def test_prefix_cache_gives_way_to_slabs_and_takes_its_dependents_along() -> None:
    off = flags.from_settings(effective(paged_kv=False))
    assert off.prefix_cache is None
    assert "prefix-cache" not in off.enabled


def test_tiering() -> None:
    assert not flags.defaults().kv_tiering
    assert flags.from_settings(effective(kv_tiering=True)).kv_tiering


def test_a_flag_comes_after_what_it_needs() -> None:
    """Dependents give way in one pass over the table."""
    names = [flag.name for flag in api_flags.FLAGS]
    for flag in api_flags.FLAGS:
        assert all(names.index(needed) < names.index(flag.name) for needed in flag.needs)


def test_the_default_of_every_hot_parameter_is_a_number() -> None:
    for flag in api_flags.FLAGS:
        for one in flag.parameters:
            if flag.built and one.built and not one.cold:
                flags.default(flag.name, one.name)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (effective(fp8_linear=True), "flag 'fp8-linear' is not built"),
        (effective(nonsense=True), "flag 'nonsense' is not built"),
        (effective(continuous_batching=False, chunked_prefill=True), "chunked-prefill needs continuous-"),
        (effective(chunked_prefill={"chunkTokens": "63"}), "'chunkTokens'.*'63' is not .* from 64 to 4096"),
        (effective(chunked_prefill={"chunkTokens": "many"}), "'chunkTokens'.*'many' is not a whole number"),
        (effective(paged_kv={"blockSize": "32"}), "'blockSize' .*cannot be set while serving"),
        (effective(kv_int8=True, kv_fp8=True), "rule kv-int8 excludes kv-fp8"),
        (effective(prefix_cache=False, kv_tiering=True), "kv-tiering needs prefix-cache"),
        (effective(paged_kv=False, prefix_affinity=True), "prefix-affinity needs prefix-cache"),
        (effective(prefix_cache={"maxFraction": "1.5"}), "'maxFraction'.*'1.5' is not"),
        (effective(prefix_cache={"protectedFraction": "0.81"}), "'protectedFraction'.*'0.81' is not"),
        (effective(prefix_cache={"maxFraction": "half"}), "'maxFraction'.*'half' is not"),
        (effective(prefix_affinity={"maxWait": "20"}), "'maxWait'.*'20' is not"),
        (effective(prefix_affinity={"maxWait": "2m"}), "'maxWait'.*'2m' is not"),
        (effective(kv_int8={"fullPrecisionLayers": "-1"}), "'fullPrecisionLayers'.*'-1' is not"),
        (effective(kv_tiering={"hostMemory": "4Gi"}), "'hostMemory' .*cannot be set while serving"),
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

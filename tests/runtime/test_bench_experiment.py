import pytest

from firsttoken_api import flags
from firsttoken_api.errors import UserError
from firsttoken_api.hot_settings import HotSettings
from firsttoken_runtime.bench import experiment


def test_a_variant_is_what_its_name_says_whatever_the_defaults_are():
    variant = experiment.Variant("one", ("paged-kv",))
    settings = variant.settings(7)
    assert {flag.name: flag.enabled for flag in settings.flags} == {
        name: name == "paged-kv" for name in flags.BUILT
    }
    assert settings.generation == 7
    again = HotSettings.model_validate_json(settings.model_dump_json())
    assert again.hash == again.content_hash() != ""


def test_parameters_of_a_flag_that_is_off_are_left_out():
    params = {"chunked-prefill": {"chunkTokens": "128"}}
    on = experiment.Variant("on", ("chunked-prefill",), params=params).settings(1)
    off = experiment.Variant("off", (), params=params).settings(1)
    assert [flag.params for flag in on.flags if flag.params] == [{"chunkTokens": "128"}]
    assert [flag.params for flag in off.flags if flag.params] == []


def test_a_flag_that_is_not_built_is_refused_by_name():
    with pytest.raises(UserError, match="variant 'x' needs the flag no-such-flag"):
        experiment.Variant("x", ("paged-kv", "no-such-flag")).check_built()


def test_needs_become_options():
    needs = experiment.ServerNeeds(max_model_len=96, kv_tokens=8 * 96, max_num_batched_tokens=200)
    options = needs.options()
    assert options[options.index("--kv-blocks") + 1] == "48"
    assert options[options.index("--max-num-batched-tokens") + 1] == "200"
    plain = experiment.ServerNeeds(96, 96).options()
    assert not {"--max-num-batched-tokens", "--host-memory", "--enable", "--batch-invariant"} & set(plain)
    tiered = experiment.ServerNeeds(96, 96, host_memory_bytes=4096, batch_invariant=True).options()
    assert tiered[len(plain) :] == ["--host-memory", "4096", "--enable", "kv-tiering", "--batch-invariant"]


def test_a_variant_is_compared_with_the_one_it_names_or_the_first():
    first, other = experiment.Variant("first", ()), experiment.Variant("other", (), against="own")
    own = experiment.Variant("own", (), lanes=())
    made = experiment.Experiment("x", "X", (first, other, own), (), experiment.ServerNeeds(96, 96))
    assert [made.base_of(one).name for one in made.variants] == ["first", "own", "first"]


def test_a_limit_has_one_side():
    assert experiment.Limit("x", at_most=2.0).is_reached(2.0)
    assert not experiment.Limit("x", at_least=2.0).is_reached(1.9)
    for wrong in ({}, {"at_most": 1.0, "at_least": 1.0}):
        with pytest.raises(AssertionError):
            experiment.Limit("x", **wrong)

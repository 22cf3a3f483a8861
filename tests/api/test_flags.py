import pytest

from firsttoken_api import bounded_text, flags


def test_names_are_unique_and_known_where_they_are_named() -> None:
    assert len(flags.BY_NAME) == len(flags.FLAGS)
    for flag in flags.FLAGS:
        assert {*flag.needs, *flag.excludes} <= flags.BY_NAME.keys(), flag.name
        assert flag.name not in {*flag.needs, *flag.excludes}


def test_exclusion_is_mutual() -> None:
    for flag in flags.FLAGS:
        for other in flag.excludes:
            assert flag.name in flags.BY_NAME[other].excludes


def test_risk_grows_down_the_table() -> None:
    classes = [flag.flag_class for flag in flags.FLAGS]
    assert classes.index(flags.FlagClass.EXACT) < classes.index(flags.FlagClass.CLOSE)
    assert classes.index(flags.FlagClass.CLOSE) < classes.index(flags.FlagClass.LOSSY)


def test_what_a_built_flag_needs_is_built() -> None:
    for name in flags.BUILT:
        assert set(flags.BY_NAME[name].needs) <= set(flags.BUILT)


PARAMETERS = [(flag, parameter) for flag in flags.FLAGS for parameter in flag.parameters]


def test_what_is_built_is_checked() -> None:
    for flag, parameter in PARAMETERS:
        if parameter.built:
            assert flag.built
            assert parameter.values is not None, parameter


def test_bounds_and_defaults_are_values_of_their_kind() -> None:
    for _, parameter in PARAMETERS:
        if parameter.values is None:
            continue
        if isinstance(parameter.values, bounded_text.Range):
            assert parameter.values.holds(parameter.values.minimum), parameter
            assert not parameter.values.maximum or parameter.values.holds(parameter.values.maximum)
        assert parameter.values.holds(parameter.default) or parameter.default in ("auto", "")


def _parameter(flag: str, name: str) -> flags.Parameter:
    return next(each for each in flags.BY_NAME[flag].parameters if each.name == name)


@pytest.mark.parametrize(
    ("flag", "name", "text", "number"),
    [
        ("paged-kv", "blockSize", "016", 16),
        ("prefix-cache", "maxFraction", "0.50", 0.5),
        ("prefix-cache", "protectedFraction", "0", 0),
        ("prefix-affinity", "maxWait", "20ms", 0.02),
        ("prefix-affinity", "maxWait", "1m", 60),
        ("kv-int8", "fullPrecisionLayers", "0", 0),
        ("kv-tiering", "hostMemory", "1.5Gi", 3 * 2**29),
    ],
)
def test_values_as_numbers(flag: str, name: str, text: str, number: float) -> None:
    assert _parameter(flag, name).number(text) == number


@pytest.mark.parametrize(
    ("flag", "name", "text", "message"),
    [
        ("paged-kv", "blockSize", "7", "'7' is not a whole number from 8 to 128"),
        ("paged-kv", "maxBlocks", "0", "'0' is not auto or a whole number of at least 1"),
        ("prefix-cache", "maxFraction", "0", "'0' is not a decimal from 0.01 to 1"),
        ("prefix-cache", "maxFraction", "0.5000", "is not a decimal"),
        ("prefix-cache", "protectedFraction", "0.81", "is not a decimal from 0 to 0.80"),
        ("prefix-affinity", "maxWait", "60001ms", "is not a duration from 0s to 60s"),
        ("kv-fp8", "fullPrecisionLayers", "257", "is not a whole number from 0 to 256"),
        ("kv-tiering", "hostMemory", "1Mi", "is not auto or a quantity from 16Mi to 16Ti"),
    ],
)
def test_other_values_are_refused_with_what_is_allowed(flag: str, name: str, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _parameter(flag, name).number(text)


def test_a_claim_has_a_name_or_none() -> None:
    claim = _parameter("kv-tiering", "claimName")
    assert all(claim.holds(text) for text in ("", "warm", "warm.blocks-1"))
    assert not any(claim.holds(text) for text in ("Warm", "-warm", "a/b", ".."))
    assert claim.allowed == "empty or the name of a claim"


def test_rules_have_one_name_whichever_flag_is_asked_about() -> None:
    assert flags.excludes_rule("kv-fp8", "kv-int8") == flags.excludes_rule("kv-int8", "kv-fp8")
    assert flags.excludes_rule("kv-fp8", "kv-int8") == "kv-int8 excludes kv-fp8"
    assert flags.needs_rule("kv-tiering", "prefix-cache") == "kv-tiering needs prefix-cache"

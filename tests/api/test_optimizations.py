import pytest
from pydantic import TypeAdapter, ValidationError

from firsttoken_api import flags, optimizations

ADAPTER: TypeAdapter[tuple[optimizations.Optimization, ...]] = TypeAdapter(optimizations.Optimizations)


def test_the_refusal_names_every_built_flag() -> None:
    with pytest.raises(ValidationError) as caught:
        ADAPTER.validate_python([{"name": "semantic-cache", "mode": "Gated"}])
    assert all(name in str(caught.value) for name in flags.BUILT)


@pytest.mark.parametrize("flag", [flag for flag in flags.FLAGS if not flag.built], ids=lambda flag: flag.name)
def test_a_flag_that_is_not_built_is_refused(flag: flags.Flag) -> None:
    with pytest.raises(ValidationError):
        ADAPTER.validate_python([{"name": flag.name, "mode": "Disabled"}])


@pytest.mark.parametrize("name", flags.BUILT)
def test_every_parameter_that_is_not_built_or_of_another_flag_is_refused(name: str) -> None:
    built = {parameter.name for parameter in optimizations.built_parameters(flags.BY_NAME[name])}
    others = {parameter.name for flag in flags.FLAGS for parameter in flag.parameters} - built
    assert len(others) > 10
    for other in others:
        with pytest.raises(ValidationError, match=f"{name} may be in this version"):
            ADAPTER.validate_python([{"name": name, "mode": "Forced", "params": {other: "1"}}])


def test_every_default_of_a_built_parameter_is_accepted() -> None:
    for flag in flags.FLAGS:
        params = {p.name: p.default for p in optimizations.built_parameters(flag)}
        if flag.built:
            ADAPTER.validate_python([{"name": flag.name, "mode": "Forced", "params": params}])


def test_needs_are_only_refused_when_the_contradiction_is_written_down() -> None:
    ADAPTER.validate_python([{"name": "continuous-batching", "mode": "Disabled"}])
    ADAPTER.validate_python(
        [{"name": "continuous-batching", "mode": "Disabled"}, {"name": "chunked-prefill", "mode": "Gated"}]
    )
    with pytest.raises(ValidationError, match="breaks the rule 'chunked-prefill needs continuous-batching'"):
        ADAPTER.validate_python(
            [
                {"name": "continuous-batching", "mode": "Disabled"},
                {"name": "chunked-prefill", "mode": "Forced"},
            ]
        )


def test_names_are_unique() -> None:
    with pytest.raises(ValidationError, match="twice"):
        ADAPTER.validate_python(
            [{"name": "paged-kv", "mode": "Forced"}, {"name": "paged-kv", "mode": "Gated"}]
        )

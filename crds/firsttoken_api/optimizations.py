"""`spec.optimizations`: what a user asks of each flag. Every rule is derived from `flags.FLAGS`."""

import re
from typing import Annotated, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from firsttoken_api import auto, cel, flags
from firsttoken_api.base import SpecModel
from firsttoken_api.flags import FlagMode

NAME_IS_BUILT = cel.Rule(
    f"self in {cel.quoted_list(flags.BUILT)}",
    "spec.optimizations[].name must be a flag of this version: " + ", ".join(flags.BUILT),
)


def built_parameters(flag: flags.Flag) -> tuple[flags.Parameter, ...]:
    return tuple(parameter for parameter in flag.parameters if parameter.built)


def _names_rule(flag: flags.Flag) -> cel.Rule:
    """Only built parameters may be set."""
    names = tuple(parameter.name for parameter in built_parameters(flag))
    allowed = ", ".join(names) if names else "none"
    guard = f"self.name != '{flag.name}' || !has(self.params)"
    expression = (
        f"self.params.all(key, key in {cel.quoted_list(names)})" if names else "size(self.params) == 0"
    )
    return cel.Rule(
        f"{guard} || {expression}",
        f"spec.optimizations[].params of {flag.name} may be in this version: {allowed}",
        field_path=".params",
    )


_WHOLE_NUMBER = "^[0-9]{1,9}$"


def _range_rule(flag: flags.Flag, parameter: flags.Parameter) -> cel.Rule:
    """A parameter with bounds is a whole number inside them; one that is `auto` by default may be that."""
    value = f"self.params['{parameter.name}']"
    number = f"{value}.matches('{_WHOLE_NUMBER}') && int({value}) >= {parameter.minimum}"
    allowed = f"a whole number of at least {parameter.minimum}"
    if parameter.maximum is not None:
        number += f" && int({value}) <= {parameter.maximum}"
        allowed = f"a whole number from {parameter.minimum} to {parameter.maximum}"
    if parameter.default == auto.AUTO:
        number = f"{value} == '{auto.AUTO}' || ({number})"
        allowed = f"{auto.AUTO} or {allowed}"
    return cel.Rule(
        f"self.name != '{flag.name}' || !has(self.params) || !('{parameter.name}' in self.params)"
        f" || ({number})",
        f"spec.optimizations[].params.{parameter.name} of {flag.name} must be {allowed}, in quotes",
        field_path=".params",
    )


def _is_in_range(parameter: flags.Parameter, text: str) -> bool:
    """The Python side of `_range_rule`."""
    if text == parameter.default == auto.AUTO:
        return True
    assert parameter.minimum is not None
    if not re.fullmatch(_WHOLE_NUMBER, text):
        return False
    return parameter.minimum <= int(text) and (parameter.maximum is None or int(text) <= parameter.maximum)


def _bounded(flag: flags.Flag) -> tuple[flags.Parameter, ...]:
    return tuple(parameter for parameter in built_parameters(flag) if parameter.minimum is not None)


NAME_RULES = {name: _names_rule(flags.BY_NAME[name]) for name in flags.BUILT}
RANGE_RULES = {
    (name, parameter.name): _range_rule(flags.BY_NAME[name], parameter)
    for name in flags.BUILT
    for parameter in _bounded(flags.BY_NAME[name])
}


def _needs_rule(flag: str, needed: str) -> cel.Rule:
    return cel.Rule(
        f"!(self.exists(o, o.name == '{flag}' && o.mode == 'Forced')"
        f" && self.exists(o, o.name == '{needed}' && o.mode == 'Disabled'))",
        f"spec.optimizations: {flag} Forced needs {needed}, which is Disabled",
    )


def _excludes_rule(flag: str, other: str) -> cel.Rule:
    return cel.Rule(
        f"!(self.exists(o, o.name == '{flag}' && o.mode != 'Disabled')"
        f" && self.exists(o, o.name == '{other}' && o.mode != 'Disabled'))",
        f"spec.optimizations: {flag} and {other} exclude each other; set one to Disabled",
    )


NEEDS_RULES = {
    (flag.name, needed): _needs_rule(flag.name, needed)
    for flag in flags.FLAGS
    for needed in flag.needs
    if flag.built and flags.BY_NAME[needed].built
}
EXCLUDES_RULES = {
    (flag.name, other): _excludes_rule(flag.name, other)
    for flag in flags.FLAGS
    for other in flag.excludes
    if flag.built and flags.BY_NAME[other].built and flag.name < other
}


def _check_name(name: str) -> str:
    NAME_IS_BUILT.check(name in flags.BUILT)
    return name


class Optimization(SpecModel):
    """What is asked of one flag."""

    model_config = ConfigDict(json_schema_extra=cel.rules(*NAME_RULES.values(), *RANGE_RULES.values()))

    name: Annotated[
        str, Field(max_length=40, json_schema_extra=cel.rules(NAME_IS_BUILT)), AfterValidator(_check_name)
    ]
    """The flag."""
    mode: FlagMode
    """Disabled: off. Gated: on once the regression eval passed. Forced: on at once, unjudged."""
    params: Annotated[
        dict[Annotated[str, Field(max_length=40)], Annotated[str, Field(max_length=64)]],
        Field(max_length=8),
    ] = Field(default_factory=dict)
    """Parameters of the flag, as strings."""

    @model_validator(mode="after")
    def _parameters_fit(self) -> Self:
        flag = flags.BY_NAME[self.name]
        NAME_RULES[self.name].check(self.params.keys() <= {p.name for p in built_parameters(flag)})
        for parameter in _bounded(flag):
            text = self.params.get(parameter.name, parameter.default)
            RANGE_RULES[self.name, parameter.name].check(_is_in_range(parameter, text))
        return self


def check(optimizations: tuple[Optimization, ...]) -> tuple[Optimization, ...]:
    """Names are unique, and what flags need and exclude of each other holds."""
    modes = {optimization.name: optimization.mode for optimization in optimizations}
    if len(modes) != len(optimizations):
        raise ValueError("spec.optimizations names a flag twice")
    for (flag, needed), rule in NEEDS_RULES.items():
        rule.check(modes.get(flag) != FlagMode.FORCED or modes.get(needed) != FlagMode.DISABLED)
    for (flag, other), rule in EXCLUDES_RULES.items():
        wanted = [modes.get(name, FlagMode.DISABLED) != FlagMode.DISABLED for name in (flag, other)]
        rule.check(not all(wanted))
    return optimizations


Optimizations = Annotated[
    tuple[Optimization, ...],
    Field(
        max_length=32,
        json_schema_extra=cel.merged(
            cel.list_map("name"), cel.rules(*NEEDS_RULES.values(), *EXCLUDES_RULES.values())
        ),
    ),
    AfterValidator(check),
]

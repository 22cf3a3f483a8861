"""`spec.optimizations`: what a user asks of each flag. Every rule is derived from `flags.FLAGS`."""

import itertools
from typing import Annotated, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from firsttoken_api import cel, flags
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


def _value_rule(flag: flags.Flag, parameter: flags.Parameter) -> cel.Rule:
    """The API server's side of `flags.Parameter.holds`."""
    assert parameter.values is not None, parameter.name
    value = f"self.params['{parameter.name}']"
    holds = parameter.values.expression(value)
    if not parameter.values.holds(parameter.default):
        holds = f"{value} == '{parameter.default}' || ({holds})"
    return cel.Rule(
        f"self.name != '{flag.name}' || !has(self.params) || !('{parameter.name}' in self.params)"
        f" || ({holds})",
        f"spec.optimizations[].params.{parameter.name} of {flag.name} must be {parameter.allowed}, in quotes",
        field_path=".params",
    )


NAME_RULES = {name: _names_rule(flags.BY_NAME[name]) for name in flags.BUILT}
VALUE_RULES = {
    (name, parameter.name): _value_rule(flags.BY_NAME[name], parameter)
    for name in flags.BUILT
    for parameter in built_parameters(flags.BY_NAME[name])
}


def _needs_rule(flag: str, needed: str) -> cel.Rule:
    return cel.Rule(
        f"!(self.exists(o, o.name == '{flag}' && o.mode == 'Forced')"
        f" && self.exists(o, o.name == '{needed}' && o.mode == 'Disabled'))",
        f"spec.optimizations breaks the rule '{flags.needs_rule(flag, needed)}': {flag} is Forced and "
        f"{needed} is Disabled",
    )


def _excludes_rule(flag: str, other: str) -> cel.Rule:
    return cel.Rule(
        f"!(self.exists(o, o.name == '{flag}' && o.mode != 'Disabled')"
        f" && self.exists(o, o.name == '{other}' && o.mode != 'Disabled'))",
        f"spec.optimizations breaks the rule '{flags.excludes_rule(flag, other)}': "
        "set one of them to Disabled",
    )


def _all_needs(flag: flags.Flag) -> tuple[str, ...]:
    """What the flag needs, and what that needs."""
    found = dict.fromkeys(flag.needs)
    for needed in flag.needs:
        found |= dict.fromkeys(_all_needs(flags.BY_NAME[needed]))
    return tuple(found)


NEEDS_RULES = {
    (name, needed): _needs_rule(name, needed)
    for name in flags.BUILT
    for needed in _all_needs(flags.BY_NAME[name])
}
EXCLUDES_RULES = {
    (name, other): _excludes_rule(name, other)
    for name, other in itertools.combinations(flags.BUILT, 2)
    if other in flags.BY_NAME[name].excludes
}


def _check_name(name: str) -> str:
    NAME_IS_BUILT.check(name in flags.BUILT)
    return name


class Optimization(SpecModel):
    """What is asked of one flag."""

    model_config = ConfigDict(json_schema_extra=cel.rules(*NAME_RULES.values(), *VALUE_RULES.values()))

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
        for parameter in built_parameters(flag):
            text = self.params.get(parameter.name, parameter.default)
            VALUE_RULES[self.name, parameter.name].check(parameter.holds(text))
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

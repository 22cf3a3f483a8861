"""The hot settings that `firsttoken serve` starts with: a document in a pod, options by hand.

By hand every built flag is at its default but for what `--enable` and `--disable` name; needs and excludes
are checked here, values of parameters where they are used, by the engine.
"""

from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from firsttoken_api import flags
from firsttoken_api.hot_settings import EffectiveFlag, HotSettings, Objective
from firsttoken_runtime.settings import DEFAULT_TTFT_P95_S, OptionError


def initial_settings(
    flags_file: Path | None, disabled: Sequence[str], enabled: Sequence[str] = ()
) -> HotSettings | None:
    """From a flags document (in a pod), or from what is to be switched off and on (by hand).

    `enabled`: names of flags, each with or without parameters, as `kv-int8:fullPrecisionLayers=4`.
    """
    if flags_file is not None and (disabled or enabled):
        option = "--disable" if disabled else "--enable"
        raise OptionError(option, "the flags document of --flags-file already decides every flag")
    if flags_file is not None:
        return _from_document(flags_file)
    if disabled or enabled:
        return _by_hand(disabled, dict(map(_with_parameters, enabled)))
    return None


def _from_document(path: Path) -> HotSettings:
    try:
        return HotSettings.model_validate_json(path.read_bytes())
    except OSError as error:
        raise OptionError("--flags-file", f"{path}: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise OptionError("--flags-file", f"{path}: {where}: {first['msg']}") from error


def _with_parameters(text: str) -> tuple[str, dict[str, str]]:
    """`name:parameter=value,parameter=value` -> the name and the parameters."""
    name, _, rest = text.partition(":")
    _check_built("--enable", name)
    values = {}
    for pair in filter(None, rest.split(",")):
        parameter, equals, value = pair.partition("=")
        known = {one.name: one for one in flags.BY_NAME[name].parameters if one.built}
        if not equals or parameter not in known:
            allowed = ", ".join(known) or "none"
            raise OptionError("--enable", f"{name}: {pair!r} is not a parameter=value; parameters: {allowed}")
        if known[parameter].cold:
            raise OptionError("--enable", f"{name}: {parameter} is set by an option of its own")
        values[parameter] = value
    return name, values


def _check_built(option: str, name: str) -> None:
    if name not in flags.BUILT:
        raise OptionError(option, f"{name!r} is not one of {', '.join(flags.BUILT)}")


def _by_hand(disabled: Sequence[str], enabled: dict[str, dict[str, str]]) -> HotSettings:
    """The defaults but for what is named; what a flag needs must not be off, what it excludes not on."""
    for name in disabled:
        _check_built("--disable", name)
        if name in enabled:
            raise OptionError("--enable", f"{name} is also given to --disable")
    on = {
        name
        for name in flags.BUILT
        if name in enabled or (flags.BY_NAME[name].on_by_default and name not in disabled)
    }
    for name in flags.BUILT:
        missing = [need for need in flags.BY_NAME[name].needs if need not in on]
        if name in enabled and missing:
            raise OptionError("--enable", f"{name} needs {missing[0]}, which is off")
        if name in on and missing:
            raise OptionError("--disable", f"{name} needs {missing[0]}; add --disable {name}")
        excluded = [other for other in flags.BY_NAME[name].excludes if other in on]
        if name in on and excluded:
            raise OptionError("--enable", f"{name} and {excluded[0]} exclude each other")
    effective = tuple(
        EffectiveFlag(name=name, enabled=name in on, params=enabled.get(name, {})) for name in flags.BUILT
    )
    objective = Objective(ttft_p95_s=DEFAULT_TTFT_P95_S)
    return HotSettings(generation=1, flags=effective, objective=objective).sealed()

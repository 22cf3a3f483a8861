"""The options of `firsttoken serve`, checked before anything is started.

Every option is declared in `commands`; here a wrong value becomes one sentence that names the option.
The options mirror `spec.runtime` of an InferenceService, `auto` included.
"""

from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from firsttoken_api import flags, names
from firsttoken_api.errors import UserError
from firsttoken_api.hot_settings import EffectiveFlag, HotSettings, Objective
from firsttoken_api.reasons import Reason
from firsttoken_api.runtime_spec import Device, DType, PrefillPriority
from firsttoken_runtime import core

AUTO = "auto"
DEFAULT_PORT = names.ENGINE_HTTP_PORT
START_NUM_SEQS = 64
DEFAULT_TTFT_P95_S = 0.5


class OptionError(UserError):
    """A value that cannot be used; the message names the option."""

    def __init__(self, option: str, message: str, reason: str = Reason.ENGINE_FAILED) -> None:
        line = " ".join(message.split())  # one line, whatever the cause wrote
        super().__init__(f"{option}: {line}" if option else line)
        self.option = option
        self.reason = reason


@dataclass(frozen=True)
class ServeSettings:
    """Everything one server process is started with."""

    engine: core.EngineSettings
    served_name: str
    host: str
    port: int
    ops_port: int | None
    initial: HotSettings | None
    """Hot settings in force from the first step; None = the engine's defaults."""
    log_format: str = "text"

    @property
    def model_path(self) -> Path:
        return Path(self.engine.model_path)


def auto_or_count(option: str, text: str, least: int = 1) -> int | None:
    """An integer of at least `least`, or None for `auto`."""
    if text == AUTO:
        return None
    try:
        number = int(text)
    except ValueError as error:
        raise OptionError(option, f"{text!r} is neither a whole number nor auto") from error
    if number < least:
        raise OptionError(option, f"{number} is below {least}")
    return number


def model_path(source: str) -> Path:
    """The folder or .gguf file that SOURCE names."""
    scheme = source.partition("://")[0] if "://" in source else ""
    if scheme and scheme != "file":
        raise OptionError("SOURCE", f"{scheme}:// is not part of this version; give a folder or a .gguf file")
    try:
        path = Path(source.removeprefix("file://")).expanduser()
    except RuntimeError as error:  # `~somebody` whom this machine does not know
        raise OptionError("SOURCE", f"{source}: {error}", Reason.MODEL_NOT_FOUND) from error
    if not path.exists():
        raise OptionError("SOURCE", f"{path}: no such file or folder", Reason.MODEL_NOT_FOUND)
    if path.is_file() and path.suffix != ".gguf":
        raise OptionError(
            "SOURCE", f"{path} is not a .gguf file; give a folder of safetensors or a .gguf file"
        )
    return path


def served_name(asked: str, path: Path) -> str:
    """The name clients use; by default that of the folder or file."""
    return asked or (path.stem if path.is_file() else path.resolve().name)


def choice(option: str, text: str, allowed: type[Device] | type[DType] | type[PrefillPriority]) -> str:
    if text not in list(allowed):
        raise OptionError(option, f"{text!r} is not one of {', '.join(allowed)}")
    return text


def memory_fraction(text: str) -> float:
    try:
        fraction = float(text)
    except ValueError as error:
        raise OptionError("--memory-fraction", f"{text!r} is not a number") from error
    if not 0 < fraction <= 1:
        raise OptionError("--memory-fraction", f"{text} is not above 0 and at most 1")
    return fraction


def block_size(tokens: int) -> int:
    parameter = next(one for one in flags.BY_NAME["paged-kv"].parameters if one.name == "blockSize")
    least, most = parameter.minimum or 1, parameter.maximum or tokens
    if not least <= tokens <= most:
        raise OptionError("--block-size", f"{tokens} is not within {least} to {most}")
    return tokens


def initial_settings(flags_file: Path | None, disabled: list[str]) -> HotSettings | None:
    """From a flags document (in a pod), or from the names of flags to switch off (by hand)."""
    if flags_file is not None and disabled:
        raise OptionError("--disable", "the flags document of --flags-file already decides every flag")
    if flags_file is not None:
        return _from_document(flags_file)
    if disabled:
        return _without(disabled)
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


def _without(disabled: list[str]) -> HotSettings:
    """Defaults without the named flags; a flag that needs one of them must be named too."""
    for name in disabled:
        if name not in flags.BUILT:
            raise OptionError("--disable", f"{name!r} is not one of {', '.join(flags.BUILT)}")
    for name in flags.BUILT:
        missing = [need for need in flags.BY_NAME[name].needs if need in disabled]
        if missing and name not in disabled:
            raise OptionError("--disable", f"{name} needs {missing[0]}; add --disable {name}")
    effective = tuple(
        EffectiveFlag(name=name, enabled=flags.BY_NAME[name].on_by_default and name not in disabled)
        for name in flags.BUILT
    )
    objective = Objective(ttft_p95_s=DEFAULT_TTFT_P95_S)
    return HotSettings(generation=1, flags=effective, objective=objective).sealed()


def ports(port: int, ops_port: int | None) -> None:
    for option, number in (("--port", port), ("--ops-port", ops_port)):
        if number is not None and not 0 <= number <= 65535:
            raise OptionError(option, f"{number} is not within 0 to 65535")
    if port and port == ops_port:
        raise OptionError("--ops-port", f"{port} is the API's port already")

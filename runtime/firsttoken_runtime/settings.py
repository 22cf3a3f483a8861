"""The options of `firsttoken serve`, checked before anything is started.

Every option is declared in `commands`; here a wrong value becomes one sentence that names the option.
The options mirror `spec.runtime` of an InferenceService, `auto` included.
"""

from dataclasses import dataclass
from pathlib import Path

from firsttoken_api import flags, names, quantity
from firsttoken_api.errors import UserError
from firsttoken_api.hot_settings import HotSettings
from firsttoken_api.reasons import Reason
from firsttoken_api.runtime_spec import Device, DType, PrefillPriority
from firsttoken_runtime import core

AUTO = "auto"
DEFAULT_PORT = names.ENGINE_HTTP_PORT
START_NUM_SEQS = 64
DEFAULT_TTFT_P95_S = 0.5
TIERING = "kv-tiering"


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
    pins_file: Path | None = None
    """Prompts that stay in the cache (`server.pins`)."""
    is_behind_sidecar: bool = False
    """The header that names a tenant is believed."""

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


def host_memory(text: str) -> int | None:
    """Bytes of the cache's host tier; None for `auto`."""
    if text == AUTO:
        return None
    try:
        return quantity.to_bytes(text)
    except ValueError as error:
        raise OptionError("--host-memory", f"{text!r} is neither auto nor an amount such as 4Gi") from error


def host_folder(text: str) -> str:
    """A folder that exists, or "". Whether it can be written is seen when the first block goes there."""
    if text and not Path(text).is_dir():
        raise OptionError("--host-folder", f"{text}: no such folder")
    return text


def check_host_tier(engine: core.EngineSettings, initial: HotSettings | None, *, is_hot: bool) -> None:
    """Its options do nothing without its flag. `is_hot`: flags may be switched while it serves."""
    has_tier = initial is not None and any(one.name == TIERING and one.enabled for one in initial.flags)
    if has_tier or is_hot:
        return
    for option, value in (("--host-memory", engine.host_memory_bytes), ("--host-folder", engine.host_folder)):
        if value:
            raise OptionError(option, f"the host tier is off; add --enable {TIERING}")


def ports(port: int, ops_port: int | None) -> None:
    for option, number in (("--port", port), ("--ops-port", ops_port)):
        if number is not None and not 0 <= number <= 65535:
            raise OptionError(option, f"{number} is not within 0 to 65535")
    if port and port == ops_port:
        raise OptionError("--ops-port", f"{port} is the API's port already")

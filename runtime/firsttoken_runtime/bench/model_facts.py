"""What a command must know of a model before a server is started for it."""

from pathlib import Path

from firsttoken_api.errors import UserError


def kv_bytes_per_token(source: Path, device: str, dtype: str) -> int:
    """In the number format that the engine will compute with; `auto` is decided as the engine decides it.
    Raises UserError."""
    from firsttoken_runtime.engine import device as engine_device
    from firsttoken_runtime.model import checkpoint, errors
    from firsttoken_runtime.model import config as model_config

    try:
        config = model_config.read(checkpoint.open_checkpoint(source))
        choice = engine_device.choose(device, dtype)
    except (errors.ModelError, engine_device.BadOption) as error:
        raise UserError(f"SOURCE: {source}: {error}") from error
    return config.kv_bytes_per_token(choice.dtype.itemsize)

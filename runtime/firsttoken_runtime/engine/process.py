"""The engine process from start to end: load, say so, loop."""

import logging

from firsttoken_api import hot_settings, reasons
from firsttoken_runtime import core
from firsttoken_runtime.cache import pool
from firsttoken_runtime.engine import device, loading, loop, mailbox, options, warm_up
from firsttoken_runtime.engine import engine as engines
from firsttoken_runtime.engine import flags as engine_flags
from firsttoken_runtime.model import errors

_log = logging.getLogger(__name__)


def run(
    settings: core.EngineSettings,
    initial_settings_json: bytes | None,
    to_engine_address: str,
    from_engine_address: str,
) -> None:
    """Serve until `Shutdown`. Returns after `LoadFailed` when the model cannot be served.

    initial_settings_json: a `HotSettings` document that is in force from the first step; None = defaults.
    The server has bound both ZeroMQ addresses.
    """
    box = mailbox.SocketMailbox(to_engine_address, from_engine_address)
    try:
        box.send(core.Loading(progress=0.0))
        engine = _load(settings, initial_settings_json, box)
        if engine is not None:
            box.send(engine.ready())
            try:
                loop.Loop(engine, box).run()
            finally:
                engine.close()
    finally:
        box.close()


def _load(
    settings: core.EngineSettings, initial_settings_json: bytes | None, box: mailbox.Mailbox
) -> engines.Engine | None:
    def failed(reason: str, error: Exception) -> None:
        # The server says it to people; said here too, it would be there twice.
        _log.info("cannot serve %s: %s: %s", settings.model_path, reason, error)
        box.send(core.LoadFailed(reason=reason, message=str(error)))

    # RuntimeError below: torch's own, a failed allocation above all.
    try:
        in_force = engine_flags.defaults()
        if initial_settings_json is not None:
            document = hot_settings.HotSettings.model_validate_json(initial_settings_json)
            in_force = engine_flags.from_hot_settings(document)
        engine = loading.load(settings, in_force, lambda progress: box.send(core.Loading(progress=progress)))
        warm_up.compile_linears(engine.runner, engine.scheduler.limits.max_num_batched_tokens)
        engine.measure_steps()
        return engine
    except errors.ModelError as error:
        failed(error.reason, error)
    except (pool.NotEnough, MemoryError) as error:
        failed(reasons.Reason.NOT_ENOUGH_MEMORY, error)
    except (device.BadOption, options.BadOption, pool.TooLong, ValueError, RuntimeError) as error:
        failed(reasons.Reason.ENGINE_FAILED, error)
    return None

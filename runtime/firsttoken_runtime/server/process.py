"""The server process from its first socket to its end.

It binds before the model loads, so that probes and early clients get an answer; says so on standard
output when the model is there; and on SIGTERM or Ctrl-C lets open requests end for a while.
"""

import asyncio
import logging
import signal
import sys
import time
from contextlib import AsyncExitStack, suppress
from pathlib import Path

from firsttoken_api import errors
from firsttoken_api.reasons import Reason
from firsttoken_runtime import console
from firsttoken_runtime.model.errors import ModelError
from firsttoken_runtime.server import app, pins, tracing
from firsttoken_runtime.server.engine_client import ENGINE_MODULE, EngineClient
from firsttoken_runtime.server.metrics import Metrics
from firsttoken_runtime.server.service import Service
from firsttoken_runtime.settings import OptionError, ServeSettings

log = logging.getLogger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGINT)

# Which option a person changes when a model cannot be loaded for this reason.
OPTION_OF_REASON = {
    Reason.NOT_ENOUGH_MEMORY: "--max-model-len",
    Reason.MODEL_NOT_FOUND: "SOURCE",
    Reason.MODEL_UNREADABLE: "SOURCE",
    Reason.UNSUPPORTED_ARCHITECTURE: "SOURCE",
    Reason.CHECKSUM_MISMATCH: "SOURCE",
}


class LoadError(Exception):
    """The model cannot be served: `reason` for machines, the message for people."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


async def serve(settings: ServeSettings, *, engine_module: str = ENGINE_MODULE) -> None:
    """Serve until a signal. Raises OptionError when it cannot start, with the reason for the operator."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, stop.set)
    started_at_s = time.monotonic()
    entries = _read_pins(settings.pins_file)
    async with AsyncExitStack() as stack:
        metrics = Metrics(settings.served_name)
        client = EngineClient(
            settings.engine,
            settings.initial,
            engine_module=engine_module,
            log_format=settings.log_format,
            on_step=metrics.step,
        )
        tracer = tracing.tracer(settings.served_name)
        stack.callback(tracer.close)
        service = Service(
            settings.served_name,
            client,
            metrics,
            tracer=tracer,
            is_behind_sidecar=settings.is_behind_sidecar,
        )
        stack.push_async_callback(service.close)
        stack.push_async_callback(client.close)
        api, ops = await _listen(settings, service, stack)
        await client.start()
        log.info("loading %s; probes answer on port %d", settings.model_path, ops.port)
        try:
            if await _load(service, settings.model_path, stop):
                with suppress(errors.UnavailableError):  # an engine that died is the probes' business
                    await service.pin(entries)
                _announce(settings, service, api.port, ops.port, time.monotonic() - started_at_s)
        except LoadError as error:
            raise OptionError(_option(error), str(error), error.reason) from error
        except pins.PinsError as error:
            raise OptionError("--cache-pins", str(error)) from error
        await stop.wait()
        for number in SIGNALS:  # a second signal ends it at once
            loop.remove_signal_handler(number)
        log.info("ending: open requests have %.0f s", app.SHUTDOWN_TIMEOUT_S)


def _read_pins(path: Path | None) -> list[pins.Entry]:
    try:
        return [] if path is None else pins.read(path)
    except pins.PinsError as error:
        raise OptionError("--cache-pins", str(error)) from error


async def _listen(
    settings: ServeSettings, service: Service, stack: AsyncExitStack
) -> tuple[app.Listener, app.Listener]:
    """The listeners of the API and of the ops endpoints, which may be the same. Raises OptionError."""
    try:
        has_ops_port = settings.ops_port is not None
        api = await app.listen(
            app.api_application(service, with_ops=not has_ops_port), settings.host, settings.port
        )
        stack.push_async_callback(api.close)
        if settings.ops_port is None:
            return api, api
        ops = await app.listen(app.ops_application(service), settings.host, settings.ops_port)
        stack.push_async_callback(ops.close)
        return api, ops
    except app.AddressError as error:
        raise OptionError("--host", str(error)) from error
    except app.PortTakenError as error:
        option = "--ops-port" if error.port == settings.ops_port else "--port"
        raise OptionError(option, str(error)) from error


async def _load(service: Service, model_path: Path, stop: asyncio.Event) -> bool:
    """Whether the model is there; False if the process was told to stop meanwhile. Raises LoadError."""
    text = asyncio.create_task(_load_text(service, model_path), name="load-text")
    engine = asyncio.create_task(service.client.settled.wait(), name="load-engine")
    stopped = asyncio.create_task(stop.wait(), name="stopped-while-loading")
    tasks = {text, engine, stopped}
    pending = tasks
    try:
        while not (stopped.done() or (text.done() and engine.done())):
            _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            if text.done():
                text.result()
            if engine.done():
                _check_engine(service.client)
        return not stopped.done()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _load_text(service: Service, model_path: Path) -> None:
    try:
        await service.load_text(model_path)
    except ModelError as error:
        raise LoadError(error.reason, str(error)) from error
    except OSError as error:
        raise LoadError(Reason.MODEL_UNREADABLE, f"{model_path}: {error.strerror or error}") from error


def _check_engine(client: EngineClient) -> None:
    if client.load_failure is not None:
        raise LoadError(client.load_failure.reason, client.load_failure.message)
    if not client.life.is_ready:
        raise LoadError(Reason.ENGINE_FAILED, f"{client.life.error} while it loaded the model")


def _option(error: LoadError) -> str:
    """The option to show before the message; none if the message names one itself."""
    if "--" in str(error):
        return ""
    return next((option for reason, option in OPTION_OF_REASON.items() if reason == error.reason), "")


def _announce(settings: ServeSettings, service: Service, port: int, ops_port: int, load_s: float) -> None:
    assert service.client.ready is not None
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    started = console.Started(
        url=f"http://{host}:{port}",
        ops_url=f"http://{host}:{ops_port}",
        served_name=settings.served_name,
        source=str(settings.model_path),
        has_chat_template=service.template is not None,
        ready=service.client.ready,
        load_s=load_s,
    )
    if settings.log_format == "json":
        log.info("serving; %s", "; ".join(f"{name}: {value}" for name, value in started.rows()))
    else:
        console.print_started(started, sys.stdout)

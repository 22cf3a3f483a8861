"""The sidecar's process: `python -m firsttoken_sidecar`. Settings come from the environment.

SIGTERM drains, unless the engine's preStop already has, and ends the process; a second one, or SIGINT,
ends it at once.
"""

import asyncio
import gc
import logging
import os
import signal
import sys

from firsttoken_sidecar import logs, settings, sidecar

logger = logging.getLogger("firsttoken_sidecar.main")


async def serve(chosen: settings.Settings) -> None:
    """Runs until a signal, or until a background task fails."""
    loop = asyncio.get_running_loop()
    terminated = asyncio.Event()
    interrupted = asyncio.Event()

    def on_terminate() -> None:
        if terminated.is_set():
            interrupted.set()
        terminated.set()

    loop.add_signal_handler(signal.SIGTERM, on_terminate)
    loop.add_signal_handler(signal.SIGINT, interrupted.set)
    async with sidecar.running(chosen) as running:
        # What is here now stays. Looking through it for garbage would hold up every stream, again and again.
        gc.collect()
        gc.freeze()

        async def drained_on_signal() -> None:
            await terminated.wait()
            await running.drain.drained()

        async def interrupted_by_signal() -> None:
            await interrupted.wait()

        endings = [
            asyncio.create_task(work)
            for work in (drained_on_signal(), interrupted_by_signal(), running.failed())
        ]
        done, pending = await asyncio.wait(endings, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        for task in done:
            task.result()
    logger.info("ended")


def main() -> int:
    """Exit status: 2 for a wrong setting, 1 for any other failure."""
    try:
        chosen = settings.read(os.environ)
    except settings.SettingsError as error:
        print(f"firsttoken_sidecar: {error}", file=sys.stderr)  # noqa: T201
        return 2
    logs.configure(chosen.log_level, chosen.log_format)
    if unknown := settings.unknown_keys(os.environ):
        logger.warning("settings that nobody reads", extra=logs.fields(keys=",".join(unknown)))
    try:
        asyncio.run(serve(chosen))
    except Exception:
        logger.exception("the sidecar failed")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Which adapter speaks with the engine of this pod."""

from collections.abc import Callable

import aiohttp

from firsttoken_sidecar import engine_address, engine_firsttoken, engine_vllm, engines, settings


def make(
    chosen: settings.Settings, session: aiohttp.ClientSession, clock: Callable[[], float]
) -> engines.Engine:
    """The session is lent: whoever made it closes it."""
    if chosen.engine == "vllm":
        return engine_vllm.VllmEngine(
            session,
            engine_address.origin(chosen.engine_url),
            chosen.started_flags,
            chosen.max_num_seqs,
            chosen.chunk_tokens,
            clock,
        )
    return engine_firsttoken.FirsttokenEngine(
        session, engine_address.origin(chosen.engine_url), engine_address.origin(chosen.engine_ops_url)
    )

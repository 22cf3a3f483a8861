"""Hot settings on their way into force: a document of the server, checked and switched to, or refused."""

from firsttoken_api import hot_settings
from firsttoken_runtime import core
from firsttoken_runtime.engine import engine as engines
from firsttoken_runtime.engine import flags
from firsttoken_runtime.engine import lineage as lineages


def switch(engine: engines.Engine, settings_json: bytes) -> core.FlagsApplied:
    """Switch before the next step, or say why not; then nothing has changed."""
    try:
        settings = hot_settings.HotSettings.model_validate_json(settings_json)
    except ValueError as error:
        return _applied(engine, error=f"not hot settings: {error}")
    problem, recompute_tokens = "", 0
    try:
        recompute_tokens = engine.switch(flags.from_hot_settings(settings))
    except flags.BadFlags as refusal:
        problem = str(refusal)
    return _applied(engine, settings.generation, settings.content_hash(), problem, recompute_tokens)


def _applied(
    engine: engines.Engine,
    generation: int = 0,
    content_hash: str = "",
    error: str = "",
    recompute_tokens: int = 0,
) -> core.FlagsApplied:
    return core.FlagsApplied(
        generation=generation,
        hash=content_hash,
        enabled=engine.in_force.enabled,
        error=error,
        lineage=lineages.short(engine.lineage),
        kv_type=engine.in_force.kv_type,
        kv_bytes_per_token=engine.layout.private_token_bytes,
        recompute_tokens=recompute_tokens,
    )

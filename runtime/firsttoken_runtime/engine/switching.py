"""Hot settings on their way into force: a document of the server, checked and switched to, or refused."""

from firsttoken_api import hot_settings
from firsttoken_runtime import core
from firsttoken_runtime.engine import flags, loading


def switch(engine: loading.Engine, settings_json: bytes) -> core.FlagsApplied:
    """Switch before the next step, or say why not; then nothing has changed."""
    try:
        settings = hot_settings.HotSettings.model_validate_json(settings_json)
    except ValueError as error:
        return core.FlagsApplied(
            generation=0,
            hash="",
            enabled=engine.in_force.enabled,
            error=f"not hot settings: {error}",
        )
    problem = ""
    try:
        engine.switch(flags.from_hot_settings(settings))
    except flags.BadFlags as refusal:
        problem = str(refusal)
    return core.FlagsApplied(
        generation=settings.generation,
        hash=settings.content_hash(),
        enabled=engine.in_force.enabled,
        error=problem,
    )

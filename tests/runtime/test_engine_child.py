"""The child process is started, spoken to, ended in order or by force, and leaves nothing behind."""

import signal

import pytest

from firsttoken_api import errors
from firsttoken_runtime import core
from firsttoken_runtime.server import engine_child
from runtime import fake_engine


async def _ready_child(**script: float) -> engine_child.EngineChild:
    settings = fake_engine.Script(**script).settings()
    child = await engine_child.start(fake_engine.__name__, settings, None, "text")
    while not isinstance(await child.receive(), core.Ready):
        pass
    return child


async def test_one_that_serves_ends_in_order_and_its_folder_goes():
    child = await _ready_child()
    await child.end(grace_s=5.0)
    assert await child.wait() == 0
    await child.close()
    assert not child._folder.exists()


async def test_one_that_does_not_end_in_time_is_killed():
    child = await _ready_child()
    child.send(
        core.Submit(
            sequence_id=1,
            prompt_token_ids=[fake_engine.HANG],
            sampling=core.SamplingParams(max_tokens=1),
            arrival_s=0.0,
        )
    )
    await child.end(grace_s=0.3)
    assert await child.wait() == -signal.SIGKILL
    child.kill()  # once more does no harm
    await child.close()


async def test_nothing_can_be_sent_before_it_listens():
    child = await engine_child.start(fake_engine.__name__, fake_engine.Script().settings(), None, "text")
    with pytest.raises(errors.UnavailableError, match="the engine is gone"):
        child.send(core.Shutdown())
    await child.end(grace_s=0.0)
    await child.close()

"""What a service refuses before it looks at a request."""

import threading

import msgspec
import pytest

from firsttoken_api import errors
from firsttoken_runtime import core
from firsttoken_runtime.model.errors import ModelError
from firsttoken_runtime.server import metrics
from firsttoken_runtime.server.classes import Resolved
from firsttoken_runtime.server.engine_client import EngineClient
from firsttoken_runtime.server.metrics import Metrics
from firsttoken_runtime.server.openai_models import Body
from firsttoken_runtime.server.sequence import Wanted
from firsttoken_runtime.server.sequences import Sequences
from firsttoken_runtime.server.service import Service
from runtime.byte_text import text_model
from runtime.fake_engine import Script


@pytest.fixture
async def service():
    made = Service("chat", EngineClient(Script().settings()), Metrics("chat"), max_open_requests=0)
    yield made
    await made.close()


def _ready() -> core.Ready:
    return core.Ready(
        architecture="fake",
        device="cpu",
        dtype="float32",
        dtype_reason="",
        max_model_len=10,
        kv_blocks=1,
        block_size_tokens=16,
        vocabulary_size=5,
        flags_enabled=(),
    )


async def test_ready_means_engine_and_text(service):
    with pytest.raises(errors.ModelLoadingError):
        service.check_ready()
    service.client._take(_ready())
    assert not service.is_ready
    assert service.state().phase == "Loading"
    with pytest.raises(errors.ModelLoadingError, match="tokenizer"):
        service.check_ready()
    service.use_text(text_model())
    service.check_ready()
    assert service.state().phase == "Ready"
    service.client.life.fail("gone")
    with pytest.raises(errors.UnavailableError, match="gone"):
        service.check_ready()


async def test_names_and_room(service):
    service.check_model(None)
    service.check_model("chat")
    with pytest.raises(errors.UnknownModelError):
        service.check_model("chat:route")
    with pytest.raises(errors.TooManyRequestsError), service.room():
        pass


async def test_a_template_that_does_not_compile_is_a_model_error(service):
    with pytest.raises(ModelError, match="chat template is wrong"):
        service.use_text(text_model(chat_template="{% if %}"))


async def test_a_missing_model_is_found_in_the_thread(service, tmp_path):
    with pytest.raises(ModelError):
        await service.load_text(tmp_path / "none.gguf")


@pytest.mark.parametrize(("padding", "place"), [(10, "MainThread"), (100_000, "tokenizer_0")])
async def test_large_bodies_are_checked_beside_the_event_loop(service, padding, place):
    seen = []

    class Asking(Body):
        def check(self) -> None:
            seen.append(threading.current_thread().name)

    assert (await service.parse(Asking, b" " * padding + b'{"model": "m"}')).model == "m"
    assert seen == [place]


async def test_a_burst_is_refused_before_the_engine_has_reported_it(service):
    service.client.stats = msgspec.structs.replace(metrics.NOTHING_SEEN, prefill_tokens_per_s=100.0)
    service.client._sequences = Sequences(lambda _: None)
    params = core.SamplingParams(max_tokens=1, temperature=0.0)
    with service.client._sequences.submitted([Wanted([1] * 2500, params)], 0.0):
        service.admit([10**6], Resolved())  # its turn comes after 25 s
        with pytest.raises(errors.ObjectiveUnreachableError, match="about 31 s"):
            service.admit([700, 600], Resolved())
    service.admit([10**6] * 2, Resolved())

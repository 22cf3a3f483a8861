import json

import pytest
from pydantic import ValidationError

from firsttoken_api import resolved
from firsttoken_api.resolved import ModelFormat, ResolvedModel, ResolveFailure


def model() -> ResolvedModel:
    """SmolLM2-135M."""
    return ResolvedModel(
        digest="sha256:" + "ab" * 32,
        bytes=98_000_000,
        format=ModelFormat.GGUF,
        architecture="llama",
        parameters=134_515_008,
        layers=30,
        heads=9,
        kv_heads=3,
        head_dim=64,
        hidden=576,
        vocabulary=49_152,
        trained_length=8_192,
        weight_bytes_16bit=269_030_016,
    )


def test_what_is_rendered_is_read() -> None:
    failure = ResolveFailure(reason="ModelNotFound", message="nothing.gguf does not exist")
    assert resolved.parse(resolved.render(model())) == model()
    assert resolved.parse(resolved.render(failure)) == failure


def test_the_message_fits_where_it_goes() -> None:
    longest = ResolveFailure(reason="ModelUnreadable", message="\N{SNOWMAN}" * 1024)
    assert len(resolved.render(longest).encode()) <= resolved.LARGEST_BYTES
    assert isinstance(resolved.parse(resolved.render(longest)), ResolveFailure)


@pytest.mark.parametrize("text", ["", "Killed", "{}", '{"reason": "x"}', '{"digest": "sha256:1"}'])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        resolved.parse(text)


def test_a_model_says_nothing_that_a_status_cannot_hold() -> None:
    odd = model().model_dump(mode="json") | {"architecture": "x" * 600}
    with pytest.raises(ValidationError):
        resolved.parse(json.dumps(odd))


def test_least_memory_is_weights_one_sequence_and_the_runtime() -> None:
    assert model().kv_bytes_per_token() == 2 * 30 * 3 * 64 * 2
    assert model().least_memory_bytes(1000) == 269_030_016 + 23_040_000 + resolved.RUNTIME_BYTES

from typing import Any

import pytest
from pydantic import ValidationError

from firsttoken_api.hot_settings import ClassSettings, EffectiveFlag, HotSettings, Objective, RouteSettings


def settings(generation: int = 1, enabled: bool = True) -> HotSettings:
    flag = EffectiveFlag(name="chunked-prefill", enabled=enabled, params={"chunkTokens": "512"})
    return HotSettings(generation=generation, flags=(flag,), objective=Objective(ttft_p95_s=0.5))


def test_the_hash_is_of_the_content_not_of_its_number() -> None:
    assert settings(1).content_hash() == settings(2).content_hash()
    assert settings(1).content_hash() != settings(1, enabled=False).content_hash()


def test_a_sealed_document_is_read_again() -> None:
    sealed = settings().sealed()
    assert HotSettings.model_validate_json(sealed.model_dump_json()) == sealed


def test_a_document_that_was_cut_or_changed_is_refused() -> None:
    text = settings().sealed().model_dump_json()
    with pytest.raises(ValidationError, match="does not match"):
        HotSettings.model_validate_json(text.replace("512", "256"))
    with pytest.raises(ValidationError):
        HotSettings.model_validate_json(text[:-2])


def full() -> HotSettings:
    return HotSettings(
        generation=3,
        flags=settings().flags,
        objective=Objective(ttft_p95_s=0.5, tpot_p95_s=0.05),
        classes=(
            ClassSettings(name="interactive", priority=10, ttft_p99_s=1, max_tokens=64),
            ClassSettings(name="batch", ttft_p99_s=8),
        ),
        default_class="batch",
        routes=(RouteSettings(name="intent", request_class="interactive", max_tokens=8),),
    )


FIRST_VERSION = (
    '{"schema_version":1,"generation":3,"flags":[{"name":"chunked-prefill","enabled":true,'
    '"params":{"chunkTokens":"512"}}],"objective":{"ttft_p95_s":0.5,"window_s":300.0},'
    '"hash":"9ce30b9cf01fe48e"}'
)
"""As it was written before there were classes."""


def test_a_document_that_uses_nothing_newer_is_byte_for_byte_the_first_version_s() -> None:
    assert settings(3).sealed().to_json() == FIRST_VERSION
    assert HotSettings.model_validate_json(FIRST_VERSION) == settings(3).sealed()


def test_all_of_a_document_is_written_and_read_again() -> None:
    sealed = full().sealed()
    assert HotSettings.model_validate_json(sealed.to_json()) == sealed


@pytest.mark.parametrize(
    "change",
    [
        {"objective": Objective(ttft_p95_s=0.5)},
        {"classes": full().classes[::-1]},
        {"classes": (full().classes[0].model_copy(update={"max_tokens": 65}), full().classes[1])},
        {"default_class": "interactive"},
        {"routes": ()},
    ],
)
def test_every_newer_part_is_in_the_hash(change: dict[str, Any]) -> None:
    assert full().model_copy(update=change).content_hash() != full().content_hash()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"default_class": "urgent"}, "default_class is 'urgent', classes are interactive, batch"),
        ({"default_class": "batch", "classes": ()}, "default_class is 'batch', classes are none"),
        ({"classes": full().classes * 2}, "classes names 'interactive' twice"),
        ({"routes": full().routes * 2}, "routes names 'intent' twice"),
        (
            {"routes": (RouteSettings(name="intent", request_class="urgent"),)},
            "the class of route 'intent' is 'urgent', classes are interactive, batch",
        ),
    ],
)
def test_names_that_do_not_agree_are_refused(change: dict[str, Any], message: str) -> None:
    content = full().model_copy(update=change).model_dump()
    with pytest.raises(ValidationError, match=message):
        HotSettings.model_validate(content)


def test_a_newer_operators_keys_are_ignored() -> None:
    text = settings().sealed().model_dump_json()
    assert HotSettings.model_validate_json(text[:-1] + ',"later":1}') == settings().sealed()

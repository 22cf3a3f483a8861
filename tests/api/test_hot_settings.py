import pytest
from pydantic import ValidationError

from firsttoken_api.hot_settings import EffectiveFlag, HotSettings, Objective


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


def test_a_newer_operators_keys_are_ignored() -> None:
    text = settings().sealed().model_dump_json()
    assert HotSettings.model_validate_json(text[:-1] + ',"later":1}') == settings().sealed()

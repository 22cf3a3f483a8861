"""No word of the API is a YAML 1.1 boolean or null: `on` would arrive as true."""

from pathlib import Path

import pytest
import yaml

from api import manifests, words
from firsttoken_api import inference_service

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_no_word_is_read_as_something_else() -> None:
    known = words.all_words()
    assert len(known) > 200
    assert {word: yaml.safe_load(word) for word in known} == {word: word for word in known}


@pytest.mark.parametrize("name", manifests.EXAMPLES)
def test_examples_are_valid(name: str) -> None:
    documents = list(yaml.safe_load_all((EXAMPLES / name).read_text()))
    services = [each for each in documents if each["kind"] == "InferenceService"]
    assert services
    for body in services:
        inference_service.parse(body)


def test_every_example_is_in_the_list() -> None:
    holding = {path.name for path in EXAMPLES.glob("*.yaml") if "kind: InferenceService" in path.read_text()}
    assert holding == set(manifests.EXAMPLES)

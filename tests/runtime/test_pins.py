"""Prompts that stay in the cache: the file, its tokens, and when they are computed."""

import json
from pathlib import Path

import pytest

from firsttoken_api.hot_settings import EffectiveFlag, HotSettings, Objective
from firsttoken_runtime.server import pins
from firsttoken_runtime.server.chat_template import ChatTemplate
from runtime import fake_engine
from runtime.byte_text import TEMPLATE, text_model
from runtime.serving import serving, until

TEXT = text_model()
SYSTEM = {"role": "system", "content": "Be brief, and never say what you were told before. "}


def _file(folder: Path, content: object) -> Path:
    path = folder / "pins.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def _ids(entries: list[pins.Entry], capacity: int = 200, template: str | None = TEMPLATE) -> list[list[int]]:
    made = None if template is None else ChatTemplate(template, TEXT.special_tokens)
    return pins.tokenize(entries, TEXT, made, vocabulary_size=262, capacity=capacity)


def _bytes(text: str) -> list[int]:
    return TEXT.encode(text, add_special_tokens=False)


def test_every_form_of_an_entry(tmp_path):
    user = {"role": "user", "content": "Hi"}
    file = _file(
        tmp_path,
        ["ab", [1, 2], [SYSTEM], {"prompt": "c"}, {"messages": [SYSTEM, user]}, [SYSTEM, user]],
    )
    head = SYSTEM["content"]
    assert _ids(pins.read(file)) == [
        _bytes("ab"),
        [1, 2],
        _bytes(head),
        _bytes("c"),
        _bytes(head + "Hi"),
        _bytes(head + "Hi"),
    ]
    assert pins.read(_file(tmp_path, [])) == []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "is not a JSON list"),
        ({"prompt": "x"}, "is not a JSON list"),
        ([5], "entry 0 is neither a text"),
        (["ok", [-1]], "entry 1: "),
        ([[1, True]], "entry 0: "),
        ([[]], "entry 0: "),
        ([{"messages": [{"role": "king", "content": "x"}]}], r"entry 0: messages\[0\].role"),
        ([{"prompt": "x", "salt": "y"}], "entry 0: salt is not known here"),
        (["x"] * 65, "at most 64"),
        ('["' + "x" * pins.MAX_FILE_BYTES + '"]', "larger than 4 MiB"),
    ],
)
def test_a_wrong_file_names_its_entry(tmp_path, content, said):
    with pytest.raises(pins.PinsError, match=said):
        pins.read(_file(tmp_path, content))


def test_a_missing_file(tmp_path):
    with pytest.raises(pins.PinsError, match="No such file"):
        pins.read(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (["ok", ""], "entry 1: prompt is empty"),
        (["x" * 201], "entry 0: the prompt has 201 tokens"),
        ([[262]], "entry 0: prompt has the token id 262"),
        ([[{"role": "system", "content": ""}]], "entry 0: messages is empty"),
    ],
)
def test_what_cannot_be_pinned_names_its_entry(tmp_path, content, said):
    with pytest.raises(pins.PinsError, match=said):
        _ids(pins.read(_file(tmp_path, content)))


def test_messages_need_a_template(tmp_path):
    with pytest.raises(pins.PinsError, match="entry 0: this model has no chat template"):
        _ids(pins.read(_file(tmp_path, [[SYSTEM]])), template=None)


def _settings(generation: int) -> HotSettings:
    flags = (EffectiveFlag(name="paged-kv", enabled=True),)
    return HotSettings(generation=generation, flags=flags, objective=Objective(ttft_p95_s=1)).sealed()


async def test_pins_are_computed_once_and_again_after_a_switch(tmp_path, monkeypatch):
    monkeypatch.setattr(pins, "LOOK_EVERY_S", 0.02)
    entries = pins.read(_file(tmp_path, [[SYSTEM], "a text of its own"]))
    chat = {"messages": [SYSTEM, {"role": "user", "content": "Hi"}], "max_tokens": 1}
    whole_blocks = len(SYSTEM["content"]) // fake_engine.BLOCK_SIZE * fake_engine.BLOCK_SIZE
    async with serving() as served:

        async def cached() -> int:
            _, body = await served.post("/v1/chat/completions", chat)
            return body["usage"]["prompt_tokens_details"]["cached_tokens"]

        async def has_seen(count: int) -> bool:
            decisions = (await served.state())["cache"]["rule_decisions_total"]
            return decisions.get("shared", 0) >= count and decisions.get("pinned") == 2

        await served.service.pin(entries)
        pinned_tokens = len(SYSTEM["content"]) + len("a text of its own")
        await until(lambda: has_seen(pinned_tokens))
        assert await cached() == whole_blocks
        seen = (await served.state())["cache"]["rule_decisions_total"]["shared"]
        await served.service.client.set_flags(_settings(2))
        await until(lambda: has_seen(seen + pinned_tokens))
        assert await cached() == whole_blocks


async def test_what_fails_is_tried_again_and_the_others_are_not(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(pins, "LOOK_EVERY_S", 0.02)
    monkeypatch.setattr(pins, "RETRY_EVERY_S", 0.05)
    entries = pins.read(_file(tmp_path, ["a text", [97, fake_engine.FAIL]]))
    async with serving() as served:

        async def has_failed_twice() -> bool:
            return caplog.text.count("entry 1 is not computed: NaN in the logits") >= 2

        await served.service.pin(entries)
        await until(has_failed_twice)
        decisions = (await served.state())["cache"]["rule_decisions_total"]
        assert decisions["shared"] == len("a text"), "computed once"


async def test_a_server_without_pins_looks_for_nothing():
    async with serving() as served:
        await served.service.pin([])
        assert served.service._keeps_pins is None

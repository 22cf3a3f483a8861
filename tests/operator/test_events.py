"""Events are read about one object, not more often than asked, and never fail a reconcile."""

from typing import Any

from firsttoken_operator import client, kinds
from firsttoken_operator.events import AGAIN_AFTER_S, Events


class Api:
    def __init__(self) -> None:
        self.selectors: list[str] = []
        self.is_down = False

    async def list(self, kind: kinds.Kind, namespace: str, *, field_selector: str) -> Any:
        assert kind is kinds.EVENT
        self.selectors.append(field_selector)
        if self.is_down:
            raise client.UnreachableError("no route")
        return [{"reason": "FailedMount"}]


async def test_by_object_and_only_warnings() -> None:
    api = Api()
    events = Events(api)  # type: ignore[arg-type]
    assert events.of("u") == ()
    assert events.is_due("u", 100.0)
    await events.read("default", "u", 100.0)
    assert api.selectors == ["type=Warning,involvedObject.uid=u"]
    assert events.of("u") == ({"reason": "FailedMount"},)
    assert not events.is_due("u", 100.0 + AGAIN_AFTER_S - 1)
    assert events.is_due("u", 100.0 + AGAIN_AFTER_S)


async def test_an_error_keeps_what_was_known() -> None:
    api = Api()
    events = Events(api)  # type: ignore[arg-type]
    await events.read("default", "u", 100.0)
    api.is_down = True
    await events.read("default", "u", 200.0)
    assert events.of("u") == ({"reason": "FailedMount"},)
    assert not events.is_due("u", 201.0)

"""A watch that has silently stopped is noticed."""

from typing import Any

import pytest

from builders.fake_api import FakeApi
from firsttoken_api import names
from firsttoken_operator import client, freshness, kinds
from firsttoken_operator.freshness import Freshness
from firsttoken_operator.store import Store

Object = dict[str, Any]


def pod(name: str) -> Object:
    labels = {names.LABEL_MANAGED: "true", names.LABEL_SERVICE: "chat"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
    }


class Bench:
    def __init__(self) -> None:
        self.api, self.store, self.now = FakeApi(), Store(), 0.0
        self.fresh = Freshness(self.api, self.store, ("default",), lambda: self.now)  # type: ignore[arg-type]


async def test_all_well() -> None:
    bench = Bench()
    bench.store.put(await bench.api.create(kinds.POD, pod("a")))
    bench.now = 50.0
    await bench.fresh.check(patience_s=0)
    assert bench.fresh.problem == ""
    assert bench.fresh.staleness_s() == 0.0


async def test_an_object_that_never_arrives() -> None:
    bench = Bench()
    await bench.api.create(kinds.POD, pod("unseen"))
    bench.now = 50.0
    await bench.fresh.check(patience_s=0)
    assert "pods" in bench.fresh.problem
    assert bench.fresh.staleness_s() == 50.0


async def test_an_object_that_never_goes() -> None:
    bench = Bench()
    bench.store.put(await bench.api.create(kinds.POD, pod("ghost")))
    bench.api.objects.clear()
    await bench.fresh.check(patience_s=0)
    assert bench.fresh.problem


async def test_an_old_version_that_stays() -> None:
    bench = Bench()
    bench.store.put(await bench.api.create(kinds.POD, pod("a")))
    bench.api.by_hand(kinds.POD, "a", "kubelet", lambda body: body["metadata"].update(annotations={"x": "y"}))
    await bench.fresh.check(patience_s=0)
    assert bench.fresh.problem


def test_a_store_that_catches_up_in_time_is_fresh() -> None:
    difference = freshness.compare({"a": "9", "b": "5"}, {"a": "8", "ghost": "3"})
    assert difference == freshness.Difference(behind={"a": 9, "b": 5}, ghosts={"ghost": "3"})
    none = set[str]()
    assert not freshness.is_settled(difference, {"a": "8", "ghost": "3"}, none.__contains__)
    assert freshness.is_settled(difference, {"a": "10", "b": "5"}, none.__contains__)
    assert freshness.is_settled(difference, {"a": "9"}, {"b"}.__contains__)


async def test_what_is_made_while_the_list_is_taken_is_no_ghost() -> None:
    bench = Bench()

    def made_meanwhile(verb: str, kind: str, name: str) -> None:
        if verb == "list" and kind == "ConfigMap":
            body = pod("new") | {"kind": "ConfigMap"}
            body["metadata"] |= {"uid": "uid-new", "resourceVersion": "1"}
            bench.store.put(body)

    bench.api.fault = made_meanwhile
    await bench.fresh.check(patience_s=0)
    assert bench.fresh.problem == ""


async def test_a_list_that_fails_is_no_verdict() -> None:
    bench = Bench()

    def refuse(verb: str, kind: str, name: str) -> None:
        raise client.UnreachableError("no route")

    bench.api.fault = refuse
    with pytest.raises(client.UnreachableError):
        await bench.fresh.check(patience_s=0)
    assert bench.fresh.problem == ""

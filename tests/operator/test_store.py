"""Newest wins, deleted stays deleted, and the index by service follows."""

from typing import Any

from firsttoken_api import names
from firsttoken_operator import kinds, store
from firsttoken_operator.store import Store

Object = dict[str, Any]


def pod(
    version: int, service: str | None = "chat", name: str = "p", uid: str = "u", **metadata: Any
) -> Object:
    labels = {names.LABEL_SERVICE: service} if service else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": uid,
            "resourceVersion": str(version),
            "labels": labels,
            **metadata,
        },
    }


KEY = ("default", "chat")


def test_an_older_version_never_replaces_a_newer_one() -> None:
    known = Store()
    assert known.put(pod(9))
    assert not known.put(pod(8))
    assert not known.put(pod(9))
    assert known.put(pod(10))  # by number, not by text
    (body,) = known.of_service(KEY, kinds.POD)
    assert body["metadata"]["resourceVersion"] == "10"


def test_an_answer_that_comes_after_the_deletion_is_ignored() -> None:
    known = Store()
    known.put(pod(5))
    known.remove(pod(7))
    assert not known.put(pod(6))
    assert known.of_service(KEY, kinds.POD) == ()
    assert known.was_deleted("u")


def test_what_only_left_the_selector_comes_back() -> None:
    known = Store()
    known.put(pod(5))
    known.remove(pod(7))
    assert known.put(pod(8))


def test_a_successor_of_the_same_name_is_another_object() -> None:
    known = Store()
    known.put(pod(5, uid="first"))
    assert known.put(pod(3, uid="second"))  # versions of different objects are not compared
    known.remove(pod(9, uid="first"))  # a late event about the first
    (body,) = known.of_service(KEY, kinds.POD)
    assert body["metadata"]["uid"] == "second"


def test_the_index_follows_the_label() -> None:
    known = Store()
    known.put(pod(1))
    known.put(pod(2, service="other"))
    assert known.of_service(KEY, kinds.POD) == ()
    assert len(known.of_service(("default", "other"), kinds.POD)) == 1
    known.put(pod(3, service=None))
    assert known.of_service(("default", "other"), kinds.POD) == ()


def entry(manager: str, operation: str = "Update", part: str = "f:spec", subresource: str = "") -> Object:
    found: Object = {"manager": manager, "operation": operation, "fieldsV1": {part: {}}}
    return found | ({"subresource": subresource} if subresource else {})


def test_managed_fields_become_two_facts() -> None:
    fields = [
        entry(names.FIELD_MANAGER, "Update"),
        entry("kube-controller-manager"),
        entry("kubectl", subresource="scale"),
        entry("kubectl-label", part="f:metadata"),
        entry("kubectl-edit"),
    ]
    metadata = store.slim(pod(1, managedFields=fields))["metadata"]
    assert "managedFields" not in metadata
    assert metadata[store.FOREIGN] == ["kubectl-edit"]
    assert metadata[store.POSTED] is True
    applied = store.slim(pod(1, managedFields=[entry(names.FIELD_MANAGER, "Apply")]))["metadata"]
    assert store.FOREIGN not in applied
    assert store.POSTED not in applied


def test_owner_of_a_service_is_itself() -> None:
    body = {"kind": names.SERVICE_KIND, "metadata": {"namespace": "default", "name": "chat"}}
    assert store.owner(body) == KEY
    assert store.owner(pod(1, service=None)) is None


def test_versions_are_by_kind_and_namespace() -> None:
    known = Store()
    known.put(pod(4))
    assert known.versions(kinds.POD, None) == {"u": "4"}
    assert known.versions(kinds.POD, "elsewhere") == {}
    assert known.versions(kinds.JOB, None) == {}

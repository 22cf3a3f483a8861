"""An API server in memory, as far as the operator's writes need one: versions, generations, uids, conflicts,
server-side apply of whole parts, managedFields of two operations, and failures on demand.
"""

import copy
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from firsttoken_api import names
from firsttoken_operator import client, kinds

Object = dict[str, Any]


class FakeApi:
    """Has the methods of `client.Client`; `calls` is the audit log."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], Object] = {}
        self.calls: list[str] = []
        self.fault: Callable[[str, str, str], None] = lambda verb, kind, name: None
        self._versions = itertools.count(100)
        self._uids = itertools.count(1)

    def writes(self) -> list[str]:
        """Calls that change something, since the last look."""
        found = [call for call in self.calls if not call.startswith(("get", "list"))]
        self.calls.clear()
        return found

    def _note(self, verb: str, kind: kinds.Kind, name: str) -> None:
        self.calls.append(f"{verb} {kind.name}/{name}")
        self.fault(verb, kind.name, name)

    def _find(self, kind: kinds.Kind, namespace: str, name: str) -> Object:
        try:
            return self.objects[kind.name, namespace, name]
        except KeyError:
            raise client.NotFoundError(f"{kind.name} {name}", 404) from None

    def _save(self, kind: kinds.Kind, body: Object, before: Object | None) -> Object:
        metadata = body["metadata"]
        if before is None or before != body:
            metadata["resourceVersion"] = str(next(self._versions))
            if kind.name in ("Deployment", "PodDisruptionBudget", "Job"):
                changed = before is None or before.get("spec") != body.get("spec")
                metadata["generation"] = metadata.get("generation", 0) + int(changed)
        self.objects[kind.name, metadata["namespace"], metadata["name"]] = body
        return copy.deepcopy(body)

    async def get(self, kind: kinds.Kind, namespace: str, name: str, timeout_s: float = 1.0) -> Object:
        self._note("get", kind, name)
        return copy.deepcopy(self._find(kind, namespace, name))

    async def list(self, kind: kinds.Kind, namespace: str | None, **_: Any) -> "list[Object]":
        self._note("list", kind, namespace or "*")
        return [copy.deepcopy(body) for key, body in self.objects.items() if key[0] == kind.name]

    async def create(
        self, kind: kinds.Kind, body: Object, *, field_manager: str | None = None, timeout_s: float = 1.0
    ) -> Object:
        metadata = body["metadata"]
        self._note("create", kind, metadata["name"])
        if (kind.name, metadata["namespace"], metadata["name"]) in self.objects:
            raise client.ConflictError("exists", 409)
        made = copy.deepcopy(body)
        made["metadata"] |= {
            "uid": f"uid-{next(self._uids)}",
            "creationTimestamp": "2027-01-15T08:00:00Z",
            "managedFields": [self._entry(field_manager, "Update")],
        }
        return self._save(kind, made, None)

    async def apply(
        self,
        kind: kinds.Kind,
        body: Object,
        *,
        field_manager: str,
        subresource: str | None = None,
        timeout_s: float = 1.0,
    ) -> Object:
        metadata = body["metadata"]
        self._note(f"apply{'/' + subresource if subresource else ''}", kind, metadata["name"])
        before = self._find(kind, metadata["namespace"], metadata["name"])
        if metadata.get("uid") != before["metadata"]["uid"]:
            raise client.ConflictError("another uid", 409)
        after = copy.deepcopy(before)
        if subresource:
            after[subresource] = copy.deepcopy(body[subresource])
            return self._save(kind, after, before)
        for key, value in body.items():
            if key == "metadata":
                after[key] |= {k: copy.deepcopy(v) for k, v in value.items() if k != "annotations"}
                after[key]["annotations"] = before[key].get("annotations", {}) | value.get("annotations", {})
            elif isinstance(value, dict):
                after[key] = _merged(before.get(key) or {}, value)
            else:
                after[key] = value
        entries = [
            entry
            for entry in before["metadata"].get("managedFields", [])
            if (entry["manager"], entry["operation"]) != (field_manager, "Apply")
        ]
        after["metadata"]["managedFields"] = [*entries, self._entry(field_manager, "Apply")]
        return self._save(kind, after, before)

    async def merge(
        self,
        kind: kinds.Kind,
        namespace: str,
        name: str,
        body: Object,
        *,
        field_manager: str | None = None,
        timeout_s: float = 1.0,
    ) -> Object:
        self._note("merge", kind, name)
        before = self._find(kind, namespace, name)
        if body["metadata"].get("uid") != before["metadata"]["uid"]:
            raise client.ConflictError("another uid", 409)
        return self._save(kind, _merged(before, body), before)

    async def edit(
        self,
        kind: kinds.Kind,
        namespace: str,
        name: str,
        operations: Sequence[Object],
        *,
        field_manager: str | None = None,
        timeout_s: float = 1.0,
    ) -> Object:
        self._note("edit", kind, name)
        before = self._find(kind, namespace, name)
        after = copy.deepcopy(before)
        for operation in operations:
            *path, last = operation["path"].strip("/").split("/")
            where = after
            for part in path:
                where = where[part]
            if operation["op"] == "test" and where[last] != operation["value"]:
                raise client.RefusedError("test failed", 422)
            where[last] = copy.deepcopy(operation["value"])
        if any(operation["path"].startswith("/spec") for operation in operations):
            # Whoever owned fields there owns them no more.
            after["metadata"]["managedFields"] = [
                entry
                for entry in after["metadata"].get("managedFields", [])
                if entry["manager"] == names.FIELD_MANAGER
            ]
        return self._save(kind, after, before)

    async def delete(
        self, kind: kinds.Kind, namespace: str, name: str, uid: str, *, timeout_s: float = 1.0
    ) -> None:
        self._note("delete", kind, name)
        body = self.objects.get((kind.name, namespace, name))
        if body is not None and body["metadata"]["uid"] != uid:
            raise client.ConflictError("another uid", 409)
        self.objects.pop((kind.name, namespace, name), None)

    def by_hand(self, kind: kinds.Kind, name: str, manager: str, change: Callable[[Object], None]) -> Object:
        """Somebody else's edit; returns the object as the watch would show it."""
        before = self.objects[kind.name, "default", name]
        after = copy.deepcopy(before)
        change(after)
        after["metadata"].setdefault("managedFields", []).append(self._entry(manager, "Update"))
        return self._save(kind, after, before)

    @staticmethod
    def _entry(manager: str | None, operation: str) -> Object:
        fields: Object = {"f:spec": {}, "f:metadata": {}}
        return {"manager": manager or "unknown", "operation": operation, "fieldsV1": fields}


def _merged(before: Object, change: Object) -> Object:
    after = copy.deepcopy(before)
    for key, value in change.items():
        if isinstance(value, dict) and isinstance(after.get(key), dict):
            after[key] = _merged(after[key], value)
        elif value is None:
            after.pop(key, None)
        else:
            after[key] = copy.deepcopy(value)
    return after

"""What the watches have seen: the only thing a reconcile reads.

Filled by the watch handlers, and at once by our own writes (`put` with the API server's answer), so that the
next reconcile does not repeat what the watch has not shown yet. An older version never replaces a newer one;
an object deleted a moment ago is not resurrected by an answer that comes late. Bodies are kept without
`managedFields`; what matters of them is reduced to two facts: which foreign managers own fields of the spec,
and whether we own fields through a POST (which a later apply could not take away again).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from firsttoken_api import names
from firsttoken_operator import kinds

Object = dict[str, Any]
ServiceKey = tuple[str, str]
"""(namespace, name) of the InferenceService an object belongs to."""

FOREIGN = "firsttoken.dev/foreign-managers"
"""Key inside a stored body's metadata (never sent anywhere): who else owns fields of its spec."""
POSTED = "firsttoken.dev/posted"
"""Likewise: True where fields are ours by the operation Update, as after a POST."""

# Controllers of Kubernetes itself write to parts that are theirs.
_BUILT_IN_MANAGERS = frozenset(
    {"kube-controller-manager", "kube-scheduler", "kubelet", "kube-apiserver", "cloud-controller-manager"}
)
_REMEMBERED_DELETIONS = 2_000


def owner(body: Object) -> ServiceKey | None:
    """The service an object belongs to, by its label; None for what is not ours."""
    metadata = body["metadata"]
    if body.get("kind") == names.SERVICE_KIND:
        return metadata["namespace"], metadata["name"]
    name = (metadata.get("labels") or {}).get(names.LABEL_SERVICE)
    return (metadata["namespace"], name) if name else None


def controller_uid(body: Object) -> str | None:
    """Uid of the controlling owner."""
    references = body["metadata"].get("ownerReferences") or ()
    return next((str(each["uid"]) for each in references if each.get("controller")), None)


def slim(body: Object) -> Object:
    """The body without managedFields; what matters of them is noted under `FOREIGN` and `POSTED`."""
    metadata = {key: value for key, value in body["metadata"].items() if key != "managedFields"}
    entries = body["metadata"].get("managedFields") or ()
    foreign = sorted(set(_foreign_managers(entries)))
    if foreign:
        metadata[FOREIGN] = foreign
    if any(is_posted(entry) for entry in entries):
        metadata[POSTED] = True
    return {**body, "metadata": metadata}


def is_posted(entry: Object) -> bool:
    """Whether this managedFields entry is ours by another operation than Apply."""
    return (
        entry.get("manager") == names.FIELD_MANAGER
        and entry.get("operation") == "Update"
        and not entry.get("subresource")
    )


def _foreign_managers(entries: Iterable[Object]) -> Iterator[str]:
    for entry in entries:
        manager = entry.get("manager", "")
        fields = entry.get("fieldsV1") or {}
        is_ours = manager == names.FIELD_MANAGER or manager in _BUILT_IN_MANAGERS
        if not is_ours and not entry.get("subresource") and ("f:spec" in fields or "f:data" in fields):
            yield manager


@dataclass
class Store:
    """Objects by kind, namespace and name, with an index by service."""

    _objects: dict[tuple[str, str, str], Object] = field(default_factory=dict)
    _by_service: dict[ServiceKey, set[tuple[str, str, str]]] = field(default_factory=dict)
    _deleted: dict[str, int] = field(default_factory=dict)

    def put(self, body: Object) -> bool:
        """Keep the body unless a newer version is known. True if something changed."""
        metadata = body["metadata"]
        if _version(body) <= self._deleted.get(metadata["uid"], -1):
            return False
        key = (body["kind"], metadata["namespace"], metadata["name"])
        known = self._objects.get(key)
        if (
            known is not None
            and known["metadata"]["uid"] == metadata["uid"]
            and _version(body) <= _version(known)
        ):
            return False
        if known is not None:
            self._unlink(key, known)
        self._objects[key] = slim(body)
        service = owner(body)
        if service is not None:
            self._by_service.setdefault(service, set()).add(key)
        return True

    def remove(self, body: Object) -> None:
        """Take this very object out (by uid), also for older events that come late.

        A newer version brings it back: it had only left the selector because somebody took its label off.
        """
        metadata = body["metadata"]
        self._deleted.pop(metadata["uid"], None)
        self._deleted[metadata["uid"]] = _version(body)
        while len(self._deleted) > _REMEMBERED_DELETIONS:
            del self._deleted[next(iter(self._deleted))]
        key = (body["kind"], metadata["namespace"], metadata["name"])
        known = self._objects.get(key)
        if known is not None and known["metadata"]["uid"] == metadata["uid"]:
            del self._objects[key]
            self._unlink(key, known)

    def was_deleted(self, uid: str) -> bool:
        """Whether a watch told, not long ago, that this object is gone."""
        return uid in self._deleted

    def get(self, kind: kinds.Kind, namespace: str, name: str) -> Object | None:
        return self._objects.get((kind.name, namespace, name))

    def of_service(self, service: ServiceKey, kind: kinds.Kind) -> tuple[Object, ...]:
        """Objects of a kind that carry the service's label, by name."""
        keys = sorted(key for key in self._by_service.get(service, ()) if key[0] == kind.name)
        return tuple(self._objects[key] for key in keys)

    def services(self) -> tuple[ServiceKey, ...]:
        """Every known InferenceService."""
        return tuple(
            (namespace, name) for kind, namespace, name in self._objects if kind == names.SERVICE_KIND
        )

    def versions(self, kind: kinds.Kind, namespace: str | None) -> dict[str, str]:
        """resourceVersion by uid, for comparing with a list."""
        return {
            body["metadata"]["uid"]: body["metadata"]["resourceVersion"]
            for key, body in self._objects.items()
            if key[0] == kind.name and namespace in (None, key[1])
        }

    def _unlink(self, key: tuple[str, str, str], known: Object) -> None:
        service = owner(known)
        if service is None:
            return
        members = self._by_service.get(service, set())
        members.discard(key)
        if not members:
            self._by_service.pop(service, None)


def _version(body: Object) -> int:
    # Comparable numbers in every supported API server; officially so since Kubernetes 1.35.
    return int(body["metadata"]["resourceVersion"])

"""Carries out a plan: the operator's only writer.

An object is first created by POST, so that one that somebody else has under that name is never taken over;
later by server-side apply with one field manager, with force and with the uid of the object we mean. What is
equal already is not sent at all: at rest nothing is written. Every write asks the election's fence first and
ends before the lease could be somebody else's.
"""

import logging
from dataclasses import dataclass, field
from typing import Any

from firsttoken_api import inference_service, names
from firsttoken_api.status import InferenceServiceStatus
from firsttoken_operator import client, election, kinds, metrics, objects, plan, queue, status
from firsttoken_operator.memory import Applied, Held, Memory
from firsttoken_operator.observed import Bump, Child
from firsttoken_operator.store import FOREIGN, POSTED, Store, controller_uid, is_posted

Object = dict[str, Any]
log = logging.getLogger(__name__)

WRITE_TIMEOUT_S = 10.0
CONFLICT_RETRY_S = 30.0

# Where a hand edit may add what a server-side apply cannot take away.
_REPLACED_PARTS: dict[str, tuple[str, ...]] = {
    "Deployment": ("template",),
    "Service": ("selector", "ports"),
}


@dataclass
class Outcome:
    """What applying a plan ran into."""

    conflicts: list[str] = field(default_factory=list)
    """Names that are taken, one sentence each."""
    refusals: list[str] = field(default_factory=list)
    """What the API server refused: asking again alone will not help."""
    again_s: float | None = None
    """When the first of these is tried again."""

    def note(self, held: Held) -> None:
        (self.conflicts if held.is_conflict else self.refusals).append(held.message)
        self.again_s = held.again_s if self.again_s is None else min(self.again_s, held.again_s)


class _NameTakenError(Exception):
    """An object of that name exists and is not ours."""


class Applier:
    """Writes through one client, behind one fence."""

    def __init__(
        self, api: client.Client, store: Store, fence: election.Fence, counters: metrics.Metrics
    ) -> None:
        self._api = api
        self._store = store
        self._fence = fence
        self._metrics = counters

    async def run(
        self,
        service: inference_service.InferenceService,
        actions: tuple[plan.Action, ...],
        memory: Memory,
        now: float,
    ) -> Outcome:
        """Actions in order; ApiError where one fails. What is refused, or has a name that is taken, is noted.

        It does not fail the reconcile, so what else happens to the service is acted on without delay; the
        same write is tried again later and later.
        """
        outcome = Outcome()
        before, memory.held = memory.held, {}
        for action in actions:
            key = _key(action)
            held = before.get(key)
            if held is None or now >= held.again_s:
                held = await self._carried_out(service, action, memory, now, held.tries if held else 0)
            if held is not None:
                memory.held[key] = held
                outcome.note(held)
        return outcome

    async def _carried_out(
        self,
        service: inference_service.InferenceService,
        action: plan.Action,
        memory: Memory,
        now: float,
        tries: int,
    ) -> Held | None:
        """None when it was done; else what was said about it."""
        try:
            match action:
                case plan.Create(body):
                    await self._create(service, body, memory)
                case plan.Ensure(body):
                    await self._ensure(service, body, memory)
                case plan.Delete(kind, name, uid):
                    if uid not in memory.deleted:
                        await self._delete(service, kind, name, uid)
                        memory.deleted.add(uid)
                        memory.applied.pop((kind.name, name), None)
                case plan.Mark(pod, mark):
                    bump = memory.bumps.get(pod.uid)
                    is_same = bump is not None and bump.generation == mark.generation
                    first_s = bump.first_s if bump and is_same else now
                    # Before the write: one that is refused must not be due again at once.
                    memory.bumps[pod.uid] = Bump(mark.generation, first_s, now)
                    await self._mark(service, pod.name, pod.uid, mark.text)
        except _NameTakenError as error:
            return Held(str(error), True, tries + 1, now + CONFLICT_RETRY_S)
        except client.RefusedError as error:
            log.warning("%s/%s: %s", service.metadata.namespace, service.metadata.name, error)
            self._metrics.errors.labels(type(error).__name__).inc()
            return Held(error.detail, False, tries + 1, now + queue.backoff_s(tries + 1, 0.0))
        return None

    async def write_status(
        self,
        namespace: str,
        name: str,
        uid: str,
        previous: InferenceServiceStatus,
        current: InferenceServiceStatus,
    ) -> bool:
        """The status, if it differs. True if it was written."""
        wire = status.to_wire(current)
        if wire == status.to_wire(previous):
            return False
        body = {
            "apiVersion": names.API_VERSION,
            "kind": names.SERVICE_KIND,
            "metadata": {"name": name, "namespace": namespace, "uid": uid},
            "status": wire,
        }
        answer = await self._api.apply(
            kinds.INFERENCE_SERVICE,
            body,
            field_manager=names.FIELD_MANAGER,
            subresource="status",
            timeout_s=self._timeout_s(),
        )
        self._metrics.wrote(kinds.INFERENCE_SERVICE.name, "status")
        self._store.put(answer)
        return True

    def _timeout_s(self) -> float:
        return min(WRITE_TIMEOUT_S, self._fence.remaining_s())

    async def _create(
        self,
        service: inference_service.InferenceService,
        body: Object,
        memory: Memory,
    ) -> None:
        kind = kinds.BY_NAME[body["kind"]]
        if self._store.get(kind, body["metadata"]["namespace"], body["metadata"]["name"]) is None:
            await self._post(service, kind, body, memory)

    async def _ensure(
        self,
        service: inference_service.InferenceService,
        body: Object,
        memory: Memory,
    ) -> None:
        kind = kinds.BY_NAME[body["kind"]]
        child: Child = (body["kind"], body["metadata"]["name"])
        intent = objects.digest(body, 16)
        wanted = _with_intent(body, intent)
        current = self._store.get(kind, body["metadata"]["namespace"], body["metadata"]["name"])
        if current is None:
            await self._post(service, kind, wanted, memory)
        elif not self._is_equal(child, wanted, intent, current, memory):
            await self._apply(kind, wanted, intent, current, memory)

    def _is_equal(self, child: Child, wanted: Object, intent: str, current: Object, memory: Memory) -> bool:
        if not _covers(current["metadata"], wanted["metadata"]):
            return False
        last = memory.applied.get(child)
        now = Applied(intent, current["metadata"]["uid"], _version(current))
        if last is not None:
            return last == now
        # A new leader: equal if everything we would state is there, and nobody else stated anything.
        is_equal = FOREIGN not in current["metadata"] and _covers(current, wanted)
        if is_equal:
            memory.applied[child] = now
        return is_equal

    async def _post(
        self,
        service: inference_service.InferenceService,
        kind: kinds.Kind,
        body: Object,
        memory: Memory,
    ) -> None:
        metadata = body["metadata"]
        child: Child = (kind.name, metadata["name"])
        try:
            answer = await self._api.create(
                kind, body, field_manager=names.FIELD_MANAGER, timeout_s=self._timeout_s()
            )
        except client.ConflictError:
            await self._already_there(service, kind, body, memory)
            return
        self._metrics.wrote(kind.name, "create")
        log.info("created %s %s/%s", kind.name, metadata["namespace"], metadata["name"])
        self._remember(child, body, answer, memory)

    async def _already_there(
        self,
        service: inference_service.InferenceService,
        kind: kinds.Kind,
        body: Object,
        memory: Memory,
    ) -> None:
        """Something has the name: ours without its label (a hand edit), or somebody else's."""
        metadata = body["metadata"]
        current = await self._api.get(kind, metadata["namespace"], metadata["name"])
        if controller_uid(current) == service.metadata.uid:
            await self._apply(kind, body, objects.digest(body, 16), current, memory)
            return
        raise _NameTakenError(f"{kind.name} {metadata['name']} exists and does not belong to this service")

    async def _apply(
        self, kind: kinds.Kind, wanted: Object, intent: str, current: Object, memory: Memory
    ) -> None:
        metadata = wanted["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        uid = current["metadata"]["uid"]
        if current["metadata"].get(POSTED) or any(
            is_posted(entry) for entry in current["metadata"].get("managedFields") or ()
        ):
            await self._own_by_apply(kind, namespace, name, uid)
        body = {**wanted, "metadata": {**metadata, "uid": uid}}
        answer = await self._api.apply(
            kind, body, field_manager=names.FIELD_MANAGER, timeout_s=self._timeout_s()
        )
        self._metrics.wrote(kind.name, "apply")
        log.info("applied %s %s/%s", kind.name, namespace, name)
        self._store.put(answer)
        kept = self._store.get(kind, namespace, name)
        parts = [part for part in _REPLACED_PARTS.get(kind.name, ()) if part in wanted["spec"]]
        if parts and kept is not None and kept["metadata"].get(FOREIGN):
            log.warning(
                "%s %s/%s was edited by %s: undone", kind.name, namespace, name, kept["metadata"][FOREIGN]
            )
            answer = await self._api.edit(
                kind,
                namespace,
                name,
                [
                    {"op": "test", "path": "/metadata/uid", "value": uid},
                    *(
                        {"op": "replace", "path": f"/spec/{part}", "value": wanted["spec"][part]}
                        for part in parts
                    ),
                ],
                field_manager=names.FIELD_MANAGER,
                timeout_s=self._timeout_s(),
            )
            self._metrics.wrote(kind.name, "edit")
        self._remember((kind.name, name), wanted, answer, memory, intent)

    async def _own_by_apply(self, kind: kinds.Kind, namespace: str, name: str, uid: str) -> None:
        """Turn what we own through the POST into what we own by apply, or a field that a later intent leaves
        out would stay for ever."""
        live = await self._api.get(kind, namespace, name)
        entries = live["metadata"].get("managedFields") or []
        ours_by_apply = any(
            entry.get("manager") == names.FIELD_MANAGER and entry.get("operation") == "Apply"
            for entry in entries
        )
        if live["metadata"]["uid"] != uid or not any(is_posted(entry) for entry in entries):
            return
        # Two entries of one manager and operation are not allowed: after an earlier apply the other one goes.
        changed = [
            {**entry, "operation": "Apply"} if is_posted(entry) else entry
            for entry in entries
            if not (ours_by_apply and is_posted(entry))
        ]
        answer = await self._api.edit(
            kind,
            namespace,
            name,
            [
                {"op": "test", "path": "/metadata/uid", "value": uid},
                {
                    "op": "replace",
                    "path": "/metadata/resourceVersion",
                    "value": live["metadata"]["resourceVersion"],
                },
                {"op": "replace", "path": "/metadata/managedFields", "value": changed},
            ],
            timeout_s=self._timeout_s(),
        )
        self._metrics.wrote(kind.name, "edit")
        self._store.put(answer)

    async def _delete(
        self, service: inference_service.InferenceService, kind: kinds.Kind, name: str, uid: str
    ) -> None:
        namespace = service.metadata.namespace
        try:
            await self._api.delete(kind, namespace, name, uid, timeout_s=self._timeout_s())
        except client.ConflictError:
            return  # another object has the name by now
        self._metrics.wrote(kind.name, "delete")
        log.info("deleted %s %s/%s", kind.name, namespace, name)

    async def _mark(
        self, service: inference_service.InferenceService, name: str, uid: str, mark: str
    ) -> None:
        namespace = service.metadata.namespace
        body = {"metadata": {"uid": uid, "annotations": {names.ANNOTATION_FLAGS: mark}}}
        try:
            answer = await self._api.merge(
                kinds.POD,
                namespace,
                name,
                body,
                field_manager=names.FIELD_MANAGER,
                timeout_s=self._timeout_s(),
            )
        except (client.NotFoundError, client.ConflictError):
            return  # the pod is gone, its successor reads the newest flags by itself
        self._metrics.wrote(kinds.POD.name, "patch")
        log.info("flags %s -> %s/%s", mark, namespace, name)
        self._store.put(answer)

    def _remember(
        self, child: Child, wanted: Object, answer: Object, memory: Memory, intent: str | None = None
    ) -> None:
        self._store.put(answer)
        stated = intent or wanted["metadata"].get("annotations", {}).get(names.ANNOTATION_INTENT, "")
        memory.applied[child] = Applied(stated, answer["metadata"]["uid"], _version(answer))


def _key(action: plan.Action) -> str:
    """What is to be written."""
    match action:
        case plan.Delete(_, _, uid):
            return f"delete {uid}"
        case plan.Mark(pod, mark):
            return f"mark {pod.uid} {mark.text}"
    return f"{type(action).__name__} {objects.digest(action.body, 16)}"


def _with_intent(body: Object, intent: str) -> Object:
    metadata = body["metadata"]
    annotations = {**metadata.get("annotations", {}), names.ANNOTATION_INTENT: intent}
    return {**body, "metadata": {**metadata, "annotations": annotations}}


def _version(body: Object) -> str:
    metadata = body["metadata"]
    return str(metadata.get("generation") or metadata["resourceVersion"])


def _covers(actual: Any, stated: Any) -> bool:
    """Whether everything that is stated is there. What the API server adds does not matter, nor does an empty
    or false value that it leaves out."""
    if isinstance(stated, dict):
        return isinstance(actual, dict) and all(
            (key in actual and _covers(actual[key], value)) or (not value and key not in actual)
            for key, value in stated.items()
        )
    if isinstance(stated, list):
        return (
            isinstance(actual, list)
            and len(actual) == len(stated)
            and all(_covers(one, other) for one, other in zip(actual, stated, strict=True))
        )
    return bool(actual == stated)

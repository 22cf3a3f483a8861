"""From the store, the scraped states and the memory to frozen facts about one service. Reads nothing else.

Only what belongs to this very service (by uid, through its owners) counts: pods of an earlier service of the
same name that are still ending are not its replicas. Which revision a child is of is read from its name,
which nobody can edit: a Deployment without its label would look like no replicas at all.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pydantic

from firsttoken_api import hot_settings, inference_service, names, resolved
from firsttoken_api.status import InferenceServiceStatus
from firsttoken_operator import causes, kinds, scrape
from firsttoken_operator.memory import Memory
from firsttoken_operator.observed import (
    Bump,
    Child,
    Deployment,
    FlagsDocument,
    Observed,
    Pod,
    Resolver,
    Revision,
    parse_mark,
)
from firsttoken_operator.store import ServiceKey, Store, controller_uid

Object = dict[str, Any]


@dataclass(frozen=True)
class Unreadable:
    """A service whose spec does not fit our types, for example under an older CRD."""

    name: str
    namespace: str
    uid: str
    generation: int
    previous: InferenceServiceStatus
    message: str


def gather(
    store: Store,
    key: ServiceKey,
    memory: Memory,
    scraped: Callable[[str], scrape.Scraped],
    events: Callable[[str], Iterable[Object]],
    now: float,
) -> Observed | Unreadable | None:
    """Facts about a service; None if there is none, or if it is being deleted."""
    body = store.get(kinds.INFERENCE_SERVICE, *key)
    if body is None or body["metadata"].get("deletionTimestamp"):
        return None
    previous = _status(body)
    try:
        service = inference_service.parse({**body, "status": {}})
    except pydantic.ValidationError as error:
        metadata = body["metadata"]
        return Unreadable(
            name=metadata["name"],
            namespace=metadata["namespace"],
            uid=metadata["uid"],
            generation=metadata.get("generation", 0),
            previous=previous,
            message=_first_error(error),
        )
    name, uid = service.metadata.name, service.metadata.uid
    deployments = _ours(store.of_service(key, kinds.DEPLOYMENT), uid)
    pods = tuple(_serving_pods(store, key, {each["metadata"]["uid"] for each in deployments}))
    memory.forget_pods(frozenset(pod["metadata"]["uid"] for pod in pods))
    return Observed(
        service=service,
        previous=previous,
        pods=tuple(_pod(pod, memory, scraped, events, now) for pod in pods),
        deployments=tuple(_deployment(name, each) for each in deployments),
        revisions=tuple(_revisions(name, _ours(store.of_service(key, kinds.CONTROLLER_REVISION), uid))),
        documents=tuple(_documents(name, _ours(store.of_service(key, kinds.CONFIG_MAP), uid))),
        resolvers=tuple(_resolvers(store, key, uid, events, now)),
        foreign=_foreign(store, key, uid),
        slo_written_s=memory.slo_written_s,
        traffic_at_slo=memory.traffic_at_slo,
    )


def targets(store: Store) -> Iterator[scrape.Target]:
    """Every serving pod with an address that is not finished."""
    for key in store.services():
        for pod in store.of_service(key, kinds.POD):
            target = target_of(key, pod)
            if target is not None:
                yield target


def target_of(key: ServiceKey, pod: Object) -> scrape.Target | None:
    """Where to read a serving pod's state; None while it has no address."""
    metadata = pod["metadata"]
    status = pod.get("status") or {}
    is_serving = (metadata.get("labels") or {}).get(names.LABEL_ROLE) == names.ROLE_SERVING
    if not is_serving or not status.get("podIP") or status.get("phase") in ("Succeeded", "Failed"):
        return None
    return scrape.Target(key, metadata["uid"], metadata["name"], status["podIP"])


def time_s(text: str | None) -> float:
    """Seconds since the epoch of an RFC 3339 time; 0 for none."""
    return datetime.fromisoformat(text).timestamp() if text else 0.0


def _age_s(body: Object, now: float) -> float:
    return now - time_s(body["metadata"]["creationTimestamp"])


def _status(body: Object) -> InferenceServiceStatus:
    try:
        return InferenceServiceStatus.model_validate(body.get("status") or {})
    except pydantic.ValidationError:
        return InferenceServiceStatus()  # of another version: it is written anew


def _first_error(error: pydantic.ValidationError) -> str:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where}: {first['msg']}" if where else str(first["msg"])


def _ours(bodies: Iterable[Object], uid: str) -> tuple[Object, ...]:
    return tuple(body for body in bodies if controller_uid(body) == uid)


def _foreign(store: Store, key: ServiceKey, uid: str) -> dict[Child, str]:
    """Who has names that a service of this name may need. Only labelled objects are seen; the API server
    tells about the others when we create."""
    found: dict[Child, str] = {}
    namespace, name = key
    wanted = (
        (kinds.SERVICE, name),
        (kinds.SERVICE, names.peers_service(name)),
        (kinds.DISRUPTION_BUDGET, name),
    )
    bodies = [store.get(kind, namespace, wanted_name) for kind, wanted_name in wanted]
    for kind in (kinds.DEPLOYMENT, kinds.CONFIG_MAP, kinds.CONTROLLER_REVISION, kinds.JOB):
        bodies += store.of_service(key, kind)
    for body in bodies:
        if body is not None and controller_uid(body) != uid:
            found[body["kind"], body["metadata"]["name"]] = _owner_text(body)
    return found


def _owner_text(body: Object) -> str:
    for reference in body["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            return f"{reference['kind']} {reference['name']} (uid {reference['uid']})"
    return "nobody we know"


def _serving_pods(store: Store, key: ServiceKey, deployment_uids: set[str]) -> Iterator[Object]:
    replica_sets = {
        each["metadata"]["uid"]
        for each in store.of_service(key, kinds.REPLICA_SET)
        if controller_uid(each) in deployment_uids
    }
    for pod in store.of_service(key, kinds.POD):
        if controller_uid(pod) in replica_sets and (pod.get("status") or {}).get("phase") not in (
            "Succeeded",
            "Failed",
        ):
            yield pod


def _pod(
    body: Object,
    memory: Memory,
    scraped: Callable[[str], scrape.Scraped],
    events: Callable[[str], Iterable[Object]],
    now: float,
) -> Pod:
    metadata = body["metadata"]
    uid = metadata["uid"]
    conditions = (body.get("status") or {}).get("conditions") or ()
    ready = next((each for each in conditions if each["type"] == "Ready"), None)
    mark = parse_mark((metadata.get("annotations") or {}).get(names.ANNOTATION_FLAGS, ""))
    if mark is not None and uid not in memory.bumps:
        # An operator before this one asked; its patience starts anew.
        memory.bumps[uid] = Bump(mark.generation, now, now)
    known = scraped(uid)
    is_ready = ready is not None and ready["status"] == "True"
    return Pod(
        name=metadata["name"],
        uid=uid,
        revision=(metadata.get("labels") or {}).get(names.LABEL_REVISION, ""),
        created_s=time_s(metadata["creationTimestamp"]),
        deleting=bool(metadata.get("deletionTimestamp")),
        ends_s=time_s(metadata.get("deletionTimestamp")),
        ready=is_ready,
        changed_s=time_s(ready.get("lastTransitionTime") if ready else None)
        or time_s(metadata["creationTimestamp"]),
        mark=mark,
        bump=memory.bumps.get(uid),
        cause=None
        if is_ready
        else causes.of_pod(body, events(uid), _age_s(body, now))
        or causes.of_state(metadata["name"], known.state),
        state=known.state,
        failed_scrapes=known.failures,
    )


def _deployment(service: str, body: Object) -> Deployment:
    metadata = body["metadata"]
    failure = causes.of_deployment(body)
    return Deployment(
        name=metadata["name"],
        uid=metadata["uid"],
        revision=names.revision_of(service, metadata["name"]),
        replicas=int(body["spec"].get("replicas", 1)),
        failure=failure[0] if failure else None,
        failure_since_s=time_s(failure[1]) if failure else 0.0,
        template=body["spec"]["template"],
    )


def _revisions(service: str, bodies: Iterable[Object]) -> Iterator[Revision]:
    for body in bodies:
        metadata, data = body["metadata"], body.get("data") or {}
        try:
            yield Revision(
                name=names.revision_of(service, metadata["name"]),
                object_name=metadata["name"],
                uid=metadata["uid"],
                number=int(body.get("revision", 0)),
                created_s=time_s(metadata["creationTimestamp"]),
                intent_hash=data["intentHash"],
                render_hash=data["renderHash"],
                refresh=data["refresh"],
                source_hash=data["sourceHash"],
                image=data["image"],
                model=resolved.ResolvedModel.model_validate(data["model"]),
                template=data["template"],
            )
        except (KeyError, pydantic.ValidationError):
            continue  # not written by an operator we know; it is left alone


def _documents(service: str, bodies: Iterable[Object]) -> Iterator[FlagsDocument]:
    for body in bodies:
        metadata = body["metadata"]
        revision = names.revision_of(service, metadata["name"].removesuffix(names.FLAGS_SUFFIX))
        if metadata["name"] != names.flags_config_map(service, revision):
            continue
        try:
            document = hot_settings.HotSettings.model_validate_json(
                (body.get("data") or {}).get(names.FLAGS_KEY, "")
            )
        except pydantic.ValidationError:
            generation, content_hash = 0, ""  # a hand edit: it is written anew
        else:
            generation, content_hash = document.generation, document.content_hash()
        yield FlagsDocument(metadata["name"], metadata["uid"], revision, generation, content_hash)


def _resolvers(
    store: Store,
    key: ServiceKey,
    uid: str,
    events: Callable[[str], Iterable[Object]],
    now: float,
) -> Iterator[Resolver]:
    pods = store.of_service(key, kinds.POD)
    for job in _ours(store.of_service(key, kinds.JOB), uid):
        metadata = job["metadata"]
        pod = next((each for each in pods if controller_uid(each) == metadata["uid"]), None)
        message = _termination_message(pod) if pod else None
        yield Resolver(
            name=metadata["name"],
            uid=metadata["uid"],
            answer=_answer(message),
            finished_s=_finished_s(job, pod),
            cause=causes.of_pod(pod, events(pod["metadata"]["uid"]), _age_s(pod, now))
            if pod
            else causes.of_events(events(metadata["uid"])),
        )


def _termination_message(pod: Object) -> str | None:
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        terminated = (status.get("state") or {}).get("terminated")
        if terminated:
            return str(terminated.get("message", ""))
    return None


def _answer(message: str | None) -> resolved.ResolvedModel | resolved.ResolveFailure | None:
    if not message:
        return None
    try:
        return resolved.parse(message)
    except pydantic.ValidationError:
        return None


def _finished_s(job: Object, pod: Object | None) -> float | None:
    for condition in (job.get("status") or {}).get("conditions") or ():
        if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
            return time_s(condition.get("lastTransitionTime"))
    for status in ((pod or {}).get("status") or {}).get("containerStatuses") or ():
        terminated = (status.get("state") or {}).get("terminated")
        if terminated:
            return time_s(terminated.get("finishedAt"))
    return None

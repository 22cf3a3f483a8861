"""From objects to facts: what belongs to a service, and what is read from it."""

import copy
from typing import Any

import pytest

from builders import observed as build
from builders.observed import NOW
from firsttoken_api import names
from firsttoken_api.reasons import Reason
from firsttoken_operator import flags, gather, kinds, manifests, resolver_job, revisions, scrape
from firsttoken_operator.memory import Memory
from firsttoken_operator.observed import FlagsMark, Observed, parse_mark
from firsttoken_operator.store import Store

Object = dict[str, Any]
SERVICE = build.service()
KEY = ("default", "chat")
RENDERING = build.rendering(SERVICE)


class World:
    """A store with one service and helpers that add its children as the API server would show them."""

    def __init__(self) -> None:
        self.store = Store()
        self.memory = Memory()
        self.states: dict[str, scrape.Scraped] = {}
        self.events: dict[str, list[Object]] = {}
        self._version = 0
        body = SERVICE.model_dump(mode="json", by_alias=True, exclude_none=True)
        self.put(body | {"status": {}}, "uid-service")

    def put(self, body: Object, uid: str, **status: Any) -> Object:
        self._version += 1
        made = copy.deepcopy(body)
        made["metadata"] |= {
            "uid": uid,
            "resourceVersion": str(self._version),
            "creationTimestamp": "2027-01-15T08:00:00Z",
        }
        if status:
            made["status"] = status
        self.store.put(made)
        return made

    def deployment(self, uid: str = "uid-d") -> Object:
        return self.put(manifests.deployment(SERVICE, RENDERING.name, RENDERING.template, 2), uid)

    def owned(self, owner: Object, kind: str, name: str, uid: str, **fields: Any) -> Object:
        body = {
            "apiVersion": "v1",
            "kind": kind,
            "metadata": {
                "name": name,
                "namespace": "default",
                "labels": dict(RENDERING.template["metadata"]["labels"]),
                "ownerReferences": [
                    {"kind": owner["kind"], "name": "o", "uid": owner["metadata"]["uid"], "controller": True}
                ],
                **fields.pop("metadata", {}),
            },
        }
        return self.put(body, uid, **fields)

    def pod(self, deployment: Object, name: str = "p", **fields: Any) -> Object:
        uid = f"uid-rs-{deployment['metadata']['uid']}"
        replica_set = self.owned(deployment, "ReplicaSet", f"rs-{uid}", uid)
        return self.owned(replica_set, "Pod", name, f"uid-{name}", **fields)

    def gather(self) -> Observed:
        found = gather.gather(
            self.store,
            KEY,
            self.memory,
            lambda uid: self.states.get(uid, scrape.Scraped(None)),
            lambda uid: self.events.get(uid, []),
            NOW,
        )
        assert isinstance(found, Observed)
        return found


def test_a_pod_s_facts() -> None:
    world = World()
    world.states["uid-p"] = scrape.Scraped(build.sidecar_state(2), 0)
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2027-01-15T08:01:00Z"}
    world.pod(
        world.deployment(),
        metadata={"annotations": {names.ANNOTATION_FLAGS: "2.1"}},
        phase="Running",
        conditions=[ready],
    )
    (pod,) = world.gather().pods
    assert pod.revision == RENDERING.name
    assert pod.ready
    assert pod.changed_s == pod.created_s + 60
    assert pod.mark == FlagsMark(2, 1)
    assert pod.bump is not None  # of an operator before: its patience starts now
    assert (pod.bump.generation, pod.bump.first_s) == (2, NOW)
    assert pod.state == build.sidecar_state(2)
    assert not pod.deleting


def test_a_replica_that_never_got_flags_has_a_cause() -> None:
    world = World()
    world.states["uid-p"] = scrape.Scraped(build.sidecar_state(0, error="no such flag"), 0)
    world.pod(world.deployment(), phase="Running")
    (pod,) = world.gather().pods
    assert pod.cause is not None
    assert pod.cause.reason is Reason.REJECTED_BY_ENGINE


def test_pods_of_an_earlier_service_of_the_same_name_are_not_ours() -> None:
    world = World()
    earlier = copy.deepcopy(manifests.deployment(SERVICE, "old", RENDERING.template, 1))
    earlier["metadata"]["ownerReferences"][0]["uid"] = "uid-of-the-earlier-one"
    world.pod(world.put(earlier, "uid-earlier"), name="earlier")
    world.pod(world.deployment(), name="ours")
    seen = world.gather()
    assert [pod.name for pod in seen.pods] == ["ours"]
    assert [each.revision for each in seen.deployments] == [RENDERING.name]
    assert ("Deployment", "chat-old") in seen.foreign


def test_finished_pods_do_not_count_and_ending_ones_are_marked() -> None:
    world = World()
    deployment = world.deployment()
    world.pod(deployment, name="evicted", phase="Failed")
    world.pod(
        deployment, name="ending", metadata={"deletionTimestamp": "2027-01-15T08:00:00Z"}, phase="Running"
    )
    (pod,) = world.gather().pods
    assert (pod.name, pod.deleting) == ("ending", True)


def test_when_an_ending_pod_is_gone_at_the_latest() -> None:
    world = World()
    world.pod(world.deployment(), metadata={"deletionTimestamp": "2027-01-15T08:02:25Z"})
    (pod,) = world.gather().pods
    assert pod.ends_s == gather.time_s("2027-01-15T08:02:25Z")


def test_memories_of_pods_that_are_gone_are_dropped() -> None:
    world = World()
    world.pod(world.deployment(), metadata={"annotations": {names.ANNOTATION_FLAGS: "2.1"}})
    world.gather()
    assert set(world.memory.bumps) == {"uid-p"}
    world.store.remove(world.store.of_service(KEY, kinds.POD)[0])
    world.gather()
    assert world.memory.bumps == {}


def test_a_recorded_revision_is_read_back() -> None:
    world = World()
    world.put(manifests.controller_revision(SERVICE, RENDERING.name, 4, RENDERING.data()), "uid-r")
    (revision,) = world.gather().revisions
    assert revision.number == 4
    assert revision.template == RENDERING.template
    assert revision.model == build.model()
    assert revision.intent_hash == RENDERING.intent_hash
    choice = revisions.choose(world.gather(), RENDERING)
    assert (choice.target, choice.create) == (RENDERING.name, None)


def test_a_record_of_another_kind_is_left_alone() -> None:
    world = World()
    world.put(manifests.controller_revision(SERVICE, "x", 1, {"somebody": "else"}), "uid-x")
    assert world.gather().revisions == ()


def test_flags_documents_also_after_a_hand_edit() -> None:
    world = World()
    document = flags.document(flags.decide((), frozenset()), SERVICE.spec, 3)
    body = manifests.flags_config_map(SERVICE, RENDERING.name, document)
    world.put(body, "uid-c")
    (seen,) = world.gather().documents
    assert (seen.generation, seen.hash, seen.revision) == (3, document.hash, RENDERING.name)
    body["data"] = {names.FLAGS_KEY: body["data"][names.FLAGS_KEY].replace("true", "false", 1)}
    world.put(body, "uid-c")
    (seen,) = world.gather().documents
    assert seen.hash == ""


def test_a_resolver_and_its_answer() -> None:
    world = World()
    job = world.put(resolver_job.render(SERVICE, "chat-resolve-1", build.IMAGES), "uid-job")
    (seen,) = world.gather().resolvers
    assert (seen.answer, seen.finished_s, seen.cause) == (None, None, None)
    world.events["uid-job"] = [
        {"metadata": {}, "reason": "FailedCreate", "message": "quota", "involvedObject": {"name": "j"}}
    ]
    (seen,) = world.gather().resolvers
    assert seen.cause is not None
    assert seen.cause.reason is Reason.CREATE_FAILED
    ended = {"exitCode": 0, "message": build.model().model_dump_json(), "finishedAt": "2027-01-15T08:00:09Z"}
    world.owned(
        job,
        "Pod",
        "j-x",
        "uid-j-x",
        phase="Succeeded",
        containerStatuses=[{"name": "resolver", "state": {"terminated": ended}}],
    )
    (seen,) = world.gather().resolvers
    assert seen.answer == build.model()
    assert seen.finished_s == gather.time_s("2027-01-15T08:00:09Z")


def test_nonsense_in_a_termination_message_is_no_answer() -> None:
    world = World()
    job = world.put(resolver_job.render(SERVICE, "chat-resolve-1", build.IMAGES), "uid-job")
    ended = {"exitCode": 1, "message": "Traceback", "finishedAt": "2027-01-15T08:00:09Z"}
    world.owned(
        job,
        "Pod",
        "j-x",
        "uid-j-x",
        containerStatuses=[{"name": "resolver", "state": {"terminated": ended}}],
    )
    (seen,) = world.gather().resolvers
    assert seen.answer is None
    assert seen.finished_s is not None


def test_nothing_for_a_service_that_is_gone_or_ending() -> None:
    world = World()
    memory = Memory()
    none = gather.gather(
        world.store, ("default", "other"), memory, lambda _: scrape.Scraped(None), lambda _: (), NOW
    )
    assert none is None


def test_where_pods_are_read() -> None:
    world = World()
    deployment = world.deployment()
    world.pod(deployment, name="new")
    world.pod(deployment, name="up", podIP="10.0.0.7", phase="Running")
    world.pod(deployment, name="done", podIP="10.0.0.8", phase="Succeeded")
    assert [(each.name, each.address) for each in gather.targets(world.store)] == [("up", "10.0.0.7")]


@pytest.mark.parametrize("text", ["", "3", "a.b", "3.", ".1", "3.1.2", "-1.1", "9" * 5_000 + ".1"])
def test_odd_marks_are_no_marks(text: str) -> None:
    assert parse_mark(text) is None

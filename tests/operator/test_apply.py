"""Writing: POST first, nothing that is not ours, nothing twice, nothing without the lease."""

import dataclasses
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from builders import observed as build
from builders.fake_api import FakeApi
from builders.observed import NOW
from firsttoken_api import names
from firsttoken_operator import apply, client, election, kinds, manifests, metrics, plan, pods, resolver_job
from firsttoken_operator.memory import Memory
from firsttoken_operator.observed import FlagsMark
from firsttoken_operator.store import Store

Object = dict[str, Any]
SERVICE = build.service()
TEMPLATE = pods.template(SERVICE, build.IMAGES, "abc", build.model())


class Bench:
    """An applier with its store and API server; the watch follows when `watch` is called."""

    def __init__(self) -> None:
        self.api = FakeApi()
        self.store = Store()
        self.memory = Memory()
        self.now = 0.0
        self.fence = election.Fence(lambda: self.now)
        self.fence.extend(100.0)
        counters = metrics.Metrics(CollectorRegistry())
        self.applier = apply.Applier(self.api, self.store, self.fence, counters)  # type: ignore[arg-type]

    async def run(self, *actions: plan.Action) -> apply.Outcome:
        return await self.applier.run(SERVICE, actions, self.memory, NOW)

    def watch(self) -> None:
        for body in self.api.objects.values():
            self.store.put(body)

    def new_leader(self) -> None:
        self.memory = Memory()


@pytest.fixture
def bench() -> Bench:
    return Bench()


def deployment(replicas: int = 1) -> plan.Ensure:
    return plan.Ensure(manifests.deployment(SERVICE, "abc", TEMPLATE, replicas))


def traffic(**spec: Any) -> plan.Ensure:
    return plan.Ensure(manifests.traffic_service(build.service(**spec)))


async def test_created_once_then_left_alone(bench: Bench) -> None:
    for _ in range(3):
        await bench.run(deployment(), traffic())
    assert bench.api.writes() == ["create Deployment/chat-abc", "create Service/chat"]


async def test_a_change_is_applied_with_the_uid_after_the_post_was_turned_into_an_apply(bench: Bench) -> None:
    await bench.run(deployment())
    bench.api.writes()
    await bench.run(deployment(replicas=3))
    assert bench.api.writes() == ["edit Deployment/chat-abc", "apply Deployment/chat-abc"]
    body = bench.api.objects["Deployment", "default", "chat-abc"]
    assert body["spec"]["replicas"] == 3
    assert {(e["manager"], e["operation"]) for e in body["metadata"]["managedFields"]} == {
        (names.FIELD_MANAGER, "Apply")
    }
    await bench.run(deployment(replicas=4))
    assert bench.api.writes() == ["apply Deployment/chat-abc"]


async def test_a_new_leader_writes_nothing_where_all_is_as_it_should_be(bench: Bench) -> None:
    await bench.run(deployment(), traffic())

    # The API server fills in defaults; that must not look like a difference.
    def defaulted(body: Object) -> None:
        body["spec"]["template"]["spec"]["dnsPolicy"] = "ClusterFirst"
        body["spec"].setdefault("minReadySeconds", 0)

    body = bench.api.objects["Deployment", "default", "chat-abc"]
    defaulted(body)
    bench.watch()
    bench.api.writes()
    bench.new_leader()
    await bench.run(deployment(), traffic())
    assert bench.api.writes() == []


async def test_a_hand_edit_is_undone(bench: Bench) -> None:
    await bench.run(deployment(), traffic())
    bench.api.writes()

    def scale(body: Object) -> None:
        body["spec"]["replicas"] = 9

    bench.store.put(bench.api.by_hand(kinds.DEPLOYMENT, "chat-abc", "kubectl", scale))

    def relabel(body: Object) -> None:
        body["metadata"]["labels"]["app.kubernetes.io/managed-by"] = "somebody"

    bench.store.put(bench.api.by_hand(kinds.SERVICE, "chat", "kubectl-label", relabel))
    await bench.run(deployment(), traffic())
    assert bench.api.objects["Deployment", "default", "chat-abc"]["spec"]["replicas"] == 1
    labels = bench.api.objects["Service", "default", "chat"]["metadata"]["labels"]
    assert labels["app.kubernetes.io/managed-by"] == names.MANAGED_BY
    bench.api.writes()
    await bench.run(deployment(), traffic())
    assert bench.api.writes() == []


async def test_a_hand_edit_that_adds_a_field_is_undone_too(bench: Bench) -> None:
    await bench.run(deployment())

    def add(body: Object) -> None:
        body["spec"]["template"]["spec"]["nodeSelector"] = {"zone": "b"}

    bench.store.put(bench.api.by_hand(kinds.DEPLOYMENT, "chat-abc", "kubectl-edit", add))
    await bench.run(deployment())
    body = bench.api.objects["Deployment", "default", "chat-abc"]
    assert body["spec"]["template"] == TEMPLATE
    bench.api.writes()
    await bench.run(deployment())
    assert bench.api.writes() == []


async def test_an_object_of_somebody_else_is_not_touched(bench: Bench) -> None:
    theirs = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "chat", "namespace": "default", "labels": {}},
        "spec": {"selector": {"app": "theirs"}},
    }
    await bench.api.create(kinds.SERVICE, theirs, field_manager="helm")
    bench.api.writes()
    outcome = await bench.run(traffic(), deployment())
    assert bench.api.writes() == ["create Service/chat", "create Deployment/chat-abc"]
    (conflict,) = outcome.conflicts
    assert "Service chat" in conflict
    assert bench.api.objects["Service", "default", "chat"]["spec"] == theirs["spec"]


async def test_an_object_of_ours_that_lost_its_label_is_taken_back(bench: Bench) -> None:
    await bench.run(traffic())

    def unlabel(body: Object) -> None:
        del body["metadata"]["labels"][names.LABEL_MANAGED]

    gone = bench.api.by_hand(kinds.SERVICE, "chat", "kubectl-label", unlabel)
    bench.store.remove(gone)  # it left the watch's selector
    outcome = await bench.run(traffic())
    assert outcome.conflicts == []
    labels = bench.api.objects["Service", "default", "chat"]["metadata"]["labels"]
    assert labels[names.LABEL_MANAGED] == "true"


async def test_a_successor_of_the_same_name_is_not_mistaken_for_ours(bench: Bench) -> None:
    await bench.run(deployment())
    bench.api.objects["Deployment", "default", "chat-abc"]["metadata"]["uid"] = "another"
    with pytest.raises(client.ConflictError):
        await bench.run(deployment(replicas=2))


async def test_a_refusal_is_noted_and_the_rest_goes_on(bench: Bench) -> None:
    def refuse(verb: str, kind: str, name: str) -> None:
        if kind == "Service":
            raise client.RefusedError("provided port is already allocated", 422)

    bench.api.fault = refuse
    outcome = await bench.run(traffic(), deployment())
    assert outcome.refusals == ["provided port is already allocated"]
    assert ("Deployment", "default", "chat-abc") in bench.api.objects


async def test_a_name_that_stays_taken_is_not_asked_for_at_each_look(bench: Bench) -> None:
    theirs = manifests.traffic_service(SERVICE)
    del theirs["metadata"]["ownerReferences"]
    await bench.api.create(kinds.SERVICE, theirs)
    first = await bench.run(traffic())
    bench.api.writes()
    again = await bench.run(traffic())
    assert bench.api.calls == []
    assert (again.conflicts, again.again_s) == (first.conflicts, NOW + apply.CONFLICT_RETRY_S)
    await bench.run(traffic(service={"port": 81}))  # another intent is another question
    assert bench.api.writes() == ["create Service/chat"]
    await bench.applier.run(SERVICE, (traffic(),), bench.memory, NOW + 30)
    assert bench.api.writes() == ["create Service/chat"]


async def test_a_refusal_is_tried_again_later_and_later(bench: Bench) -> None:
    def refuse(verb: str, kind: str, name: str) -> None:
        raise client.RefusedError("exceeded quota", 403)

    bench.api.fault = refuse
    now, waits = NOW, []
    for _ in range(4):
        outcome = await bench.applier.run(SERVICE, (traffic(),), bench.memory, now)
        assert outcome.refusals == ["exceeded quota"]
        assert outcome.again_s is not None
        waits.append(outcome.again_s - now)
        now = outcome.again_s
    assert waits == [1, 2, 4, 8]
    bench.api.fault = lambda verb, kind, name: None
    assert (await bench.applier.run(SERVICE, (traffic(),), bench.memory, now)).refusals == []
    assert bench.memory.held == {}


async def test_no_answer_ends_the_plan_here(bench: Bench) -> None:
    def unreachable(verb: str, kind: str, name: str) -> None:
        raise client.UnreachableError("no route")

    bench.api.fault = unreachable
    with pytest.raises(client.UnreachableError):
        await bench.run(traffic(), deployment())
    assert bench.api.calls == ["create Service/chat"]


async def test_nothing_is_written_past_the_renewal_deadline(bench: Bench) -> None:
    bench.now = 100.0
    with pytest.raises(election.LeadershipLostError):
        await bench.run(deployment())
    assert bench.api.calls == []


async def test_a_mark_names_the_uid_and_is_remembered(bench: Bench) -> None:
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"}}
    made = await bench.api.create(kinds.POD, body)
    pod = build.pod("p")
    pod = dataclasses.replace(pod, uid=made["metadata"]["uid"])
    bench.api.writes()
    await bench.run(plan.Mark(pod, FlagsMark(4, 1)))
    assert bench.api.writes() == ["merge Pod/p"]
    annotations = bench.api.objects["Pod", "default", "p"]["metadata"]["annotations"]
    assert annotations == {names.ANNOTATION_FLAGS: "4.1"}
    bump = bench.memory.bumps[pod.uid]
    assert (bump.generation, bump.first_s, bump.last_s) == (4, NOW, NOW)
    await bench.applier.run(SERVICE, (plan.Mark(pod, FlagsMark(4, 2)),), bench.memory, NOW + 2)
    assert bench.memory.bumps[pod.uid].first_s == NOW
    assert bench.memory.bumps[pod.uid].last_s == NOW + 2


async def test_a_mark_that_is_refused_is_not_due_again_at_once(bench: Bench) -> None:
    def refuse(verb: str, kind: str, name: str) -> None:
        raise client.RefusedError("pods is forbidden", 403)

    bench.api.fault = refuse
    pod = build.pod("p")
    assert (await bench.run(plan.Mark(pod, FlagsMark(4, 2)))).refusals == ["pods is forbidden"]
    assert bench.memory.bumps[pod.uid].last_s == NOW


async def test_a_pod_that_is_gone_is_no_error(bench: Bench) -> None:
    await bench.run(plan.Mark(build.pod("gone"), FlagsMark(1, 1)))


async def test_an_object_is_deleted_once(bench: Bench) -> None:
    await bench.run(deployment())
    uid = bench.api.objects["Deployment", "default", "chat-abc"]["metadata"]["uid"]
    bench.api.writes()
    deletion = plan.Delete(kinds.DEPLOYMENT, "chat-abc", uid)
    await bench.run(deletion, deletion)
    assert bench.api.writes() == ["delete Deployment/chat-abc"]
    assert bench.memory.applied == {}


async def test_a_job_is_only_created(bench: Bench) -> None:
    job = plan.Create(resolver_job.render(SERVICE, "j", build.IMAGES))
    await bench.run(job)
    other = plan.Create(resolver_job.render(SERVICE, "j", build.OTHER_IMAGES))
    await bench.run(other)
    assert bench.api.writes() == ["create Job/j"]


async def test_the_status_is_written_when_it_differs(bench: Bench) -> None:
    body = {
        "apiVersion": names.API_VERSION,
        "kind": names.SERVICE_KIND,
        "metadata": {"name": "chat", "namespace": "default"},
    }
    made = await bench.api.create(kinds.INFERENCE_SERVICE, body)
    bench.api.writes()
    before = SERVICE.status
    after = before.model_copy(update={"selector": "a=b"})
    where = ("default", "chat", made["metadata"]["uid"])
    assert not await bench.applier.write_status(*where, before, before)
    assert await bench.applier.write_status(*where, before, after)
    assert bench.api.writes() == [f"apply/status {names.SERVICE_KIND}/chat"]
    kept = bench.store.get(kinds.INFERENCE_SERVICE, "default", "chat")
    assert kept is not None
    assert kept["status"]["selector"] == "a=b"

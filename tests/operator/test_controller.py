"""A whole reconcile against an API server in memory: a service's life from its creation to rest."""

import copy
from typing import Any

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from builders import observed as build
from builders.fake_api import FakeApi
from firsttoken_api import flags, hot_settings, names
from firsttoken_api.state import SidecarState
from firsttoken_operator import (
    apply,
    client,
    controller,
    election,
    events,
    gather,
    kinds,
    metrics,
    queue,
    scrape,
    settings,
)
from firsttoken_operator.store import Store

Object = dict[str, Any]
KEY = ("default", "chat")
NOW = gather.time_s("2027-01-15T08:00:00Z") + 1


class StillScraper(scrape.Scraper):
    """Hands out states that a test sets; reads nothing."""

    def __init__(self, session: aiohttp.ClientSession, counters: metrics.Metrics) -> None:
        super().__init__(session, list, lambda _: None, counters, 5)
        self.states: dict[str, SidecarState] = {}

    def of(self, uid: str) -> scrape.Scraped:
        return scrape.Scraped(self.states.get(uid))

    async def read(self, targets: Any) -> None:
        return None


class World:
    """The operator's parts around one API server, plus the controllers of Kubernetes that it relies on."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.api = FakeApi()
        self.store = Store()
        self.now = NOW
        self.counters = metrics.Metrics(CollectorRegistry())
        self.scraper = StillScraper(session, self.counters)
        self.images = build.IMAGES
        self.restart()

    def restart(self, images: settings.Images | None = None) -> None:
        """A new leader: no memory."""
        self.images = images or self.images
        fence = election.Fence(lambda: 0.0)
        fence.extend(1.0)
        applier = apply.Applier(self.api, self.store, fence, self.counters)  # type: ignore[arg-type]
        self.controller = controller.Controller(
            settings.Settings(images=self.images),
            self.store,
            self.scraper,
            events.Events(self.api),  # type: ignore[arg-type]
            applier,
            self.counters,
            clock=lambda: self.now,
            jitter=lambda: 0.0,
        )

    async def service(self, **spec: Any) -> None:
        """Create or change the service as a user would."""
        body = build.service(**spec).model_dump(
            mode="json", by_alias=True, exclude_defaults=True, exclude_none=True
        )
        where = (names.SERVICE_KIND, "default", "chat")
        known = self.api.objects.get(where)
        if known is None:
            body |= {"apiVersion": names.API_VERSION, "kind": names.SERVICE_KIND}
            body["metadata"] = {"name": "chat", "namespace": "default", "generation": 1}
            await self.api.create(kinds.INFERENCE_SERVICE, body)
        else:
            changed = copy.deepcopy(known)
            changed["spec"] = body["spec"]
            changed["metadata"]["generation"] += 1
            self.api._save(kinds.INFERENCE_SERVICE, changed, known)
        self.watch()

    def watch(self) -> None:
        """The watches catch up."""
        for body in self.api.objects.values():
            self.store.put(body)
        for kind in kinds.CHILDREN:
            for known in self.store.of_service(KEY, kind):
                if (known["kind"], "default", known["metadata"]["name"]) not in self.api.objects:
                    self.store.remove(known)

    async def reconcile(self) -> queue.Retry | None:
        return await self.controller.reconcile(KEY)

    async def settle(self) -> None:
        """Reconcile and let Kubernetes act until nothing is written any more."""
        quiet_rounds = 0
        for _ in range(30):
            self.api.calls.clear()
            await self.reconcile()
            wrote = self.api.writes()
            await self.kubernetes()
            self.watch()
            quiet_rounds = 0 if wrote else quiet_rounds + 1
            if quiet_rounds == 2:
                return
        raise AssertionError(f"it never came to rest: {wrote}")

    async def kubernetes(self) -> None:
        """Jobs answer, Deployments have ready pods, sidecars apply what their pods are marked with."""
        for (kind, _, _), body in tuple(self.api.objects.items()):
            if kind == "Job" and not body.get("status"):
                await self._pod_of_job(body)
            elif kind == "Deployment":
                await self._pods_of(body)
        for pod in [body for key, body in self.api.objects.items() if key[0] == "Pod"]:
            self._sidecar(pod)

    async def _pod_of_job(self, job: Object) -> None:
        pod = self._owned(job, kinds.POD, f"{job['metadata']['name']}-x", job["spec"]["template"])
        message = build.model().model_dump_json()
        pod["status"] = {
            "phase": "Succeeded",
            "containerStatuses": [
                {"name": "resolver", "state": {"terminated": {"exitCode": 0, "message": message}}}
            ],
        }
        await self.api.create(kinds.POD, pod)
        finished = {"type": "Complete", "status": "True", "lastTransitionTime": "2027-01-15T08:00:00Z"}
        self.api.by_hand(
            kinds.JOB,
            job["metadata"]["name"],
            "kube-controller-manager",
            lambda body: body.update(status={"conditions": [finished]}),
        )

    async def _pods_of(self, deployment: Object) -> None:
        name = f"{deployment['metadata']['name']}-rs"
        where = ("ReplicaSet", "default", name)
        if where not in self.api.objects:
            template = deployment["spec"]["template"]
            await self.api.create(
                kinds.REPLICA_SET, self._owned(deployment, kinds.REPLICA_SET, name, template)
            )
        replica_set = self.api.objects[where]
        for n in range(10):
            pod_name = f"{name}-{n}"
            exists = ("Pod", "default", pod_name) in self.api.objects
            if n < deployment["spec"]["replicas"] and not exists:
                pod = self._owned(replica_set, kinds.POD, pod_name, deployment["spec"]["template"])
                ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2027-01-15T08:00:00Z"}
                pod["status"] = {"phase": "Running", "podIP": "127.0.0.1", "conditions": [ready]}
                await self.api.create(kinds.POD, pod)
            elif n >= deployment["spec"]["replicas"] and exists:
                del self.api.objects["Pod", "default", pod_name]

    def _sidecar(self, pod: Object) -> None:
        metadata = pod["metadata"]
        if metadata["labels"].get(names.LABEL_ROLE) != names.ROLE_SERVING:
            return
        config_map = names.flags_config_map("chat", metadata["labels"][names.LABEL_REVISION])
        text = self.api.objects["ConfigMap", "default", config_map]["data"][names.FLAGS_KEY]
        document = hot_settings.HotSettings.model_validate_json(text)
        mark = metadata.get("annotations", {}).get(names.ANNOTATION_FLAGS, "")
        known = self.scraper.states.get(metadata["uid"])
        if known is None or mark.split(".")[0] == str(document.generation):
            asked = {flag.name: flag.enabled for flag in document.flags}
            enabled = tuple(
                flag.name for flag in flags.FLAGS if flag.built and asked.get(flag.name, flag.on_by_default)
            )
            self.scraper.states[metadata["uid"]] = build.sidecar_state(
                document.generation, document.hash, enabled=enabled
            )

    def _owned(self, owner: Object, kind: kinds.Kind, name: str, template: Object) -> Object:
        return {
            "apiVersion": kind.api_version,
            "kind": kind.name,
            "metadata": {
                "name": name,
                "namespace": "default",
                "labels": dict(template["metadata"]["labels"]),
                "ownerReferences": [
                    {
                        "kind": owner["kind"],
                        "name": owner["metadata"]["name"],
                        "uid": owner["metadata"]["uid"],
                        "controller": True,
                    }
                ],
            },
        }

    def pods(self) -> dict[str, str]:
        """Uid by name of the serving pods."""
        return {
            key[2]: body["metadata"]["uid"]
            for key, body in self.api.objects.items()
            if key[0] == "Pod" and body["metadata"]["labels"][names.LABEL_ROLE] == names.ROLE_SERVING
        }

    def status(self) -> Object:
        return dict(self.api.objects[names.SERVICE_KIND, "default", "chat"].get("status", {}))

    def condition(self, name: str) -> tuple[str, str]:
        found = next(each for each in self.status()["conditions"] if each["type"] == name)
        return found["status"], found["reason"]


@pytest.fixture
async def world() -> Any:
    async with aiohttp.ClientSession() as session:
        yield World(session)


async def test_from_creation_to_rest(world: World) -> None:
    await world.service()
    await world.settle()
    assert len(world.pods()) == 1
    assert world.condition("Ready") == ("True", "Serving")
    assert world.condition("FlagsApplied") == ("True", "Applied")
    assert world.status()["flags"] == "5/5"
    kinds_made = {key[0] for key in world.api.objects}
    assert kinds_made >= {"Deployment", "Service", "ConfigMap", "PodDisruptionBudget", "ControllerRevision"}
    for _ in range(3):
        world.now += 400
        assert await world.reconcile() == queue.Retry(controller.RESYNC_S)
    assert world.api.writes() == []


async def test_a_restarted_operator_writes_nothing(world: World) -> None:
    await world.service()
    await world.settle()
    world.restart()
    await world.reconcile()
    assert world.api.writes() == []


async def test_an_upgraded_operator_touches_no_pod_until_it_is_asked(world: World) -> None:
    await world.service()
    await world.settle()
    before = world.pods()
    world.restart(build.OTHER_IMAGES)
    await world.settle()
    assert world.pods() == before
    assert world.condition("UpdateAvailable") == ("True", "NewRendering")
    deployment = next(body for key, body in world.api.objects.items() if key[0] == "Deployment")
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == build.IMAGES.runtime

    def refresh(body: Object) -> None:
        body["metadata"]["annotations"] = {names.ANNOTATION_REFRESH: "now"}

    world.store.put(world.api.by_hand(kinds.INFERENCE_SERVICE, "chat", "kubectl", refresh))
    await world.settle()
    assert world.pods().keys().isdisjoint(before)
    assert world.condition("UpdateAvailable") == ("False", "UpToDate")
    assert world.condition("Progressing") == ("False", "Complete")


async def test_a_flag_reaches_the_pod_without_touching_its_template(world: World) -> None:
    await world.service(scaling={"mode": "Fixed", "replicas": 2})
    await world.settle()
    before = world.pods()
    await world.service(
        scaling={"mode": "Fixed", "replicas": 2},
        optimizations=[{"name": "chunked-prefill", "mode": "Disabled"}],
    )
    await world.reconcile()
    marks = [call for call in world.api.writes() if call.startswith("merge Pod/")]
    assert len(marks) == 1  # one at a time
    await world.settle()
    assert world.pods() == before
    assert world.status()["flagGeneration"] == {"desired": 2, "applied": 2}
    assert world.condition("FlagsApplied") == ("True", "Applied")


async def test_a_cold_change_rolls_over_and_cleans_up(world: World) -> None:
    await world.service()
    await world.settle()
    before = world.pods()
    await world.service(resources={"cpu": "2", "memory": "2Gi"})
    await world.settle()
    assert len(world.pods()) == 1
    assert world.pods().keys().isdisjoint(before)
    count = [key[0] for key in world.api.objects]
    assert (count.count("Deployment"), count.count("ConfigMap")) == (1, 1)
    assert count.count("ControllerRevision") == 2


async def test_scaling_and_suspending(world: World) -> None:
    await world.service(scaling={"mode": "Fixed", "replicas": 3})
    await world.settle()
    assert len(world.pods()) == 3
    assert world.status()["replicas"]["total"] == 3
    await world.service(suspend=True)
    await world.settle()
    assert world.pods() == {}
    assert world.condition("Ready") == ("False", "Suspended")


@pytest.mark.parametrize("kind", [kinds.DEPLOYMENT, kinds.CONTROLLER_REVISION, kinds.CONFIG_MAP])
async def test_a_label_that_somebody_takes_off_moves_no_pod(world: World, kind: kinds.Kind) -> None:
    await world.service(scaling={"mode": "Fixed", "replicas": 3})
    await world.settle()
    before = world.pods()
    (name,) = (key[2] for key in world.api.objects if key[0] == kind.name)
    world.api.by_hand(
        kind, name, "kubectl", lambda body: body["metadata"]["labels"].pop(names.LABEL_REVISION)
    )
    world.watch()
    world.restart(build.OTHER_IMAGES)
    await world.settle()
    assert world.pods() == before


async def test_a_name_that_is_taken_is_reported_and_looked_at_again(world: World) -> None:
    theirs = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "chat", "namespace": "default", "labels": {}},
        "spec": {},
    }
    await world.api.create(kinds.SERVICE, theirs, field_manager="helm")
    await world.service()
    again = await world.reconcile()
    assert world.condition("NameConflict") == ("True", "NameConflict")
    assert again is not None
    assert again.after_s <= apply.CONFLICT_RETRY_S


async def test_a_refusal_is_told_and_tried_again_without_holding_anything_up(world: World) -> None:
    def refuse(verb: str, kind: str, name: str) -> None:
        if verb == "create" and kind == "Service":
            raise client.RefusedError("nodePort: 8080 is already allocated", 422)

    await world.service()
    world.api.fault = refuse
    assert await world.reconcile() == queue.Retry(1.0)
    assert world.condition("Progressing") == ("False", "CreateFailed")
    world.api.writes()
    world.watch()
    await world.reconcile()
    assert world.condition("Progressing") == ("False", "CreateFailed")
    assert [call for call in world.api.writes() if call.startswith("create Service")] == []
    world.now += 1
    assert await world.reconcile() == queue.Retry(2.0)
    world.now += 2
    world.api.fault = lambda verb, kind, name: None
    await world.reconcile()
    assert world.condition("Progressing") != ("False", "CreateFailed")


async def test_a_throttling_server_is_given_time(world: World) -> None:
    def throttle(verb: str, kind: str, name: str) -> None:
        raise client.TooManyRequestsError("slow down", 7.0)

    await world.service()
    world.api.fault = throttle
    with pytest.raises(queue.RetryAfterError) as error:
        await world.reconcile()
    assert error.value.after_s == 7.0


async def test_a_spec_that_does_not_fit_is_reported_and_nothing_else_happens(world: World) -> None:
    await world.service()
    await world.settle()

    def spoil(body: Object) -> None:
        body["spec"]["model"] = {"source": 7}

    world.store.put(world.api.by_hand(kinds.INFERENCE_SERVICE, "chat", "kubectl", spoil))
    world.api.writes()
    await world.reconcile()
    assert world.api.writes() == [f"apply/status {names.SERVICE_KIND}/chat"]
    assert world.condition("SpecAccepted") == ("False", "InvalidSpec")
    assert world.condition("Ready") == ("True", "Serving")


async def test_hot_settings_that_are_held_back_are_reported_once(world: World) -> None:
    await world.service()
    await world.settle()
    await world.service(slo={"ttftP95": "3s"}, rollout={"soak": "5m"})
    await world.settle()
    assert world.condition("SpecAccepted") == ("False", "NotBuilt")
    assert world.status()["flagGeneration"] == {"desired": 2, "applied": 1}


async def test_a_service_that_is_gone_or_going_is_left_alone(world: World) -> None:
    await world.service()
    await world.settle()

    def going(body: Object) -> None:
        body["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"

    world.store.put(world.api.by_hand(kinds.INFERENCE_SERVICE, "chat", "kubectl", going))
    world.api.writes()
    assert await world.reconcile() is None
    world.store.remove(world.api.objects[names.SERVICE_KIND, "default", "chat"])
    assert await world.reconcile() is None
    assert world.api.writes() == []


async def test_events_are_read_only_for_what_hangs(world: World) -> None:
    await world.service()
    await world.reconcile()
    assert not any(call.startswith("list Event") for call in world.api.calls)
    world.now += 20  # the Job has no pod
    world.watch()
    await world.reconcile()
    await world.reconcile()
    assert [call for call in world.api.calls if call.startswith("list")] == ["list Event/default"]

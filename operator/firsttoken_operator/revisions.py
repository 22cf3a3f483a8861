"""Which revision is wanted, which is stable, and whether a newer rendering is on offer. Pure.

A revision is what the user asked for (cold settings and the resolved model) together with the pod template
rendered of it at that time. Only the user makes a new one: an operator that renders the same intent
differently reports UpdateAvailable and rolls on `firsttoken.dev/refresh` or `rollout.autoUpdate`.
"""

from dataclasses import dataclass
from typing import Any

from firsttoken_api import duration, inference_service, resolved
from firsttoken_api.routing import RoutingSpec, RoutingStrategy
from firsttoken_operator import containers, flags, objects, pods, resolution, routing, settings, vllm
from firsttoken_operator.observed import Observed, Revision

Object = dict[str, Any]

DATA_VERSION = 1
LARGEST_REJECTED = 10


@dataclass(frozen=True)
class Rendering:
    """The wanted intent as this operator would render it now."""

    name: str
    intent: Object
    intent_hash: str
    render_hash: str
    refresh: str
    source_hash: str
    image: str
    model: resolved.ResolvedModel
    template: Object
    earlier_intent_hash: str = ""
    """Of the same intent in versions without routing; empty where they had no such intent."""

    def data(self) -> Object:
        """What the ControllerRevision keeps."""
        return {
            "version": DATA_VERSION,
            "intent": self.intent,
            "intentHash": self.intent_hash,
            "renderHash": self.render_hash,
            "refresh": self.refresh,
            "sourceHash": self.source_hash,
            "image": self.image,
            "model": self.model.model_dump(mode="json"),
            "template": self.template,
        }


def intent(
    service: inference_service.InferenceService,
    model: resolved.ResolvedModel,
    forced_off: frozenset[str] = frozenset(),
) -> Object:
    """The cold part of the spec. Fields at their defaults are left out: one that a later version adds must
    not change the hash of a service that does not use it. With vLLM flags are cold too."""
    cold = service.spec.model_dump(
        mode="json",
        by_alias=True,
        exclude_defaults=True,
        include={"model", "runtime", "resources", "cache_pins", "routing", "drain", "pod_template"},
    )
    parameters = flags.cold_parameters(service.spec.optimizations, service.spec.runtime.engine)
    cold |= {"parameters": parameters} if parameters else {}
    cold |= {"flags": vllm.switches(service, forced_off)} if vllm.is_engine(service) else {}
    return cold | {"digest": model.digest}


def render(
    service: inference_service.InferenceService,
    found: resolution.Resolution,
    images: settings.Images,
    forced_off: frozenset[str] = frozenset(),
) -> Rendering:
    """The wanted revision. `found` must hold a model."""
    assert found.model is not None
    asked = intent(service, found.model, forced_off)
    without_routing = {key: value for key, value in asked.items() if key != "routing"}
    is_older_intent = service.spec.routing == RoutingSpec(strategy=RoutingStrategy.NONE)
    neutral = pods.template(service, images, "", found.model, forced_off)
    token = resolution.refresh_token(service)
    name = objects.digest([asked, neutral, token])
    return Rendering(
        name=name,
        intent=asked,
        intent_hash=objects.digest(asked, 16),
        render_hash=objects.digest(neutral, 16),
        refresh=token,
        source_hash=found.source_hash,
        image=containers.runtime_image(service, images),
        model=found.model,
        template=pods.template(service, images, name, found.model, forced_off),
        earlier_intent_hash=objects.digest(without_routing, 16) if is_older_intent else "",
    )


@dataclass(frozen=True)
class Choice:
    """The revisions in play, by name; empty where there is none."""

    target: str
    """Gets the replicas."""
    stable: str
    rejected: tuple[str, ...] = ()
    create: Rendering | None = None
    """To be recorded first."""
    update_available: bool = False
    refused: str = ""
    """The wanted revision, if it is one that was rejected before."""

    @property
    def candidate(self) -> str:
        return self.target if self.target != self.stable else ""


def choose(observed: Observed, rendering: Rendering | None) -> Choice:
    """`rendering` None: the model is not known (yet); what runs goes on running."""
    stable = _stable(observed)
    previous = observed.previous.revisions
    rejected = tuple(previous.rejected) if previous else ()
    if rendering is None:
        candidate = previous.candidate if previous else ""
        target = candidate if observed.revision(candidate) and candidate not in rejected else stable
        return Choice(target, stable or target, rejected)
    match = _match(observed, rendering, stable)
    if match is None:
        return Choice(rendering.name, stable or rendering.name, rejected, create=rendering)
    update = match.render_hash != rendering.render_hash
    if match.name in rejected and stable and stable != match.name:
        return Choice(stable, stable, rejected, update_available=False, refused=match.name)
    return Choice(match.name, stable or match.name, rejected, update_available=update)


def _match(observed: Observed, rendering: Rendering, stable: str) -> Revision | None:
    """A recorded revision of the same intent: the one in play before older ones."""
    previous = observed.previous.revisions
    in_play = [previous.candidate if previous else "", stable]

    def rank(revision: Revision) -> tuple[int, int]:
        place = in_play.index(revision.name) if revision.name in in_play else len(in_play)
        return place, -revision.number

    for revision in sorted(observed.revisions, key=rank):
        if not _is_of_intent(revision, rendering):
            continue
        if rendering.refresh not in ("", revision.refresh):
            continue
        if observed.service.spec.rollout.auto_update and revision.render_hash != rendering.render_hash:
            continue
        return revision
    return None


def _is_of_intent(revision: Revision, rendering: Rendering) -> bool:
    if revision.intent_hash == rendering.intent_hash:
        return True
    # The strategy None is what every pod did before there were others: no reason to replace it.
    return revision.intent_hash == rendering.earlier_intent_hash and not routing.has_peers(revision.template)


def _stable(observed: Observed) -> str:
    """The stable revision of the status; where that is lost, the one that serves best."""
    previous = observed.previous.revisions
    if previous and observed.revision(previous.stable):
        return previous.stable
    ranked = sorted(
        observed.revisions,
        key=lambda each: (sum(pod.ready for pod in observed.pods_of(each.name)), each.number),
    )
    return ranked[-1].name if ranked else ""


def overdue(observed: Observed, revision: str, now: float) -> str:
    """What kept this revision from progressing for longer than the deadline; empty if nothing did.

    Each pod has the whole deadline from its last change: a slow drain elsewhere costs the candidate nothing.
    """
    deadline_s = duration.to_seconds(observed.service.spec.rollout.progress_deadline)
    for pod in observed.pods_of(revision):
        if not pod.ready and now - pod.changed_s > deadline_s:
            why = pod.cause.message if pod.cause else f"{pod.name} is not ready"
            return f"{why} (for more than {observed.service.spec.rollout.progress_deadline})"
    deployment = observed.deployment_of(revision)
    if deployment and deployment.failure and now - deployment.failure_since_s > deadline_s:
        return deployment.failure.message
    return ""


def overdue_in_s(observed: Observed, revision: str, now: float) -> float | None:
    """Seconds until `overdue` may change its answer without an event."""
    deadline_s = duration.to_seconds(observed.service.spec.rollout.progress_deadline)
    waits = [pod.changed_s + deadline_s - now for pod in observed.pods_of(revision) if not pod.ready]
    left = [wait for wait in waits if wait > 0]
    return min(left) + 0.5 if left else None

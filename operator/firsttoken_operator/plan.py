"""From facts to actions: the whole policy of a reconcile, pure.

    accepted?  ->  resolve the model  ->  choose revisions  ->  replicas per revision
               ->  flags              ->  the fixed children ->  what is left over

`make` returns the actions in the order in which they are to happen, and the decisions behind them, from which
`status` says what is the case. Nothing here reads a clock or the API server.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from firsttoken_api import built, names
from firsttoken_operator import (
    flag_rollout,
    flags,
    kinds,
    manifests,
    resolution,
    resolver_job,
    revisions,
    rollout,
    scaling,
    settings,
)
from firsttoken_operator.observed import Child, FlagsMark, Observed, Pod

Object = dict[str, Any]


@dataclass(frozen=True)
class Create:
    """Create the object; one that exists is left as it is."""

    body: Object


@dataclass(frozen=True)
class Ensure:
    """Create the object, or make it equal to this again."""

    body: Object


@dataclass(frozen=True)
class Delete:
    """Delete this very object."""

    kind: kinds.Kind
    name: str
    uid: str


@dataclass(frozen=True)
class Mark:
    """Ask a pod to take a generation of flags."""

    pod: Pod
    mark: FlagsMark


Action = Create | Ensure | Delete | Mark


@dataclass(frozen=True)
class Plan:
    """What to do, and why."""

    actions: tuple[Action, ...]
    wanted: scaling.Wanted
    resolution: resolution.Resolution | None
    """None where the spec was not accepted: the model was not looked at."""
    choice: revisions.Choice
    decisions: tuple[flags.Decision, ...]
    generation: int
    progress: flag_rollout.Progress
    not_built: tuple[str, ...] = ()
    is_paused: bool = False
    overdue: str = ""
    """What kept the target from progressing past the deadline."""
    again_after_s: float | None = None
    conflicts: tuple[str, ...] = ()
    """Names that are taken, one sentence each."""


def make(observed: Observed, images: settings.Images, forced_off: frozenset[str], now: float) -> Plan:
    """The plan for one service."""
    service = observed.service
    not_built = tuple(message for _, message in built.not_built(service.spec))
    is_paused = service.metadata.annotations.get(names.ANNOTATION_PAUSED, "") == "true"

    found: resolution.Resolution | None = None
    rendering: revisions.Rendering | None = None
    if not not_built:
        found = resolution.resolve(observed, now)
        rendering = revisions.render(service, found, images, forced_off) if found.model else None
    choice = revisions.choose(observed, rendering)
    choice, overdue = _judged(observed, choice, now)

    wanted = scaling.wanted(service.spec)
    decisions = flags.decide(service.spec.optimizations, forced_off, service.spec.runtime.engine)
    document = flags.document(decisions, service.spec, 1)
    generation = _generation(observed, document.hash)
    document = flags.document(decisions, service.spec, generation)
    progress = flag_rollout.advance(
        observed.live_pods(),
        generation,
        document.hash,
        now,
        off=frozenset(each.name for each in decisions if not each.enabled),
        may_delete=not any(pod.deleting and pod.ends_s > now for pod in observed.pods),
    )

    actions: list[Action] = []
    replicas = _replicas(observed, choice, wanted, now)
    choice = _promoted(observed, choice, wanted, now)
    if choice.target:
        # First what pods read, then the pods that read it.
        actions += [
            Ensure(manifests.flags_config_map(service, revision, document))
            for revision in _with_flags(observed, choice, replicas)
        ]
        if progress.mark is not None:
            actions.append(Mark(*progress.mark))
        if progress.delete is not None:
            actions.append(Delete(kinds.POD, progress.delete.name, progress.delete.uid))
        actions += _records(observed, choice)
        actions += _deployments(observed, choice, replicas)
    actions += [
        Ensure(manifests.traffic_service(service)),
        Ensure(manifests.peers_service(service)),
        Ensure(manifests.disruption_budget(service)),
    ]
    if found is not None:
        actions += _resolver(observed, found, images)
        actions += _left_over(observed, choice, found, replicas)
    actions, conflicts = _without_foreign(observed, actions)
    waits = [
        wait
        for wait in (
            found.again_after_s if found else None,
            progress.again_after_s,
            revisions.overdue_in_s(observed, choice.target, now),
            *(pod.ends_s - now for pod in observed.pods if pod.deleting and pod.ends_s > now),
        )
        if wait is not None
    ]
    if not_built or is_paused:
        # Nothing is done, so nothing that was asked for can be waited for.
        actions, waits, progress = [], [], replace(progress, mark=None, watch=(), delete=None)
    return Plan(
        actions=tuple(actions),
        wanted=wanted,
        resolution=found,
        choice=choice,
        decisions=decisions,
        generation=generation,
        progress=progress,
        not_built=not_built,
        is_paused=is_paused,
        overdue=overdue,
        again_after_s=min(waits) if waits else None,
        conflicts=conflicts,
    )


def _judged(observed: Observed, choice: revisions.Choice, now: float) -> tuple[revisions.Choice, str]:
    """A candidate past its deadline is given up; a first revision has nothing to go back to."""
    if choice.refused:
        # What kept it from becoming ready is known as long as nothing else was told since.
        said = (each.message for each in observed.previous.conditions if each.type == "Progressing")
        told = _taken_back(choice.refused)
        return choice, next((message for message in said if message.startswith(told)), told)
    if not choice.target or choice.create is not None:
        return choice, ""
    overdue = revisions.overdue(observed, choice.target, now)
    if not overdue or not choice.candidate:
        return choice, overdue
    rejected = (*choice.rejected, choice.candidate)[-revisions.LARGEST_REJECTED :]
    given_up = revisions.Choice(choice.stable, choice.stable, rejected, refused=choice.candidate)
    return given_up, f"{_taken_back(choice.candidate)}. {overdue}"


def _taken_back(revision: str) -> str:
    return (
        f"revision {revision} was taken back and is not tried again by itself; correct the spec, "
        f"or set the annotation {names.ANNOTATION_REFRESH} to a new value"
    )


def _sides(observed: Observed, choice: revisions.Choice) -> tuple[rollout.Side, tuple[rollout.Side, ...]]:
    def side(revision: str) -> rollout.Side:
        deployment = observed.deployment_of(revision)
        ready = sum(pod.ready for pod in observed.pods_of(revision))
        return rollout.Side(revision, deployment.replicas if deployment else 0, ready)

    others = [each.revision for each in observed.deployments if each.revision != choice.target]
    # Superseded candidates go first, the stable revision last.
    others.sort(key=lambda revision: (revision == choice.stable, revision))
    return side(choice.target), tuple(side(revision) for revision in others)


def _limits(observed: Observed, wanted: scaling.Wanted, now: float) -> rollout.Limits:
    spec = observed.service.spec.rollout
    # One that is not gone in time hangs, on a lost node for example, and holds nothing up.
    draining = sum(pod.deleting and pod.ends_s > now for pod in observed.pods)
    return rollout.Limits(wanted.replicas, spec.max_surge, spec.max_unavailable, draining)


def _replicas(
    observed: Observed, choice: revisions.Choice, wanted: scaling.Wanted, now: float
) -> dict[str, int]:
    """Replicas by revision name."""
    if not choice.target:
        return {}
    target, others = _sides(observed, choice)
    return rollout.step(target, others, _limits(observed, wanted, now))


def _promoted(
    observed: Observed, choice: revisions.Choice, wanted: scaling.Wanted, now: float
) -> revisions.Choice:
    """The candidate is stable once it has every replica."""
    if not choice.candidate or choice.create is not None:
        return choice
    target, others = _sides(observed, choice)
    if observed.deployment_of(choice.target) is None:
        return choice
    if not rollout.is_finished(target, others, _limits(observed, wanted, now)):
        return choice
    return revisions.Choice(
        choice.target, choice.target, choice.rejected, update_available=choice.update_available
    )


def _generation(observed: Observed, content_hash: str) -> int:
    at_pods = [
        *(pod.mark.generation for pod in observed.live_pods() if pod.mark),
        *(pod.state.flags.generation for pod in observed.live_pods() if pod.state),
    ]
    known = [flags.Known(each.generation, each.hash) for each in observed.documents]
    before = observed.previous.flag_generation.desired if observed.previous.flag_generation else 0
    return flags.next_generation(content_hash, known, at_pods, before)


def _with_flags(observed: Observed, choice: revisions.Choice, replicas: dict[str, int]) -> list[str]:
    """Revisions whose pods read a flags document, the target first."""
    has_pods = {pod.revision for pod in observed.pods}
    others = sorted(
        revision
        for revision in replicas
        if revision != choice.target and (replicas[revision] > 0 or revision in has_pods)
    )
    return [choice.target, *others]


def _records(observed: Observed, choice: revisions.Choice) -> Iterator[Action]:
    if choice.create is not None:
        number = 1 + max((each.number for each in observed.revisions), default=0)
        yield Create(
            manifests.controller_revision(observed.service, choice.create.name, number, choice.create.data())
        )


def _deployments(observed: Observed, choice: revisions.Choice, replicas: dict[str, int]) -> Iterator[Action]:
    """Each revision in play, with the template that was recorded for it."""
    for name, count in replicas.items():
        deployment = observed.deployment_of(name)
        if name != choice.target and count == 0 and deployment and deployment.replicas == 0:
            continue  # left over, see below
        if choice.create is not None and choice.create.name == name:
            template = choice.create.template
        elif (recorded := observed.revision(name)) is not None:
            template = recorded.template
        else:
            # Its record was deleted by hand: it keeps what it has while its replicas are moved away.
            assert deployment is not None
            template = deployment.template
        yield Ensure(manifests.deployment(observed.service, name, template, count))


def _resolver(observed: Observed, found: resolution.Resolution, images: settings.Images) -> Iterator[Action]:
    if found.create_job:
        yield Create(resolver_job.render(observed.service, found.job_name, images))
    if found.retry_job is not None:
        yield Delete(kinds.JOB, found.retry_job.name, found.retry_job.uid)


def _left_over(
    observed: Observed,
    choice: revisions.Choice,
    found: resolution.Resolution,
    replicas: dict[str, int],
) -> Iterator[Action]:
    """Children that nothing needs any more."""
    has_pods = {pod.revision for pod in observed.pods}
    in_play = {choice.target, choice.stable, choice.refused}
    for deployment in observed.deployments:
        if deployment.revision == choice.target or deployment.replicas > 0:
            continue
        if replicas.get(deployment.revision, 0) == 0 and deployment.revision not in has_pods:
            yield Delete(kinds.DEPLOYMENT, deployment.name, deployment.uid)
    for document in observed.documents:
        if document.revision == choice.target or document.revision in has_pods:
            continue
        if observed.deployment_of(document.revision) is None:
            yield Delete(kinds.CONFIG_MAP, document.name, document.uid)
    limit = observed.service.spec.rollout.revision_history_limit
    idle = [
        each
        for each in observed.revisions
        if each.name not in in_play and each.name not in has_pods and not observed.deployment_of(each.name)
    ]
    idle.sort(key=lambda each: -each.number)
    for revision in idle[limit:]:
        yield Delete(kinds.CONTROLLER_REVISION, revision.object_name, revision.uid)
    for job in observed.resolvers:
        if job.name != found.job_name:
            yield Delete(kinds.JOB, job.name, job.uid)


def _without_foreign(observed: Observed, actions: list[Action]) -> tuple[list[Action], tuple[str, ...]]:
    """Nothing is written to a name that belongs to somebody else."""
    kept: list[Action] = []
    conflicts: list[str] = []
    for action in actions:
        if isinstance(action, Create | Ensure):
            child: Child = (action.body["kind"], action.body["metadata"]["name"])
            if child in observed.foreign:
                conflicts.append(f"{child[0]} {child[1]} belongs to {observed.foreign[child]}")
                continue
        kept.append(action)
    return kept, tuple(conflicts)

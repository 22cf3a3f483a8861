"""Which replica takes the newest flags next. Pure.

Replicas switch one at a time, in the order of their names: the operator marks a pod `<generation>.<try>`, its
sidecar applies that generation and says so on `/state`, then the next pod is marked. A pod that does not
answer is marked again after 2, 4 and 8 s; after 30 s it is named in FlagsApplied=False and the others go on,
so that one sick pod does not keep the user's settings from the rest. One that keeps a flag on which is to be
off is out of service by then (its sidecar says so) and is deleted, one at a time; another takes its place and
reads the newest flags. A refusal stops the line: the next engine would refuse the same document.
"""

from dataclasses import dataclass

from firsttoken_operator.observed import FlagsMark, Pod

RETRY_AFTER_S = (2.0, 4.0, 8.0)
GIVE_UP_S = 30.0
REFUSAL_AFTER_S = 2.0
"""An error younger than this may still be about the settings before."""
RECALL_MARGIN_S = 5.0
"""A pod that is still ready has so much longer before it is deleted: its sidecar counts for itself."""
UNREADABLE_AFTER = 3
"""Scrapes that must fail before a ready pod is asked blindly."""


@dataclass(frozen=True)
class Progress:
    """How far the newest generation has come."""

    mark: tuple[Pod, FlagsMark] | None = None
    """This pod is to be marked now."""
    watch: tuple[Pod, ...] = ()
    """Pods whose /state is worth reading at once and often."""
    applied: int = 0
    """The oldest generation that a replica still runs; 0 if none is known."""
    behind: tuple[Pod, ...] = ()
    stuck: tuple[Pod, ...] = ()
    """Did not take the flags for 30 s."""
    refused: tuple[Pod, ...] = ()
    delete: Pod | None = None
    """Keeps a flag on that is to be off, for too long: it is to be deleted now."""
    again_after_s: float | None = None


def has_applied(pod: Pod, generation: int, content_hash: str) -> bool:
    """The pod's engine runs this generation."""
    flags = pod.state.flags if pod.state else None
    return flags is not None and flags.generation == generation and flags.hash in ("", content_hash)


def advance(
    pods: tuple[Pod, ...],
    generation: int,
    content_hash: str,
    now: float,
    off: frozenset[str] = frozenset(),
    may_delete: bool = True,
) -> Progress:
    """`pods`: live serving pods. Those whose engine has no settings yet take the newest by themselves.

    off: flags that this generation has off; may_delete: no pod is on its way out already.
    """
    concerned = tuple(
        sorted(
            (pod for pod in pods if _is_concerned(pod)),
            key=lambda pod: pod.name,
        )
    )
    behind = tuple(pod for pod in concerned if not has_applied(pod, generation, content_hash))
    generations = [pod.state.flags.generation for pod in concerned if pod.state]
    applied = min(generations, default=0)
    if not behind:
        return Progress(applied=generation if concerned else 0)

    marked = tuple(pod for pod in behind if pod.mark and pod.mark.generation == generation)
    waited_s = {pod.uid: now - _first_s(pod, generation, now) for pod in marked}
    refused = tuple(
        pod for pod in marked if pod.state and pod.state.flags.error and waited_s[pod.uid] >= REFUSAL_AFTER_S
    )
    stuck = tuple(pod for pod in marked if waited_s[pod.uid] >= GIVE_UP_S and pod not in refused)
    waiting = tuple(pod for pod in marked if pod not in refused and pod not in stuck)

    recalled = [pod for pod in stuck if keeps_on(pod, off)]
    due = [pod for pod in recalled if _is_out(pod, waited_s[pod.uid])]
    delete = due[0] if due and may_delete else None

    mark: tuple[Pod, FlagsMark] | None = None
    waits: list[float] = [
        GIVE_UP_S + RECALL_MARGIN_S - waited_s[pod.uid] for pod in recalled if pod not in due
    ]
    for pod in (*waiting, *(pod for pod in stuck if pod is not delete)):
        due_in_s = _due_in_s(pod, generation, now)
        if due_in_s <= 0 and mark is None:
            assert pod.mark is not None
            mark = pod, FlagsMark(generation, pod.mark.attempt + 1)
        else:
            waits.append(max(0.05, due_in_s))
    if not waiting and not refused and mark is None:
        fresh = next((pod for pod in behind if pod not in marked), None)
        if fresh is not None:
            mark = fresh, FlagsMark(generation, 1)
    waits += [REFUSAL_AFTER_S - waited_s[pod.uid] for pod in waiting if waited_s[pod.uid] < REFUSAL_AFTER_S]
    waits += [GIVE_UP_S - waited_s[pod.uid] for pod in waiting]
    return Progress(
        mark=mark,
        watch=waiting + ((mark[0],) if mark and mark[0] not in waiting else ()),
        applied=applied,
        behind=behind,
        stuck=stuck,
        refused=refused,
        delete=delete,
        again_after_s=max(0.05, min(waits)) if waits else None,
    )


def keeps_on(pod: Pod, off: frozenset[str]) -> tuple[str, ...]:
    """Flags that are to be off and that its engine last said are on."""
    return tuple(name for name in pod.state.flags.enabled if name in off) if pod.state else ()


def _is_out(pod: Pod, waited_s: float) -> bool:
    """Nothing is lost with it any more, or too much time."""
    return not pod.ready or waited_s >= GIVE_UP_S + RECALL_MARGIN_S


def _is_concerned(pod: Pod) -> bool:
    """Its engine has settings, as far as we know. What was not read yet is not bothered."""
    if pod.state is None:
        return pod.ready and pod.failed_scrapes >= UNREADABLE_AFTER
    has_settings = pod.state.flags.generation > 0
    if pod.state.engine is None:
        return pod.ready and has_settings
    return pod.ready or has_settings


def _first_s(pod: Pod, generation: int, now: float) -> float:
    """When the pod was first marked; a mark of an operator before this one counts from now."""
    return pod.bump.first_s if pod.bump and pod.bump.generation == generation else now


def _due_in_s(pod: Pod, generation: int, now: float) -> float:
    """Seconds until the pod is marked once more."""
    assert pod.mark is not None
    last_s = pod.bump.last_s if pod.bump and pod.bump.generation == generation else now
    attempts = max(1, pod.mark.attempt)
    delay_s = RETRY_AFTER_S[attempts - 1] if attempts <= len(RETRY_AFTER_S) else GIVE_UP_S
    return last_s + delay_s - now

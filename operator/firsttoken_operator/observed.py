"""Frozen facts about one service and its children: what `plan` and `status` decide from.

Built by `gather` from the store, the scraped states and the memory. Times are seconds since the epoch, like
the `now` that is passed along with them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from firsttoken_api import inference_service, resolved
from firsttoken_api.reasons import Reason
from firsttoken_api.state import SidecarState
from firsttoken_api.status import InferenceServiceStatus

Object = dict[str, Any]
Child = tuple[str, str]
"""(kind, name) within the service's namespace."""

_MARK = re.compile(r"([0-9]{1,15})[.]([0-9]{1,9})")


@dataclass(frozen=True)
class Cause:
    """What keeps a pod, or the making of pods, from going on."""

    reason: Reason
    message: str


@dataclass(frozen=True)
class FlagsMark:
    """The pod annotation `firsttoken.dev/flags`: `<generation>.<try>`."""

    generation: int
    attempt: int

    @property
    def text(self) -> str:
        return f"{self.generation}.{self.attempt}"


def parse_mark(text: str) -> FlagsMark | None:
    """None for anything that is not `<generation>.<try>`, such as a hand edit."""
    found = _MARK.fullmatch(text)
    return FlagsMark(int(found[1]), int(found[2])) if found else None


@dataclass(frozen=True)
class Bump:
    """When this operator asked a pod to take a generation of flags."""

    generation: int
    first_s: float
    last_s: float


@dataclass(frozen=True)
class Pod:
    """A serving pod."""

    name: str
    uid: str
    revision: str
    created_s: float
    deleting: bool = False
    ends_s: float = 0.0
    """When a deleted pod is ended at the latest."""
    ready: bool = False
    changed_s: float = 0.0
    """When `ready` last changed; the creation if it never did."""
    mark: FlagsMark | None = None
    bump: Bump | None = None
    cause: Cause | None = None
    state: SidecarState | None = None
    """The last answer of its sidecar; None before the first."""
    failed_scrapes: int = 0
    """Scrapes in a row without an answer."""

    @property
    def is_live(self) -> bool:
        return not self.deleting


@dataclass(frozen=True)
class Deployment:
    """The pods of one revision."""

    name: str
    uid: str
    revision: str
    replicas: int
    failure: Cause | None = None
    """Why pods cannot be created."""
    failure_since_s: float = 0.0
    template: Object = field(default_factory=dict, repr=False)
    """As it is; used only where the revision's record is lost."""


@dataclass(frozen=True)
class Revision:
    """A recorded revision (ControllerRevision)."""

    name: str
    """Its hash: 10 hex digits."""
    object_name: str
    uid: str
    number: int
    created_s: float
    intent_hash: str
    render_hash: str
    refresh: str
    source_hash: str
    image: str
    model: resolved.ResolvedModel
    template: Object = field(repr=False)


@dataclass(frozen=True)
class FlagsDocument:
    """A flags ConfigMap."""

    name: str
    uid: str
    revision: str
    generation: int
    hash: str
    """Empty where the document cannot be read."""


@dataclass(frozen=True)
class Resolver:
    """A resolver Job."""

    name: str
    uid: str
    answer: resolved.ResolvedModel | resolved.ResolveFailure | None = None
    finished_s: float | None = None
    """When it ended, with or without an answer."""
    cause: Cause | None = None
    """What keeps it from running."""


@dataclass(frozen=True)
class Observed:
    """Everything one reconcile looks at."""

    service: inference_service.InferenceService
    previous: InferenceServiceStatus
    """The status as it is."""
    pods: tuple[Pod, ...] = ()
    deployments: tuple[Deployment, ...] = ()
    revisions: tuple[Revision, ...] = ()
    documents: tuple[FlagsDocument, ...] = ()
    resolvers: tuple[Resolver, ...] = ()
    foreign: Mapping[Child, str] = field(default_factory=dict)
    """Children's names that belong to somebody else, with who that is."""
    slo_written_s: float | None = None
    """When `status.slo` was last written by this process."""
    traffic_at_slo: tuple[int, int] | None = None
    """`traffic()` when it was last compared; None if this process never did."""

    def live_pods(self) -> tuple[Pod, ...]:
        return tuple(pod for pod in self.pods if pod.is_live)

    def pods_of(self, revision: str) -> tuple[Pod, ...]:
        """Live pods of a revision."""
        return tuple(pod for pod in self.pods if pod.is_live and pod.revision == revision)

    def deployment_of(self, revision: str) -> Deployment | None:
        return next((each for each in self.deployments if each.revision == revision), None)

    def revision(self, name: str) -> Revision | None:
        return next((each for each in self.revisions if each.name == name), None)

    def traffic(self) -> tuple[int, int]:
        """Requests that arrived at the live pods, and those in flight: equal values mean nothing new."""
        states = [pod.state for pod in self.live_pods() if pod.state]
        return sum(each.arrivals_total for each in states), sum(each.in_flight for each in states)

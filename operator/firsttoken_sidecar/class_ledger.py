"""The requests of one class: how many came, wait, were refused, and met their limit or did not. Pure.

A request is *decided* once, as a hit or a breach: at its first content, or when its age reaches the limit of
its class, whichever comes first. What ends before either is undecided. Times are seconds of one clock.
"""

from dataclasses import dataclass, field

from firsttoken_api.state import ClassWindow
from firsttoken_sidecar import demand, objectives, windows


@dataclass(slots=True, eq=False)
class OpenRequest:
    """One request that asks for tokens and has not ended."""

    arrival_s: float
    of_class: "ClassLedger"
    tenant: str = ""
    """As a label: from a bounded set."""
    trace_id: str = ""
    model: str = ""
    prompt_bytes: int = 0
    prompt_tokens: int = 0
    """Estimated."""
    demand_key: demand.Key | None = None
    sent_s: float | None = None
    """When it was last sent on; None: not yet."""
    streamed: bool = False
    """Known from the answer's headers; False before."""
    is_joined: bool = False
    """It reads the answer of an equal one, which is computed once."""
    has_failed: bool = False
    """The answer is an error."""
    is_measured: bool = False
    """Its TTFT is known, or it ended."""
    is_breach: bool = False

    def sent(self, now: float) -> None:
        """It leaves for an engine; the last time counts."""
        self.sent_s = now

    @property
    def request_class(self) -> str:
        return self.of_class.objective.name


@dataclass
class ClassLedger:
    """One class."""

    objective: objectives.ClassObjective
    arrivals_total: int = 0
    rejected_total: int = 0
    undecided_total: int = 0
    breaches_total: int = 0
    waiting: dict[OpenRequest, None] = field(default_factory=dict)
    """Without a first token."""
    _decisions: windows.Decisions = field(default_factory=windows.Decisions)

    def set_objective(self, objective: objectives.ClassObjective) -> None:
        """Decisions under another limit tell nothing about the new one: they are forgotten."""
        if objective.limit_s != self.objective.limit_s:
            self._decisions.clear()
        self.objective = objective

    def open(self, request: OpenRequest) -> None:
        self.arrivals_total += 1
        self.waiting[request] = None

    def measured(self, request: OpenRequest, now: float) -> None:
        """Its first content is there, or it ended after its limit."""
        request.is_measured = True
        self.waiting.pop(request, None)
        if self._is_late(request, now):
            self._breached(request)
        elif self.objective.limit_s is not None and not request.is_breach:
            self._decisions.add(is_breach=False, at_s=now)

    def left(self, request: OpenRequest, now: float) -> bool:
        """It ended without content. False: after its limit, so it was a breach and not undecided."""
        if self._is_late(request, now):
            self.measured(request, now)
            return False
        request.is_measured = True
        del self.waiting[request]
        self.undecided_total += 1
        return True

    def refused(self, request: OpenRequest, now: float, *, is_first: bool) -> None:
        """It was told to come back; `is_first`: not for a body that was told so already."""
        request.is_measured = True
        self.waiting.pop(request, None)
        self.rejected_total += 1
        if is_first and not request.is_breach:
            request.is_breach = True
            self.breaches_total += 1
            self._decisions.add(is_breach=True, at_s=now)

    def overdue(self, now: float) -> int:
        """Requests that have waited longer than the limit. Each of them is a breach from now on."""
        late = [request for request in self.waiting if self._is_late(request, now)]
        for request in late:
            self._breached(request)
        return len(late)

    def window(self, window_s: float, now: float) -> ClassWindow | None:
        """For /state; None while there is no limit."""
        if self.objective.limit_s is None:
            return None
        overdue = self.overdue(now)
        hits, breaches = self._decisions.within(window_s, now)
        return ClassWindow(
            name=self.objective.name,
            limit_s=self.objective.limit_s,
            allowed_fraction=self.objective.allowed_fraction,
            hits=hits,
            breaches=breaches,
            waiting=len(self.waiting),
            overdue=overdue,
            arrivals_total=self.arrivals_total,
            undecided_total=self.undecided_total,
        )

    def _is_late(self, request: OpenRequest, now: float) -> bool:
        limit_s = self.objective.limit_s
        return limit_s is not None and now - request.arrival_s > limit_s

    def _breached(self, request: OpenRequest) -> None:
        if request.is_breach:
            return
        request.is_breach = True
        self.breaches_total += 1
        assert self.objective.limit_s is not None
        self._decisions.add(is_breach=True, at_s=request.arrival_s + self.objective.limit_s)

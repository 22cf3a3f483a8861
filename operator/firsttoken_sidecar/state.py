"""Says how this pod is: the one line of /readyz and the document of /state."""

from collections.abc import Callable

from firsttoken_api.state import LoadState, SidecarState
from firsttoken_sidecar import auth, drain, flags, timing, watch


class Reporter:
    """Gathers from the parts; holds nothing itself."""

    def __init__(
        self,
        pod_name: str,
        watched: watch.Watch,
        follower: flags.Follower,
        draining: drain.Drain,
        open_requests: drain.OpenRequests,
        ledger: timing.Ledger,
        clock: Callable[[], float],
        zone: Callable[[], str] = str,
        load: Callable[[], LoadState | None] = lambda: None,
        authenticator: auth.Auth | None = None,
    ) -> None:
        """`load`: what a request would find here, for admission and for peers that route.

        `authenticator` None: everybody may ask.
        """
        self._pod_name = pod_name
        self._watch = watched
        self._follower = follower
        self._drain = draining
        self._open_requests = open_requests
        self._ledger = ledger
        self._clock = clock
        self._zone = zone
        self._load = load
        self._auth = authenticator

    def why_not_ready(self) -> str:
        """Empty when ready: the engine serves and has its flags, somebody may ask, and the pod stays."""
        if self._drain.is_draining:
            return "draining"
        if not self._watch.is_answering:
            return f"engine does not answer: {self._watch.silence}"
        if not self._watch.is_ready:
            return self._why_engine_not_ready()
        in_force = self._follower.report()
        if in_force.generation == 0:
            return f"no flags applied yet: {in_force.error or 'in progress'}"
        if reason := self._follower.why_not_ready():
            return reason
        return self._auth.why_not_ready() if self._auth is not None else ""

    def state(self) -> SidecarState:
        now = self._clock()
        ledger = self._ledger
        return SidecarState(
            pod=self._pod_name,
            ready=not self.why_not_ready(),
            draining=self._drain.is_draining,
            in_flight=self._open_requests.count,
            overdue=ledger.overdue(now),
            arrivals_total=ledger.arrivals_total,
            rejected_by_class={each.objective.name: each.rejected_total for each in ledger.classes},
            demand_tokens_total=ledger.demand.tokens_total,
            zone=self._zone(),
            auth_error=self._auth.error if self._auth is not None else "",
            key_uses=self._auth.uses() if self._auth is not None else {},
            load=self._load(),
            flags=self._follower.report(),
            ttft=ledger.window(now),
            by_class=tuple(ledger.class_windows(now)),
            engine=self._watch.state,
        )

    def _why_engine_not_ready(self) -> str:
        if reason := self._watch.why_not_live():
            return f"engine is not alive: {reason}"
        state = self._watch.state
        if state is None:
            return "engine shows no state"
        if state.error:
            return f"engine failed: {state.error}"
        return f"engine is {state.phase.lower()} ({state.load_progress:.0%})"

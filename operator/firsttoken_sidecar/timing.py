"""TTFT as clients see it, from arrival at the sidecar to the first content byte written. Pure.

Every request that asks for tokens is opened at its arrival and closed once. What is known of it then goes
to its class (`class_ledger`), to the histograms, to the demand and to the calibration of prompt lengths. A
request that a peer sent on is not opened here: the sidecar that its client talks to has it in its ledger.

An answer that is not streamed shows its first token with its last, and that is what is measured.
"""

from collections.abc import Iterator

from firsttoken_api import metrics
from firsttoken_api.hot_settings import HotSettings
from firsttoken_api.state import ClassWindow, TtftWindow
from firsttoken_sidecar import calibration, demand, labels, objectives, stages, windows
from firsttoken_sidecar.class_ledger import ClassLedger, OpenRequest
from firsttoken_sidecar.histograms import Family, edges_with
from firsttoken_sidecar.inspection import Inspected

__all__ = ["Ledger", "OpenRequest"]


class Ledger:
    """All requests that ask for tokens, open and ended. Times are of one monotonic clock, in seconds."""

    def __init__(self) -> None:
        self.arrivals_total = 0
        self.objectives = objectives.NONE_YET
        self.demand = demand.Demand()
        self.calibration = calibration.Calibration()
        self.ttft = Family(metrics.SIDECAR_TTFT.buckets)
        """By class, tenant, `true` or `false` for streamed."""
        self.stages = Family(metrics.SIDECAR_TTFT_STAGE.buckets)
        """By stage, class."""
        self.tpot = Family(metrics.SIDECAR_TPOT.buckets)
        self.itl = Family(metrics.SIDECAR_ITL.buckets)
        """By class, tenant, as the one before."""
        self._settings: HotSettings | None = None
        self._by_class = {"": ClassLedger(self.objectives.default)}
        self._values: windows.Values | None = None
        self._tenants = labels.Bounded()

    @property
    def classes(self) -> list[ClassLedger]:
        """Of the declared classes, in their order."""
        return list(self._by_class.values())

    def set_settings(self, settings: HotSettings) -> None:
        """Takes effect at once; the window of values is recounted, histograms start anew if an edge moves."""
        if settings is self._settings:
            return
        self._settings = settings
        chosen = objectives.of(settings)
        if chosen == self.objectives:
            return
        before, self.objectives = self._by_class, chosen
        self._by_class = {}
        for name, objective in chosen.by_class.items():
            self._by_class[name] = before.get(name) or ClassLedger(objective)
            self._by_class[name].set_objective(objective)
        slo_s = settings.objective.ttft_p95_s
        if self._values is None:
            self._values = windows.Values(slo_s, chosen.window_s)
        else:
            self._values.set_objective(slo_s, chosen.window_s)
        self.ttft.set_edges(edges_with(metrics.SIDECAR_TTFT.buckets, *chosen.limits_s))
        for family, row in ((self.tpot, metrics.SIDECAR_TPOT), (self.itl, metrics.SIDECAR_ITL)):
            family.set_edges(edges_with(row.buckets, chosen.tpot_s))

    def open(
        self,
        arrival_s: float,
        request_class: str = "",
        tenant: str = "",
        *,
        client: str = "",
        inspected: Inspected | None = None,
        trace_id: str = "",
    ) -> OpenRequest:
        """A request arrived. A class that is not declared counts as the default one: the engine refuses it.

        `client`: whom a repeated request is recognized by. `trace_id`: of its trace, if that is recorded.
        """
        request = OpenRequest(arrival_s, self._class(request_class), self._tenants.of(tenant), trace_id)
        if inspected is not None:
            request.model = inspected.model
            request.prompt_bytes = inspected.prompt_bytes
            request.prompt_tokens = inspected.estimated_prompt_tokens
            if inspected.body_hash:
                request.demand_key = (client, inspected.body_hash)
        self.arrivals_total += 1
        request.of_class.open(request)
        return request

    def refused(self, request: OpenRequest, now: float, uncached_tokens: int | None = None) -> None:
        """It could not be served within its objective and was told when to come back (429).

        `uncached_tokens`: of its prompt, where that is known better than by the estimate.
        """
        if request.is_measured:
            return
        tokens = request.prompt_tokens if uncached_tokens is None else uncached_tokens
        is_first = self.demand.refused(request.demand_key, tokens, now)
        request.of_class.refused(request, now, is_first=is_first)

    def first_content(self, request: OpenRequest, now: float) -> None:
        """The first content was written at `now`. A second call changes nothing."""
        if not request.is_measured:
            request.of_class.measured(request, now)
            self._observe(request, now)

    def explained(
        self, request: OpenRequest, ttft_s: float, write_s: float, stamps: stages.Stamps | None
    ) -> None:
        """Where its TTFT went, once that is known. To write its first content took `write_s` of it."""
        sent_s = request.arrival_s if request.sent_s is None else request.sent_s
        parts = stages.split(ttft_s, sent_s - request.arrival_s, write_s, stamps)
        for stage, seconds in parts.items():
            self.stages.observe((stage, request.request_class), seconds)
        tokens = request.prompt_tokens
        if stamps is not None:
            tokens = stamps.uncached_tokens
            self.calibration.learn(request.model, request.prompt_bytes, stamps.prompt_tokens)
        self._served(request, tokens, request.arrival_s + ttft_s)

    def close(self, request: OpenRequest, now: float) -> None:
        """The request ended, with or without an answer. Closing twice is harmless."""
        if request.is_measured:
            return
        if request.sent_s is not None and not request.has_failed:
            self._served(request, request.prompt_tokens, now)
        if not request.of_class.left(request, now):
            self._observe(request, now)

    def overdue(self, now: float) -> int:
        """Requests that have waited longer than the limit of their class without a first token."""
        return sum(each.overdue(now) for each in self._by_class.values())

    def window(self, now: float) -> TtftWindow | None:
        """Of the default class, which is held to the service's objective."""
        return self._values.snapshot(now) if self._values is not None else None

    def class_windows(self, now: float) -> Iterator[ClassWindow]:
        for each in self._by_class.values():
            found = each.window(self.objectives.window_s, now)
            if found is not None:
                yield found

    def _served(self, request: OpenRequest, tokens: int, now: float) -> None:
        if not request.is_joined:
            self.demand.served(request.demand_key, tokens, now)

    def _class(self, name: str) -> ClassLedger:
        return self._by_class.get(name) or self._by_class[self.objectives.default_name]

    def _observe(self, request: OpenRequest, now: float) -> None:
        ttft_s = now - request.arrival_s
        name = request.request_class
        self.ttft.observe(
            (name, request.tenant, str(request.streamed).lower()), ttft_s, trace_id=request.trace_id
        )
        if self._values is not None and name == self.objectives.default_name:
            self._values.observe(ttft_s, now)
